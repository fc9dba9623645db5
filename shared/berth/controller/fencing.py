"""Fence pods: write to their status, so that no Binding that was sent before can succeed after.
Before a lost ledger opens every waiting pod is fenced. One that can't be written to holds back only what it
requests (decision 0026)."""

import uuid
from collections.abc import Collection, Iterable
from datetime import UTC, datetime

from berth.deadline import Deadline
from berth.errors import ClusterRefusedError, ClusterUnavailableError
from berth.kube.cluster import Cluster, list_waiting
from berth.kube.types import Meta, Pod
from berth.kube.woken import CONDITION
from berth.kube.writes import PodWrites
from berth.ledger.model import Claim, HeldBack
from berth.scheduling.demand import might_ask, resources

FENCE_SECONDS = 5.0
MOST_UNFENCED = 5000  # UIDs in one document

_GOLDEN = 0.618  # another pod is first each minute: those whose webhook hangs must not always use up the time

# What is kept back of a deadline for the requests that come after the fence.
_READ_SECONDS = 0.5
_NODE_SECONDS = 0.2


def condition(reason: str, message: str, now: float) -> dict[str, str]:
    """Return the condition whose patch wakes or fences a pod.

    It must differ from the last one, or the API server writes nothing: nobody is woken, and a fence stops no
    Binding. So its message has the time and, because clocks may stand still, something unique.
    """
    at = datetime.fromtimestamp(now, UTC)
    exactly = f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"
    return {
        "type": CONDITION,
        "status": "False",
        "reason": reason,
        "message": f"{message} (at {exactly}, {uuid.uuid4().hex[:8]})",
        "lastTransitionTime": f"{at:%Y-%m-%dT%H:%M:%SZ}",
    }


def fence_claim(cluster: Cluster, claim: Claim, now: float, deadline: Deadline) -> Pod | None:
    """Fence the claim's pod, and return it as it is then; None if it is gone. One that can't be written to
    needs no fence if it is bound, finished or gone: no Binding can succeed for it any more."""
    pod = Pod(Meta(name=claim.name, namespace=claim.namespace, uid=claim.uid))
    try:
        return _fence(cluster, pod, now, deadline.later(-_READ_SECONDS).timeout())
    except (ClusterRefusedError, ClusterUnavailableError) as error:
        # No webhook can refuse a read.
        try:
            timeout = deadline.later(-_NODE_SECONDS).timeout()
            there = cluster.pod(claim.namespace, claim.name, timeout, uid=claim.uid)
        except (ClusterRefusedError, ClusterUnavailableError):
            raise error from None
        if there is None or there.finished or there.spec.node_name:
            return there
        raise


def pods_to_fence(
    cluster: Cluster, schedulers: Iterable[str], suspects: Collection[str] | None, now: float
) -> list[Pod]:
    """Return the waiting pods of these UIDs; None: all that may hold a reservation, also of Pools that are
    not known now. Each minute another one is first."""
    waiting = [
        pod
        for pod in list_waiting(cluster, schedulers)
        if might_ask(pod) and (suspects is None or pod.metadata.uid in suspects)
    ]
    start = int(now / 60 * _GOLDEN % 1 * len(waiting))
    return [*waiting[start:], *waiting[:start]]


def fence_waiting(cluster: Cluster, writes: PodWrites, pod: Pod, now: float) -> bool:
    """Fence a waiting pod. Return whether that was done; `writes` notes why not."""

    def write() -> bool:
        _fence(cluster, pod, now, FENCE_SECONDS)
        return True

    what = f"pod {pod.label} was not fenced, so what it asks for is held back"
    return not writes.spent() and bool(writes.attempt(pod.namespace, pod.metadata.name, what, write))


def to_hold(pods: Iterable[Pod], unfenced: Collection[str], epoch: str) -> HeldBack:
    """Return what must be held back in this epoch, by the pods as they were listed after the fences. Raises
    ClusterUnavailableError where too many pods are unfenced."""
    waiting = {
        pod.metadata.uid: resources(pod) for pod in pods if pod.metadata.uid in unfenced and pod.waiting
    }
    if len(waiting) > MOST_UNFENCED:
        raise ClusterUnavailableError(
            f"berth's ledger stays closed: {len(waiting)} waiting pods can't be written to "
            "(repair what refuses patches of pods/status; the log has its errors)"
        )
    held = sorted(frozenset().union(*waiting.values()))
    return HeldBack(frozenset(uid for uid, asked in waiting.items() if asked), tuple(held), epoch)


def _fence(cluster: Cluster, pod: Pod, now: float, timeout: float) -> Pod | None:
    note = condition("Fenced", "an unfinished bind was stopped", now)
    return cluster.set_condition(pod, note, timeout)
