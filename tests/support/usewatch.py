"""Tells from the API server's own pod watch when each pod was made, bound and gone, by this machine's clock.
The journal of use is compared with it: it knows nothing of Berth."""

import time
from collections.abc import Container
from typing import Any

from tests.support.podwatch import PodWatch


class UseWatch(PodWatch):
    """`made`, `bound` and `ended` are Unix seconds by pod UID, when the watch told of it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.made: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.namespaces: dict[str, str] = {}

    def used(self, namespace: str, until: float) -> float:
        """Unit-seconds that the namespace's pods held, each of which asks for one unit."""
        return sum(
            max(0.0, min(self.ended.get(uid, until), until) - since)
            for uid, since in self.bound.items()
            if self.namespaces[uid] == namespace
        )

    def waited(self, namespace: str, until: float) -> float:
        """Unit-seconds that they waited before they were bound, or until now."""
        return sum(
            max(0.0, min(self.bound.get(uid, self.ended.get(uid, until)), until) - since)
            for uid, since in self.made.items()
            if self.namespaces[uid] == namespace
        )

    def pods(self, namespace: str, among: Container[str] | None = None) -> int:
        """How many pods the namespace had, in all or of those with these UIDs."""
        those = self.namespaces if among is None else [uid for uid in self.namespaces if uid in among]
        return sum(self.namespaces[uid] == namespace for uid in those)

    def _take(self, kind: str, pod: dict[str, Any]) -> None:
        super()._take(kind, pod)
        uid, now = pod["metadata"]["uid"], time.time()
        self.namespaces[uid] = pod["metadata"]["namespace"]
        self.made.setdefault(uid, now)
        if pod["spec"].get("nodeName"):
            self.bound.setdefault(uid, now)
        if kind == "DELETED" or pod["status"].get("phase") in ("Succeeded", "Failed"):
            self.ended.setdefault(uid, now)
