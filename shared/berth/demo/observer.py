"""Watches an API server's pods and measures how many units are given beyond a node's capacity.
It sees every write, so that it misses no moment; a watch that breaks off begins anew."""

import threading
from collections import Counter
from types import TracebackType
from typing import Any, Self

from berth.errors import BerthError
from berth.kube.cluster import Cluster

_PODS = "/api/v1/namespaces/default/pods"


class Observer:
    """Each pod counts one unit on its node, from its Binding to its end; a node has `capacity` of them."""

    def __init__(self, cluster: Cluster, capacity: int) -> None:
        self._cluster, self._capacity = cluster, capacity
        self._nodes: dict[str, str] = {}
        self._stop = threading.Event()
        self.over_allocated = 0  # at the worst moment so far, over all nodes

    def __enter__(self) -> Self:
        threading.Thread(target=self._follow, name="observer", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()

    def has_seen(self, bound: dict[str, str]) -> bool:
        """Whether it has seen the pods bound like this (node by pod)."""
        return self._nodes == bound

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                items, version = self._cluster.snapshot(_PODS, {})
                self._nodes = {}
                for item in items:
                    self._note("ADDED", item)
                for kind, item in self._cluster.watch(_PODS, {}, version, self._stop):
                    self._note(kind, item)
            except BerthError:
                self._stop.wait(0.2)

    def _note(self, kind: str, pod: dict[str, Any]) -> None:
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        others = {other: place for other, place in self._nodes.items() if other != name}
        self._nodes = others if kind == "DELETED" or not node else {**others, name: node}
        given = Counter(self._nodes.values()).values()
        over = sum(max(0, units - self._capacity) for units in given)
        self.over_allocated = max(self.over_allocated, over)
