"""Watches an API server's pods and measures how many units are given beyond a node's capacity.
It sees every write, so that it misses no moment; a watch that breaks off begins anew."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Self

from berth.errors import BerthError
from berth.kube.cluster import Cluster

_PODS = "/api/v1/namespaces/default/pods"


def follow(
    cluster: Cluster, path: str, query: Mapping[str, str], stop: threading.Event
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield LISTED with all objects, then each change's kind with its object; LISTED again after a break."""
    while not stop.is_set():
        try:
            items, version = cluster.snapshot(path, query)
            yield "LISTED", items
            for kind, item in cluster.watch(path, query, version, stop):
                yield kind, [item]
        except BerthError:
            stop.wait(0.2)


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

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def has_seen(self, bound: dict[str, str]) -> bool:
        """Whether it has seen the pods bound like this (node by pod)."""
        return self._nodes == bound

    def _follow(self) -> None:
        for kind, pods in follow(self._cluster, _PODS, {}, self._stop):
            if kind == "LISTED":
                self._nodes = {}
            for pod in pods:
                self._note(kind, pod)

    def _note(self, kind: str, pod: dict[str, Any]) -> None:
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        others = {other: place for other, place in self._nodes.items() if other != name}
        self._nodes = others if kind == "DELETED" or not node else {**others, name: node}
        given = Counter(self._nodes.values()).values()
        over = sum(max(0, units - self._capacity) for units in given)
        self.over_allocated = max(self.over_allocated, over)
