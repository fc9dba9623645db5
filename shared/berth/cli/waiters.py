"""Who waits for which pool, and why, from the pods that a watch tells of.
It looks at pods only; whether a waiter could be served now is not its question."""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from berth.api.pool import Pool
from berth.controller.pool_status import waiting_pods
from berth.kube.types import Pod

_PREEMPTION = " preemption: "  # kube-scheduler goes on with this; it says nothing of our pools


class Refusal(msgspec.Struct, frozen=True):
    """What was said to so many waiting pods; Unix seconds of the first and of the last of them."""

    text: str
    pods: int
    since: float
    last: float


class _Condition(msgspec.Struct, rename="camel", frozen=True):
    type: str = ""
    status: str = ""
    message: str | None = None
    last_transition_time: str | None = None


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] | None = None


class _Said(msgspec.Struct, frozen=True):
    status: _Status = _Status()


class _Waiter(msgspec.Struct, frozen=True):
    pod: Pod
    scheduler: str
    text: str
    since: float


class Waiters:
    """Our waiting pods, kept up by `observe`, which a Relay's threads call (see there for what they tell)."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiters: dict[str, _Waiter] = {}

    def observe(self, kind: str, item: Mapping[str, Any]) -> None:
        """One pod that was ADDED, MODIFIED or DELETED; or LISTED: all pods of one schedulerName."""
        if kind != "LISTED":
            self._put(item, kind != "DELETED", self._clock())
            return
        with self._lock:
            scheduler = item["schedulerName"]
            known = {uid for uid, waiter in self._waiters.items() if waiter.scheduler == scheduler}
            for uid in known - {_uid(pod) for pod in item["items"]}:
                del self._waiters[uid]
        for pod in item["items"]:
            self._put(pod, True, None)

    def asking(self, resources: Mapping[str, Pool]) -> dict[str, int]:
        """How many wait for each pool."""
        return waiting_pods((waiter.pod for waiter in self._now()), resources)

    def refusals(self) -> list[Refusal]:
        """Why they wait, equal texts as one, the newest first."""
        grouped: dict[str, list[float]] = {}
        for waiter in self._now():
            if waiter.text:
                grouped.setdefault(waiter.text, []).append(waiter.since)
        found = [Refusal(text, len(since), min(since), max(since)) for text, since in grouped.items()]
        return sorted(found, key=lambda refusal: (-refusal.last, refusal.text))

    def _now(self) -> list[_Waiter]:
        with self._lock:
            return list(self._waiters.values())

    def _put(self, item: Mapping[str, Any], there: bool, heard: float | None) -> None:
        """`heard` is when it was said; None: only the pod itself may know, it was there before us."""
        try:
            pod, (text, since) = msgspec.convert(item, Pod), _said(item)
        except msgspec.ValidationError:
            return  # what can't be read can't be shown; the functions say what is wrong with it
        uid = pod.metadata.uid
        with self._lock:
            known = self._waiters.pop(uid, None)
            if there and uid and pod.waiting:
                if known is not None and known.text == text:
                    since = known.since
                elif heard is not None or since is None:
                    since = heard or self._clock()
                self._waiters[uid] = _Waiter(pod, pod.spec.scheduler_name or "", text, since or 0.0)


def _said(item: Mapping[str, Any]) -> tuple[str, float | None]:
    """The pod's refusal, empty if there is none, and since when its status says that it is not scheduled."""
    for condition in msgspec.convert(item, _Said).status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False" and condition.message:
            return condition.message.partition(_PREEMPTION)[0], _seconds(condition.last_transition_time)
    return "", None


def _seconds(time_stamp: str | None) -> float | None:
    try:
        return datetime.fromisoformat(time_stamp or "").timestamp()
    except ValueError:
        return None


def _uid(item: Mapping[str, Any]) -> Any:
    return item.get("metadata", {}).get("uid")
