"""What comes again: a pod under its old name before its units are free, a node with another label.
Each is asked for at the moment when nobody has heard of the change yet."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.errors import ClusterRefusedError
from berth.ledger.refusals import KEPT
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged

NODES = {"n1": {"zone": "a"}, "n2": {"zone": "b"}, "n3": {}}
POOLS = {
    "web": {
        "units": {"n1": ["w-0", "w-1"], "n2": ["w-2", "w-3"]},
        "sticky": {"by": "Pod", "forSeconds": 600},
    },
    "ip": {"scope": "Topology", "topologyKey": "zone", "capacity": {"perDomain": 1}},
    "seat": {"scope": "Cluster", "capacity": {"perDomain": 1}},
}
LEAVING = "web: what the last pod of this name had is not free yet"


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS, NODES) as found:
        yield found


def test_a_pod_that_is_made_anew_waits_until_the_units_of_its_name_are_free_and_gets_them(
    stage: PoolsStage,
) -> None:
    old = stage.bound_pod("web-0", on="n1", web=1)
    pod = stage.get("web-0")
    stage.delete(old)
    new, other = stage.pod("web-0", web=1), stage.pod("web-1", web=1)
    assert stage.why(new, "n1", "n2") == {"n1": LEAVING, "n2": LEAVING}
    assert stage.passes(other, "n1", "n2") == {"n1", "n2"}
    stage.event_of(pod)
    assert stage.woken() >= {"web-0"}
    assert stage.why(new, "n1", "n2") == {"n2": KEPT}
    assert stage.bind(new, "n1") == ""
    assert stage.of(new, "web") == ("n1", 1, ("w-0",))


def test_a_pod_made_anew_goes_elsewhere_when_its_units_are_held_on_a_lost_node(stage: PoolsStage) -> None:
    """And is woken when that is known."""
    old = stage.bound_pod("web-0", on="n1", web=1)
    pod = stage.get("web-0")
    stage.write_node("n1", ready=False)
    stage.delete(old)
    new = stage.pod("web-0", web=1)
    assert stage.why(new, "n1", "n2") == {"n1": LEAVING, "n2": LEAVING}
    assert stage.event_of(pod) == {"released": 0, "woken": 1, "held": ["web"]}
    assert (stage.woken(), stage.passes(new, "n1", "n2")) == ({"web-0"}, {"n1", "n2"})


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_node_that_comes_to_a_domain_with_free_units_wakes_who_waits_for_it(stage: PoolsStage) -> None:
    waiter = stage.pod(ip=1)
    assert stage.passes(waiter, "n3") == set()
    stage.write_node("n3", zone="a")
    stage.inventory("n3")
    assert (stage.woken(), stage.passes(waiter, "n3")) == ({waiter.name}, {"n3"})


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_new_node_wakes_who_waits_for_what_the_cluster_has(stage: PoolsStage) -> None:
    waiter = stage.pod(seat=1)
    assert stage.passes(waiter, "n4") == set()
    stage.add_node("n4")
    stage.inventory("n4")
    assert (stage.woken(), stage.passes(waiter, "n4")) == ({waiter.name}, {"n4"})


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_pool_claim_is_available_again_when_the_binding_fails(stage: PoolsStage) -> None:
    stage.claim_object("mine", "web")
    call = stage.pod(claims="mine", web=1)

    def refuses(*_: object) -> None:
        raise ClusterRefusedError("no bindings today", 403)

    stage.objects.__dict__["bind"] = refuses
    assert "no bindings today" in stage.bind(call, "n1")
    assert stage.status("mine") == {"phase": "Available"}
    del stage.objects.__dict__["bind"]
    assert stage.bind(call, "n1") == ""
    assert stage.status("mine")["phase"] == "Bound"
