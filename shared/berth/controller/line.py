"""The line in which pods wait, as kube-scheduler takes them: by priority, then by age.
It knows no store and no cluster. A place is no promise: see `places`."""

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
    """
    lines: dict[str, dict[str, int]] = {}
    for pod in in_line(pods):
        demand = demands[pod.metadata.uid]
        for pool in demand.units if demand.refusal is None else ():
            line = lines.setdefault(pool, {})
            line[pod.metadata.uid] = len(line) + 1
    return lines
