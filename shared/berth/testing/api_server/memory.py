"""Pods and nodes in memory, under one lock, and the API server's rules for writing them.
Any namespace exists; there are no owners, and no defaults but schedulerName."""

from __future__ import annotations

import copy
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from berth.testing.api_server import rules
from berth.testing.api_server.rules import Json, Key, Match, StatusError

_GRACE = "deletionGracePeriodSeconds"
_FIXED = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", _GRACE)


@dataclass(frozen=True)
class Change:
    """One write: the object before it and after it."""

    revision: int
    resource: str
    before: Json | None
    after: Json | None

    def concerns(self, resource: str, namespace: str) -> bool:
        """An empty namespace stands for all of them."""
        metadata: Json = (self.after or self.before or {})["metadata"]
        return self.resource == resource and namespace in ("", metadata.get("namespace"))

    def seen_through(self, match: Match) -> Json | None:
        """Return the event that a watch with this selector gets; None if it gets none."""
        was = self.before is not None and match(self.before)
        if self.after is not None and match(self.after):
            return {"type": "MODIFIED" if was else "ADDED", "object": self.after}
        if self.before is None or not was:
            return None
        # The last state that matched, with the revision of the write that ended it.
        return {"type": "DELETED", "object": _stamped(self.before, resourceVersion=str(self.revision))}


class Memory:
    """All pods and nodes; a stored document is never changed, only replaced."""

    def __init__(self, clock: Callable[[], float], uids: Callable[[], str], history: int) -> None:
        self._clock, self._uids, self._history = clock, uids, history
        self._changed = threading.Condition()
        self._objects: dict[Key, Json] = {}
        self._changes: list[Change] = []
        self._forgotten = 1  # the last revision whose change is no longer kept; 0 would mean "any" to a watch
        self._closed = False
        # Its UID is what tells one cluster from another; there is nothing else of a namespace.
        metadata = {"name": "kube-system", "uid": str(uuid.uuid4())}
        self.events = dict[Key, Json]()  # Event objects, which no list and no watch shows
        self.kube_system: Json = {"kind": "Namespace", "apiVersion": "v1", "metadata": metadata}

    @property
    def _revision(self) -> int:
        return self._forgotten + len(self._changes)

    def create(self, resource: str, namespace: str, body: Json) -> Json:
        metadata = body.get("metadata") or {}
        name = metadata.get("name", "")
        if not name:
            raise rules.invalid(resource, "", "metadata.name", "Required value: the stand-in needs a name")
        if metadata.get("namespace", namespace) != namespace:
            raise rules.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        with self._changed:
            key = Key(resource, namespace, name)
            if key in self._objects:
                details = {"name": name, "kind": resource}
                raise StatusError(409, "AlreadyExists", f'{resource} "{name}" already exists', details)
            stamps = {"uid": self._uids(), "creationTimestamp": rules.timestamp(self._clock())}
            stamps |= {"namespace": namespace} if namespace else {}
            document = {**copy.deepcopy(body), "kind": rules.KINDS[resource], "apiVersion": "v1"}
            return self._write(key, _stamped(self._new(resource, document), **stamps))

    def get(self, key: Key) -> Json:
        with self._changed:
            return self._get(key)

    def select(self, resource: str, namespace: str, match: Match) -> tuple[list[Json], int]:
        """Return what matches, in one namespace or (empty) in all, and the revision to watch from."""
        with self._changed:
            keys = sorted(self._objects, key=lambda key: (key.namespace, key.name))
            wanted = [key for key in keys if key.resource == resource and namespace in ("", key.namespace)]
            return [self._objects[key] for key in wanted if match(self._objects[key])], self._revision

    def patch(self, key: Key, body: Json, strategic: bool, keep: str) -> Json:
        """Merge the body into the object; this call can't change the section `keep`."""
        with self._changed:
            old = self._get(key)
            rules.check_identity(key, old, body.get("metadata") or {})
            fixed = {field: old["metadata"].get(field) for field in _FIXED}
            body = {**body, "metadata": {**(body.get("metadata") or {}), **fixed}}
            body.pop(keep, None)
            merged = rules.strategic_merge(old, body) if strategic else rules.merge(old, body)
            written = self._write(key, _completed(merged))
            is_over = written["metadata"].get(_GRACE) == 0 and not written["metadata"].get("finalizers")
            return self._remove(key) if is_over else written

    def bind(self, key: Key, binding: Json) -> None:
        metadata = binding.get("metadata") or {}
        node = rules.bound_to(key, binding)
        with self._changed:
            old = self._get(key)
            rules.check_binding(key, old, metadata)
            new = _stamped(old)
            for section in ("annotations", "labels"):
                if metadata.get(section):
                    new["metadata"][section] = {**new["metadata"].get(section, {}), **metadata[section]}
            new["spec"] = {**old["spec"], "nodeName": node}
            scheduled = {"type": "PodScheduled", "status": "True"}
            scheduled |= {"lastTransitionTime": rules.timestamp(self._clock())}
            others = [c for c in old["status"].get("conditions", []) if c["type"] != "PodScheduled"]
            new["status"] = {**old["status"], "conditions": [*others, rules.pod_condition(scheduled)]}
            self._write(key, new)

    def delete(self, key: Key, asked_grace: int | None, preconditions: Json) -> Json:
        """End the object, or begin its end; return its last state."""
        with self._changed:
            old = self._get(key)
            rules.check_preconditions(key, old, preconditions)
            if key.resource == "nodes":
                return self._remove(key)
            grace = rules.grace_of(old, asked_grace)
            if old["metadata"].get(_GRACE) == grace:
                return old
            until = rules.timestamp(self._clock() + grace)
            dying = self._write(key, _stamped(old, deletionTimestamp=until, deletionGracePeriodSeconds=grace))
            # Two writes even without grace: every watch sees the mark before the end.
            return dying if grace or old["metadata"].get("finalizers") else self._remove(key)

    def changes_after(self, revision: int, deadline: float) -> list[Change] | None:
        """Wait for changes until the deadline (monotonic); None: time is up or the stand-in has stopped."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._revision > revision, max(0.0, deadline - time.monotonic())
            )
            if revision < self._forgotten:
                raise StatusError(410, "Expired", f"too old resource version: {revision} ({self._forgotten})")
            return None if self._closed else self._changes[revision - self._forgotten :] or None

    def close(self) -> None:
        """End every wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _get(self, key: Key) -> Json:
        if key not in self._objects:
            raise rules.not_found(key.resource, key.name)
        return self._objects[key]

    def _new(self, resource: str, document: Json) -> Json:
        if resource == "nodes":
            return document
        document["spec"] = {"schedulerName": "default-scheduler", **document.get("spec", {})}
        document["status"] = {"phase": "Pending"}
        if document["spec"].get("schedulingGates"):
            gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
            gated |= {"lastTransitionTime": rules.timestamp(self._clock())}
            gated |= {"message": "Scheduling is blocked due to non-empty scheduling gates"}
            document["status"]["conditions"] = [rules.pod_condition(gated)]
        return document

    def _write(self, key: Key, new: Json) -> Json:
        old = self._objects.get(key)
        # Like the real one: what changes nothing is no write, wakes no watch and fences nothing.
        if new == old:
            return new
        new = _stamped(new, resourceVersion=str(self._revision + 1))
        self._objects[key] = new
        self._record(Change(self._revision + 1, key.resource, old, new))
        return new

    def _remove(self, key: Key) -> Json:
        old = self._objects.pop(key)
        revision = self._revision + 1
        self._record(Change(revision, key.resource, old, None))
        return _stamped(old, resourceVersion=str(revision))

    def _record(self, change: Change) -> None:
        # Revisions have no gaps, so a revision less the forgotten ones is an index; pruned in bulk.
        self._changes.append(change)
        surplus = len(self._changes) - self._history
        if surplus > self._history // 2:
            del self._changes[:surplus]
            self._forgotten += surplus
        self._changed.notify_all()


def _stamped(document: Json, **metadata: object) -> Json:
    return {**document, "metadata": {**document["metadata"], **metadata}}


def _completed(document: Json) -> Json:
    """Return the document without empty maps and lists, which the API server never shows."""
    metadata = {key: value for key, value in document["metadata"].items() if value != {}}
    document = {**document, "metadata": metadata}
    conditions = document.get("status", {}).get("conditions")
    if document["kind"] == "Pod" and conditions is not None:
        status = {key: value for key, value in document["status"].items() if key != "conditions"}
        shown = {"conditions": list(map(rules.pod_condition, conditions))} if conditions else {}
        document["status"] = {**status, **shown}
    return document
