"""Who is woken when room was made, in which order and how many; on the stand-in API server.
That kube-scheduler then tries them is shown by tests/e2e/test_wakes.py."""

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from berth.controller.requeue import wake
from berth.deadline import Deadline
from berth.errors import BerthError, ClusterRefusedError, ClusterUnavailableError
from berth.kube.writes import FAILING_SECONDS
from berth.scheduling.demand import demand_of
from tests.support.builders.ledgers import ledger_on
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged
from tests.support.builders.stage import DOWN, Stage, staged

pytestmark = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # it asks no store much


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Stage]:
    with staged(tmp_path, place) as found:
        yield found


def test_twice_the_room_and_eight_more_are_woken_by_priority_then_by_age(stage: Stage) -> None:
    names = [stage.add_pod(priority=number % 2).name for number in range(20)]
    assert _wake(stage, {"ip": 1}) == 10
    assert _woken(stage) == set(names[1::2])


def test_those_behind_are_woken_as_well_if_asked_so(stage: Stage) -> None:
    for _ in range(20):
        stage.add_pod()
    assert _wake(stage, {"ip": 1}, rotate=True) == 20


def test_nobody_is_woken_without_room_or_for_another_pool(stage: Stage) -> None:
    stage.add_pod()
    assert _wake(stage, {}) == 0
    assert _wake(stage, {"licence": 3}) == 0
    for node in ("n1", "n2"):
        assert stage.bind(stage.add_pod(), node) == ""
    assert _wake(stage, {"ip": 1}) == 0  # it was taken again before anyone could be woken


def test_a_pod_that_can_not_use_the_room_is_left_alone(stage: Stage) -> None:
    stage.add_pod(units="2")  # more than any node has
    stage.add_pod(units="500m")
    stage.add_pod(gates=[{"name": "example.com/later"}])
    stage.add_pod(scheduler="default-scheduler")
    stage.add_pod(units="0")
    stage.add_pod(other="berth.dev/typo")
    usable = stage.add_pod()
    assert _wake(stage, {"ip": 1}) == 1
    assert _woken(stage) == {usable.name}


def test_no_pods_are_listed_while_nothing_is_free(stage: Stage) -> None:
    for node in ("n1", "n2"):
        assert stage.bind(stage.add_pod(), node) == ""
    stage.add_pod()
    with mock.patch.object(stage.cluster, "unbound_pods") as listed:
        assert _wake(stage, {"ip": 1}) == 0
    assert not listed.called


def test_no_more_waiters_are_judged_than_are_woken(stage: Stage) -> None:
    for number in range(30):
        stage.add_pod(labels={"number": str(number)})
    with mock.patch("berth.scheduling.demand.demand_of", wraps=demand_of) as judged:
        assert _wake(stage, {"ip": 1}) == 10
    assert judged.call_count == 10


UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
POOLS: dict[str, Any] = {
    "ip": {"capacity": {"perDomain": 1}},
    "rack": {"scope": "Topology", "topologyKey": "rack", "capacity": {"perDomain": 1}},
    "k80": {"units": {"n1": ["a"], "n2": ["b"]}},
    "gpu": {"capacity": {"perDomain": 2}, "reserved": {"priorityAtLeast": 10, "units": 1}},
}

KEPT = {"sticky": {"by": "Pod", "forSeconds": 600}}


@pytest.fixture
def pools(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    """n1 and n2 are in rack r1, n3 is in r2."""
    nodes = {"n1": {"rack": "r1"}, "n2": {"rack": "r1"}, "n3": {"rack": "r2"}}
    with pools_staged(tmp_path, place, POOLS, nodes) as found:
        yield found


def test_reconcile_wakes_nobody_for_a_unit_on_a_node_that_takes_no_pods(pools: PoolsStage) -> None:
    for node in ("n1", "n2"):
        pools.bound_pod(on=node, ip=1)
    waiter = pools.pod(ip=1)
    pools.write_node("n3", cordoned=True, rack="r2")
    assert pools.reconcile().woken == 0
    at_home_there = pools.pod(ip=1, tolerates=UNSCHEDULABLE)
    assert pools.reconcile().woken == 1
    assert pools.woken() == {at_home_there.name}
    pools.write_node("n3", rack="r2")
    assert pools.reconcile().woken == 2
    assert waiter.name in pools.woken()


def test_a_domain_of_several_nodes_gives_as_long_as_one_of_them_takes_pods(pools: PoolsStage) -> None:
    pools.bound_pod(on="n3", rack=1)
    pools.pod(rack=1)
    pools.write_node("n1", cordoned=True, rack="r1")
    assert pools.reconcile().woken == 1
    pools.write_node("n2", cordoned=True, rack="r1")
    assert pools.reconcile().woken == 0


def test_reconcile_wakes_nobody_for_a_unit_in_a_suspended_domain(pools: PoolsStage) -> None:
    for node in ("n1", "n2"):
        pools.bound_pod(on=node, ip=1)
    pools.pod(ip=1)
    pools.pools(ip={"capacity": {"perDomain": 1}, "suspended": ["n3"]})
    assert pools.reconcile().woken == 0
    pools.pools(ip={"capacity": {"perDomain": 1}})
    assert pools.reconcile().woken == 1


def test_reconcile_wakes_nobody_for_units_that_a_poolclaim_is_not_for(pools: PoolsStage) -> None:
    pools.claim_object("mine", "k80", count=1, units=["a"])
    pools.bound_pod(on="n1", k80=1)
    pools.pod(k80=1, claims="mine")
    assert pools.reconcile().woken == 0


def test_reconcile_wakes_nobody_for_units_that_no_node_has_together(pools: PoolsStage) -> None:
    pools.bound_pod(on="n1", ip=1)
    pools.bound_pod(on="n2", ip=1)
    pools.bound_pod(on="n3", rack=1)
    pools.pod(ip=1, rack=1)  # an address is left on n3, room in the rack only at n1 and n2
    assert pools.reconcile().woken == 0


def test_who_is_woken_is_who_filter_would_let_through(pools: PoolsStage) -> None:
    nodes = ("n1", "n2", "n3")
    pools.pools(ip={**POOLS["ip"], "limits": {"default": 2}, "sticky": {"by": "Pod", "forSeconds": 60}})
    pools.claim_object("mine", "k80", count=1, units=["b"])
    for node in nodes:
        pools.bound_pod(on=node, gpu=1)
    pools.gone(pools.bound_pod("had", on="n1", ip=1))
    pools.bound_pod(on="n2", ip=1)
    waiters = [
        pools.pod(ip=1),
        pools.pod("had", ip=1),
        pools.pod(ip=2),
        pools.pod(gpu=1),
        pools.pod(gpu=1, priority=10),
        pools.pod(ip=1, gpu=1, priority=10),
        pools.pod(k80=1, claims="mine"),
        pools.pod(k80=1, claims="other"),
        pools.pod(k80=1, rack=1),
        pools.pod(k80=1, rack=2),
    ]
    passing = {call.name for call in waiters if pools.passes(call, *nodes)}
    assert 3 < len(passing) < len(waiters)
    for name in list(pools.woken()):
        pools.cluster.delete(f"/api/v1/namespaces/default/pods/{name}")
    assert pools.reconcile().woken == len(passing & pools.pods())
    assert pools.woken() == passing & pools.pods()


def test_a_unit_that_a_pod_left_and_that_is_listed_no_more_is_no_room(pools: PoolsStage) -> None:
    """Filter counts the units that are listed: neither pods are listed, nor are more woken, for others."""
    pools.pools(k80={"units": {"n1": ["a", "c", "d", "e"]}, **KEPT})
    for call in [pools.bound_pod(k80=1) for _ in range(4)]:
        pools.gone(call)
    pools.pools(k80={"units": {"n1": ["x"]}, **KEPT})
    for _ in range(12):
        pools.pod(k80=1)
    assert _wake(pools, {"k80": 4}) == 2 * 1 + 8
    pools.bound_pod(k80=1)
    with mock.patch.object(pools.objects._cluster, "unbound_pods") as listed:
        assert _wake(pools, {"k80": 4}) == 0
    assert not listed.called


def test_a_unit_that_rests_is_no_room_until_it_has_rested_and_one_that_is_kept_is_its_owners(
    pools: PoolsStage,
) -> None:
    pools.pools(k80={"units": {"n1": ["a"]}, "reuseAfterSeconds": 60, **KEPT})
    had = pools.bound_pod("had", k80=1)
    pools.pod(k80=1)
    assert pools.gone(had)["woken"] == 0
    again = pools.pod("had", k80=1)
    with mock.patch.object(pools.objects._cluster, "unbound_pods") as listed:
        assert _wake(pools, {"k80": 1}) == 0
    assert not listed.called
    pools.time.now += 60
    assert _wake(pools, {"k80": 1}) == 1
    assert pools.woken() == {again.name}


def test_what_is_kept_where_more_is_used_than_there_is_is_nobodys(pools: PoolsStage) -> None:
    """Bind gives nothing there, so filter offers nothing, and nobody is woken, until less is used."""
    licences = {"scope": "Cluster", **KEPT}
    pools.pools(licence={**licences, "capacity": {"domains": {"*": 6}}})
    for _ in range(5):
        pools.bound_pod(licence=1)
    pools.gone(pools.bound_pod("had", licence=1))
    again = pools.pod("had", licence=1)
    assert pools.passes(again, "n1") == {"n1"}
    pools.pools(licence={**licences, "capacity": {"domains": {"*": 4}}})
    assert pools.why(again, "n1") == {"n1": pools.bind(again)} == {"n1": "licence: 0 of 4 free, 1 asked"}
    assert pools.reconcile().woken == 0
    with mock.patch.object(pools.objects._cluster, "unbound_pods") as listed:
        assert _wake(pools, {"licence": 1}) == 0
    assert not listed.called
    pools.pools(licence={**licences, "capacity": {"domains": {"*": 6}}})
    assert again.name in pools.woken()
    assert pools.bind(again) == ""


def test_a_unit_freed_on_a_node_that_takes_no_pods_wakes_nobody_until_it_does(pools: PoolsStage) -> None:
    for node in ("n2", "n3"):
        pools.bound_pod(on=node, ip=1)
    leaves = pools.bound_pod(on="n1", ip=1, rack=1)
    waits, of_the_rack = pools.pod(ip=1), pools.pod(rack=1)
    pools.bound_pod(on="n3", rack=1)
    pools.write_node("n1", cordoned=True, rack="r1")
    assert pools.gone(leaves)["woken"] == 1
    assert pools.woken() == {of_the_rack.name}
    pools.write_node("n1", rack="r1")
    assert pools.reconcile().woken == 2
    assert waits.name in pools.woken()


@pytest.mark.parametrize("pauses", [(60,), (120,), (1, 119), (31, 60, 89)], ids=str)
def test_a_reconcile_writes_to_a_bounded_number_of_waiters_and_reaches_everyone_in_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, pauses: tuple[int, ...]
) -> None:
    monkeypatch.setattr("berth.controller.requeue.FIRST_IN_LINE", 3)
    monkeypatch.setattr("berth.controller.requeue.NEXT_IN_LINE", 7)
    waiters = {stage.add_pod().name for _ in range(48)}
    seen, reached = stage.versions(), set[str]()
    until, ticks = stage.time.now + 17 * 60, cycle(pauses)  # 45 in turn, at least 3 further on each minute
    while stage.time.now < until:
        assert stage.reconcile().woken == 10
        now = stage.versions()
        reached |= {name for name in waiters if now[name] != seen[name]}
        seen = now
        stage.time.now += next(ticks)
    assert reached == waiters


def test_a_reconcile_always_wakes_the_first_in_line(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.controller.requeue.FIRST_IN_LINE", 1)
    monkeypatch.setattr("berth.controller.requeue.NEXT_IN_LINE", 2)
    for _ in range(12):
        stage.add_pod()
    first = stage.add_pod(priority=1)
    for _ in range(12):
        before = stage.versions()[first.name]
        assert stage.reconcile().woken == 3
        assert stage.versions()[first.name] != before
        stage.time.now += 60


@pytest.mark.parametrize("error", [DOWN, ClusterRefusedError("a webhook says no", 403)], ids=["500", "403"])
def test_a_pod_that_can_not_be_written_to_does_not_keep_the_room_from_the_next(
    stage: Stage, error: BerthError
) -> None:
    first, second = stage.add_pod(), stage.add_pod()
    with stage.unwritable(first.name, error=error) as failed:
        assert _wake(stage, {"ip": 1}) == 1
        assert failed == [first.name]
    assert _woken(stage) == {second.name}


def test_a_reconcile_tells_which_pod_was_not_woken_and_wakes_the_others(stage: Stage) -> None:
    first, second = stage.add_pod(), stage.add_pod()
    with stage.unwritable(first.name):
        report = stage.reconcile()
    assert (report.woken, report.problems) == (1, [f"pod default/{first.name} was not woken: {DOWN}"])
    assert _woken(stage) == {second.name}


def test_an_api_server_that_is_away_is_given_up_with_the_first_pod(stage: Stage) -> None:
    names = [stage.add_pod().name for _ in range(8)]
    away = ClusterUnavailableError("the API server did not answer (connection refused)")
    with (
        stage.unwritable(*names, error=away) as failed,
        mock.patch.object(stage.cluster, "pod", side_effect=away),
        pytest.raises(ClusterUnavailableError) as raised,
    ):
        _wake(stage, {"ip": 1})
    assert (failed, raised.value) == (names[:1], away)


def test_a_webhook_that_hangs_costs_a_reconcile_a_bounded_time(stage: Stage) -> None:
    hang = [stage.add_pod(priority=1).name for _ in range(20)]
    for _ in range(3):
        stage.add_pod()
    with stage.unwritable(*hang, seconds=3.0) as failed:
        report = stage.reconcile()
    assert len(failed) == FAILING_SECONDS / 3
    assert report.problems[-1] == "18 pods were not tried: others took too long"


def test_a_caller_that_has_no_time_left_wakes_no_more(stage: Stage) -> None:
    for _ in range(3):
        stage.add_pod()
    ticks = iter([0.0, 0.0, 1.0])
    assert _wake(stage, {"ip": 1}, deadline=Deadline(1.0, lambda: next(ticks))) == 1


def test_each_wake_changes_the_pod_anew_even_while_the_clock_stands_still(stage: Stage) -> None:
    call = stage.add_pod()
    versions = set()
    for _ in range(3):
        assert _wake(stage, {"ip": 1}) == 1
        pod = stage.cluster.pod("default", call.name)
        assert pod is not None
        versions.add(pod.metadata.resource_version)
    assert len(versions) == 3


def _wake(stage: Stage, room: dict[str, int], **how: Any) -> int:
    ledger = ledger_on(stage.store, time=stage.time)
    return wake(ledger, stage.cluster, ["berth"], room, stage.time(), **how)


def _woken(stage: Stage) -> set[str]:
    items, _ = stage.cluster.snapshot("/api/v1/pods", {})
    return {
        item["metadata"]["name"]
        for item in items
        if any(found.get("reason") == "Woken" for found in item["status"].get("conditions", []))
    }
