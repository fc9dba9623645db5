"""The condition by which waiting pods are woken and fenced, and what it says of a pod."""

import re
from datetime import datetime

from berth.kube.types import Pod, PodCondition

CONDITION = "berth.dev/Waiting"
WOKEN = "Woken"
_WOKEN = re.compile(r"\(at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?)Z, [0-9a-f]{8}\)")


def woken_at(pod: Pod) -> float | None:
    """Return when the pod was woken last (Unix seconds); None where the condition's last writer was no wake,
    or does not say when."""
    for condition in pod.status.conditions or ():
        if not isinstance(condition, PodCondition):
            return None  # it was read without what they say
        if condition.type == CONDITION and condition.reason == WOKEN:
            told = _WOKEN.search(condition.message or "")
            return None if told is None else datetime.fromisoformat(f"{told[1]}+00:00").timestamp()
    return None
