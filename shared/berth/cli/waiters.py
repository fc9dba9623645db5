"""Who waits for which pool, and why, from what a watch reports about pods.
It looks at pods only, and does not judge whether a waiter fits somewhere now."""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from berth.api.pool import Pool
from berth.controller.pool_status import waiting_in_all, waiting_pods
from berth.kube.types import Condition, Pod

_PREEMPTION = " preemption: "  # kube-scheduler goes on with this; it says nothing of our pools


class Refusal(msgspec.Struct, frozen=True):
    """One text for which so many pods wait, with the Unix seconds of the first and of the last of them."""

    text: str
    pods: int
    since: float
    last: float


class _Condition(Condition, frozen=True):
    message: str | None = None


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] | None = None


class _Pod(msgspec.Struct, frozen=True):
    status: _Status = _Status()


class _Waiter(msgspec.Struct, frozen=True):
    pod: Pod
    scheduler: str
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
        if kind != "LISTED":
            self._put(item, kind != "DELETED", self._clock())
            return
        with self._lock:
            scheduler = item["schedulerName"]
            known = {uid for uid, waiter in self._waiters.items() if waiter.scheduler == scheduler}
            for uid in known - {pod.get("metadata", {}).get("uid") for pod in item["items"]}:
                del self._waiters[uid]
        for pod in item["items"]:
            self._put(pod, True, None)

    def asking(self, resources: Mapping[str, Pool]) -> dict[str, int]:
        """Return how many pods wait for each pool."""
        return waiting_pods((waiter.pod for waiter in self._now()), resources)

    def in_all(self, resources: Mapping[str, Pool]) -> int:
        """Return how many pods wait for any pool."""
        return waiting_in_all((waiter.pod for waiter in self._now()), resources)

    def refusals(self) -> list[Refusal]:
        """Return why they wait, equal texts as one, the newest first."""
        grouped: dict[str, list[float]] = {}
        for waiter in self._now():
            if waiter.text:
                grouped.setdefault(waiter.text, []).append(waiter.since)
        refusals = [Refusal(text, len(since), min(since), max(since)) for text, since in grouped.items()]
        return sorted(refusals, key=lambda refusal: (-refusal.last, refusal.text))

    def _now(self) -> list[_Waiter]:
        with self._lock:
            return list(self._waiters.values())

    def _put(self, item: Mapping[str, Any], there: bool, now: float | None) -> None:
        """`now` None: the pod was there before the watch began, so its status says since when it waits."""
        try:
            pod, (text, since) = msgspec.convert(item, Pod), _refusal(item)
        except msgspec.ValidationError:
            return  # what can't be read can't be shown; the functions say what is wrong with it
        uid = pod.metadata.uid
        with self._lock:
            known = self._waiters.pop(uid, None)
            if there and uid and pod.waiting:
                if known is not None and known.text == text:
                    since = known.since
                elif now is not None or since is None:
                    since = now or self._clock()
                self._waiters[uid] = _Waiter(pod, pod.spec.scheduler_name or "", text, since or 0.0)


def _refusal(item: Mapping[str, Any]) -> tuple[str, float | None]:
    """Return why the pod waits, empty if no scheduler said so, and since when, by its status."""
    for condition in msgspec.convert(item, _Pod).status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False" and condition.message:
            return condition.message.partition(_PREEMPTION)[0], _seconds(condition.last_transition_time)
    return "", None


def _seconds(time_stamp: str | None) -> float | None:
    try:
        return datetime.fromisoformat(time_stamp or "").timestamp()
    except ValueError:
        return None
