"""Units of pods that have ended but may still use them: `onLostNode: Hold` and `releaseOn: Deleted`.
A person's `berth release` is in test_release_by_hand.py."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from berth.controller.settle import BIND_SECONDS
from berth.errors import ClusterRefusedError
from berth.http.extender_v1 import BindingCall
from berth.kube.client import DEFAULT_TIMEOUT
from berth.kube.types import Node
from berth.ledger.model import Claim
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import OUT_OF_SERVICE, PoolsStage, mended, pools_staged

POOLS = {
    "ip": {"units": {"n1": ["a", "b"], "n2": ["c"]}},
    "slot": {"capacity": {"perDomain": 1}},
    "disk": {"capacity": {"perDomain": 1}, "releaseOn": "Deleted"},
}


CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # the rest are shown by others


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS) as found:
        yield found


def test_units_of_a_lost_node_s_pods_are_held_until_it_is_ready_again(stage: PoolsStage) -> None:
    first, second = stage.bound_pod(ip=1, slot=1), stage.bound_pod(ip=1)
    stage.write_node("n1", ready=False)
    assert stage.gone(first) == {"released": 1, "woken": 0, "held": ["ip"]}
    assert (stage.of(first, "ip")[2], stage.states()[first.name]) == (("a",), "lost")
    assert stage.free("slot", "n1") == (1, 1)
    waiter, full = stage.pod(ip=1), "ip: 0 of 2 free, 1 asked"
    stage.check_well()
    stage.cluster.delete(f"/api/v1/namespaces/default/pods/{second.name}")
    stage.cluster.delete("/api/v1/nodes/n1")
    stage.node_event("n1")
    assert mended(stage.reconcile()) == {}
    assert set(stage.states().values()) == {"lost"}
    assert stage.bind(waiter) == "ip: none on this node"
    stage.add_node("n1", ready=False)
    stage.node_event("n1")
    assert (stage.why(waiter, "n1"), stage.bind(waiter)) == ({"n1": full}, full)
    stage.write_node("n1")
    assert stage.node_event("n1")["woken"] == 1
    assert stage.held() == {}
    assert stage.bind(waiter) == ""
    stage.check_well()


@CHEAP
def test_reconcile_frees_what_was_held_when_the_node_is_back_or_is_said_to_be_out_of_service(
    stage: PoolsStage,
) -> None:
    calls = [stage.bound_pod(ip=1), stage.bound_pod(on="n2", ip=1)]
    for node, call in zip(("n1", "n2"), calls, strict=True):
        stage.write_node(node, ready=False)
        stage.gone(call)
    assert set(stage.states().values()) == {"lost"}
    stage.write_node("n1")
    stage.write_node("n2", ready=False, taints=[OUT_OF_SERVICE])
    assert mended(stage.reconcile()) == {"released": 2}
    assert stage.held() == {}
    stage.check_well()


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_bind_asks_for_the_node_of_a_pod_that_is_gone_within_its_own_deadline(stage: PoolsStage) -> None:
    asked: list[float] = []

    def node(name: str, timeout: float = DEFAULT_TIMEOUT) -> Node | None:
        asked.append(timeout)
        return {each.metadata.name: each for each in stage.cluster.nodes()}.get(name)

    def gone(*_: object) -> None:
        stage.cluster.delete(f"/api/v1/namespaces/default/pods/{call.name}")
        raise ClusterRefusedError("there is no such pod", 404)

    call = stage.pod(ip=1)
    with mock.patch.object(stage.cluster, "node", node), mock.patch.object(stage.cluster, "bind", gone):
        assert "was not bound" in stage.bind(call)
    assert asked
    assert max(asked) <= BIND_SECONDS
    assert stage.claims() == {}


@CHEAP
def test_a_kubelet_that_is_back_has_the_pod_s_grace_period_and_a_minute_to_end_it(stage: PoolsStage) -> None:
    call, quick = stage.bound_pod(ip=1), stage.bound_pod(on="n2", grace=5, ip=1)
    for node, pod in (("n1", call), ("n2", quick)):
        stage.write_node(node, ready=False)
        stage.gone(pod)
    waiter = stage.pod(ip=1)
    back = stage.time.now = stage.time.now + 600.0
    for node in ("n1", "n2"):
        stage.write_node(node, since=back)
        assert stage.node_event(node)["woken"] == 0
    stage.time.now = back + 60.0 + 4.0
    stage.check_well()
    assert set(stage.states().values()) == {"lost"}
    stage.time.now = back + 60.0 + 6.0
    assert mended(stage.reconcile()) == {"released": 1}
    assert stage.states() == {call.name: "lost"}
    stage.time.now = back + 60.0 + 31.0
    assert stage.node_event("n1")["woken"] == 1
    assert (stage.held(), stage.bind(waiter)) == ({}, "")
    stage.check_well()


@CHEAP
def test_a_pod_that_was_bound_after_its_node_came_back_holds_nothing_when_it_is_gone(
    stage: PoolsStage,
) -> None:
    stage.write_node("n1", since=stage.time.now - 1.0)
    call = stage.bound_pod(ip=1)
    assert stage.gone(call) == {"released": 1, "woken": 0}
    stage.check_well()


@CHEAP
def test_a_failed_pod_of_a_lost_node_holds_its_units_as_long_as_it_is_there(stage: PoolsStage) -> None:
    call = stage.bound_pod(ip=1, slot=1)
    stage.write_node("n1", ready=False)
    assert stage.finished(call) == {"released": 1, "woken": 0, "held": ["ip"]}
    assert stage.states() == {call.name: "bound"}
    stage.check_well()
    stage.write_node("n1")
    assert mended(stage.reconcile()) == {"released": 1}
    assert stage.held() == {}


def test_units_that_are_freed_on_deletion_outlast_their_pod_s_end(stage: PoolsStage) -> None:
    call, waiter = stage.bound_pod(disk=1, slot=1), stage.pod(disk=1)
    assert stage.finished(call) == {"released": 1, "woken": 0, "held": ["disk"]}
    full = "disk: 0 of 1 free, 1 asked"
    assert (stage.bind(waiter), stage.free("slot", "n1")) == (full, (1, 1))
    stage.check_well()
    stage.check_survives_a_loss()
    assert stage.bind(waiter) == full
    assert stage.gone(call)["released"] == 1
    assert waiter.name in stage.woken()
    assert stage.bind(waiter) == ""
    stage.check_well()


# A pod with two claims: two binds to two nodes at once, of which one saw nothing of the other


def two_claims(stage: PoolsStage, **asked: Any) -> tuple[BindingCall, list[Claim]]:
    """A waiting pod, and what binds to n1 and to n2 have reserved for it."""
    call = stage.pod(**asked)
    pod, ledger = stage.get(call.name), stage.ledger()
    view = ledger.view()
    wanted = [replace(stage.claim(pod, node), attempt=node) for node in ("n1", "n2")]
    return call, [ledger.reserve(claim, view=view) for claim in wanted]


def runs_on(stage: PoolsStage, call: BindingCall, claims: list[Claim], node: str, *confirmed: int) -> None:
    """It is bound to the node; only these of the claims are bound, too."""
    stage.cluster.bind(stage.get(call.name), node, {}, 5.0)
    for number in confirmed:
        stage.ledger().confirm(claims[number])


def nodes_of(stage: PoolsStage, call: BindingCall) -> dict[str, str]:
    return {claim.node: claim.state for claim in stage.ledger().view().claims_of(call.uid)}


@CHEAP
@pytest.mark.parametrize("by", ["event", "reconcile", "bind"])
@pytest.mark.parametrize("confirmed", [(), (0,), (0, 1)])
def test_a_pod_of_a_lost_node_that_is_gone_holds_nothing_on_another_node(
    stage: PoolsStage, by: str, confirmed: tuple[int, ...]
) -> None:
    call, claims = two_claims(stage, ip=1, slot=1)
    runs_on(stage, call, claims, "n1", *confirmed)
    stage.write_node("n1", ready=False)
    if by == "event":
        stage.gone(call)
    else:
        stage.delete(call)
        stage.time.now += BIND_SECONDS + 1
        assert by == "reconcile" or "is gone" in stage.bind(call)
    stage.reconcile()
    assert nodes_of(stage, call) == {"n1": "lost"}
    assert (stage.free("ip", "n1"), stage.free("ip", "n2")) == ((1, 2), (1, 1))
    assert [stage.free("slot", node) for node in ("n1", "n2")] == [(1, 1), (1, 1)]
    stage.check_well()
    stage.write_node("n1")
    stage.node_event("n1")
    assert stage.claims() == {}
    stage.check_well()


@CHEAP
@pytest.mark.parametrize("by", ["event", "reconcile"])
def test_a_pod_that_was_bound_to_one_lost_node_holds_nothing_on_another_lost_one(
    stage: PoolsStage, by: str
) -> None:
    call, claims = two_claims(stage, ip=1)
    runs_on(stage, call, claims, "n2", 1)
    for node in ("n1", "n2"):
        stage.write_node(node, ready=False)
    stage.delete_with_event(call) if by == "event" else stage.delete(call)
    stage.reconcile()
    assert nodes_of(stage, call) == {"n2": "lost"}
    stage.check_well()


@CHEAP
@pytest.mark.parametrize("back", ["n1", "n2"])
@pytest.mark.parametrize("by", ["event", "reconcile"])
def test_a_pod_that_may_run_on_either_of_two_lost_nodes_holds_units_on_each_until_that_is_back(
    stage: PoolsStage, back: str, by: str
) -> None:
    """It is gone, and neither bind has confirmed its claim: nobody knows which Binding was made."""
    call, claims = two_claims(stage, ip=1)
    runs_on(stage, call, claims, "n1")
    for node in ("n1", "n2"):
        stage.write_node(node, ready=False)
    stage.delete(call)
    stage.reconcile()
    assert nodes_of(stage, call) == {"n1": "lost", "n2": "lost"}
    stage.write_node(back)
    if by == "event":
        stage.node_event(back)
    else:
        stage.reconcile()
    other = "n2" if back == "n1" else "n1"
    assert nodes_of(stage, call) == {other: "lost"}
    stage.write_node(other)
    stage.reconcile()
    assert stage.claims() == {}
    stage.check_well()


@CHEAP
@pytest.mark.parametrize("by", ["event", "reconcile"])
@pytest.mark.parametrize("lost", ["n1", "n2"])
def test_a_pod_that_has_finished_holds_units_on_its_own_node_alone(
    stage: PoolsStage, lost: str, by: str
) -> None:
    """Whichever node is lost: by its Pools it holds units of a lost node, and some until it is deleted."""
    call, claims = two_claims(stage, ip=1, slot=1, disk=1)
    runs_on(stage, call, claims, "n1", 0)
    stage.write_node(lost, ready=False)
    if by == "event":
        stage.finished(call)
    else:
        stage.raw.finish_pod(call.name)
        stage.time.now += BIND_SECONDS + 1
    stage.reconcile()
    assert nodes_of(stage, call) == {"n1": "bound"}
    assert stage.free("disk", "n1") == (0, 1)
    assert stage.free("ip", "n1") == ((1, 2) if lost == "n1" else (2, 2))
    assert [stage.free(pool, "n2") for pool in ("ip", "disk")] == [(1, 1), (1, 1)]
    stage.check_well()
