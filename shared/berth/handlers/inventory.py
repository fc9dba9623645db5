"""inventory: a node or Pool event says that capacity may have changed; take it from the cluster as it is.
The event's own object is not believed; it only says where to look."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import NamedTuple

import msgspec

from berth.api.pool import Pool
from berth.coalesce import Coalesced
from berth.controller.adopt import adopt
from berth.controller.alarm import Alarm, alarm_of
from berth.controller.capacity_sync import prepare_domains, sync_all, sync_node, withdraw
from berth.controller.external_use import take_external
from berth.controller.gang import pools_changed
from berth.controller.node_status import publish_native
from berth.controller.notices import SILENT, Teller
from berth.controller.pool_source import take_pools
from berth.controller.pool_status import INVALID, publish
from berth.controller.poolclaims import admit, publish_claims, publish_free, read_claims, take_claims
from berth.controller.requeue import free_in, room_in, wake
from berth.controller.retention import may_run, release_ended
from berth.errors import BadInputError, BerthError
from berth.handlers import external, licences
from berth.handlers.wiring import ledger_and_cluster, teller
from berth.http import cloudevents
from berth.http.cloudevents import Event
from berth.http.endpoint import Router
from berth.kube.cluster import Cluster
from berth.kube.types import Node, Pod
from berth.ledger.keys import CLAIMS_LOOK
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.ledger.transaction import OutdatedError
from berth.metrics import UNCOUNTED, Metrics
from berth.scheduling.demand import Terms, might_ask
from berth.settings import Settings
from berth.telemetry import calls

log = logging.getLogger("berth.inventory")


class _Meta(msgspec.Struct, frozen=True):
    generation: int | None = None


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    reason: str = ""
    observed_generation: int | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int | None = None
    conditions: list[_Condition] | None = None


class _Seen(msgspec.Struct, frozen=True):
    """The generation of a Pool in its metadata, and in its status those that this was written for."""

    metadata: _Meta = _Meta()
    status: _Status = _Status()

    @property
    def known(self) -> bool:
        """Whether this generation was taken over, or is known to be wrong."""
        wrong = (one for one in self.status.conditions or () if one.reason == INVALID)
        told = {self.status.observed_generation, *(one.observed_generation for one in wrong)}
        return self.metadata.generation is not None and self.metadata.generation in told


class Done(NamedTuple):
    """How many domains' capacity changed, and units of room made by pool.

    A look that was `overtaken` by a later one can't tell what room it made: `room` is all there is then.
    After a look at Pools or PoolClaims it `may_serve_gangs` that could not be served before.
    """

    changed: int
    room: Mapping[str, int]
    overtaken: bool = False
    may_serve_gangs: bool = False


class Inventory:
    """The inventory function on one ledger and cluster; safe for many events at once.

    It looks at all Pools, nodes and pods, or at all PoolClaims, once at a time: events that come meanwhile
    share the next look, because anybody may send as many of them as they like.
    """

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        teller: Teller = SILENT,
        alarm: Alarm | None = None,
    ) -> None:
        """`alarm` wakes pods later, too; without it nobody does but the next event and reconcile."""
        self._teller, self._alarm = teller, alarm
        self._ledger, self._cluster, self._settings, self._clock = ledger, cluster, settings, clock
        self.look_at_pools = Coalesced(self.take_pools)
        self._look_at_claims = Coalesced(lambda: self._after(self._claims(), publishes=False))

    def run(self, event: Event) -> dict[str, object]:
        """Return how many domains' capacity changed, and how many pods were woken by it."""
        kind = event.kind()
        self._ledger.require_cluster()
        if kind == "Node":
            done = self._node(event)
            return self._after(done, publishes=done.changed > 0)
        if kind == "Pool":
            if event.object_as(_Seen).known and not event.deletion:
                # Its status was written, by us, and a look at all nodes for that is dear.
                return {"changed": 0, "woken": 0}
            return self.look_at_pools()
        if kind == "PoolClaim":
            return self._look_at_claims()
        raise BadInputError(
            f"inventory takes events of Nodes, Pools and PoolClaims, and this is about a {kind}"
        )

    def take_pools(self) -> dict[str, object]:
        """Take over the Pools as their source has them now. Return what `run` returns."""
        before = self._ledger.view().pools.keys()
        told = self._after(self._pools(), publishes=True)
        if self._ledger.view().pools.keys() != before:  # PoolClaims may have waited for one of them
            most = self._settings.poolclaims_per_namespace
            _warn(publish_claims(self._ledger, self._cluster, most, clock=self._clock))
        return told

    def _after(self, done: Done, *, publishes: bool) -> dict[str, object]:
        """Wake who fits now and, if it `publishes`, write the Pools' status."""
        ledger, cluster, schedulers = self._ledger, self._cluster, self._settings.scheduler_names
        staged = None if self._alarm is None else self._alarm.later(rotate=done.overtaken)
        woken = wake(
            ledger, cluster, schedulers, done.room, self._clock(), rotate=done.overtaken, staged=staged
        )
        woken += self._wake_gangs() if done.may_serve_gangs else 0
        if self._alarm is not None:
            self._alarm.arm(ledger.view())
        if self._settings.pools is None and publishes:
            _warn(publish(ledger, cluster, schedulers, self._clock))
        return {"changed": done.changed, "woken": woken}

    def _wake_gangs(self) -> int:
        """Wake the pods of gangs that were refused because one of them asks for a Pool or PoolClaim that was
        not there. Return how many were woken."""
        schedulers = self._settings.scheduler_names
        try:
            return pools_changed(self._ledger, self._cluster, schedulers, self._clock())
        except BerthError as error:
            log.warning("gangs were not looked at anew, reconcile will: %s", error)
            return 0

    def _node(self, event: Event) -> Done:
        name: str = event.object_as(Node).metadata.name
        if not name:
            raise BadInputError("the event's Node has no name")
        calls.about(node=name)
        ledger, cluster, now = self._ledger, self._cluster, self._clock()
        reads: list[Node | None] = []

        def read() -> Node | None:
            reads.append(cluster.node(name))
            return reads[-1]

        def node_now(other: str) -> Node | None:
            return node if other == name else cluster.node(other)

        before = ledger.view().nodes.get(name, {})
        changes = sync_node(ledger, name, read)
        after = ledger.view().nodes.get(name, {})
        moved = [pool for pool, place in after.items() if place != before.get(pool)]
        node = reads[-1] if reads else None
        _warn(publish_native(ledger, cluster, [] if node is None else [node]))
        freed: list[Holding] = []
        for claim in ledger.view().lost(name):
            if not may_run(claim, node, now):
                freed += release_ended(ledger, claim, None, node_now, cluster.ended_pod, now)
        publish_free(ledger, cluster, freed, clock=self._clock)
        view = ledger.view()
        if len(reads) > 1:  # a look at the Pools began meanwhile; a try before may have given capacity
            return Done(len(changes), free_in(view, view.pools, now), overtaken=True)
        # A domain that the node came to may have had units free all along, and one that it left has more.
        return Done(len(changes), {**room_in([*changes, *freed]), **free_in(view, moved, now)})

    def _pools(self) -> Done:
        """Take over the Pools. Who fits is woken, not only whom the changes found here make room for.

        A domain that an adoption closed for a moment was short meanwhile; and a look that died, or was
        overtaken, had made room already. Overtaken by a later look, this one stops, and that one does the
        rest. As many are woken then as reconcile wakes at once.
        """
        changed, overtaken, now = 0, False, self._clock()
        try:
            looking = self._ledger.look()
            problems: list[str] = []
            pools = take_pools(self._settings.pools, self._cluster, lambda: looking.view().pools, problems)
            _warn(problems)
            before = looking.view().pools
            changed = self._take_over(looking, pools, now)
            if pools != before:
                self._claims()  # whose units are listed, or are no more
        except OutdatedError:
            overtaken = True
        view = self._ledger.view()
        return Done(changed, free_in(view, view.pools, now), overtaken, may_serve_gangs=True)

    def _take_over(self, ledger: Ledger, pools: Mapping[str, Pool], now: float) -> int:
        """Return how many domains' capacity changed. What is held is counted before anything is given:
        running pods first, then Pools, then capacities."""
        cluster, changes = self._cluster, withdraw(ledger, pools)
        before = ledger.view().pools
        nodes = cluster.nodes()
        terms = Terms(pools, prepare_domains(ledger, pools, nodes), ledger.view(), before)
        claims = [claim for claim in ledger.view().claims() if not claim.is_external]
        uids = {claim.uid for claim in claims}
        pods = cluster.pods(lambda pod: pod.metadata.uid in uids or might_ask(pod))
        if before != pools:
            self._end(ledger, claims, pods, terms, now)
        self._teller.adopted_all(adopt(ledger, cluster, pods, terms, now).claims, pods, terms)
        take_external(ledger, pools, now)
        ledger.apply_pools(pools)
        changes += sync_all(ledger, pools, cluster.nodes)[0]
        ledger.cap_retention()
        _warn(publish_native(ledger, cluster, nodes))
        return len({change.which for change in changes})

    def _end(
        self, ledger: Ledger, claims: Iterable[Claim], pods: Iterable[Pod], terms: Terms, now: float
    ) -> None:
        """Release what pods held that went unseen, of claims that were read before the pods were listed.

        Later nobody knows by which Pool to judge what they held of one that is gone: it would be freed,
        though a lost node may use it still. What stays held is handed on to the Pool that counts it now.
        """
        there, node, pools = {pod.metadata.uid for pod in pods}, cache(self._cluster.node), terms.judged_by()
        for claim in claims:
            if claim.uid not in there and claim.state != "lost":
                freed = release_ended(ledger, claim, None, node, self._cluster.ended_pod, now, pools=pools)
                publish_free(ledger, self._cluster, freed, clock=self._clock)

    def _claims(self) -> Done:
        """Take over the PoolClaims."""
        problems: list[str] = []
        most = self._settings.poolclaims_per_namespace
        try:
            looking = self._ledger.look(CLAIMS_LOOK)
            # The Pools first: who takes over others later looks at PoolClaims after that.
            pools = self._ledger.pools()
            admission = admit(read_claims(self._cluster, problems), pools, most)
            changed = take_claims(looking, admission, problems)
        except OutdatedError:
            changed = []  # a later look takes them over
        if changed:
            problems += publish_claims(self._ledger, self._cluster, most, clock=self._clock)
        _warn(problems)
        return Done(0, {pool: 1 for pool, _ in changed}, may_serve_gangs=True)


def _warn(problems: Iterable[str]) -> None:
    for problem in problems:
        log.warning("%s", problem)


def router(settings: Settings, *, metrics: Metrics = UNCOUNTED) -> Router:
    """Return the paths `external` and `licences`, and events on any other."""
    ledger, cluster = ledger_and_cluster(settings, metrics.of("inventory"))
    told = teller(cluster, settings, "inventory", metrics)
    alarm = alarm_of(ledger, cluster, settings.scheduler_names, clock=cluster.now)
    inventory = Inventory(ledger, cluster, settings, cluster.now, told, alarm)

    def handle(headers: Mapping[str, str], body: bytes) -> Mapping[str, object]:
        return inventory.run(cloudevents.decode(headers, body))

    return Router(
        name="inventory",
        endpoints={
            "external": external.endpoint(ledger, cluster, settings, inventory.look_at_pools),
            "licences": licences.endpoint(ledger, cluster, settings, cluster.now, alarm),
        },
        health=ledger.check,
        default=cloudevents.subscriber("inventory", handle, ledger.check, settings),
    )
