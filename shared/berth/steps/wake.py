"""Wake waiting pods when room was made (promise 6): a patch of their status makes kube-scheduler try again.
A woken pod may still not fit for reasons that are not ours; so more are woken than there is room for."""

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping

from berth.cluster import DEFAULT_TIMEOUT, Cluster
from berth.decisions import CapacityChange
from berth.documents import Holding
from berth.errors import ClusterRefusedError
from berth.ledger import Ledger
from berth.objects import Pod
from berth.steps.claims import condition
from berth.steps.terms import Asked, is_ordinary, owners_of, terms_of
from berth.steps.wants import Wanted
from berth.view import View

log = logging.getLogger("berth.wake")


def room_in(made: Iterable[Holding | CapacityChange]) -> dict[str, int]:
    """Units of room by pool, from what was freed or gained."""
    room: dict[str, int] = {}
    for part in made:
        units = part.count if isinstance(part, Holding) else part.gained
        if units > 0:
            room[part.pool] = room.get(part.pool, 0) + units
    return room


def free_in(view: View, pools: Iterable[str]) -> dict[str, int]:
    """Units of room by pool, from what is free in these pools, be it for one pod only."""
    found = {}
    for pool in pools:
        free = sum(units for units, _ in view.free.get(pool, {}).values())
        kept = sum(left.count for domain in view.domains.get(pool, {}).values() for left in domain.left)
        found[pool] = free + kept
    return {pool: units for pool, units in found.items() if units}


def wake(
    ledger: Ledger,
    cluster: Cluster,
    schedulers: Iterable[str],
    room: Mapping[str, int],
    now: float,
    *,
    everyone: bool = False,
    left: Callable[[], float] = lambda: DEFAULT_TIMEOUT,
) -> int:
    """Wake pods that could use the room made in these pools (units by pool); how many were woken.

    Call it after the commit that made the room. 2 n + 8 for n units: the first in line may not fit the
    node for want of CPU, and must not keep the unit from the next (facts, 5). With `everyone` all of them:
    reconcile must reach those behind, for the same first ones are first each time. `left` is asked before
    each call for the seconds it may take; once there are none, the others are left to reconcile.
    """
    if not room:
        return 0
    view = ledger.view()
    waiting = [
        pod for name in schedulers for pod in cluster.unbound_pods(name, max(0.1, left())) if pod.waiting
    ]
    waiting.sort(key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or ""))
    chosen = _could_use(waiting, room, view, now)[: None if everyone else 2 * sum(room.values()) + 8]
    woken = 0
    for pod in chosen:
        if (seconds := left()) <= 0:
            break
        woken += _patch(cluster, pod, now, seconds)
    return woken


def _could_use(pods: Iterable[Pod], room: Mapping[str, int], view: View, now: float) -> list[Pod]:
    """Those that ask for a pool that gained room, and fit some domain now."""
    terms = terms_of(view)
    fits: dict[Hashable, bool] = {}  # a thousand waiters often ask for the same
    chosen = []
    for pod in pods:
        asked = terms.asked(pod)
        if asked.refusal is not None or not any(pool in room for pool in asked.units):
            continue
        kind = _kind(pod, asked, view)
        if kind not in fits:
            fits[kind] = _fits(pod, asked, view, now)
        if fits[kind]:
            chosen.append(pod)
    return chosen


def _kind(pod: Pod, asked: Asked, view: View) -> Hashable:
    """Equal for pods that see the same."""
    pools = [view.pools[pool] for pool in asked.units]
    whose = owners_of(pod) if any(pool.spec.sticky for pool in pools) else ()
    ordinary = tuple(is_ordinary(pool, pod) for pool in pools)
    claims = tuple(name for name, *_ in asked.claims)
    return pod.metadata.namespace, tuple(asked.units.items()), claims, whose, ordinary


def _fits(pod: Pod, asked: Asked, view: View, now: float) -> bool:
    """As the pod sees it: what is kept for it is free."""
    wanted = Wanted(pod, asked, view, now)
    if wanted.nowhere():
        return False
    enough = [(want.places is None, want.free.enough(want.asked)) for want in wanted.wants()]
    nodes = [found for of_nodes, found in enough if of_nodes]
    return all(found for _, found in enough) and (not nodes or bool(frozenset.intersection(*nodes)))


def _patch(cluster: Cluster, pod: Pod, now: float, seconds: float) -> bool:
    note = condition("Woken", "room was made; the pod is tried again", now)
    try:
        return cluster.set_condition(pod, note, seconds) is not None
    except ClusterRefusedError as error:
        # Some webhook or a deletion: one pod that can't be written to must not keep the room from the rest.
        log.warning("pod %s was not woken: %s", pod.label, error)
        return False
