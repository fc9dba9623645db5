"""The line in which pods wait, as kube-scheduler takes them: by priority, then by age.
It knows no store and no cluster. A place says who is woken first, and is no promise: see `places`."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from berth.kube.types import Pod
from berth.scheduling.demand import Demand

AnyPod = TypeVar("AnyPod", bound=Pod)


def in_line(pods: Iterable[AnyPod]) -> list[AnyPod]:
    """Return the pods in the order in which they are woken: the most important first, then the oldest."""
    return sorted(pods, key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or ""))


def places(pods: Iterable[Pod], demands: Mapping[str, Demand]) -> dict[str, dict[str, int]]:
    """Return the places in the line of each pool, from 1, by the pods' UIDs; `demands` are by UID, too. Pods
    that demand what no Pool can give are in no line.

    The order of Bindings is that of the places when units come one by one, no back-off is left and no two
    pods are bound at once (tests/e2e/test_waiting.py). Else it may differ, for kube-scheduler decides:

    - Among equal priorities it takes the one whose last attempt is the longest ago, not the oldest pod
      (source: plugins/queuesort, QueuedPodInfo.Timestamp, which each attempt that fails sets anew).
    - A pod whose back-off is not over (1 s, doubling to 10 s by its attempts; it ends at a whole second)
      comes after those that may be tried at once, and then the one whose back-off ends first, whatever its
      priority. A bind that failed begins one, too.
    - When a pod is deleted kube-scheduler tries all waiters at the moment in which release frees the units.
      Those that were tried before are in back-off, and the next one gets them: seen for pods of a lower
      priority, too, 2 of 9 times with five waiters.
    - Several pods are told by filter of the last unit, and whose bind comes through first has it.
    """
    lines: dict[str, dict[str, int]] = {}
    for pod in in_line(pods):
        demand = demands[pod.metadata.uid]
        for pool in demand.units if demand.refusal is None else ():
            line = lines.setdefault(pool, {})
            line[pod.metadata.uid] = len(line) + 1
    return lines
