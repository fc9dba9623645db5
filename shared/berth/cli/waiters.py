"""Who waits for which pool, and why kube-scheduler says so, kept up to date by a watch of pods.
It looks at pods only, and does not judge whether a waiter fits somewhere now; `berth waiting` does."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from berth.api.pool import Pool
from berth.controller.pool_status import waiting_in_all, waiting_pods
from berth.controller.waiting import Reason, reasons, said_of
from berth.kube.types import PodInFull


class _Waiter(msgspec.Struct, frozen=True):
    pod: PodInFull
    text: str
    since: float


class Waiters:
    """Our waiting pods, kept up to date by `observe`, which an EventRelay's threads call."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiters: dict[str, _Waiter] = {}

    def observe(self, kind: str, item: Mapping[str, Any]) -> None:
        """Take one pod that was ADDED, MODIFIED or DELETED; or LISTED: all pods of one schedulerName."""
        if kind == "LISTED":
            self.listed([item["schedulerName"]], filter(None, map(_read, item["items"])))
        elif (pod := _read(item)) is not None:
            self._put(pod, kind != "DELETED", self._clock())

    def listed(self, schedulers: Collection[str], pods: Iterable[PodInFull]) -> None:
        """Take all pods of these schedulerNames that have no node, whoever else's may be among them."""
        ours = [pod for pod in pods if pod.spec.scheduler_name in schedulers]
        there = {pod.metadata.uid for pod in ours}
        with self._lock:
            for uid, waiter in list(self._waiters.items()):
                if waiter.pod.spec.scheduler_name in schedulers and uid not in there:
                    del self._waiters[uid]
        for pod in ours:
            self._put(pod, True, None)

    def asking(self, resources: Mapping[str, Pool]) -> dict[str, int]:
        """Return how many pods wait for each pool."""
        return waiting_pods((waiter.pod for waiter in self._now()), resources)

    def in_all(self, resources: Mapping[str, Pool]) -> int:
        """Return how many pods wait for any pool."""
        return waiting_in_all((waiter.pod for waiter in self._now()), resources)

    def refusals(self) -> list[Reason]:
        """Return why they wait, equal texts as one, the newest first."""
        return reasons((waiter.text, waiter.since) for waiter in self._now() if waiter.text)

    def _now(self) -> list[_Waiter]:
        with self._lock:
            return list(self._waiters.values())

    def _put(self, pod: PodInFull, there: bool, now: float | None) -> None:
        """`now` None: the pod was there before the watch began, so its status says since when it waits."""
        uid, text, said = pod.metadata.uid, said_of(pod), pod.unscheduled
        since = said.since if said is not None and text else None
        with self._lock:
            known = self._waiters.pop(uid, None)
            if there and uid and pod.waiting:
                if known is not None and known.text == text:
                    since = known.since
                elif now is not None or since is None:
                    since = now or self._clock()
                self._waiters[uid] = _Waiter(pod, text, since or 0.0)


def _read(item: Mapping[str, Any]) -> PodInFull | None:
    """Return the pod; None where it can't be read, and not be shown: the functions say what is wrong."""
    try:
        return msgspec.convert(item, PodInFull)
    except msgspec.ValidationError:
        return None
