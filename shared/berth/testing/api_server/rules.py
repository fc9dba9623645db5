"""The API server's rules that need no state: selectors, patches, refusals (as measured, version 1.37.2).
There is only what Berth and the demo use; an unknown selector is refused, never ignored. A refusal's words
are for people; tests compare only the codes, and which check comes first, with the real one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]
Match = Callable[[Json], bool]

FIELDS = {
    "pods": {"metadata.name", "metadata.namespace", "spec.nodeName", "spec.schedulerName", "status.phase"},
    "nodes": {"metadata.name"},
}
KINDS = {"pods": "Pod", "nodes": "Node"}
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
_TERM = re.compile(r"\s*([^\s=!,]+)\s*(==|=|!=)\s*([^\s=!,]*)\s*")


@dataclass(frozen=True)
class Key:
    """Which object is meant; a node's namespace is empty."""

    resource: str
    namespace: str
    name: str


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


# Why a write is refused


def check_identity(key: Key, old: Json, claimed: Json) -> None:
    """Refuse a write to another object; a stale resourceVersion (409) comes before a wrong UID (422)."""
    if claimed.get("name") not in (None, "", key.name):
        raise bad_request(
            f"the name of the object ({claimed['name']}) does not match the name on the URL ({key.name})"
        )
    if claimed.get("resourceVersion") not in (None, "", old["metadata"]["resourceVersion"]):
        raise conflict(key.resource, key.name, MODIFIED)
    if claimed.get("uid") not in (None, "", old["metadata"]["uid"]):
        why = f'Invalid value: "{claimed["uid"]}": field is immutable'
        raise invalid(key.resource, key.name, "metadata.uid", why)


def bound_to(key: Key, binding: Json) -> str:
    """Return the node that a Binding names."""
    if (binding.get("metadata") or {}).get("name") != key.name:
        raise bad_request("name in URL does not match name in Binding object")
    node = (binding.get("target") or {}).get("name")
    # 500 is the real one's answer, though the caller is at fault.
    if not isinstance(node, str) or not node:
        raise StatusError(500, "", "target.name: Required value")
    return node


def check_binding(key: Key, pod: Json, metadata: Json) -> None:
    for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        want, have = metadata.get(field), pod["metadata"][field]
        if want and want != have:
            place = f"Key: /registry/pods/{key.namespace}/{key.name}, ResourceVersion: 0"
            why = f"Precondition failed: {word} in precondition: {want}, {word} in object meta: {have}"
            raise conflict(
                "pods", key.name, f"StorageError: invalid object, Code: 4, {place}, AdditionalErrorMsg: {why}"
            )
    subject = "pods/binding"
    if "deletionTimestamp" in pod["metadata"]:
        raise conflict(subject, key.name, f"pod {key.name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        why = f'pod {key.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        raise conflict(subject, key.name, why)
    if pod["spec"].get("schedulingGates"):
        raise conflict(subject, key.name, f"pod {key.name} has non-empty .spec.schedulingGates")


def check_preconditions(key: Key, old: Json, preconditions: Json) -> None:
    for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        want, have = preconditions.get(field), old["metadata"][field]
        if want and want != have:
            why = f"the {word} in the precondition ({want}) does not match the {word} in record ({have})"
            raise conflict(KINDS[key.resource], key.name, why)


def grace_of(pod: Json, asked: int | None) -> int:
    """Return the grace period of a deletion; one that has begun can only shrink.

    A pod that is not bound, or has finished, goes at once."""
    begun: int | None = pod["metadata"].get("deletionGracePeriodSeconds")
    if begun is not None:
        return begun if asked is None else min(asked, begun)
    if not pod["spec"].get("nodeName") or pod["status"]["phase"] in ("Succeeded", "Failed"):
        return 0
    default: int = pod["spec"].get("terminationGracePeriodSeconds", 30)
    return default if asked is None else asked


# What is not refused


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
