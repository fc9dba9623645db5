"""What the property test (properties/) found, each as one plain example: a few steps in its world, on a store
in memory. That the same holds in every store and order is the property test's."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from berth.ledger import refusals
from berth.ledger.allocation import Requester, plan, taken
from berth.ledger.keys import domain_key
from berth.ledger.model import Claim, Domain, Holding, PoolClaimSpec
from tests.properties.api import api_client
from tests.properties.bugs import (
    a_capacity_that_falls_closes_nothing,
    a_reservation_from_the_future_is_young,
    pods_that_terminate_are_not_counted_after_a_loss,
    units_kept_on_another_node_keep_nobody_from_the_one_that_is_offered,
    what_a_wrong_clock_wrote_is_believed,
    what_rests_is_forgotten_when_its_node_is_registered_anew,
)
from tests.properties.calls import KILL, Order
from tests.properties.machine import HOUR, YEAR
from tests.properties.memory import MemoryStore
from tests.properties.pools import LONG, NODES, NodeIs, Spec, small_stripes
from tests.properties.promises import ALL
from tests.properties.random_world import World
from tests.properties.wish import Wish

Bug = Callable[[], AbstractContextManager[None]]
Example = Callable[[World], object]
PLAIN: Spec = {"capacity": {"nodeAnnotation": "example.com/seat"}}
ONE = Wish({"ip": 1})
READY, UNREADY = (NodeIs({"ip": 1, "seat": 1}, "a", ready) for ready in (True, False))


@contextmanager
def a_world() -> Iterator[World]:
    """Node n1 in zone a."""
    store = MemoryStore()
    with small_stripes():
        found = World(store, store.lose, api_client(), ALL)
        found.set_node("n1", READY)
        yield found
        found.stop(kill=True)


@pytest.fixture
def world() -> Iterator[World]:
    """What its tests break of a promise fails them."""
    with a_world() as found:
        yield found
    assert not found.promises.broken, found.promises.broken


def pools(world: World, ip: Spec) -> None:
    world.set_pool("ip", ip)
    world.set_pool("seat", PLAIN)
    world.set_claim({"pool": "ip"})
    world.reconcile()


def pod(world: World, name: str, wish: Wish = ONE) -> str:
    """A waiting pod; its UID."""
    world.create_pod(name, wish)
    return next(uid for uid in reversed(world.names) if world.names[uid] == name)


def bound(world: World, name: str, wish: Wish = ONE) -> str:
    uid = pod(world, name, wish)
    assert world.bind(uid, "n1").answer == ""
    return uid


def answer_to(world: World, name: str) -> str:
    """What bind answers to a new pod."""
    return str(world.bind(pod(world, name), "n1").answer)


def ends(world: World, uid: str) -> Any:
    """What release says of it."""
    world.end_pod(uid, "delete")
    return world.deliver(world.events[-1]).result


def units(world: World, uid: str) -> set[str]:
    return {unit for claim in world.kept.claims[uid] for _, unit in claim.units}


def seats(number: int) -> Spec:
    return {"scope": "Cluster", "capacity": {"domains": {"*": number}}}


def fall_below_use(world: World) -> str:
    """The answer to a pod that comes when more seats are held than there are; some stripe has room."""
    pools(world, seats(6))
    for name in ("p1", "p2", "p3"):
        bound(world, name)
    world.set_pool("ip", seats(2))
    world.rest(kill=False)  # from then on nobody may go by the old capacity
    return answer_to(world, "p4")


def test_a_capacity_that_falls_below_use_gives_nothing_though_a_stripe_has_room(world: World) -> None:
    assert fall_below_use(world) == "ip: 0 of 2 free, 1 asked"


def die_under_a_wrong_clock(world: World) -> bool:
    """Whether all is free once all is at rest; a bind whose clock was an hour ahead had died before its
    Binding."""
    pools(world, seats(6))
    uid = pod(world, "p1")
    world.ahead = HOUR
    world.bind(uid, "n1", [Order(KILL.what, "before POST")])
    assert world.kept.state(uid) == "reserved"
    world.rest(kill=True)
    return not world.kept.claims


def test_a_reservation_from_the_future_is_settled_like_any_other(world: World) -> None:
    assert die_under_a_wrong_clock(world)


def free_under_a_wrong_clock(world: World) -> str:
    """The answer to a pod that comes when the rest of a unit is over; it was freed under a clock that was a
    year ahead."""
    pools(world, {**seats(1), "reuseAfterSeconds": 60})
    world.end_pod(bound(world, "p1"), "delete")
    world.ahead = YEAR
    world.deliver(world.events[-1])
    world.rest(kill=True)
    world.all_rest_is_over()
    return answer_to(world, "p2")


def test_a_unit_that_was_freed_under_a_wrong_clock_rests_no_longer_than_its_pool_says(world: World) -> None:
    assert free_under_a_wrong_clock(world) == ""


def test_whom_inventory_wakes_when_its_clock_is_behind_can_have_the_unit(world: World) -> None:
    """The rest of the unit is over: a pod that waits for it is not written to for nothing."""
    rests = {**seats(1), "reuseAfterSeconds": LONG}
    pools(world, rests)
    ends(world, bound(world, "p1"))
    uid = pod(world, "p2")
    world.ahead = -HOUR
    world.set_pool("ip", rests)
    world.deliver(world.events[-1])
    world.rest(kill=True)
    world.nothing_is_left_to_mend()
    assert world.bind(uid, "n1").answer == ""


def test_whom_inventory_makes_room_for_while_it_counts_running_pods_is_woken(world: World) -> None:
    """Two of them are put where one stripe has room for one: for a moment, nothing is given."""
    pools(world, seats(6))
    runs = [pod(world, name, Wish({"ip": units})) for name, units in (("p1", 2), ("p2", 1), ("p3", 2))]
    pod(world, "p4")
    for uid in runs:
        world.interfere(uid, "n1")
    world.set_pool("ip", seats(6))
    world.deliver(world.events[-1])


@pytest.mark.parametrize("fence", ["refused", "lost"])
def test_a_binding_whose_answer_is_lost_is_a_success_though_its_pod_can_not_be_fenced(
    world: World, fence: str
) -> None:
    pools(world, seats(6))
    uid = pod(world, "p1")
    lost = [Order("lose", "after POST")]
    if fence == "refused":
        world.api.refused.add(uid)
    else:
        lost.append(Order("lose", "before PATCH"))
    assert world.bind(uid, "n1", lost).answer == ""
    assert world.kept.state(uid) == "bound"


def lose_the_ledger_of_a_pod_that_terminates(world: World) -> bool:
    """Whether it is counted in the ledger that is built anew."""
    pools(world, seats(1))
    uid = bound(world, "p1")
    world.end_pod(uid, "delete in time")
    world.lose()
    world.reconcile()
    return uid in world.kept.claims


def test_a_pod_that_terminates_is_counted_after_a_loss(world: World) -> None:
    assert lose_the_ledger_of_a_pod_that_terminates(world)


def come_back_with_a_unit_that_rests(world: World) -> str:
    """The answer to a pod that comes when the node with the unit was removed and registered anew."""
    pools(world, {"units": {"n1": ["a1"]}, "reuseAfterSeconds": 60})
    ends(world, bound(world, "p1"))
    for state in (None, READY):
        world.set_node("n1", state)
        world.reconcile()
    return answer_to(world, "p2")


def test_a_unit_rests_though_its_node_is_registered_anew(world: World) -> None:
    assert come_back_with_a_unit_that_rests(world) == "ip: 0 of 1 free, 1 asked"


def look_for_a_kept_unit(world: World) -> object:
    """What filter answers to a pod whose unit is kept on n1, nominated to n2 and offered that alone."""
    lists = {"n1": ["a1"], "n2": ["b1"]}
    pools(world, {"units": lists, "sticky": {"by": "Pod", "forSeconds": 60}})
    world.set_node("n2", READY)
    world.reconcile()
    ends(world, bound(world, "p1"))
    uid = pod(world, "p1")
    alone = {node: world.filter(uid, nominated=node) for node in NODES}
    world.promises.agree(world.filter(uid), list(alone.values()))
    return alone["n2"].result


def test_a_pod_keeps_to_its_units_though_it_is_offered_another_node_alone(world: World) -> None:
    assert look_for_a_kept_unit(world) == {"n2": refusals.KEPT}


SEEN: list[tuple[Bug, Example, object, str]] = [
    (
        a_capacity_that_falls_closes_nothing,
        fall_below_use,
        "",
        "promise 1: 4 of 2 units of ('ip', '*') are claimed",
    ),
    (
        a_reservation_from_the_future_is_young,
        die_under_a_wrong_clock,
        False,
        "promise 3: the ledger has {",
    ),
    (
        what_a_wrong_clock_wrote_is_believed,
        free_under_a_wrong_clock,
        "ip: 0 of 1 free, 1 asked",
        "promise 6: ",
    ),
    (
        pods_that_terminate_are_not_counted_after_a_loss,
        lose_the_ledger_of_a_pod_that_terminates,
        False,
        "promise 8: opened without the claim of ",
    ),
    (
        what_rests_is_forgotten_when_its_node_is_registered_anew,
        come_back_with_a_unit_that_rests,
        "",
        "promise 1: ",
    ),
    (
        units_kept_on_another_node_keep_nobody_from_the_one_that_is_offered,
        look_for_a_kept_unit,
        {},
        "promise 7: filter refused n2: ",
    ),
]


@pytest.mark.parametrize(
    ("bug", "example", "answer", "promise"), SEEN, ids=[each[0].__name__ for each in SEEN]
)
def test_a_bug_that_chance_meets_too_seldom_is_seen_as_a_broken_promise(
    bug: Bug, example: Example, answer: object, promise: str
) -> None:
    """The examples above, each with the bug that it was found by."""
    with bug(), a_world() as world:
        assert example(world) == answer
    assert world.promises.broken.startswith(promise)


def test_a_late_bind_of_a_pod_that_is_gone_frees_nothing_that_its_lost_node_may_use(world: World) -> None:
    pools(world, {"units": {"n1": ["a1"]}})
    uid = bound(world, "p1")
    world.set_node("n1", UNREADY)
    assert ends(world, uid)["held"] == ["ip"]
    assert "is gone" in str(world.bind(uid, "n1").answer)
    assert units(world, uid) == {"a1"}


def test_a_unit_that_a_poolclaim_gave_stays_the_pods_when_poolclaim_and_ledger_are_gone(world: World) -> None:
    pools(world, {"units": {"n1": ["a1", "a2"]}})
    uid = bound(world, "p1", Wish({"ip": 1}, claim=True))
    given = units(world, uid)
    world.set_claim(None)
    world.lose()
    world.reconcile()
    assert units(world, uid) == given
    assert units(world, bound(world, "p2")).isdisjoint(given)


def test_a_waiter_is_woken_when_what_it_is_kept_for_is_free_though_others_can_not_have_it(
    world: World,
) -> None:
    pools(world, {"units": {"n1": ["a1"]}, "sticky": {"by": "Pod", "forSeconds": 60}})
    old = bound(world, "p1")
    world.end_pod(old, "delete")
    other, again = pod(world, "p2"), pod(world, "p1")
    call = world.deliver(world.events[-1])
    assert call.woken == {again}
    assert world.reconcile().woken == {again}
    assert other not in world.kept.claims


def test_stripes_that_lost_a_unit_while_it_was_held_give_all_others_once_it_is_free(world: World) -> None:
    pools(world, {"scope": "Topology", "topologyKey": "zone", "units": {"a": ["u1", "u2", "u3"]}})
    holders = {min(units(world, uid)): uid for uid in [bound(world, f"p{number}") for number in (1, 2, 3)]}
    world.set_pool("ip", {"scope": "Topology", "topologyKey": "zone", "units": {"a": ["u1", "u2"]}})
    world.reconcile()
    ends(world, holders["u1"])
    ends(world, holders["u3"])
    assert units(world, bound(world, "p4")) == {"u1"}


@pytest.mark.parametrize("away", ["node", "PoolClaim"])
def test_a_bound_pods_claim_is_confirmed_though_its_node_or_its_poolclaim_is_away(
    world: World, away: str
) -> None:
    pools(world, {"scope": "Topology", "topologyKey": "zone", "capacity": {"perDomain": 3}})
    uid = pod(world, "p1", Wish({"ip": 1}, claim=True))
    world.bind(uid, "n1", [Order(KILL.what, "after POST")])
    assert world.kept.state(uid) == "reserved"
    if away == "node":
        world.set_node("n1", None)
    else:
        world.set_claim(None)
    world.reconcile()
    assert world.kept.state(uid) == "bound"


@pytest.mark.parametrize("stripes", [0, 1])
def test_a_poolclaims_own_unit_is_not_given_to_what_else_its_pod_asks_for(stripes: int) -> None:
    there = "*#0" if stripes else "*"
    documents: Mapping[str, Domain] = {
        domain_key("ip", "*"): Domain(2, units=("u1", "u2"), stripes=stripes),
        domain_key("ip", there): Domain(2, units=("u1", "u2")),
        domain_key("ip", "!d/erc"): Domain(1, poolclaim=PoolClaimSpec(1, ("u1",))),
    }
    wanted = tuple(Holding("ip", "*", 1, (), claim) for claim in ("", "erc"))
    claim = Claim(uid="u", namespace="d", name="p", node="n1", holdings=wanted)
    planned, short = plan(claim, documents.__getitem__, Requester("u", "d"))
    found, still_short = taken(planned, documents.__getitem__, Requester("u", "d"))
    assert not short
    assert not still_short
    assert {each.claim: each.units for each in found} == {"": ("u2",), "erc": ("u1",)}


def test_a_look_that_lags_takes_away_nothing_that_a_newer_look_gave(world: World) -> None:
    """Both Pools have as many units that are not reserved; the late one knows only the Pool of before."""
    reserved = {"reserved": {"priorityAtLeast": 5, "units": 1}}
    pools(world, {**PLAIN, **reserved, "capacity": {"perDomain": 2}})
    world.set_pool("ip", {**reserved, "units": {"n1": ["a1", "a2"]}})
    assert world.newest is not None
    world.deliver(world.events[-1])
    world.reconcile([Order("lag", "before changes")])
    world.rest(kill=False)
    assert world.bind(pod(world, "p1"), "n1").answer == ""
