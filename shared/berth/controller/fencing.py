"""Before a lost ledger is opened: fence every waiting pod, so that no Binding sent before the loss can land.
A pod that can't be written to keeps the ledger from nothing but what it could take (decision 0026)."""

from collections.abc import Callable, Collection, Iterable
from functools import partial

from berth.controller.settle import fence
from berth.errors import ClusterUnavailableError
from berth.kube.cluster import Cluster
from berth.kube.types import Pod
from berth.kube.writes import PodWrites
from berth.ledger.model import HeldBack
from berth.scheduling.demand import might_ask, resources

FENCE_SECONDS = 5.0
MOST_UNFENCED = 5000  # UIDs in one document

_GOLDEN = 0.618  # each minute another pod is first: those whose webhook hangs must not always use up the time


def fence_waiting(
    cluster: Cluster,
    writes: PodWrites,
    schedulers: Iterable[str],
    now: float,
    suspects: Collection[str] | None = None,
    *,
    done: set[str] | None = None,
    go_on: Callable[[], object] = lambda: None,
) -> set[str]:
    """Fence the pods with these UIDs as far as they wait, None: all waiting pods that may hold a reservation,
    also of a Pool that is not known now. UIDs of those that were not fenced; they may be bound or gone.

    `done` are those that need no fence any more, and each that gets one is added. `go_on` is called before
    each, and may raise."""
    done = set() if done is None else done
    waiting = [
        pod
        for scheduler in schedulers
        for pod in cluster.unbound_pods(scheduler)
        if pod.waiting and might_ask(pod) and (suspects is None or pod.metadata.uid in suspects)
    ]
    start = int(now / 60 * _GOLDEN % 1 * len(waiting))
    for pod in (*waiting[start:], *waiting[:start]):
        if pod.metadata.uid in done:
            continue
        go_on()
        meta, write = pod.metadata, partial(_fenced, cluster, pod, now)
        what = f"pod {pod.label} was not fenced, so what it asks for is held back"
        if not writes.spent() and writes.attempt(meta.namespace or "default", meta.name, what, write):
            done.add(meta.uid)
    return ({pod.metadata.uid for pod in waiting} if suspects is None else set(suspects)) - done


def to_hold(pods: Iterable[Pod], unfenced: Collection[str], epoch: str) -> HeldBack:
    """What is to be held back in this epoch, by the pods as they were listed after the fences. Raises
    ClusterUnavailableError where there are too many of them."""
    left = {pod.metadata.uid: resources(pod) for pod in pods if pod.metadata.uid in unfenced and pod.waiting}
    if len(left) > MOST_UNFENCED:
        raise ClusterUnavailableError(
            f"berth's ledger stays closed: {len(left)} waiting pods can't be written to "
            "(mend what refuses patches of pods/status; the log has its errors)"
        )
    held = sorted(frozenset().union(*left.values()))
    return HeldBack(frozenset(uid for uid, asked in left.items() if asked), tuple(held), epoch)


def _fenced(cluster: Cluster, pod: Pod, now: float) -> bool:
    fence(cluster, pod, now, FENCE_SECONDS)
    return True
