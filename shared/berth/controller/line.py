"""The line in which pods wait, as kube-scheduler takes them: by priority, then by age.
It knows no store and no cluster. kube-scheduler lets a pod step back after each attempt that failed, so a
place among pods of one priority is no promise."""

from collections.abc import Iterable

from berth.kube.types import Pod


def in_line(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods in the order in which they are woken: the most important first, then the oldest."""
    return sorted(pods, key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or ""))
