"""Pools of racks and of the whole cluster, through the verbs: one domain for several nodes, cut into stripes.
What many callers at once get of them is in test_seats.py."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from berth.errors import ClusterUnavailableError
from berth.kube.cluster import Cluster
from berth.ledger.view import View
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, mended, pools_staged
from tests.support.builders.steps import each_step

NODES = {"n1": {"zone": "a"}, "n2": {"zone": "a"}, "n3": {"zone": "b"}, "n4": {}}
ALL = tuple(NODES)
POOLS = {
    "ip": {"scope": "Topology", "topologyKey": "zone", "capacity": {"perDomain": 2}},
    "seat": {"scope": "Cluster", "capacity": {"perDomain": 300}},
}


CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # the rest are shown by others


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS, NODES) as found:
        yield found


def test_a_zone_s_units_are_for_all_its_nodes_and_a_node_without_the_label_has_none(
    stage: PoolsStage,
) -> None:
    holders = [stage.bound_pod(on="n1", ip=1), stage.bound_pod(on="n2", ip=1)]
    waiter = stage.pod(ip=1)
    full = "ip: 0 of 2 free, 1 asked"
    assert stage.why(waiter, *ALL) == {"n1": full, "n2": full, "n4": "ip: the node has no label zone"}
    assert stage.scores(waiter, *ALL) == {"n1": 0, "n2": 0, "n3": 10, "n4": 0}
    assert (stage.bind(waiter, "n2"), stage.bind(waiter, "n4")) == (full, "ip: none on this node")
    assert stage.bind(holders[0], "n1") == ""
    stage.check_survives_a_loss()
    assert stage.bind(stage.pod(ip=1), "n1") == full
    assert stage.gone(holders[1])["released"] == 1
    assert stage.woken() >= {waiter.name}
    assert stage.bind(waiter, "n1") == ""


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_new_pool_looks_at_claims_as_often_for_many_nodes_as_for_few(stage: PoolsStage) -> None:
    """Each node that comes to a domain is news; to go through all claims for each took minutes."""
    stage.bound_pod(on="n1", ip=1)
    with mock.patch.object(View, "claims", autospec=True, side_effect=View.claims) as few:
        stage.pools(rack={"scope": "Topology", "topologyKey": "zone"})
    for number in range(20):
        stage.add_node(f"n{number + 10}", zone="c")
    with mock.patch.object(View, "claims", autospec=True, side_effect=View.claims) as many:
        stage.pools(row={"scope": "Topology", "topologyKey": "zone"})
    assert few.call_count == many.call_count


@CHEAP
def test_a_node_s_changed_label_moves_what_its_pods_hold(stage: PoolsStage) -> None:
    """By the node's event; and where that was lost, by one reconcile."""
    one, other = stage.bound_pod(on="n1", ip=1, seat=1), stage.bound_pod(on="n2", ip=1)
    stage.write_node("n1", zone="c")
    stage.inventory("n1")
    assert (stage.of(one, "ip")[0], stage.of(other, "ip")[0]) == ("c", "a")
    assert (stage.free("ip", "a"), stage.free("ip", "c")) == ((1, 2), (1, 2))
    stage.check_well()
    stage.write_node("n2", zone="b")
    stage.reconcile()
    assert stage.of(other, "ip")[0] == "b"
    stage.check_well()
    stage.check_survives_a_loss()
    stage.write_node("n2", zone=None)
    stage.inventory("n2")
    assert stage.of(other, "ip")[0] == "b"
    stage.check_well()


@CHEAP
@pytest.mark.parametrize("heard", [True, False], ids=["answered", "answer lost"])
def test_a_node_that_moves_at_any_step_of_a_bind_takes_the_pod_s_units_along(
    stage: PoolsStage, heard: bool
) -> None:
    """Also where its event came before the bind had confirmed: a reservation moves with no node."""
    bind = Cluster.bind

    def moves() -> None:
        stage.write_node("n1", zone="c")
        stage.inventory("n1")
        free.append(stage.free("ip", "a")[0])
        stage.pod("waiter", ip=2)

    def binds(*call: Any) -> None:
        bind(*call)
        if not heard:
            raise ClusterUnavailableError("lost")

    for step in each_step():
        stage.clear_pods()
        stage.write_node("n1", zone="a")
        stage.inventory("n1")
        free: list[int] = []
        call = stage.pod(ip=2, seat=1)
        with mock.patch.object(Cluster, "bind", binds):
            if stage.bind(call, "n1", step=step.doing(moves)):  # it had reserved where the node was
                assert stage.bind(call, "n1") == "", f"step {step.number}"
        if step.reached:
            assert stage.of(call, "ip")[0] == "c", f"step {step.number}"
            assert stage.free("ip", "a") == (2, 2), f"step {step.number}"
            assert free == [2] or "waiter" in stage.woken(), f"step {step.number}"
            stage.check_well()


@CHEAP
@pytest.mark.parametrize("told", [True, False], ids=["by its event", "by one reconcile"])
def test_units_without_a_known_name_are_counted_where_their_node_is_as_soon_as_that_is_known(
    stage: PoolsStage, told: bool
) -> None:
    """Of a node that is registered anew, and of one that moves."""
    units, reserved = {"a": ["a0", "a1"], "b": ["b0", "b1"]}, {"priorityAtLeast": 9, "units": 1}
    stage.pools(mac={"scope": "Topology", "topologyKey": "zone", "units": units, "reserved": reserved})
    runs = stage.pod(node="n5", ip=1, mac=1)
    stage.reconcile()
    stage.add_node("n5", zone="b")
    for zone in ("b", "a"):
        stage.write_node("n5", zone=zone)
        stage.inventory("n5") if told else stage.reconcile()
        assert stage.of(runs, "ip") == (zone, 1, ())
        assert stage.of(runs, "mac") == (zone, 1, ())
        assert mended(stage.reconcile()).keys() == {"problems"}


@CHEAP
@pytest.mark.parametrize("told", [True, False], ids=["by its event", "by one reconcile"])
@pytest.mark.parametrize("gone", [True, False])
def test_units_that_stayed_while_their_node_had_no_place_go_where_it_comes_to_be(
    stage: PoolsStage, gone: bool, told: bool
) -> None:
    holder = stage.bound_pod(on="n3", ip=1)
    if gone:
        stage.cluster.delete("/api/v1/nodes/n3")
    else:
        stage.write_node("n3", zone=None)
    stage.reconcile()
    assert stage.of(holder, "ip")[0] == "b"
    if gone:
        stage.add_node("n3")
    stage.write_node("n3", zone="a")
    stage.inventory("n3") if told else stage.reconcile()
    assert stage.of(holder, "ip")[0] == "a"
    assert stage.bind(stage.pod(ip=2), "n1") == "ip: 1 of 2 free, 2 asked"
    stage.check_well()


def test_a_domain_in_stripes_grows_shrinks_and_goes_under_its_holders(stage: PoolsStage) -> None:
    big = stage.bound_pod(seat=250)
    assert stage.free("seat", "*") == (50, 300)
    seats = {"scope": "Cluster", "capacity": {"perDomain": 200}}
    assert stage.pools(seat=seats)["changed"] == 1
    assert stage.free("seat", "*") == (0, 200)
    small = stage.pod(seat=1)
    assert stage.why(small, "n1") == {"n1": "seat: 0 of 200 free, 1 asked"}
    assert stage.bind(small) == "seat: 0 of 200 free, 1 asked"
    stage.check_well()
    stage.check_survives_a_loss()
    assert stage.bind(stage.pod(seat=1)) == "seat: 0 of 200 free, 1 asked"
    assert stage.bind(big, "n1") == ""
    assert stage.pools(seat={**seats, "capacity": {"perDomain": 1000}})["changed"] == 1
    assert stage.bind(stage.pod(seat=751)) == "seat: 750 of 1000 free, 751 asked"
    last = stage.bound_pod(seat=750)
    stage.check_well()
    stage.pools(seat={**seats, "capacity": {"perDomain": 500}})
    assert stage.gone(last)["released"] == 750
    assert stage.bind(small) == ""
    assert stage.free("seat", "*") == (249, 500)
    assert stage.gone(big)["released"] == 250
    stage.gone(small)
    assert stage.free("seat", "*") == (500, 500)
    stage.check_well()


@CHEAP
def test_a_zone_that_loses_its_last_node_goes_when_its_last_holder_does(stage: PoolsStage) -> None:
    holder = stage.bound_pod(on="n3", ip=1)
    stage.cluster.delete("/api/v1/nodes/n3")
    stage.reconcile()
    assert stage.bind(stage.pod(ip=1), "n3") == "ip: none on this node"
    view = stage._ledger(stage.store).view()
    assert (sorted(view.names("ip")), view.capacity("ip", "b")) == (["a", "b"], None)
    stage.check_well()
    stage.gone(holder)
    assert sorted(stage._ledger(stage.store).view().names("ip")) == ["a"]
    assert mended(stage.reconcile()) == {}
    stage.add_node("n5", zone="b")
    stage.inventory("n5")
    assert stage.free("ip", "b") == (2, 2)


@CHEAP
def test_a_node_that_is_called_like_a_zone_takes_nothing_from_the_zone(stage: PoolsStage) -> None:
    """Neither when it comes, nor when it goes; what pods hold in the zone stays as well."""
    gpu = {"scope": "Topology", "topologyKey": "zone", "reserved": {"priorityAtLeast": 9, "units": 1}}
    stage.pools(gpu={**gpu, "capacity": {"perDomain": 3}}, disk={"capacity": {"perDomain": 5}})
    holder = stage.bound_pod(on="n2", ip=1, gpu=1)
    stage.add_node("a")
    stage.inventory("a")
    assert (stage.free("ip", "a"), stage.free("gpu", "a")) == ((1, 2), (2, 3))
    assert stage.free("disk", "a") == (5, 5)
    assert stage.bind(stage.pod(gpu=2), "n1") == (
        "gpu: 1 of 2 free that are not reserved for a higher priority, 2 asked"
    )
    stage.check_well()
    stage.cluster.delete("/api/v1/nodes/a")
    stage.inventory("a")
    assert (stage.free("ip", "a"), stage.free("gpu", "a")) == ((1, 2), (2, 3))
    assert stage._ledger(stage.store).view().capacity("disk", "a") is None
    assert stage.of(holder, "ip")[0] == "a"
    stage.check_well()


@CHEAP
def test_a_node_s_event_that_is_looked_into_late_does_not_undo_a_newer_look(stage: PoolsStage) -> None:
    """Two looks at one node at once: the one that asked the API server first may write last."""
    stage.pools(box={"capacity": {"nodeAnnotation": "boxes"}, "resource": "berth.dev/box"})
    assert stage.free("box", "n1") == (0, 0)
    ask = stage.objects.node

    def slowly(name: str) -> object:
        old = ask(name)
        stage.annotate("n1", boxes="3")
        stage.objects.__dict__.pop("node")
        stage.inventory("n1")
        return old

    stage.objects.__dict__["node"] = slowly
    stage.inventory("n1")
    assert stage.free("box", "n1") == (3, 3)
