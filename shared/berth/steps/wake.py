"""Wake waiting pods when room was made (promise 6): a patch of their status makes kube-scheduler try again.
A woken pod may still not fit for reasons that are not ours; so more are woken than there is room for."""

import math
import time
from collections.abc import Iterable, Mapping

from berth.cluster import DEFAULT_TIMEOUT, Cluster
from berth.decisions import CapacityChange
from berth.documents import Holding, View
from berth.errors import ClusterRefusedError
from berth.ledger import Ledger
from berth.objects import Pod
from berth.policy.demand import demand
from berth.steps.claims import condition


def room_in(made: Iterable[Holding | CapacityChange]) -> dict[str, int]:
    """Units of room by pool, from what was freed or gained."""
    room: dict[str, int] = {}
    for part in made:
        units = part.count if isinstance(part, Holding) else part.gained
        if units > 0:
            room[part.pool] = room.get(part.pool, 0) + units
    return room


def wake(
    ledger: Ledger,
    cluster: Cluster,
    schedulers: Iterable[str],
    room: Mapping[str, int],
    now: float,
    timeout: float = DEFAULT_TIMEOUT,
    *,
    everyone: bool = False,
    patience: float = math.inf,
) -> int:
    """Wake pods that could use the room made in these pools (units by pool); how many were woken.

    Call it after the commit that made the room. 2 n + 8 for n units: the first in line may not fit the
    node for want of CPU, and must not keep the unit from the next (facts, 5). With `everyone` all of them:
    reconcile must reach those behind, for the same first ones are first each time. `timeout` is for each
    call; those not woken within `patience` seconds in all are left to reconcile.
    """
    if not room:
        return 0
    until = time.monotonic() + patience
    view = ledger.view()
    waiting = [pod for name in schedulers for pod in cluster.unbound_pods(name, timeout) if pod.waiting]
    waiting.sort(key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or ""))
    most = None if everyone else 2 * sum(room.values()) + 8
    chosen = [pod for pod in waiting if _could_use(pod, room, view)][:most]
    woken = 0
    for pod in chosen:
        left = until - time.monotonic()
        if left <= 0:
            break
        woken += _patch(cluster, pod, now, min(timeout, left))
    return woken


def _could_use(pod: Pod, room: Mapping[str, int], view: View) -> bool:
    """Whether the pod asks for a pool that gained room, and fits some domain now."""
    units = demand(pod, view.resources).units
    if not any(pool in room for pool in units):
        return False
    fitting = (
        {name for name, (free, _) in view.free.get(pool, {}).items() if free >= count}
        for pool, count in units.items()
    )
    return bool(set.intersection(*fitting))


def _patch(cluster: Cluster, pod: Pod, now: float, timeout: float) -> bool:
    try:
        woken = cluster.set_condition(
            pod, condition("Woken", "room was made; the pod is tried again", now), timeout
        )
    except ClusterRefusedError:
        if pod.metadata.deletion_timestamp is None:
            raise
        return False
    return woken is not None
