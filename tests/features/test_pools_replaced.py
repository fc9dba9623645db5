"""Pools that are renamed, replaced or reshaped while pods run: what runs is counted by the Pools as
they are before these give anything, and what it holds of Pools and PoolClaims that are gone it keeps."""

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from berth.errors import ClusterUnavailableError, StoreUnavailableError
from berth.http import extender_v1
from berth.kube.cluster import Cluster
from berth.ledger.ledger import Ledger
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged
from tests.support.builders.steps import Step, each_step
from tests.support.selection import IS_LONG

IP = "berth.dev/ip"
TWO: dict[str, Any] = {"resource": IP, "capacity": {"perDomain": 2}}
NODES = {"n1": {"rack": "r1", "zone": "z"}, "n2": {"rack": "r2", "zone": "z"}, "n3": {"rack": "r3"}}
NAMES: dict[str, Any] = {"resource": IP, "units": {"n1": ["a", "b", "c"]}}
NIGHTLY = pytest.mark.nightly
CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # the steps are the verbs' own
ONE_STORE = pytest.mark.parametrize("place", ["sqlite"], indirect=True)

Take = Callable[[PoolsStage], object]
VERBS = pytest.mark.parametrize("take", [PoolsStage.reconcile, PoolsStage.inventory_of_pool])


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, {"old": TWO}, NODES) as found:
        yield found


def shares(
    stage: PoolsStage, call: extender_v1.BindingCall, pool: str
) -> list[tuple[str, int, tuple[str, ...]]]:
    """What the pod holds of one pool: domains, counts and units."""
    found = stage.held().get(call.name, {}).items()
    return sorted((domain, *what) for (of, domain), what in found if of == pool)


def noted(pool: str, *units: str) -> dict[str, str]:
    found = {"pool": pool, "domain": "n1", "count": len(units), "units": units}
    return {"berth.dev/allocated": json.dumps([found])}


@VERBS
def test_a_pool_that_is_renamed_counts_the_pods_that_run(stage: PoolsStage, take: Take) -> None:
    holders = [stage.bound_pod(ip=1), stage.bound_pod(ip=1)]
    stage.write_pools(old=None, new=TWO)
    take(stage)
    waiter = stage.pod(ip=1)
    assert stage.why(waiter, "n1") == {"n1": "new: 0 of 2 free, 1 asked"}
    assert stage.bind(waiter) == "new: 0 of 2 free, 1 asked"
    assert [shares(stage, each, "new") for each in holders] == [[("n1", 1, ())]] * 2
    stage.check_well()
    # And back again: those that came meanwhile are counted as well.
    stage.gone(holders[0])
    assert stage.bind(waiter) == ""
    stage.write_pools(old=TWO, new=None)
    take(stage)
    assert stage.bind(stage.pod(ip=1)) == "old: 0 of 2 free, 1 asked"
    stage.gone(holders[1])
    assert stage.bind(stage.pod(ip=1)) == ""
    stage.check_well()
    stage.lose_ledger()
    stage.reconcile()
    assert stage.bind(stage.pod(ip=1)) == "old: 0 of 2 free, 1 asked"


@CHEAP
@pytest.mark.parametrize("lost", [False, True])
def test_a_seat_of_the_whole_cluster_counts_though_its_pod_s_node_is_gone(
    stage: PoolsStage, lost: bool
) -> None:
    seats = {"resource": "berth.dev/seat", "scope": "Cluster", "capacity": {"domains": {"*": 1}}}
    stage.pools(before=seats)
    holder = stage.bound_pod(seat=1)
    stage.cluster.delete("/api/v1/nodes/n1")
    stage.node_event("n1")
    stage.write_pools(before=None, after=seats)
    if lost:
        stage.lose_ledger()
    stage.reconcile()
    assert shares(stage, holder, "after") == [("*", 1, ())]
    waiter = stage.pod(seat=1)
    assert stage.bind(waiter, "n2") == "after: 0 of 1 free, 1 asked"
    stage.check_well()
    stage.gone(holder)
    assert stage.bind(waiter, "n2") == ""


@VERBS
def test_a_pool_that_comes_when_another_goes_counts_the_pods_that_ask_for_both(
    stage: PoolsStage, take: Take
) -> None:
    holders = [stage.pod(node="n1", ip=1, seat=1) for _ in range(2)]
    stage.reconcile()
    seats = {**TWO, "resource": "berth.dev/seat"}
    stage.write_pools(old=None, seat=seats)
    take(stage)
    assert stage.bind(stage.pod(seat=1)) == "seat: 0 of 2 free, 1 asked"
    assert [shares(stage, each, "seat") for each in holders] == [[("n1", 1, ())]] * 2
    stage.write_pools(old=TWO)
    take(stage)
    assert stage.bind(stage.pod(ip=1)) == "old: 0 of 2 free, 1 asked"
    stage.check_well()


@VERBS
def test_a_limit_counts_pods_whose_poolclaim_is_gone_and_the_poolclaim_finds_its_holder_again(
    stage: PoolsStage, take: Take
) -> None:
    stage.claim_object("erc", "old")
    holder = stage.bound_pod(claims="erc", ip=2)
    document = stage.objects.documents.pop(("default", "erc"))
    stage.inventory_of_claim("erc")
    take(stage)
    stage.write_pools(old={**TWO, "limits": {"*": 2}})
    take(stage)
    text = "old: 0 of the 2 that namespace default may hold are free, 1 asked"
    assert stage.bind(stage.pod(ip=1), "n2") == text
    stage.check_well()
    stage.objects.put(document)
    stage.inventory_of_claim("erc")
    stage.write_pools(old={**TWO, "limits": {"*": 3}})
    take(stage)
    said = stage.bind(stage.pod(claims="erc", ip=1), "n2")
    assert said == "old: another pod holds PoolClaim erc"
    stage.check_well()
    stage.gone(holder)
    assert stage.bind(stage.pod(claims="erc", ip=1), "n2") == ""


@VERBS
@pytest.mark.parametrize(
    "changed",
    [{"scope": "Topology", "topologyKey": "rack"}, {"scope": "Topology", "topologyKey": "zone"}],
    ids=["rack", "zone"],
)
def test_a_pool_whose_domains_become_others_counts_what_runs_there(
    stage: PoolsStage, take: Take, changed: dict[str, str]
) -> None:
    holders = [stage.bound_pod(on=node, ip=1) for node in ("n1", "n2", "n3")]
    stage.write_pools(old={**TWO, **changed})
    take(stage)
    racks = changed["topologyKey"] == "rack"
    places = [stage.held()[each.name] for each in holders[:2]]
    assert places == [{("old", "r1" if racks else "z"): (1, ())}, {("old", "r2" if racks else "z"): (1, ())}]
    stage.check_well()
    said = [stage.bind(stage.pod(ip=1), node) for node in ("n1", "n2", "n3")]
    full = "old: 0 of 2 free, 1 asked"
    assert said == (["", "", ""] if racks else [full, full, "old: none on this node"])
    stage.write_pools(old=TWO)
    take(stage)
    assert [shares(stage, each, "old") for each in holders] == [
        [("n1", 1, ())], [("n2", 1, ())], [("n3", 1, ())]
    ]  # fmt: skip
    stage.check_well()


@VERBS
def test_a_renamed_pool_gives_nobody_the_unit_that_a_pod_uses(stage: PoolsStage, take: Take) -> None:
    """By what the pod's claim says of the old Pool, whatever others have written into their annotations."""
    stage.pools(old=NAMES)
    thief = stage.pod("a-thief", node="n1", annotations=noted("old", "a"), ip=1)
    holders = [stage.bound_pod("w1", ip=1), stage.bound_pod("w2", ip=1)]
    stage.reconcile()
    assert [shares(stage, each, "old")[0][2] for each in (*holders, thief)] == [("a",), ("b",), ()]
    stage.note("w2", noted("old", "c"))
    stage.note("a-thief", noted("new", "b"))
    stage.write_pools(old=None, new={**NAMES, "units": {"n1": ["b", "c"], "n2": ["d", "a"]}})
    take(stage)
    assert [shares(stage, each, "new") for each in (*holders, thief)] == [
        [("n2", 1, ("a",))], [("n1", 1, ("b",))], [("n1", 1, ())]
    ]  # fmt: skip
    assert stage.bind(stage.pod(ip=1)) == "new: 0 of 2 free, 1 asked"
    assert stage.of(stage.bound_pod(on="n2", ip=1), "new")[2] == ("d",)
    held = stage.held()
    stage.reconcile()
    assert stage.held() == held


@CHEAP
@VERBS
def test_a_renamed_pool_gives_nobody_the_unit_of_a_pod_that_went_unseen_with_its_node(
    stage: PoolsStage, take: Take
) -> None:
    """Its event is not there yet, and its claim is still that of a pod that runs."""
    stage.pools(old=NAMES)
    gone = stage.bound_pod(ip=1)
    stage.write_node("n1", ready=False)
    stage.cluster.delete(f"/api/v1/namespaces/default/pods/{gone.name}")
    stage.write_pools(old=None, new={**NAMES, "units": {"n2": ["a", "d"]}})
    take(stage)
    assert (stage.of(gone, "new"), stage.states()) == (("n2", 1, ("a",)), {gone.name: "lost"})
    assert stage.of(stage.bound_pod(on="n2", ip=1), "new")[2] == ("d",)
    stage.check_well()


@CHEAP
@VERBS
def test_two_pools_renamed_at_once_take_over_each_its_own_units(stage: PoolsStage, take: Take) -> None:
    """Their units have the same names; which Pool followed which, the resource tells."""
    slots = {"units": {"n1": ["0", "1", "2"]}}
    gpu = {**slots, "resource": "berth.dev/gpu"}
    stage.pools(old={**slots, "resource": IP}, gpu=gpu)
    first = stage.bound_pod(ip=1)
    both = stage.bound_pod(ip=1, gpu=1)
    assert (stage.of(both, "old")[2], stage.of(both, "gpu")[2]) == (("1",), ("0",))
    stage.write_pools(
        old=None, gpu=None, a={**slots, "resource": "berth.dev/gpu"}, b={**slots, "resource": IP}
    )
    take(stage)
    found = [shares(stage, both, "a"), shares(stage, both, "b"), shares(stage, first, "b")]
    assert found == [[("n1", 1, ("0",))], [("n1", 1, ("1",))], [("n1", 1, ("0",))]]
    stage.check_well()


@CHEAP
@VERBS
def test_a_pool_that_counts_something_else_hands_what_runs_on_to_the_one_that_counts_it_now(
    stage: PoolsStage, take: Take
) -> None:
    stage.pools(old=NAMES)
    holders = [stage.bound_pod(ip=1), stage.bound_pod(ip=1)]
    both = stage.pod(node="n1", ip=1, seat=1)
    stage.reconcile()
    stage.write_pools(old={**NAMES, "resource": "berth.dev/seat"}, new=NAMES)
    take(stage)
    assert [shares(stage, each, "new") for each in (*holders, both)] == [
        [("n1", 1, ("a",))], [("n1", 1, ("b",))], [("n1", 1, ())]
    ]  # fmt: skip
    assert [shares(stage, each, "old") for each in (*holders, both)] == [[], [], [("n1", 1, ())]]
    stage.gone(holders[0])
    assert stage.of(stage.bound_pod(ip=1), "new")[2] == ("a",)
    assert stage.bind(stage.pod(ip=1)) == "new: 0 of 3 free, 1 asked"
    assert [stage.of(stage.bound_pod(seat=1), "old")[2] for _ in range(2)] == [("a",), ("b",)]
    held = stage.held()
    stage.reconcile()
    assert stage.held() == held
    stage.lose_ledger()
    stage.reconcile()
    assert stage.held() == held


@CHEAP
@VERBS
def test_pools_that_swap_what_they_count_swap_their_holders(stage: PoolsStage, take: Take) -> None:
    seat = {**TWO, "resource": "berth.dev/seat"}
    stage.pools(seat=seat)
    calls = [stage.bound_pod(ip=2), stage.bound_pod(seat=1)]
    stage.write_pools(old=seat, seat=TWO)
    take(stage)
    assert [stage.held()[each.name] for each in calls] == [
        {("seat", "n1"): (2, ())}, {("old", "n1"): (1, ())}
    ]  # fmt: skip
    stage.check_well()


@CHEAP
@VERBS
def test_what_a_pool_gave_stays_held_while_no_pool_counts_that_resource(
    stage: PoolsStage, take: Take
) -> None:
    """Its unit is used still; a Pool that counts it later finds it by its name."""
    seats = {**NAMES, "resource": "berth.dev/seat"}
    stage.pools(old=NAMES)
    holder = stage.bound_pod(ip=1)
    stage.write_pools(old=seats)
    take(stage)
    assert stage.of(stage.bound_pod(seat=1), "old")[2] == ("b",)
    stage.write_pools(new=NAMES)
    take(stage)
    assert shares(stage, holder, "new") == [("n1", 1, ("a",))]
    stage.gone(holder)
    assert stage.of(stage.bound_pod(seat=1), "old")[2] == ("a",)


@CHEAP
def test_a_ledger_that_is_lost_when_a_pool_is_renamed_believes_names_that_are_listed_and_free(
    stage: PoolsStage,
) -> None:
    stage.pools(old=NAMES)
    holders = [stage.bound_pod(ip=1), stage.bound_pod(ip=1)]
    stage.write_pools(old=None, new=NAMES)
    stage.lose_ledger()
    assert stage.reconcile().rebuilt
    assert [shares(stage, each, "new") for each in holders] == [[("n1", 1, ("a",))], [("n1", 1, ("b",))]]
    assert stage.of(stage.bound_pod(ip=1), "new")[2] == ("c",)
    stage.check_well()


@pytest.mark.drawn
@pytest.mark.slow
@ONE_STORE
@VERBS
@pytest.mark.parametrize(
    "after",
    [
        pytest.param({"old": None, "new": TWO}, id="renamed"),
        pytest.param(
            {"old": {**TWO, "scope": "Topology", "topologyKey": "rack"}}, id="by racks", marks=NIGHTLY
        ),
        pytest.param(
            {"old": {**TWO, "resource": "berth.dev/seat"}, "new": TWO}, id="handed on", marks=NIGHTLY
        ),
    ],
)
@pytest.mark.long
def test_a_bind_at_any_step_of_a_change_of_pools_gets_no_more_than_there_is(
    stage: PoolsStage, take: Take, after: dict[str, Any]
) -> None:
    """And after it the rest is had: nothing is held twice."""

    def bind() -> None:
        for name in ("w0", "w1"):
            stage.bind(stage.pod(name, ip=1))

    full = f"{'new' if 'new' in after else 'old'}: 0 of 2 free, 1 asked"
    for step in each_step(every=1 if IS_LONG else 8):
        stage.clear_pods()
        stage.pools(old=TWO, new=None)
        stage.bound_pod("holder", ip=1)
        stage.write_pools(**after)
        stage.stepping(take, step.doing(bind))
        bound = [name for name, node in stage.bound().items() if node == "n1"]
        assert len(bound) <= 2, f"step {step.number}: {bound}"
        stage.check_counts()
        if len(bound) < 2:
            assert stage.bind(stage.pod("last", ip=1)) == "", f"step {step.number}"
        assert stage.bind(stage.pod("over", ip=1)) == full, f"step {step.number}"


@ONE_STORE
@VERBS
@pytest.mark.long
def test_a_change_of_pools_at_any_step_of_a_bind_counts_the_pod(stage: PoolsStage, take: Take) -> None:
    def rename() -> None:
        stage.write_pools(old=None, new=TWO)
        take(stage)
        for name in ("other0", "other1"):
            stage.bind(stage.pod(name, ip=1))

    for step in each_step():
        stage.clear_pods()
        stage.pools(old=TWO, new=None)
        stage.bound_pod("holder", ip=1)
        call = stage.pod("w0", ip=1)
        said = stage.bind(call, step=step.doing(rename))
        if step.reached:
            if said and len(stage.bound()) < 2:
                assert stage.bind(call) == "", f"step {step.number}: {said}"
            assert len(stage.bound()) == 2, f"step {step.number}: {said} {stage.bound()}"
            stage.check_counts()
            assert stage.bind(stage.pod("over", ip=1)) == "new: 0 of 2 free, 1 asked"


def renamings(stage: PoolsStage, take: Take) -> Iterator[tuple[Step, Callable[[], None]]]:
    """Begin anew for each step of a call, which is given what renames the Pool there, and takes that over."""

    def rename() -> None:
        stage.write_pools(old=None, new=TWO)
        take(stage)

    for step in each_step():
        stage.clear_pods()
        stage.pools(old=TWO, new=None)
        yield step, step.doing(rename)


@CHEAP
@VERBS
@pytest.mark.parametrize("confirmed", [True, False], ids=["confirmed", "reserved"])
@pytest.mark.long
def test_a_change_of_pools_at_any_step_of_a_late_bind_takes_nothing_from_its_pod(
    stage: PoolsStage, take: Take, confirmed: bool
) -> None:
    """The pod runs already, and what the bind knows of it is by the Pools of before."""
    away = mock.patch.object(Ledger, "confirm", side_effect=StoreUnavailableError("away"))

    for step, renames in renamings(stage, take):
        with nullcontext() if confirmed else away:
            runs = stage.bound_pod("runs", ip=2)
        assert stage.bind(runs, step=renames) == ""
        if step.reached:
            assert stage.bind(stage.pod("over", ip=1)) == "new: 0 of 2 free, 1 asked", f"step {step.number}"
            stage.check_well()


@CHEAP
@VERBS
@pytest.mark.long
def test_a_change_of_pools_at_any_step_of_a_bind_whose_answer_is_lost_counts_the_pod(
    stage: PoolsStage, take: Take
) -> None:
    bind = Cluster.bind

    def unheard(*call: Any) -> None:
        bind(*call)
        raise ClusterUnavailableError("lost")

    for step, renames in renamings(stage, take):
        with mock.patch.object(Cluster, "bind", unheard):
            said = stage.bind(stage.pod("runs", ip=2), step=renames)
        if step.reached and not said:
            assert stage.bind(stage.pod("over", ip=1)) == "new: 0 of 2 free, 1 asked", f"step {step.number}"
            stage.check_counts()
