"""The calls that the stand-in answers, and what they do to the memory.
A call that is not in ROUTES is answered 404 with its name; a list with a limit is sent whole all the same."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from berth.testing.api_server.memory import Memory
from berth.testing.api_server.rules import (
    KINDS,
    Json,
    Key,
    Match,
    StatusError,
    bad_request,
    not_found,
    selector,
)

LONGEST_WATCH_SECONDS = 1800.0
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
VERSION: Json = {"major": "1", "minor": "37", "gitVersion": "v1.37.2+berth-stand-in"}
_ALLOWED: Json = {"kind": "SelfSubjectAccessReview", "status": {"allowed": True}}
_EVENTS = 1000
SUCCESS: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


@dataclass(frozen=True)
class Call:
    """One request: its query, its body and the object or objects its path names."""

    query: dict[str, str]
    content_type: str
    body: Any
    resource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def key(self) -> Key:
        return Key(self.resource, self.namespace, self.name)

    @property
    def watches(self) -> bool:
        return not self.name and self.query.get("watch") in ("1", "true")

    def number(self, name: str, default: int | None) -> int | None:
        text = self.query.get(name, "")
        if text and not text.isdecimal():
            raise bad_request(f"{name}: {text} is not a whole number")
        return int(text) if text else default

    @property
    def match(self) -> Match:
        fields, labels = (self.query.get(name, "") for name in ("fieldSelector", "labelSelector"))
        return selector(self.resource, fields, labels)

    @property
    def document(self) -> Json:
        if not isinstance(self.body, dict):
            raise bad_request("the object provided is unrecognized: the body must be one JSON object")
        return self.body


Answer = tuple[int, Json | str]
Action = Callable[[Memory, Call], Answer]


def _list(memory: Memory, call: Call) -> Answer:
    items, revision = memory.select(call.resource, call.namespace, call.match)
    # As in the real one, a list's items have neither kind nor apiVersion.
    bare = [{k: v for k, v in item.items() if k not in ("kind", "apiVersion")} for item in items]
    document = {"kind": f"{KINDS[call.resource]}List", "apiVersion": "v1", "items": bare}
    return 200, {**document, "metadata": {"resourceVersion": str(revision)}}


def _create(memory: Memory, call: Call) -> Answer:
    return 201, memory.create(call.resource, call.namespace, call.document)


def _get(memory: Memory, call: Call) -> Answer:
    return 200, memory.get(call.key)


def _patch(memory: Memory, call: Call) -> Answer:
    if call.content_type not in (MERGE_PATCH, STRATEGIC_PATCH):
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    # A pod is patched through its status, a node through itself: the other half is out of reach.
    keep = "spec" if call.resource == "pods" else "status"
    return 200, memory.patch(call.key, call.document, call.content_type == STRATEGIC_PATCH, keep)


def _bind(memory: Memory, call: Call) -> Answer:
    memory.bind(call.key, call.document)
    return 201, {**SUCCESS, "code": 201}


def _create_event(memory: Memory, call: Call) -> Answer:
    key = Key(call.resource, call.namespace, call.document["metadata"]["name"])
    if key in memory.events:
        details = {"name": key.name, "kind": key.resource}
        raise StatusError(409, "AlreadyExists", f'events "{key.name}" already exists', details)
    if len(memory.events) >= _EVENTS:  # the real one forgets them after an hour
        memory.events.pop(next(iter(memory.events)), None)
    memory.events[key] = call.document
    return 201, call.document


def _repeat_event(memory: Memory, call: Call) -> Answer:
    if call.key not in memory.events:
        raise not_found(call.resource, call.name)
    memory.events[call.key] = {**memory.events[call.key], **call.document}
    return 200, memory.events[call.key]


def _delete(memory: Memory, call: Call) -> Answer:
    options = call.document if call.body else {}
    grace = call.number("gracePeriodSeconds", options.get("gracePeriodSeconds"))
    gone = memory.delete(call.key, grace, options.get("preconditions") or {})
    if call.resource == "pods":
        return 200, gone
    details = {"name": call.name, "kind": call.resource, "uid": gone["metadata"]["uid"]}
    return 200, {**SUCCESS, "details": details}


_PODS = "/api/v1/namespaces/(?P<namespace>[^/]+)/(?P<resource>pods)"
_EVENT = "/apis/events.k8s.io/v1/namespaces/(?P<namespace>[^/]+)/(?P<resource>events)"
ROUTES: list[tuple[str, dict[str, Action]]] = [
    ("/version/?", {"GET": lambda *_: (200, VERSION)}),
    ("/(healthz|livez|readyz)", {"GET": lambda *_: (200, "ok")}),
    # Plain text, not a Status, is what the real one answers for a group that no custom resource defines.
    (r"/apis/berth\.dev/.*", {"GET": lambda *_: (404, "404 page not found\n")}),
    # Whoever asks may do everything: there are no users here.
    ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"POST": lambda *_: (201, _ALLOWED)}),
    ("/api/v1/namespaces/kube-system", {"GET": lambda memory, _call: (200, memory.kube_system)}),
    ("/api/v1/(?P<resource>nodes)", {"GET": _list, "POST": _create}),
    ("/api/v1/(?P<resource>nodes)/(?P<name>[^/]+)", {"GET": _get, "PATCH": _patch, "DELETE": _delete}),
    ("/api/v1/(?P<resource>pods)", {"GET": _list}),
    (_PODS, {"GET": _list, "POST": _create}),
    (f"{_PODS}/(?P<name>[^/]+)", {"GET": _get, "DELETE": _delete}),
    (f"{_PODS}/(?P<name>[^/]+)/binding", {"POST": _bind}),
    (f"{_PODS}/(?P<name>[^/]+)/status", {"PATCH": _patch}),
    (_EVENT, {"POST": _create_event}),
    (f"{_EVENT}/(?P<name>[^/]+)", {"PATCH": _repeat_event}),
]


def find(method: str, target: str, content_type: str, body: Any) -> tuple[Action, Call]:
    url = urlsplit(target)
    for pattern, actions in ROUTES:
        match = re.fullmatch(pattern, url.path)
        if match and method in actions:
            parts = {name: unquote(part) for name, part in match.groupdict().items()}
            query = dict(parse_qsl(url.query, keep_blank_values=True))
            return actions[method], Call(query, content_type, body, **parts)
    what = f"Berth's stand-in for the API server does not answer {method} {url.path}; use a real one for it"
    raise StatusError(404, "NotFound", what, {})


def watch(memory: Memory, call: Call) -> Iterator[Json]:
    """Return the events of one watch; a selector that can't be understood is refused before the first."""
    seconds = call.number("timeoutSeconds", None) or LONGEST_WATCH_SECONDS
    return _events(memory, call, call.match, time.monotonic() + seconds)


def _events(memory: Memory, call: Call, match: Match, deadline: float) -> Iterator[Json]:
    revision = call.number("resourceVersion", None)
    if not revision:
        existing, revision = memory.select(call.resource, call.namespace, match)
        yield from ({"type": "ADDED", "object": document} for document in existing)
    try:
        while changes := memory.changes_after(revision, deadline):
            revision = changes[-1].revision
            concern = (change for change in changes if change.concerns(call.resource, call.namespace))
            yield from filter(None, (change.seen_through(match) for change in concern))
    except StatusError as refusal:
        yield {"type": "ERROR", "object": refusal.status()}
