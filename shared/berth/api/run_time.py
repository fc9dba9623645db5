"""How long a pod says that it runs, and when its units are free at the latest by that.
It is the pod's own word: that it was kept, only reconcile sees (docs/decisions/0057)."""

import re
from functools import lru_cache

from berth.api.names import GROUP
from berth.kube.types import Pod

RUNS_FOR = f"{GROUP}/runs-for"
"""The pod's annotation that says how long it runs at most, from when it is bound: `90`, `30m`, `1h30m`."""

MARGIN_SECONDS = 10.0
"""What the way from the reservation to the container takes, and from its end to the event that frees units:
nobody's declared time has that in it."""

DEFAULT_GRACE = 30
"""Seconds that Kubernetes leaves a pod to end that does not say how many it needs."""

_PARTS = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?", re.ASCII)
_SECONDS = (86400, 3600, 60, 1)


def ends_at(pod: Pod, start: float) -> float:
    """Return when a pod that starts then is gone at the latest (Unix seconds); 0: it does not say.

    The kubelet counts `activeDeadlineSeconds` from before it pulls images, and ends the pod then, which may
    take its grace period (source: pkg/kubelet/active_deadline.go; k8s.io/api/core/v1, PodStatus.StartTime).
    """
    said = [seconds for seconds in (_annotated(pod), pod.spec.active_deadline_seconds) if seconds]
    return start + min(said) + grace_of(pod) + MARGIN_SECONDS if said else 0.0


def grace_of(pod: Pod) -> int:
    """Return how many seconds the pod has to end once it is told to."""
    grace = pod.spec.termination_grace_period_seconds
    return DEFAULT_GRACE if grace is None else grace


def mistake_in(pod: Pod) -> str:
    """Return what is wrong with what the pod says of its run time; empty: nothing."""
    text = (pod.metadata.annotations or {}).get(RUNS_FOR)
    if text is None or _seconds(text):
        return ""
    return f"{RUNS_FOR}: {text[:64]!r} is no time, so it counts for nothing: write 90s, 30m or 1h30m"


def _annotated(pod: Pod) -> int:
    return _seconds((pod.metadata.annotations or {}).get(RUNS_FOR, ""))


@lru_cache(1024)
def _seconds(text: str) -> int:
    """Return the seconds of a duration in days, hours, minutes and seconds, or of a number alone; 0 where it
    is neither."""
    match = _PARTS.fullmatch(f"{text}s" if text.isdecimal() else text)
    if match is None:
        return 0
    return sum(int(part or 0) * seconds for part, seconds in zip(match.groups(), _SECONDS, strict=True))
