"""Pods that evict others all through a fault, so that preempt is called again and again.
They have a namespace and a pool of their own.

No pod may cost more than one victim, but where it lost its nomination: kube-scheduler takes that away with
each error of filter or bind, and a preempt that is new can't know where pods were evicted for it.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from tests.chaos.background import PATIENCE, Background
from tests.support.cluster import Cluster, wait

POOL, NAMESPACE, URGENT = "evict", "evicting", "urgent"
NODES = 3  # of one unit each

_RESOURCE = f"native.berth.dev/{POOL}"
_HOLDER = "holder"
_AT_ONCE_GONE = {"terminationGracePeriodSeconds": 0}  # there is no kubelet
_TURN_SECONDS = 20.0
"""A pod that is not bound by then waits for what only a reconcile frees; the next one evicts elsewhere."""

_MOST_WAITING = 2
_FAILED = "the pod will be retried"  # in the text of a call that failed


class Evictions(Background):
    """Every unit is held by a pod of no priority. One urgent pod comes after the other; once it is bound it
    goes, even if it was late, and a new holder takes its place."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._seen = cluster.watch_pods()
        self._holders = self._urgent = self._late = self.victims = self.lost = 0

    def __enter__(self) -> Self:
        for _ in range(NODES):
            self._hold()
        wait(self._all_held, PATIENCE, f"{NODES} pods hold what others are to get")
        self._seen.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if error[0] is not None:
            self._seen.__exit__(*error)

    def check(self) -> None:
        """Once all is mended, `victims` pods were evicted: one for each urgent pod, and at most one more for
        each nomination that was `lost`."""
        wait(lambda: not self._waiting(), PATIENCE, f"all urgent pods are bound, {self._waiting()}")
        holders = [name for name in self._pods() if name.startswith(_HOLDER)]
        victims = self.victims = self._holders - len(holders)
        self._seen.__exit__(None, None, None)
        lost = self.lost = self._seen.unnominated.total()
        told = f"{victims} pods were evicted for {self._urgent}; {lost} nominations lost, {self._late} late"
        assert 0 < victims <= self._urgent + lost, f"{told}; calls that failed: {self._failed()}"
        assert victims >= self._urgent or self._late, told

    def _run(self) -> None:
        self._evict()
        while not self._stop.is_set():
            self._evict()

    def _evict(self) -> None:
        # Where urgent pods hold every unit, or get each that is freed, nobody can evict any more: so few of
        # them wait, and those of earlier turns go as well.
        if len(waiting := self._waiting()) < _MOST_WAITING:
            waiting.append(self._send())
        self._comes(partial(self._is_bound, waiting[-1]))
        bound = [each for each in self._cluster.bound(NAMESPACE) if each.startswith(URGENT)]
        for each in bound:
            self._cluster.delete_pod(each, NAMESPACE)
            self._hold()
        if bound:
            self._comes(self._all_held)

    def _send(self) -> str:
        """The name of a new urgent pod."""
        name = f"{URGENT}-{self._urgent:04}"
        self._cluster.create_pod(name, {_RESOURCE: 1}, NAMESPACE, priority_class=URGENT, spec=_AT_ONCE_GONE)
        self._urgent += 1
        return name

    def _comes(self, reached: Callable[[], bool]) -> bool:
        """Whether it did, before it is late or all ends."""
        until = time.monotonic() + _TURN_SECONDS
        while not reached():
            if self._stop.wait(0.05):
                return False
            if time.monotonic() > until:
                self._late += 1
                return False
        return True

    def _hold(self) -> None:
        name = f"{_HOLDER}-{self._holders:04}"
        self._cluster.create_pod(name, {_RESOURCE: 1}, NAMESPACE, spec=_AT_ONCE_GONE)
        self._holders += 1

    def _is_bound(self, name: str) -> bool:
        return name in self._cluster.bound(NAMESPACE)

    def _all_held(self) -> bool:
        return len(self._cluster.bound(NAMESPACE)) == NODES

    def _failed(self) -> list[str]:
        """What was said of calls for urgent pods that failed: each takes a nomination away, at times before
        anybody has seen it."""
        names = [f"{URGENT}-{number:04}" for number in range(self._urgent)]
        told = (self._cluster.events_of(name, NAMESPACE) for name in names)
        return [said for each in told for said in each if _FAILED in said]

    def _waiting(self) -> list[str]:
        bound = self._cluster.bound(NAMESPACE)
        return [name for name in self._pods() if name.startswith(URGENT) and name not in bound]

    def _pods(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self._cluster.list_pods(NAMESPACE)]
