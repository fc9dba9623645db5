"""inventory: a node or Pool event says that capacity may have changed; take it from the cluster as it is.
The event's own object is not believed; it only says where to look."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import NamedTuple

import msgspec

from berth.api.pool import Pool
from berth.coalesce import Coalesced
from berth.controller.adopt import adopt
from berth.controller.capacity_sync import stock_of, take_stock, take_stock_of, withdraw
from berth.controller.external_use import take_external
from berth.controller.node_status import publish_native
from berth.controller.pool_source import read_pools
from berth.controller.pool_status import publish
from berth.controller.poolclaims import Bounds, publish_claims, read_claims, take_claims, told_free
from berth.controller.requeue import free_in, room_in, wake
from berth.controller.retention import may_run, release_ended
from berth.errors import BadInputError
from berth.handlers import external, wiring
from berth.handlers.wiring import ledger_and_cluster
from berth.http import cloudevents
from berth.http.cloudevents import Event
from berth.http.endpoint import Endpoint, Router
from berth.kube.cluster import Cluster
from berth.kube.types import Node, Pod
from berth.ledger.ledger import Ledger
from berth.ledger.model import CLAIMS_LOOK, Claim, Holding
from berth.ledger.transaction import OutdatedError
from berth.scheduling.demand import Terms
from berth.settings import Settings

log = logging.getLogger("berth.inventory")


class _Generation(msgspec.Struct, frozen=True, rename="camel"):
    generation: int | None = None


class _Observed(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int | None = None


class _Seen(msgspec.Struct, frozen=True):
    """Which generation of a Pool this is, and which one its status is of."""

    metadata: _Generation = _Generation()
    status: _Observed = _Observed()

    @property
    def known(self) -> bool:
        generation = self.metadata.generation
        return generation is not None and generation == self.status.observed_generation


class Done(NamedTuple):
    """How many domains' capacity changed, and units of room made by pool.

    Who was `overtaken` can't tell for whom it made room until then: that is all room there is.
    """

    changed: int
    room: Mapping[str, int]
    overtaken: bool = False


class Looks:
    """Looks at all Pools, nodes and pods, or at all PoolClaims: one at a time, shared by who asks meanwhile.

    Anybody may send an event that asks for one, as many as they like.
    """

    def __init__(
        self, ledger: Ledger, cluster: Cluster, settings: Settings, clock: Callable[[], float] = time.time
    ) -> None:
        def at_claims() -> dict[str, object]:
            done = _claims(ledger, cluster, settings)
            return _after(ledger, cluster, settings, done, clock(), tell=False)

        self.at_pools = Coalesced(partial(take_pools, ledger, cluster, settings, clock))
        self.at_claims = Coalesced(at_claims)


def run(
    ledger: Ledger,
    cluster: Cluster,
    settings: Settings,
    event: Event,
    clock: Callable[[], float] = time.time,
    looks: Looks | None = None,
) -> dict[str, object]:
    """How many domains' capacity changed, and how many pods were woken by it."""
    kind = event.kind()
    looks = looks or Looks(ledger, cluster, settings, clock)
    ledger.require_ours()
    if kind == "Node":
        done = _node(ledger, cluster, event, clock())
    elif kind == "Pool":
        if event.about(_Seen).known and not event.deletion:
            # Its status was written, by us, and a look at all nodes for that is dear.
            return {"changed": 0, "woken": 0}
        return looks.at_pools()
    elif kind == "PoolClaim":
        return looks.at_claims()
    else:
        raise BadInputError(
            f"inventory takes events of Nodes, Pools and PoolClaims, and this is about a {kind}"
        )
    return _after(ledger, cluster, settings, done, clock(), tell=done.changed > 0)


def take_pools(
    ledger: Ledger, cluster: Cluster, settings: Settings, clock: Callable[[], float] = time.time
) -> dict[str, object]:
    """The same for Pools as their active source has them now."""
    done = _pools(ledger, cluster, settings, clock())
    return _after(ledger, cluster, settings, done, clock(), tell=True)


def _after(
    ledger: Ledger, cluster: Cluster, settings: Settings, done: Done, now: float, *, tell: bool
) -> dict[str, object]:
    """Wake who fits now and, with `tell`, write the Pools' status."""
    woken = wake(ledger, cluster, settings.scheduler_names, done.room, now, in_turn=done.overtaken)
    if settings.pools is None and tell:
        _warn(publish(ledger, cluster, settings.scheduler_names))
    return {"changed": done.changed, "woken": woken}


def _node(ledger: Ledger, cluster: Cluster, event: Event, now: float) -> Done:
    name: str = event.about(Node).metadata.name
    if not name:
        raise BadInputError("the event's Node has no name")
    found: list[Node | None] = []

    def look() -> Node | None:
        found.append(cluster.node(name))
        return found[-1]

    before = ledger.view().nodes.get(name, {})
    changes = take_stock_of(ledger, name, look)
    after = ledger.view().nodes.get(name, {})
    moved = [pool for pool, place in after.items() if place != before.get(pool)]
    node = found[-1] if found else None
    _warn(publish_native(ledger, cluster, [] if node is None else [node]))
    freed: list[Holding] = []
    for claim in ledger.view().lost(name):
        if not may_run(claim, node, now):
            freed += ledger.release(claim.uid)
    told_free(cluster, freed)
    view = ledger.view()
    if len(found) > 1:  # a look at the Pools began meanwhile; a try before may have given capacity
        return Done(len(changes), free_in(view, view.pools, now), overtaken=True)
    # A domain that the node came to may have had units free all along, and one that it left has more.
    return Done(len(changes), {**room_in([*changes, *freed]), **free_in(view, moved, now)})


def _pools(ledger: Ledger, cluster: Cluster, settings: Settings, now: float) -> Done:
    """Who fits is woken, not only whom the changes found here make room for. A domain that an adoption closed
    for a moment was short meanwhile; and a look that died, or was overtaken, had made room already.

    Overtaken by a later look, this one stops, and that one does the rest. As many are woken then as reconcile
    wakes at once.
    """
    changed, overtaken = 0, False
    try:
        looking = ledger.look()
        pools, before = read_pools(settings.pools, cluster), looking.view().pools
        changed = _take_over(looking, cluster, pools, now)
        if pools != before:
            _claims(ledger, cluster, settings)  # whose units are listed, or are no more
    except OutdatedError:
        overtaken = True
    view = ledger.view()
    return Done(changed, free_in(view, view.pools, now), overtaken)


def _take_over(ledger: Ledger, cluster: Cluster, pools: Mapping[str, Pool], now: float) -> int:
    """How many domains' capacity changed. What is held is counted before anything is given: running pods
    first, then Pools, then capacities."""
    changes = withdraw(ledger, pools)
    before = ledger.view().pools
    nodes = cluster.nodes()
    stock = stock_of(pools, nodes)
    ledger.prepare({which: stock.capacities[which] for which in stock.stripes})
    terms = Terms(pools, stock.by_pool(), ledger.view(), before)
    claims = [claim for claim in ledger.view().claims() if not claim.is_external]
    pods = cluster.pods()
    if before != pools:
        _end(ledger, cluster, claims, pods, terms, now)
    adopt(ledger, cluster, pods, terms, now)
    take_external(ledger, pools, now)
    ledger.apply_pools(pools)
    changes += take_stock(ledger, pools, cluster.nodes)
    ledger.cap_retention()
    _warn(publish_native(ledger, cluster, nodes))
    return len({each.which for each in changes})


def _end(
    ledger: Ledger,
    cluster: Cluster,
    claims: Iterable[Claim],
    pods: Iterable[Pod],
    terms: Terms,
    now: float,
) -> None:
    """Release what pods held that went unseen, of claims that were read before the pods were listed.

    Later nobody knows by which Pool to judge what they held of one that is gone: it would be freed, though a
    lost node may use it still. What stays held is handed on to the Pool that counts it now.
    """
    there, node, pools = {pod.metadata.uid for pod in pods}, cache(cluster.node), terms.judged_by()
    for claim in claims:
        if claim.uid not in there and claim.state != "lost":
            told_free(cluster, release_ended(ledger, node, [claim], claim.uid, None, now, pools=pools))


def _claims(ledger: Ledger, cluster: Cluster, settings: Settings) -> Done:
    problems: list[str] = []
    most = settings.poolclaims_per_namespace
    try:
        looking = ledger.look(CLAIMS_LOOK)
        # The Pools first: who takes over others later looks at PoolClaims after that.
        bounds = Bounds(ledger.pools(), most)
        changed = take_claims(looking, read_claims(cluster, problems), bounds, problems)
    except OutdatedError:
        changed = []  # a later look takes them over
    problems += publish_claims(ledger, cluster, most) if changed else []
    _warn(problems)
    return Done(0, {pool: 1 for pool, _ in changed})


def _warn(problems: Iterable[str]) -> None:
    for problem in problems:
        log.warning("%s", problem)


def endpoint(settings: Settings) -> Endpoint:
    ledger, cluster = ledger_and_cluster(settings)
    return _for_events(ledger, cluster, settings, Looks(ledger, cluster, settings))


def router(settings: Settings) -> Router:
    """The path `external`, and events on any other."""
    ledger, cluster = ledger_and_cluster(settings)
    looks = Looks(ledger, cluster, settings)
    use = external.endpoint(ledger, cluster, settings, looks.at_pools)
    return Router(
        name="inventory",
        endpoints={"external": use},
        health=ledger.check,
        default=_for_events(ledger, cluster, settings, looks),
    )


def _for_events(ledger: Ledger, cluster: Cluster, settings: Settings, looks: Looks) -> Endpoint:
    def handle(headers: Mapping[str, str], body: bytes) -> Mapping[str, object]:
        return run(ledger, cluster, settings, cloudevents.decode(headers, body), looks=looks)

    return wiring.subscriber("inventory", ledger, settings, handle)
