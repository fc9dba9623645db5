"""What may happen, at random: hypothesis draws which of it, in which order, and shrinks what goes wrong.
One thread runs at a time and no clock but the world's, so a failing example fails again."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from berth.http.cloudevents import Event
from berth.kube.client import Client
from berth.stores.base import Store
from tests.properties import pools
from tests.properties.api import bound_node
from tests.properties.calls import Order
from tests.properties.pools import (
    NODES,
    RESOURCES,
    SKEW,
    SPACES,
    Kind,
    NodeIs,
    Spec,
    kinds,
    space_of,
    suspended,
)
from tests.properties.promises import ALL
from tests.properties.random_world import World
from tests.properties.wish import Wish
from tests.support.builders.objects import event

T = TypeVar("T")

NAMES = tuple(SPACES)
MOST_UNDER_WAY = 3
HOUR, YEAR = 3600.0, 365 * 24 * 3600.0
VERBS = ("filter", "bind", "release", "inventory", "reconcile")
ENDS = ("delete", "delete in time", "finish", "finish", "fail")

units = st.sampled_from([{"ip": 1, "seat": 1}, {"ip": 1}, {"seat": 1}, {"ip": 2, "seat": 1}])
owners = st.sampled_from(["StatefulSet:web", "StatefulSet:web", "Job:run", "ReplicaSet:web", ""])
gangs = st.sampled_from([*[("", 0)] * 4, ("g", 2), ("g", 2), ("g", 3)])
"""Pods that share a gang's name may disagree on its size, and be of several owners."""


def _wish(units: Mapping[str, int], claim: bool, gang: tuple[str, int], **says: Any) -> Wish:
    name, size = gang
    return Wish(units, claim, gang=name, size=size, **says)


asks = st.builds(
    _wish,
    units,
    st.just(False),
    gangs,
    priority=st.sampled_from([0, 0, 9]),
    runs_for=st.sampled_from(["", "", "", "5s"]),
    owner=owners,
    finalizer=st.sampled_from([False, False, False, True]),
) | st.builds(_wish, st.sampled_from([{"ip": 1, "seat": 1}, {"ip": 2}]), st.just(True), st.just(("", 0)))
skews = st.just((0.0,) * len(VERBS)) | st.tuples(
    *[st.sampled_from([0.0, 0.0, 5.0, SKEW, -5.0, -SKEW])] * len(VERBS)
)
nodes = st.sampled_from(NODES)
indexes = st.integers(0, 5)
states = st.none() | st.builds(
    NodeIs,
    st.sampled_from([
        {"ip": 3, "seat": 2}, {"ip": 2, "seat": 2}, {"ip": 2, "seat": 1}, {"ip": 1, "seat": 1},
        {"ip": 0, "seat": 2},
    ]),
    st.sampled_from(["a", "a", "b", "b", ""]),
    st.sampled_from([True, True, True, False]),
    st.sampled_from([False, False, False, True]),
)  # fmt: skip
claims = st.sampled_from([{"pool": "ip"}, {"pool": "ip"}, {"pool": "ip", "units": ["a1"]}, None])
points = st.sampled_from([
    "after commit", "before POST", "after POST", "before commit", "after read", "after changes", "after GET",
    "before PATCH", "after PATCH", "after commit", "before POST", "after POST", "before commit",
])  # fmt: skip
trouble = st.builds(
    Order, st.sampled_from(["kill", "lose", "out", "pause"]), points, st.sampled_from([1, 1, 2])
) | st.builds(Order, st.just("lag"), st.just("before changes"), st.just(1))
orders = st.lists(trouble, max_size=2)
looks = st.builds(
    Order,
    st.just("pause"),
    st.sampled_from(["after GET", "before changes", "before commit"]),
    st.integers(1, 5),
)


class Machine(RuleBasedStateMachine):
    """See World; `numbers` are the promises that are looked at, `kind` is that of both
    pools if not any: with a plain one there is no PoolClaim, nor a third node at first, and Pools stay."""

    def __init__(
        self,
        store: Store,
        lose: Callable[[], None],
        client: Client,
        numbers: Sequence[int] = ALL,
        kind: Kind | None = None,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.plain = kind == Kind(0, {})
        self.world = World(store, lose, client, numbers)

    @initialize(
        kinds=st.tuples(kinds, kinds),
        claim=claims,
        asked=st.tuples(asks, asks, asks, asks),
        file=st.sampled_from([False, False, False, True]),
        skews=skews,
    )
    def all_is_well(
        self,
        kinds: tuple[Kind, Kind],
        claim: Spec | None,
        asked: tuple[Wish, ...],
        file: bool,
        skews: tuple[float, ...],
    ) -> None:
        self.world.skews = {} if self.plain else dict(zip(VERBS, skews, strict=True))
        if file and not self.plain:
            self.world.keep_pools_in_a_file()
        self.names = {resource: resource for resource in RESOURCES}
        self.kinds = dict(zip(RESOURCES, kinds if self.kind is None else (self.kind, self.kind), strict=True))
        for resource in RESOURCES:
            self.set_pool(resource, 0)
        self.set_claim(None if self.plain else claim)
        self.world.set_node("n1", NodeIs({"ip": 3, "seat": 2}, "a"))
        self.world.set_node("n2", NodeIs({"ip": 2, "seat": 1}, "b"))
        if not self.plain:
            self.world.set_node("a", NodeIs({"ip": 1, "seat": 1}, ""))
        self.world.reconcile()
        for name, each in zip(NAMES, asked, strict=False):
            self.create_pod(name, each)

    def teardown(self) -> None:
        self.world.api.refused.clear()
        if not self.world.promises.broken:
            self.world.rest(kill=False)
        if not self.world.promises.broken:
            self.world.nothing_is_left_to_mend()
        if not self.world.promises.broken:
            self.world.all_rest_is_over()
        self.world.stop(kill=True)
        self.every_promise_holds()

    @invariant()
    def every_promise_holds(self) -> None:
        assert not self.world.promises.broken, self.world.promises.broken

    # Pods come, run and go

    @precondition(lambda self: self.unused())
    @rule(asks=asks)
    def a_pod_is_created(self, asks: Wish) -> None:
        self.create_pod(self.unused()[0], asks)

    @precondition(lambda self: self.living())
    @rule(which=indexes, how=st.sampled_from(ENDS), told=st.booleans())
    def a_pod_ends(self, which: int, how: str, told: bool) -> None:
        self.world.end_pod(one_of(self.bound() or self.living(), which), how)
        self.tell(told)

    @precondition(lambda self: self.kept_by_finalizers())
    @rule(which=indexes)
    def a_finalizer_is_taken_off(self, which: int) -> None:
        self.world.let_go(one_of(self.kept_by_finalizers(), which))

    @precondition(lambda self: self.waiting())
    @rule(which=indexes, node=st.one_of(st.none(), nodes))
    def somebody_else_writes_to_a_pod_or_binds_it(self, which: int, node: str | None) -> None:
        self.world.interfere(one_of(self.waiting(), which), node)

    # kube-scheduler calls

    @precondition(lambda self: self.room() and self.waiting())
    @rule(which=indexes, lost=orders, orders=orders)
    def every_waiting_pod_is_tried(self, which: int, lost: Sequence[Order], orders: Sequence[Order]) -> None:
        """All filtered, then all bound, for kube-scheduler does not wait for one bind before the next filter;
        and one of them has trouble on its way."""
        chosen = one_of(self.waiting(), which)
        offered: dict[str, list[str]] = {}
        for uid in self.waiting():
            refused = self.world.filter(uid, lost if uid == chosen else ()).result
            offered[uid] = (
                [node for node in NODES if node not in refused] if isinstance(refused, dict) else []
            )
        for uid, left in offered.items():
            if left:
                self.world.bind(uid, one_of(left, which), orders if uid == chosen else ())

    @precondition(lambda self: self.room() and self.waiting())
    @rule(which=indexes, node=nodes, orders=orders)
    def bind_a_pod_that_waits(self, which: int, node: str, orders: Sequence[Order]) -> None:
        self.world.bind(one_of(self.waiting(), which), node, orders)

    @precondition(lambda self: self.room() and self.world.names)
    @rule(which=indexes, node=nodes, orders=orders)
    def bind_a_pod_whatever_became_of_it(self, which: int, node: str, orders: Sequence[Order]) -> None:
        self.world.bind(one_of(list(self.world.names), which), node, orders)

    @precondition(lambda self: self.room())
    @rule(which=indexes, asks=asks, order=trouble, rest=st.booleans())
    def a_bind_meets_trouble(self, which: int, asks: Wish, order: Order, rest: bool) -> None:
        self.world.bind(*self.to_be_bound(which, asks), [order])
        if rest:
            self.world.rest(kill=True)

    @precondition(lambda self: self.room())
    @rule(which=indexes, asks=asks, other=indexes, elsewhere=st.booleans(), point=points, late=st.booleans())
    def a_bind_is_overtaken(
        self, which: int, asks: Wish, other: int, elsewhere: bool, point: str, late: bool
    ) -> None:
        """By another, perhaps of the same pod; and, if late, by a deadline and reconcile before."""
        uid, node = self.to_be_bound(which, asks)
        there = node if not elsewhere else NODES[(NODES.index(node) + 1) % len(NODES)]
        call = self.world.bind(uid, node, [Order("pause", point)])
        if late:
            self.world.time.now += 5.0
            self.world.reconcile()
        if self.waiting():
            self.world.bind(one_of(self.waiting(), other), there)
        if not call.ended:
            self.world.go_on(call)

    @precondition(lambda self: self.waiting())
    @rule(which=indexes)
    def filter_is_offered_one_node_alone(self, which: int) -> None:
        """As for a pod that is nominated to it."""
        uid = one_of(self.waiting(), which)
        alone = [self.world.filter(uid, nominated=node) for node in NODES]
        self.world.promises.agree(self.world.filter(uid), alone)

    # Events come: late, doubled, in any order, forged, or not at all

    @precondition(lambda self: self.room() and self.world.names)
    @rule(which=indexes, named=st.one_of(st.none(), indexes), orders=orders)
    def an_event_comes(self, which: int, named: int | None, orders: Sequence[Order]) -> None:
        """One that was sent, or (`named`) a forged one."""
        if named is not None:
            self.world.deliver(self.forged(which, named), orders)
        elif self.world.events:
            self.world.deliver(one_of(self.world.events, which), orders)

    # Nodes change, the ledger is lost, time passes, and reconcile comes by

    @rule(node=nodes, state=states, told=st.booleans())
    def a_node_changes(self, node: str, state: NodeIs | None, told: bool) -> None:
        self.world.set_node(node, state)
        self.tell(told)

    @precondition(lambda self: not self.plain)
    @rule(resource=st.sampled_from(RESOURCES), which=indexes, suspended=suspended, told=st.booleans())
    def a_pool_changes(self, resource: str, which: int, suspended: bool | None, told: bool) -> None:
        self.set_pool(resource, which, suspended)
        self.tell(told)

    @precondition(lambda self: not self.plain)
    @rule(
        resource=st.sampled_from(RESOURCES),
        name=st.sampled_from(["", "-b"]),
        kind=st.none() | kinds | kinds,
        told=st.booleans(),
    )
    def a_pool_is_renamed_rewritten_or_removed(
        self, resource: str, name: str, kind: Kind | None, told: bool
    ) -> None:
        kind = kind if self.kind is None or kind is None else self.kind
        if kind is None and self.world.may_go(resource):
            self.world.set_pool(self.names[resource], None)
            return
        self.kinds[resource] = kind or self.kinds[resource]
        self.names[resource] = f"{resource}{name}"
        self.set_pool(resource, 0)
        self.tell(told)

    @precondition(lambda self: not self.plain and self.room())
    @rule(
        resource=st.sampled_from(RESOURCES),
        which=indexes,
        suspended=suspended,
        ticks=st.booleans(),
        look=looks,
        bind=st.booleans(),
    )
    def a_look_at_pools_is_overtaken(
        self, resource: str, which: int, suspended: bool | None, ticks: bool, look: Order, bind: bool
    ) -> None:
        """By another, of a Pool that has changed since."""
        self.set_pool(resource, which + 1)
        event = None if ticks else self.world.newest
        call = self.world.reconcile([look]) if event is None else self.world.deliver(event, [look])
        self.set_pool(resource, which, suspended)
        self.tell(told=True)
        if not call.ended:
            self.world.go_on(call)
        if bind and self.waiting():
            self.world.bind(*self.to_be_bound(which, Wish({"ip": 1})))

    @precondition(lambda self: not self.plain)
    @rule(claim=claims, told=st.booleans())
    def the_claim_changes(self, claim: Spec | None, told: bool) -> None:
        self.set_claim(claim)
        self.tell(told)

    @rule(seconds=st.sampled_from([0.5, 5.0]), what=st.sampled_from(["", "lost", "rest", "killed"]))
    def time_passes(self, seconds: float, what: str) -> None:
        """And the ledger is lost, or all that is under way ends or is killed and one reconcile follows."""
        self.world.time.now += seconds
        if what == "lost":
            self.world.lose()
        elif what:
            self.world.rest(kill=what == "killed")

    @precondition(lambda self: not self.plain)
    @rule(ahead=st.sampled_from([HOUR, YEAR, -HOUR]))
    def the_next_call_has_a_wrong_clock(self, ahead: float) -> None:
        self.world.ahead = ahead

    @precondition(lambda self: not self.plain and self.waiting())
    @rule(which=indexes, lost=st.booleans())
    def nobody_can_write_to_a_pod(self, which: int, lost: bool) -> None:
        """Or, if there is one, everybody can again; or the ledger is lost meanwhile."""
        if self.world.api.refused:
            self.world.api.refused.clear()
        else:
            self.world.api.refused.add(one_of(self.waiting(), which))
        if lost:
            self.world.lose()

    @precondition(lambda self: self.room())
    @rule(orders=orders)
    def reconcile(self, orders: Sequence[Order]) -> None:
        self.world.reconcile(orders)

    @precondition(lambda self: self.world.under_way)
    @rule(which=indexes, orders=orders)
    def a_paused_call_goes_on(self, which: int, orders: Sequence[Order]) -> None:
        self.world.go_on(one_of(list(self.world.under_way), which), orders)

    # Help

    def forged(self, whose: int, named: int) -> Event:
        """A pod's deletion, with the UID of one and the name of another."""
        uids = list(self.world.names)
        name = self.world.names[one_of(uids, named)]
        metadata = {"name": name, "namespace": space_of(name), "uid": one_of(uids, whose)}
        return event("delete", {"kind": "Pod", "metadata": metadata})

    def create_pod(self, name: str, wish: Wish) -> None:
        self.world.create_pod(name, wish._replace(claim=wish.claim and not self.plain))

    def tell(self, told: bool) -> None:
        """The newest event; of a file's Pools reconcile tells."""
        if told and self.room():
            if self.world.newest is None:
                self.world.reconcile()
            else:
                self.world.deliver(self.world.newest)

    def set_pool(self, resource: str, which: int, suspended: bool | None = False) -> None:
        self.world.set_pool(self.names[resource], self.kinds[resource].spec(resource, which, suspended))

    def set_claim(self, claim: Spec | None) -> None:
        """For units by their names only where the pool lists some."""
        lists = pools.KINDS[self.kinds["ip"].number][0].get("units")
        if claim is not None and "units" in claim:
            claim = {**claim, "units": [next(iter(lists.values()))[0]]} if lists else {"pool": "ip"}
        self.world.set_claim(claim)

    def unused(self) -> list[str]:
        used = {self.world.names[uid] for uid in self.living()}
        return [name for name in NAMES if name not in used]

    def living(self) -> list[str]:
        return list(self.world.api.pods())

    def kept_by_finalizers(self) -> list[str]:
        """Pods that were deleted and are there still."""
        pods = self.world.api.pods().items()
        marked = [uid for uid, pod in pods if "deletionTimestamp" in pod["metadata"]]
        return [uid for uid in marked if self.world.model.wishes[uid].finalizer]

    def waiting(self) -> list[str]:
        return sorted(self.world.model.waiters(self.world.api.pods()))

    def bound(self) -> list[str]:
        return [uid for uid, pod in self.world.api.pods().items() if bound_node(pod)]

    def to_be_bound(self, which: int, asks: Wish) -> tuple[str, str]:
        """A waiting pod and a node that it fits; a new one, for which another goes, if there is none."""
        if not self.world.kept.open:
            self.world.reconcile()
        if not self.fitting():
            if self.living():
                self.a_pod_goes(one_of(self.bound() or self.living(), which))
            self.create_pod(self.unused()[0], asks)
        pairs = self.fitting() or [(uid, node) for uid in self.waiting() for node in NODES]
        return one_of(pairs, which)

    def a_pod_goes(self, uid: str) -> None:
        self.world.let_go(uid)
        if uid not in self.living():
            return
        self.world.end_pod(uid, "delete")
        self.world.deliver(self.world.events[-1])

    def fitting(self) -> list[tuple[str, str]]:
        return [(uid, node) for uid in self.waiting() for node in NODES if self.world.fits(uid, node)]

    def room(self) -> bool:
        return len(self.world.under_way) < MOST_UNDER_WAY


def one_of(found: Sequence[T], which: int) -> T:
    """The newest for 0, so that small examples are about what was made last."""
    return found[-1 - which % len(found)]
