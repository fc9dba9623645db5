"""A lost ledger is opened although a waiting pod can't be fenced; what that pod may still take is held back.

On the real API server, with a webhook that is down: tests/e2e/test_lost_ledger.py.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.errors import ClusterRefusedError, ClusterUnavailableError
from berth.http.extender_v1 import BindingCall
from berth.kube.cluster import Cluster
from berth.ledger.migrate import Copy
from berth.stores import open_store
from tests.support.builders.ledgers import ledger_on
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged
from tests.support.builders.stage import DOWN

POOLS: dict[str, Any] = {
    "ip": {"capacity": {"perDomain": 1}},
    "seat": {"scope": "Cluster", "capacity": {"domains": {"*": 1}}},
    "disk": {"capacity": {"perDomain": 2}},
    "k80": {"units": {"n1": ["a", "b"]}},
}
HELD = (
    "{}: held back since berth's ledger was lost: a pod that waits for it could not be written to (berth "
    "reconcile says which and why)"
)


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS) as found:
        yield found


def lost(stage: PoolsStage, *stuck: str) -> None:
    """The ledger is lost, and reconciled while these pods can't be written to."""
    stage.lose_ledger()
    with stage.unwritable(*stuck):
        report = stage.reconcile()
    assert report.rebuilt
    told = [f"pod default/{name} was not fenced, so what it asks for is held back: {DOWN}" for name in stuck]
    assert sorted(line for line in report.problems if "fenced" in line) == told


def tick(stage: PoolsStage, *stuck: str) -> int:
    """One reconcile later; how many pods it woke."""
    with stage.unwritable(*stuck):
        return stage.reconcile().woken


def lands_late(stage: PoolsStage, call: BindingCall, node: str = "n1", **notes: str) -> None:
    """The Binding that a bind sent before the ledger was lost."""
    stage.cluster.bind(stage.get(call.name), node, notes, 5.0)


def test_a_node_whose_status_can_not_be_written_does_not_keep_a_lost_ledger_closed(
    stage: PoolsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: object) -> None:
        raise DOWN

    stage.write_pools(gpu={"capacity": {"perDomain": 1}, "preemption": "Native"})
    monkeypatch.setattr(Cluster, "set_node_status", down)
    stage.lose_ledger()
    report = stage.reconcile()
    assert report.rebuilt
    what = "what preemption counts was not written into its status"
    assert sorted(report.problems) == [f"node {name}: {what}: {DOWN}" for name in ("n1", "n2")]


def test_one_pod_that_can_not_be_fenced_holds_back_what_it_asks_for_and_nothing_else(
    stage: PoolsStage,
) -> None:
    stuck = stage.pod("stuck", ip=1, seat=1)
    lost(stage, "stuck")
    stage.bound_pod(disk=1)
    for asked, waiter in (("ip", stage.pod(ip=1)), ("seat", stage.pod(seat=1))):
        assert stage.why(waiter, "n1", "n2") == dict.fromkeys(("n1", "n2"), HELD.format(asked))
        assert stage.bind(waiter) == stage.bind(waiter, "n2") == HELD.format(asked)
    assert stage.bind(stuck) == f"{HELD.format('ip')}; {HELD.format('seat')}"
    assert stage.held().keys() == {"pod-0"}


def test_a_binding_that_lands_late_finds_its_units_free_and_then_the_rest_is_given(stage: PoolsStage) -> None:
    stuck, waiter = stage.pod("stuck", ip=1), stage.pod(ip=1)
    lost(stage, "stuck")
    assert stage.bind(waiter) == HELD.format("ip")
    lands_late(stage, stuck)
    assert tick(stage) == 1
    assert stage.held() == {"stuck": {("ip", "n1"): (1, ())}}
    assert stage.bind(waiter) == "ip: 0 of 1 free, 1 asked"
    assert stage.bind(waiter, "n2") == ""


def test_a_unit_with_a_name_is_not_given_while_a_late_binding_may_bring_it(stage: PoolsStage) -> None:
    stuck, waiter = stage.pod("stuck", k80=1), stage.pod(k80=1)
    lost(stage, "stuck")
    assert stage.bind(waiter) == HELD.format("k80")
    allocated = '[{"pool":"k80","domain":"n1","count":1,"units":["a"]}]'
    lands_late(stage, stuck, **{"berth.dev/allocated": allocated})
    tick(stage)
    assert stage.bind(waiter) == ""
    assert [stage.of(call, "k80")[2] for call in (stuck, waiter)] == [("a",), ("b",)]


@pytest.mark.parametrize("end", ["fenced", "gone", "finished"])
def test_what_is_held_back_is_given_once_the_pod_is_fenced_or_can_be_bound_no_more(
    stage: PoolsStage, end: str
) -> None:
    stuck, waiter = stage.pod("stuck", ip=1), stage.pod(ip=1)
    lost(stage, "stuck")
    for _ in range(2):
        assert tick(stage, "stuck") == 0
        assert stage.bind(waiter) == HELD.format("ip")
    late = stage.get("stuck")
    if end == "gone":
        stage.delete(stuck)
    elif end == "finished":
        stage.finish(stuck)
    tick(stage, *([] if end == "fenced" else ["stuck"]))
    assert waiter.name in stage.woken()
    assert stage.bind(waiter) == ""
    with pytest.raises(ClusterRefusedError):
        stage.cluster.bind(late, "n1", {}, 5.0)


def test_of_two_such_pods_each_holds_back_its_own(stage: PoolsStage) -> None:
    stage.pod("one", ip=1)
    stage.pod("two", ip=1, seat=1)
    ip, seat = stage.pod(ip=1), stage.pod(seat=1)
    lost(stage, "one", "two")
    tick(stage, "one")
    assert stage.bind(ip) == HELD.format("ip")
    assert stage.bind(seat) == ""
    tick(stage)
    assert stage.bind(ip) == ""


def test_no_event_of_a_node_or_a_pool_gives_what_is_held_back(stage: PoolsStage) -> None:
    stage.pod("stuck", ip=1)
    waiter = stage.pod(ip=1)
    lost(stage, "stuck")
    stage.node_event("n1")
    assert stage.pools(ip={"capacity": {"perDomain": 5}})["woken"] == 0
    assert stage.bind(waiter) == HELD.format("ip")


def test_a_pool_that_comes_later_or_under_another_name_is_held_back_too(stage: PoolsStage) -> None:
    stage.pod("stuck", ip=1, other=1)
    lost(stage, "stuck")
    of_the_later, of_the_renamed = stage.pod(other=1), stage.pod(ip=1)
    stage.pools(other={"capacity": {"perDomain": 1}}, ip=None, address={"resource": "berth.dev/ip"})
    assert stage.bind(of_the_later) == HELD.format("other")
    assert stage.bind(of_the_renamed) == HELD.format("address")


def test_pods_that_come_after_the_loss_hold_back_nothing(stage: PoolsStage) -> None:
    stage.pod("stuck", ip=1)
    lost(stage, "stuck")
    later = stage.pod("later", ip=1)
    assert tick(stage, "stuck", "later") == 0
    tick(stage, "later")
    assert stage.bind(later) == ""


def test_a_ledger_that_is_lost_again_holds_back_anew(stage: PoolsStage) -> None:
    stage.pod("stuck", ip=1)
    lost(stage, "stuck")
    lost(stage, "stuck")
    assert stage.bind(stage.pod(ip=1)) == HELD.format("ip")
    tick(stage)
    assert stage.bind(stage.pod(ip=1)) == ""


def test_pods_whose_webhook_hangs_do_not_keep_the_others_from_being_fenced(stage: PoolsStage) -> None:
    hang = [stage.pod(f"hangs-{number}", ip=1).name for number in range(8)]
    for number in range(4):
        stage.pod(f"other-{number}", disk=1)
    stage.lose_ledger()
    waiter = stage.pod(seat=1)
    for _ in range(20):
        with stage.unwritable(*hang, seconds=5.0) as failed:
            stage.reconcile()
        assert len(failed) <= 3
        stage.time.now += 60 - 5.0 * len(failed)
    assert stage.bind(stage.pod(disk=1)) == stage.bind(waiter) == ""
    assert stage.bind(stage.pod(ip=1)) == HELD.format("ip")


def test_a_look_that_was_overtaken_lifts_nothing(stage: PoolsStage) -> None:
    stage.pod("stuck", ip=1)
    lost(stage, "stuck")
    ledger = ledger_on(stage.store, time=stage.time, while_closed=True)
    before = ledger.held_back()
    lost(stage, "stuck")
    assert not ledger.hold_back(before._replace(uids=frozenset(), resources=()), before)
    assert stage.bind(stage.pod(ip=1)) == HELD.format("ip")


def test_a_ledger_stays_closed_while_too_many_pods_can_not_be_fenced(
    stage: PoolsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.controller.fencing.MOST_UNFENCED", 1)
    for name in ("one", "two"):
        stage.pod(name, ip=1)
    stage.lose_ledger()
    with (
        stage.unwritable("one", "two"),
        pytest.raises(ClusterUnavailableError, match="stays closed: 2 waiting"),
    ):
        stage.reconcile()
    assert stage.bind(stage.pod(disk=1)).startswith("berth's ledger is being rebuilt")
    lost(stage, "one")
    stage.bound_pod(disk=1)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_copy_of_the_ledger_holds_back_the_same(stage: PoolsStage, tmp_path: Path) -> None:
    stage.pod("stuck", ip=1)
    lost(stage, "stuck")
    target = open_store(f"sqlite:///{tmp_path}/copy.db")
    source, stage.store = stage.store, target
    Copy((source, "source"), (target, "target"), clock=stage.time, sleep=stage.time.advance).run()
    source.close()
    assert stage.bind(stage.pod(ip=1)) == HELD.format("ip")
    assert tick(stage, "stuck") == 0
    tick(stage)
    assert stage.bind(stage.pod(ip=1)) == ""
