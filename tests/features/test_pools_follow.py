"""What pods hold follows their Pools in the very look that takes these over: not a tick later, and not by way
of being free meanwhile."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.http import extender_v1
from berth.ledger.keys import USAGE
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged

Take = Callable[[PoolsStage], object]
Pool = dict[str, Any]
"""A Pool's spec."""

NODES = {"n1": {"zone": "x"}, "n2": {"zone": "y"}}
LISTS: dict[str, Pool] = {
    "node": {"units": {"n1": ["a", "b"]}},
    "zone": {"scope": "Topology", "topologyKey": "zone", "units": {"x": ["a", "b"]}},
    "cluster": {"scope": "Cluster", "units": {"*": ["a", "b"]}},
}

# The steps are the verbs' own, so two stores do.
pytestmark = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, {"ip": LISTS["node"]}, NODES) as found:
        yield found


@pytest.fixture(params=[PoolsStage.reconcile, PoolsStage.inventory_of_pool], ids=["reconcile", "inventory"])
def take(request: pytest.FixtureRequest) -> Take:
    """What takes the Pools over."""
    found: Take = request.param
    return found


@pytest.fixture(params=LISTS)
def lists(request: pytest.FixtureRequest) -> Pool:
    """A Pool whose units are listed by node, by zone or for the whole cluster."""
    return LISTS[request.param]


def only(spec: Pool, *units: str) -> Pool:
    """Return the spec with these units in place of its own."""
    (domain,) = spec["units"]
    return {**spec, "units": {domain: list(units)}}


# A unit that is taken off its list while the ledger is lost


def test_a_unit_that_is_listed_again_is_the_pod_s_that_uses_it(
    stage: PoolsStage, take: Take, lists: Pool
) -> None:
    stage.pools(ip=lists)
    holder = stage.bound_pod(ip=1)
    assert stage.of(holder, "ip")[2] == ("a",)
    stage.write_pools(ip=only(lists, "b", "c"))
    stage.lose_ledger()
    stage.reconcile()
    stage.write_pools(ip=only(lists, "a", "b", "c"))
    take(stage)
    assert stage.of(holder, "ip")[2] == ("a",)
    assert {stage.of(stage.bound_pod(ip=1), "ip")[2] for _ in range(2)} == {("b",), ("c",)}
    assert stage.bind(stage.pod(ip=1)) == "ip: 0 of 3 free, 1 asked"
    stage.check_well()


def test_a_unit_that_is_listed_again_is_the_pod_s_though_it_has_one_of_that_name_of_another_pool(
    stage: PoolsStage, take: Take, lists: Pool
) -> None:
    stage.pools(ip=lists, seat=lists)
    holder = stage.bound_pod(ip=1, seat=1)
    stage.write_pools(ip=only(lists, "b", "c"))
    stage.lose_ledger()
    stage.reconcile()
    stage.write_pools(ip=only(lists, "a", "b", "c"))
    take(stage)
    assert [stage.of(holder, pool)[2] for pool in ("ip", "seat")] == [("a",), ("a",)]
    assert {stage.of(stage.bound_pod(ip=1), "ip")[2] for _ in range(2)} == {("b",), ("c",)}
    stage.check_well()


def test_a_unit_that_a_renamed_pool_lists_later_is_the_pod_s_that_has_it_of_the_pool_before(
    stage: PoolsStage, take: Take, lists: Pool
) -> None:
    stage.pools(ip=lists)
    holder = stage.bound_pod(ip=1)
    renamed = {"resource": "berth.dev/ip"}
    for units in (["b", "c"], ["a", "b", "c"]):
        stage.write_pools(ip=None, new={**only(lists, *units), **renamed})
        take(stage)
    assert stage.of(holder, "new")[2] == ("a",)
    assert {stage.of(stage.bound_pod(ip=1), "new")[2] for _ in range(2)} == {("b",), ("c",)}
    assert stage.bind(stage.pod(ip=1)) == "new: 0 of 3 free, 1 asked"
    stage.check_well()


def test_a_unit_that_is_listed_again_in_another_place_is_the_pod_s_that_uses_it(
    stage: PoolsStage, take: Take
) -> None:
    holder = stage.bound_pod(ip=1)
    stage.write_pools(ip={"units": {"n1": ["b"], "n2": ["c"]}})
    stage.lose_ledger()
    stage.reconcile()
    stage.write_pools(ip={"units": {"n1": ["b"], "n2": ["a", "c"]}})
    take(stage)
    assert stage.of(holder, "ip")[1:] == (1, ("a",))
    assert stage.of(stage.bound_pod(on="n2", ip=1), "ip")[2] == ("c",)
    assert stage.bind(stage.pod(ip=1), "n2") == "ip: 0 of 2 free, 1 asked"


def test_a_unit_that_is_listed_again_is_not_another_s_who_says_so(
    stage: PoolsStage, take: Take, lists: Pool
) -> None:
    """Its holder got it while it was listed, and the ledger was not lost."""
    stage.pools(ip=lists)
    holder = stage.bound_pod("w-holder", ip=1)
    note = {"berth.dev/allocated": json.dumps([{"pool": "ip", "units": ["a"]}])}
    thieves = [stage.pod(name, node="n1", annotations=note, ip=1) for name in ("a-thief", "z-thief")]
    stage.write_pools(ip=only(lists, "b", "c", "d", "e"))
    stage.reconcile()
    stage.write_pools(ip=only(lists, "a", "b", "c", "d", "e"))
    take(stage)
    assert [stage.of(each, "ip")[2] for each in (holder, *thieves)] == [("a",), (), ()]


@pytest.mark.parametrize("lost", [True, False])
def test_a_unit_that_two_pods_say_they_use_is_one_s(
    stage: PoolsStage, take: Take, lists: Pool, lost: bool
) -> None:
    many = [f"u{number}" for number in range(400)]
    stage.pools(ip=only(lists, *many))
    note = {"berth.dev/allocated": json.dumps([{"pool": "ip", "units": ["a"]}])}
    calls = [stage.pod(node="n1", annotations=note, ip=1) for _ in range(5)]
    if not lost:
        stage.reconcile()
    stage.write_pools(ip=only(lists, *many, "a"))
    if lost:
        stage.lose_ledger()
        stage.reconcile()
    take(stage)
    assert sorted(stage.of(each, "ip")[2] for each in calls) == [(), (), (), (), ("a",)]


# A Pool that keeps its name and comes to have another shape: other domains, or units with names


COUNTED = {"capacity": {"perDomain": 2}}
SHAPES: dict[str, tuple[Pool, Pool]] = {
    "named by node to cluster": (LISTS["node"], LISTS["cluster"]),
    "named by node to zone": (LISTS["node"], LISTS["zone"]),
    "named by zone to node": (LISTS["zone"], LISTS["node"]),
    "named by cluster to node": (LISTS["cluster"], LISTS["node"]),
    "named to counted": (LISTS["node"], COUNTED),
    "named by cluster to counted by node": (LISTS["cluster"], COUNTED),
    "counted by node to named by cluster": (COUNTED, LISTS["cluster"]),
    "counted by node to cluster": (COUNTED, {"scope": "Cluster", "capacity": {"domains": {"*": 2}}}),
}


@pytest.mark.parametrize("shapes", SHAPES)
def test_what_pods_hold_of_a_pool_that_has_another_shape_is_counted_there_at_once(
    stage: PoolsStage, take: Take, shapes: str
) -> None:
    before, after = SHAPES[shapes]
    stage.pools(ip=before)
    holder = stage.bound_pod(ip=1)
    units = stage.of(holder, "ip")[2]
    stage.write_pools(ip=after)
    take(stage)
    place = {"Node": "n1", "Topology": "x", "Cluster": "*"}[after.get("scope", "Node")]
    assert stage.of(holder, "ip")[:2] == (place, 1)
    assert not ("units" in before and "units" in after) or stage.of(holder, "ip")[2] == units
    stage.check_well() if "units" in before or "units" not in after else stage.reconcile()
    other = stage.bound_pod(ip=1)
    assert not set(stage.of(other, "ip")[2]) & set(stage.of(holder, "ip")[2])
    assert stage.bind(stage.pod(ip=1)) == "ip: 0 of 2 free, 1 asked"


def test_units_that_have_no_names_for_a_while_are_their_holder_s_when_they_have_them_again(
    stage: PoolsStage, take: Take
) -> None:
    lists = {"units": {"n1": ["x", "b"], "n2": ["c"]}}
    stage.pools(ip={"units": {"n1": ["a", "b"], "n2": ["c"]}})
    holder = stage.bound_pod(ip=1)
    stage.pools(ip={"units": {"n1": ["x", "b"], "n2": ["a", "c"]}})  # the unit's place is another now
    stage.write_pools(ip=COUNTED)
    take(stage)
    assert stage.of(holder, "ip")[:2] == ("n1", 1)
    assert stage.bind(stage.pod("n2-1", ip=1), "n2") == ""
    assert stage.bind(stage.pod("n2-2", ip=1), "n2") == ""
    stage.check_well()
    stage.gone(stage.bound_pod(ip=1))
    stage.note(holder.name, {"berth.dev/allocated": "[]"})
    stage.write_pools(ip={**lists, "units": {"n1": ["a", "b"], "n2": ["c", "d", "e"]}})
    take(stage)
    assert stage.of(holder, "ip") == ("n1", 1, ("a",))
    assert stage.of(stage.bound_pod(ip=1), "ip")[2] == ("b",)


# Units of one pod that come to stand in several lists


ZONES: dict[str, Any] = {"scope": "Topology", "topologyKey": "zone"}
SCOPES: dict[str, tuple[dict[str, Any], str, str]] = {"node": ({}, "n1", "n2"), "zone": (ZONES, "x", "y")}
MOVES = pytest.mark.parametrize("scope", SCOPES)


def listed(scope: str, first: list[str], second: list[str], **more: Any) -> dict[str, Any]:
    """A Pool with these units in the domains of n1 and n2."""
    spec, one, other = SCOPES[scope]
    return {**spec, **more, "units": {one: first, other: second}}


def over(scope: str, first: list[str], second: list[str], pool: str = "ip") -> dict[Any, Any]:
    """What a pod holds that has these units in the domains of n1 and n2."""
    _, one, other = SCOPES[scope]
    parts = {(pool, one): (len(first), tuple(first)), (pool, other): (len(second), tuple(second))}
    return {where: part for where, part in parts.items() if part[0]}


def check_stays(stage: PoolsStage, holder: extender_v1.BindingCall) -> None:
    """Nothing that looks at the claim again changes it."""
    claims = stage._ledger(stage.store).view().claims_of(holder.uid)
    stage.check_well()
    stage.inventory_of_pool()
    assert stage.bind(holder, "n2") == ""
    assert stage._ledger(stage.store).view().claims_of(holder.uid) == claims


@MOVES
def test_units_that_are_in_several_lists_after_a_loss_stay_their_holder_s(
    stage: PoolsStage, scope: str
) -> None:
    stage.pools(ip=listed(scope, ["u1", "u2"], ["u3", "u4", "u5"]))
    holder = stage.bound_pod(on="n2", ip=2)
    stage.write_pools(ip=listed(scope, ["u1", "u2", "u3"], ["u4", "u5"]))
    stage.lose_ledger()
    stage.reconcile()
    assert stage.held()[holder.name] == over(scope, ["u3"], ["u4"])
    check_stays(stage, holder)
    assert stage.of(stage.bound_pod(on="n1", ip=2), "ip")[2] == ("u1", "u2")
    assert stage.bind(stage.pod(ip=1), "n1") == "ip: 0 of 3 free, 1 asked"
    assert stage.of(stage.bound_pod(on="n2", ip=1), "ip")[2] == ("u5",)
    assert stage.bind(stage.pod(ip=1), "n2") == "ip: 0 of 2 free, 1 asked"
    stage.check_survives_a_loss()
    stage.gone(holder)
    assert stage.of(stage.bound_pod(on="n1", ip=1), "ip")[2] == ("u3",)
    assert stage.of(stage.bound_pod(on="n2", ip=1), "ip")[2] == ("u4",)
    stage.check_well()


@MOVES
def test_of_units_that_move_to_another_list_while_their_pod_runs_all_stay_until_it_is_gone(
    stage: PoolsStage, take: Take, scope: str
) -> None:
    stage.pools(ip=listed(scope, ["u1", "u2"], ["u3", "u4", "u5"]))
    holder = stage.bound_pod(on="n2", ip=2)
    stage.write_pools(ip=listed(scope, ["u1", "u2", "u3"], ["u4", "u5"]))
    take(stage)
    assert stage.held()[holder.name] == over(scope, [], ["u3", "u4"])
    check_stays(stage, holder)
    assert stage.of(stage.bound_pod(on="n1", ip=2), "ip")[2] == ("u1", "u2")
    assert stage.bind(stage.pod(ip=1), "n1") == "ip: 0 of 2 free, 1 asked"
    stage.gone(holder)
    stage.reconcile()
    assert stage.of(stage.bound_pod(on="n1", ip=1), "ip")[2] == ("u3",)
    assert stage.of(stage.bound_pod(on="n2", ip=2), "ip")[2] == ("u4", "u5")


@MOVES
def test_units_that_are_listed_again_one_by_one_are_the_pod_s_that_uses_them(
    stage: PoolsStage, take: Take, scope: str
) -> None:
    stage.pools(ip=listed(scope, ["u1"], ["u3", "u4", "u5"]))
    holder = stage.bound_pod(on="n2", ip=3)
    stage.write_pools(ip=listed(scope, ["u1"], ["u6"]))
    stage.lose_ledger()
    stage.reconcile()
    _, one, other = SCOPES[scope]
    stage.write_pools(ip=listed(scope, ["u1", "u3"], ["u6"]))
    take(stage)
    assert stage.held()[holder.name] == {("ip", one): (1, ("u3",)), ("ip", other): (2, ())}
    stage.write_pools(ip=listed(scope, ["u1", "u3"], ["u4", "u6"]))
    take(stage)
    assert stage.held()[holder.name] == {("ip", one): (1, ("u3",)), ("ip", other): (2, ("u4",))}
    stage.write_pools(ip=listed(scope, ["u1", "u3", "u5"], ["u4", "u6"]))
    take(stage)
    assert stage.held()[holder.name] == over(scope, ["u3", "u5"], ["u4"])
    check_stays(stage, holder)
    assert stage.of(stage.bound_pod(on="n1", ip=1), "ip")[2] == ("u1",)
    assert stage.bind(stage.pod(ip=1), "n1") == "ip: 0 of 3 free, 1 asked"
    assert stage.of(stage.bound_pod(on="n2", ip=1), "ip")[2] == ("u6",)


@MOVES
def test_units_that_a_pool_of_another_name_has_in_several_lists_stay_their_holder_s(
    stage: PoolsStage, take: Take, scope: str
) -> None:
    resource = "berth.dev/ip"
    stage.pools(ip=listed(scope, ["u1", "u2"], ["u3", "u4", "u5"], resource=resource))
    holder = stage.bound_pod(on="n2", ip=2)
    stage.note(holder.name, {"berth.dev/allocated": "[]"})
    stage.write_pools(ip=None, new=listed(scope, ["u1", "u2", "u3"], ["u4", "u5"], resource=resource))
    take(stage)
    held = stage.held()[holder.name].items()
    assert {where: part for where, part in held if where[0] == "new"} == over(scope, ["u3"], ["u4"], "new")
    check_stays(stage, holder)
    assert stage.of(stage.bound_pod(on="n1", ip=2), "new")[2] == ("u1", "u2")
    assert stage.bind(stage.pod(ip=1), "n1") == "new: 0 of 3 free, 1 asked"


def test_units_that_a_pool_of_another_scope_has_in_several_lists_stay_their_holder_s(
    stage: PoolsStage, take: Take
) -> None:
    stage.pools(ip=listed("zone", ["u1"], ["u3", "u4", "u5"]))
    holder = stage.bound_pod(on="n2", ip=3)
    stage.note(holder.name, {"berth.dev/allocated": "[]"})
    stage.write_pools(ip=listed("node", ["u1", "u3"], ["u4", "u6"]))
    take(stage)
    assert stage.held()[holder.name] == {("ip", "n1"): (1, ("u3",)), ("ip", "n2"): (2, ("u4", "u5"))}
    check_stays(stage, holder)
    stage.write_pools(ip=listed("node", ["u1", "u3", "u5"], ["u4", "u6"]))
    take(stage)
    assert stage.of(stage.bound_pod(on="n1", ip=1), "ip")[2] == ("u1",)
    assert stage.bind(stage.pod(ip=1), "n1") == "ip: 0 of 2 free, 1 asked"  # u5 is listed there later


@MOVES
def test_units_in_several_lists_count_against_what_each_has_for_pods_that_are_not_important(
    stage: PoolsStage, scope: str
) -> None:
    more = {"limits": {"*": 3}, "reserved": {"priorityAtLeast": 5, "units": 1}}
    stage.pools(ip=listed(scope, ["u1", "u2"], ["u3", "u4", "u5"], **more))
    holder = stage.bound_pod(on="n2", ip=2)
    stage.write_pools(ip=listed(scope, ["u1", "u2", "u3"], ["u4", "u5"], **more))
    stage.lose_ledger()
    stage.reconcile()
    _, one, other = SCOPES[scope]
    (claim,) = stage._ledger(stage.store).view().claims_of(holder.uid)
    shares = {each.domain: each.count for each in claim.logical()}
    assert shares == {one: 1, other: 1, f"{one}<": 1, f"{other}<": 1, "@default": 2}
    check_stays(stage, holder)
    why = "ip: 0 of 1 free that are not reserved for a higher priority, 1 asked"
    assert stage.bind(stage.pod("late", ip=1), "n2") == why
    assert stage.of(stage.bound_pod(on="n1", ip=1), "ip")[2] == ("u1",)
    why = "ip: 0 of the 3 that namespace default may hold are free, 1 asked"
    assert stage.bind(stage.pod(ip=1, priority=9), "n2") == why
    stage.gone(holder)
    assert stage.bind(stage.pod(ip=1, priority=9), "n2") == ""
    stage.check_well()


@MOVES
def test_units_of_a_poolclaim_that_are_in_several_lists_after_a_loss_stay_its_pod_s(
    stage: PoolsStage, scope: str
) -> None:
    stage.pools(ip=listed(scope, ["u1"], ["u3", "u4", "u5", "u6"]))
    stage.claim_object("erc", "ip", count=2)
    holder = stage.bound_pod(on="n2", claims="erc", ip=3)
    stage.write_pools(ip=listed(scope, ["u1", "u3"], ["u4", "u5", "u6"]))
    stage.lose_ledger()
    stage.reconcile()
    assert stage.held()[holder.name] == over(scope, ["u3"], ["u4", "u5"])
    assert sorted(stage.status("erc")["units"]) == ["u3", "u4"]
    check_stays(stage, holder)
    assert stage.of(stage.bound_pod(on="n1", ip=1), "ip")[2] == ("u1",)
    assert stage.bind(stage.pod(ip=1), "n1") == "ip: 0 of 2 free, 1 asked"
    stage.gone(holder)
    assert stage.status("erc")["phase"] == "Available"
    again = stage.bound_pod(on="n2", claims="erc", ip=2)
    assert stage.of(again, "ip")[1] == 2
    stage.check_well()


# A PoolClaim that changes while its pod runs


@pytest.mark.parametrize("counts", [(1, None, 1), (1, 2), (2, 1), (1, None, 2, 1)])
@pytest.mark.long
def test_units_stay_their_holder_s_while_the_poolclaim_that_gave_some_changes(
    stage: PoolsStage, take: Take, lists: Pool, counts: tuple[int | None, ...]
) -> None:
    """None: it is gone for a while."""
    stage.pools(ip=only(lists, "a", "b", "c"))
    for count in counts:
        stage.objects.documents.clear()
        if count is None:
            stage.inventory_of_claim("erc")
        else:
            stage.claim_object("erc", "ip", count=count)
        if not stage.pods():
            holder = stage.bound_pod(claims="erc", ip=2)
            stage.note(holder.name, {"berth.dev/allocated": "[]"})
        take(stage)
        assert stage.of(holder, "ip")[1:] == (2, ("a", "b"))
    stage.check_well()
    assert len(stage.status("erc")["units"]) == counts[-1]
    assert stage.of(stage.bound_pod(ip=1), "ip")[2] == ("c",)
    assert stage.bind(stage.pod(ip=1)) == "ip: 0 of 3 free, 1 asked"


@pytest.mark.parametrize("counted", [COUNTED, {"scope": "Cluster", "capacity": {"domains": {"*": 300}}}])
def test_a_poolclaim_for_a_certain_unit_gets_none_without_a_name(stage: PoolsStage, counted: Pool) -> None:
    """filter and bind say so alike."""
    stage.claim_object("erc", "ip", units=["a"])
    stage.pools(ip=counted)
    call = stage.pod(claims="erc", ip=1)
    why = "ip: PoolClaim erc is refused: it names units that the Pool does not list"
    assert stage.why(call, "n1") == {"n1": why}
    assert stage.bind(call) == why
    assert stage.bind(stage.pod(ip=1)) == ""
    stage.pools(ip=LISTS["node"])
    assert stage.bind(call) == ""
    assert stage.of(call, "ip")[2] == ("a",)


# A bind that is repeated for a pod that is bound already


def test_a_bind_that_is_repeated_keeps_what_the_pod_has_of_a_pool_that_is_gone(stage: PoolsStage) -> None:
    stage.pools(seat={**COUNTED, "resource": "example.com/seat"})
    holder = stage.add_pod(other="example.com/seat")
    assert stage.bind(holder) == ""
    stage.pools(seat=None)
    held = stage.held()[holder.name]
    assert set(held) == {("ip", "n1"), ("seat", "n1")}
    assert stage.bind(holder) == ""
    assert stage.held()[holder.name] == held
    stage.check_well()


def test_a_bind_that_is_repeated_keeps_the_poolclaim_s_units_though_that_is_gone(stage: PoolsStage) -> None:
    stage.claim_object("erc", "ip")
    holder = stage.bound_pod(claims="erc", ip=1)
    held = stage.held()[holder.name]
    stage.objects.documents.clear()
    stage.inventory_of_claim("erc")
    stage.reconcile()
    assert stage.held()[holder.name] == held
    claims = stage._ledger(stage.store).view().claims_of(holder.uid)
    assert stage.bind(holder) == ""
    assert stage._ledger(stage.store).view().claims_of(holder.uid) == claims
    stage.check_well()


# A pod that has finished while its Pool comes under another name


@pytest.mark.parametrize("named", [True, False])
def test_what_is_held_until_its_pod_is_deleted_is_never_free_while_its_pool_is_renamed(
    stage: PoolsStage, take: Take, named: bool
) -> None:
    spec = {**(LISTS["node"] if named else COUNTED), "resource": "berth.dev/ip", "releaseOn": "Deleted"}
    stage.pools(ip=spec)
    holder = stage.bound_pod(ip=1)
    units = stage.of(holder, "ip")[2]
    stage.finished(holder)
    stage.note(holder.name, {"berth.dev/allocated": "[]"})
    stage.write_pools(ip=None, new=spec)
    unheld: list[int] = []

    def step() -> None:
        if holder.name not in stage.held():
            unheld.append(1)

    stage.stepping(take, step)
    assert not unheld
    assert stage.of(holder, "new") == ("n1", 1, units)
    stage.check_well()
    other = stage.bound_pod(ip=1)
    assert not set(stage.of(other, "new")[2]) & set(units)
    assert stage.bind(stage.pod(ip=1)) == "new: 0 of 2 free, 1 asked"
    stage.gone(holder)
    assert stage.bind(stage.pod(ip=1)) == ""


def test_what_a_lost_node_may_use_stays_held_while_its_pool_is_renamed(stage: PoolsStage, take: Take) -> None:
    spec = {**LISTS["node"], "resource": "berth.dev/ip"}
    stage.pools(ip=spec)
    holder = stage.bound_pod(ip=1)
    stage.write_node("n1", ready=False)
    assert stage.gone(holder)["held"] == ["ip"]
    stage.write_pools(ip=None, new=spec)
    take(stage)
    assert stage.of(holder, "new") == ("n1", 1, ("a",))
    assert stage.states() == {holder.name: "lost"}
    assert stage.of(stage.bound_pod(ip=1), "new")[2] == ("b",)
    stage.check_well()


def test_units_that_a_lost_node_may_use_are_held_each_in_the_place_that_lists_it_now(
    stage: PoolsStage, take: Take
) -> None:
    stage.pools(ip=LISTS["cluster"])
    holder = stage.bound_pod(ip=2)
    stage.write_node("n1", ready=False)
    assert stage.gone(holder)["held"] == ["ip"]
    stage.write_pools(ip={**LISTS["zone"], "units": {"x": ["a"], "y": ["b"]}})
    take(stage)
    assert stage.held()[holder.name] == {("ip", "x"): (1, ("a",)), ("ip", "y"): (1, ("b",))}
    assert stage.bind(stage.pod(ip=1), "n2") == "ip: 0 of 1 free, 1 asked"
    stage.check_well()


def test_what_a_lost_node_may_use_is_no_unit_for_important_pods_when_its_pool_is_cut_otherwise(
    stage: PoolsStage, take: Take
) -> None:
    reserved = {"reserved": {"priorityAtLeast": 5, "units": 1}}
    stage.pools(ip={"units": {"n1": ["a", "b", "c"]}, **reserved})
    holder = stage.bound_pod(ip=2)
    stage.write_node("n1", ready=False)
    assert stage.gone(holder)["held"] == ["ip"]
    stage.write_pools(ip={"scope": "Cluster", "units": {"*": ["a", "b", "c"]}, **reserved})
    take(stage)
    assert stage.of(holder, "ip") == ("*", 2, ("a", "b"))
    assert stage.bind(stage.pod(ip=1), "n2") != ""
    assert stage.bind(stage.pod(ip=1, priority=5), "n2") == ""
    stage.check_well()


def test_a_poolclaim_that_a_lost_node_may_use_is_nobody_else_s_when_its_pool_is_cut_otherwise(
    stage: PoolsStage, take: Take
) -> None:
    stage.claim_object("erc", "ip")
    holder = stage.bound_pod(claims="erc", ip=1)
    stage.write_node("n1", ready=False)
    assert stage.gone(holder)["held"] == ["ip"]
    stage.write_pools(ip=LISTS["cluster"])
    take(stage)
    assert stage.of(holder, "ip") == ("*", 1, ("a",))
    other = stage.pod(claims="erc", ip=1)
    assert stage.bind(other, "n2") != ""
    stage.check_well()
    stage.write_node("n1")
    stage.node_event("n1")
    assert stage.bind(other, "n2") == ""
    assert stage.of(other, "ip") == ("*", 1, ("a",))


# What stays of a Pool that is gone


@pytest.mark.parametrize("striped", [True, False])
@pytest.mark.parametrize("held", [True, False])
def test_of_a_pool_that_is_gone_and_that_nobody_holds_the_store_keeps_nothing(
    stage: PoolsStage, take: Take, striped: bool, held: bool
) -> None:
    spec: dict[str, Any] = {"limits": {"*": 300}, "reserved": {"priorityAtLeast": 5, "units": 10}}
    spec |= {"scope": "Topology", "topologyKey": "zone"} if striped else {}
    stage.pools(ip=None, seat={**spec, "capacity": {"perDomain": 400}}, other=COUNTED)
    stage.claim_object("erc", "seat")
    calls = [stage.bound_pod(on=node, seat=1, claims="erc" if node == "n1" else "") for node in ("n1", "n2")]
    named = {**spec, "units": {"x" if striped else "n1": [f"u{number}" for number in range(300)]}}
    stage.pools(seat=named)
    if not held:
        for each in calls:
            stage.gone(each)
    stage.write_pools(seat=None)
    take(stage)
    stage.objects.documents.clear()
    stage.inventory_of_claim("erc")
    if held:
        for each in calls:
            stage.gone(each)
    stage.reconcile()
    stage.count_use()
    kept = {key for key in stage.store.changes(None).documents if "seat" in key}
    assert {key for key in kept if not key.startswith(USAGE)} == set()


def test_of_a_node_that_is_gone_and_whose_units_nobody_holds_the_store_keeps_nothing(
    stage: PoolsStage,
) -> None:
    spec = {"scope": "Topology", "topologyKey": "zone", "capacity": {"perDomain": 400}}
    stage.pools(seat={**spec, "reserved": {"priorityAtLeast": 5, "units": 10}})
    call = stage.bound_pod(on="n2", seat=1, ip=0)
    stage.cluster.delete("/api/v1/nodes/n2")
    stage.node_event("n2")
    stage.reconcile()
    stage.gone(call)
    stage.reconcile()
    stage.count_use()
    kept = stage.store.changes(None).documents
    assert {key for key in kept if key.startswith("node/n2") or "/y" in key or "/n2" in key} == set()
