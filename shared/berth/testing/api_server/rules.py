"""The API server's rules that need no state: selectors, patches, refusals (as measured, version 1.36.3).
There is only what Berth and the demo use; an unknown selector is refused, never ignored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]
Match = Callable[[Json], bool]

FIELDS = {
    "pods": {"metadata.name", "metadata.namespace", "spec.nodeName", "spec.schedulerName", "status.phase"},
    "nodes": {"metadata.name"},
}
KINDS = {"pods": "Pod", "nodes": "Node"}
_TERM = re.compile(r"\s*([^\s=!,]+)\s*(==|=|!=)\s*([^\s=!,]*)\s*")


class StatusError(Exception):
    """A call that the API server answers with a Status of failure."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details

    def status(self) -> Json:
        """Return the Status document of this refusal."""
        body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body |= {"message": str(self), "code": self.code}
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return body


def not_found(resource: str, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{resource} "{name}" not found', {"name": name, "kind": resource})


def conflict(kind: str, name: str, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {kind} "{name}": {why}'
    return StatusError(409, "Conflict", message, {"name": name, "kind": kind})


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def invalid(resource: str, name: str, field: str, why: str) -> StatusError:
    kind = KINDS[resource]
    details = {"name": name, "kind": kind, "causes": [{"message": why, "field": field}]}
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {field}: {why}', details)


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def selector(resource: str, fields: str, labels: str) -> Match:
    """Return a test for the objects that both selectors select."""
    tests = [_field_test(resource, *term) for term in _terms(fields)]
    tests += [_label_test(*term) for term in _terms(labels)]
    return lambda document: all(test(document) for test in tests)


def _terms(text: str) -> Iterator[tuple[str, bool, str]]:
    for part in text.split(",") if text else []:
        term = _TERM.fullmatch(part)
        if term is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        key, operator, value = term.groups()
        yield key, operator != "!=", value


def _field_test(resource: str, path: str, equal: bool, value: str) -> Match:
    if path not in FIELDS[resource]:
        raise bad_request(f"field label not supported: {path}")
    section, field = path.split(".")
    # An absent field is an empty one: spec.nodeName= selects the pods that are not bound.
    return lambda document: (document.get(section, {}).get(field, "") == value) is equal


def _label_test(key: str, equal: bool, value: str) -> Match:
    return lambda document: (document["metadata"].get("labels", {}).get(key) == value) is equal


def merge(old: Json, patch: Json) -> Json:
    """Apply a JSON merge patch (RFC 7386)."""
    new = dict(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, dict):
            within = new.get(key)
            new[key] = merge(within if isinstance(within, dict) else {}, value)
        else:
            new[key] = value
    return new


def strategic_merge(old: Json, patch: Json) -> Json:
    """Apply a strategic merge patch as Berth sends it: status.conditions go by type, the rest is merged."""
    conditions = (patch.get("status") or {}).get("conditions")
    if not isinstance(conditions, list):
        return merge(old, patch)
    known = (old.get("status") or {}).get("conditions", [])
    status = {**patch["status"], "conditions": _merge_conditions(known, conditions)}
    return merge(old, {**patch, "status": status})


def _merge_conditions(old: list[Json], patch: list[Json]) -> list[Json]:
    known = {condition["type"]: condition for condition in old}
    fresh: list[Json] = []
    for change in patch:
        if "type" not in change:
            raise StatusError(500, "", f"map: {change} does not contain declared merge key: type")
        if change.get("$patch") == "delete":
            known.pop(change["type"], None)
        elif change["type"] in known:
            known[change["type"]] = merge(known[change["type"]], change)
        else:
            fresh.append(merge({}, change))
    # The real one puts new conditions first.
    return [*fresh, *known.values()]


def pod_condition(condition: Json) -> Json:
    """Return a pod's condition with the fields that the API server always shows."""
    return {"status": "", "lastProbeTime": None, "lastTransitionTime": None, **condition}
