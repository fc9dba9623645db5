"""What users schedule by, each capability on the real kube-scheduler: one system for all, left empty by each.
Races, time and every store are for tests/features, ledger and stores; pages for people are in docs/scenarios.
"""

from collections.abc import Collection, Iterator

import pytest

from tests.controlplane.lent import Planes
from tests.controlplane.plane import ControlPlane
from tests.e2e.capabilities import (
    CLAIM_PATH,
    DEVICE,
    NIC,
    NODES,
    POOL_PATH,
    POOLS,
    SUBNET,
    USED_IP,
    ZONE,
    ask,
    bound,
    change,
    held,
    ready,
    said_to,
    says,
    status,
    units,
    used,
    zone,
)  # fmt: skip
from tests.e2e.conftest import Systems
from tests.e2e.harness import System, settled
from tests.support.builders.manifests import serve_pools
from tests.support.cluster import Cluster, Object, wait

pytestmark = pytest.mark.long

SOON = 30.0  # on a busy machine; after a minute the next tick would do it, and hide an event that does not


@pytest.fixture(scope="module")
def plane(planes: Planes) -> Iterator[ControlPlane]:
    with planes.lent() as lent:
        yield lent


@pytest.fixture(scope="module")
def systems(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Systems]:
    cluster = Cluster(plane.url, plane.admin_token, plane.ca_file)
    systems = Systems(plane, cluster, tmp_path_factory.mktemp("systems"))
    try:
        serve_pools(cluster)
        for each in POOLS:
            cluster.call("POST", POOL_PATH, each)
        cluster.create_priority_class("important", 1000)
        cluster.create_namespace("other")
        systems({name: {"labels": {ZONE: zone} if zone else {}} for name, zone in NODES.items()}, pools=None)
        yield systems
    finally:
        systems.stop()
        cluster.close()


@pytest.fixture
def system(systems: Systems) -> Iterator[System]:
    (system,) = systems.made
    yield system
    zone(system, "bare", None)
    for pod in system.cluster.list_pods(None):
        system.cluster.delete_pod(pod["metadata"]["name"], pod["metadata"]["namespace"])
    change(system, "desk", external=0, suspended=False)
    wait(lambda: not system.berth.claims(), 60, "all claims of the last test gone")
    wait(lambda: not system.berth.ledger().places["rack-port"]["bare"], 60, "no zone for the node bare")


def test_nodes_of_a_zone_share_and_a_node_without_the_label_never_fits(system: System) -> None:
    first, second = bound(system, "first", rack_port=1), bound(system, "second", rack_port=1)
    assert {NODES[first], NODES[second]} == {"zone-a", "zone-b"}
    ask(system, "third", rack_port=1)
    none = f"1 rack-port: the node has no label {ZONE}"
    says(system, "third", "3 rack-port: 0 of 1 free, 1 asked", none)
    # A label makes it a zone of its own, and what runs there moves with it.
    zone(system, "bare", "zone-c")
    assert system.cluster.wait_bound("third", seconds=SOON) == {"third": "bare"}
    zone(system, "bare", "zone-d")
    wait(lambda: used(system, "zone-d") == 1, SOON, "the unit in the node's new zone")
    assert used(system, "zone-c") == 0


def test_a_waiter_is_bound_when_its_node_comes_to_a_zone_with_free_units(system: System) -> None:
    ask(system, "waiter", "bare", rack_port=1)
    says(system, "waiter", "the node has no label")
    zone(system, "bare", "zone-a")
    assert system.cluster.wait_bound("waiter", seconds=SOON) == {"waiter": "bare"}


def test_a_floating_licence_that_is_given_back_goes_to_the_waiter(system: System) -> None:
    """How soon: tests/e2e/test_wakes.py."""
    bound(system, "holder", licence=2)
    ask(system, "waiter", licence=1)
    says(system, "waiter", "4 licence: 0 of 2 free, 1 asked")
    system.cluster.delete_pod("holder")
    system.cluster.wait_bound("waiter", seconds=SOON)


def test_a_pod_reads_its_address_in_its_annotation_and_a_freed_one_rests(system: System) -> None:
    assert NODES[bound(system, "first", subnet=1)] == "zone-a"
    assert units(system, "first") == ["10.0.3.1"]
    assert said_to(system, "first", SUBNET) == '["10.0.3.1"]'
    system.cluster.delete_pod("first")
    wait(lambda: not system.berth.claims(), SOON, "the deleted pod's claim gone")
    bound(system, "second", subnet=1)
    assert units(system, "second") == ["10.0.3.2"]
    assert said_to(system, "second", SUBNET) == '["10.0.3.2"]'
    ask(system, "third", subnet=1)
    says(system, "third", "2 subnet: 0 of 2 free, 1 asked")


def test_a_new_list_s_addresses_are_given_though_those_of_the_old_one_rest(system: System) -> None:
    bound(system, "first", new_ip=2)
    system.cluster.delete_pod("first")
    wait(lambda: not system.berth.claims(), SOON, "the deleted pod's claim gone")
    ask(system, "second", new_ip=2)
    says(system, "second", "1 new-ip: 0 of 2 free, 2 asked")
    change(system, "new-ip", units={"a-1": ["n3", "n4"]})
    system.cluster.wait_bound("second", seconds=SOON)
    assert units(system, "second") == ["n3", "n4"]
    system.cluster.delete_pod("second")
    wait(lambda: not system.berth.claims(), SOON, "the deleted pod's claim gone")
    ask(system, "third", new_ip=2)
    says(system, "third", "1 new-ip: 0 of 2 free, 2 asked")
    change(system, "new-ip", reuseAfterSeconds=0)
    system.cluster.wait_bound("third", seconds=SOON)
    assert units(system, "third") == ["n3", "n4"]


def test_a_node_that_is_called_like_a_zone_takes_nothing_from_the_zone(system: System) -> None:
    """Neither when it comes, nor by a later event of it, nor when it goes."""

    def nodes() -> Collection[str]:
        return system.berth.ledger().nodes

    system.cluster.create_node("zone-a", taints=[{"key": "example.com/nobody", "effect": "NoSchedule"}])
    wait(lambda: "zone-a" in nodes(), SOON, "the node zone-a in the ledger")
    bound(system, "first", "a-1", rack_port=1)
    assert used(system, "zone-a") == 1
    system.cluster.delete_pod("first")
    zone(system, "zone-a", "zone-z")
    wait(lambda: system.berth.ledger().places["rack-port"]["zone-a"] == "zone-z", SOON, "the node's own zone")
    bound(system, "second", "a-2", rack_port=1)
    system.cluster.delete_pod("second")
    system.cluster.delete_node("zone-a")
    wait(lambda: "zone-a" not in nodes(), SOON, "the node zone-a gone from the ledger")
    bound(system, "third", "a-1", rack_port=1)
    assert used(system, "zone-a") == 1


def test_a_pod_of_the_same_name_gets_its_address_back_and_nobody_else_does(system: System) -> None:
    node = bound(system, "web-0", web_ip=1)
    address = units(system, "web-0")
    bound(system, "neighbour", node, web_ip=1)
    # At once, as a StatefulSet does. The other node has two free, and would be preferred.
    system.cluster.delete_pod("web-0")
    assert bound(system, "web-0", web_ip=1) == node
    assert units(system, "web-0") == address
    system.cluster.delete_pod("web-0")
    wait(lambda: len(system.berth.claims()) == 1, SOON, "the deleted pod's claim gone")
    ask(system, "stranger", node, web_ip=1)
    says(system, "stranger", "1 web-ip: 0 of 2 free, 1 asked")
    assert bound(system, "web-0", web_ip=1) == node
    assert units(system, "web-0") == address


def test_a_namespace_gets_no_more_than_its_limit(system: System) -> None:
    bound(system, "two", seat=2)
    ask(system, "third", seat=1)
    says(system, "third", "4 seat: 0 of the 2 that namespace default may hold are free, 1 asked")
    system.cluster.create_pod("elsewhere", {"berth.dev/seat": 8}, "other")
    system.cluster.wait_bound("elsewhere", namespace="other")
    system.cluster.delete_pod("two")
    system.cluster.wait_bound("third", seconds=SOON)


def test_reserved_units_are_for_pods_of_higher_priority(system: System) -> None:
    bound(system, "ordinary", line=1)
    ask(system, "next", line=1)
    says(system, "next", "4 line: 0 of 1 free that are not reserved for a higher priority, 1 asked")
    system.cluster.create_pod("manager", {"berth.dev/line": 1}, priority_class="important")
    system.cluster.wait_bound("manager")
    assert system.berth.claims() == [("manager", "line", 1), *[("ordinary", "line", 1)] * 2]


def test_use_outside_the_cluster_and_a_suspension_admit_nobody_until_they_end(system: System) -> None:
    change(system, "desk", external=5)
    wait(lambda: status(system, "desk").get("overCommitted") == 2, SOON, "desk over-committed by 2")
    ask(system, "waiter", desk=1)
    says(system, "waiter", "4 desk: 0 of 3 free, 1 asked")
    change(system, "desk", external=2)
    system.cluster.wait_bound("waiter", seconds=SOON)
    change(system, "desk", external=0, suspended=True)
    wait(lambda: system.berth.ledger().pools["desk"].spec.suspended, SOON, "the suspension in the ledger")
    ask(system, "later", desk=1)
    says(system, "later", "4 desk: suspended, no new pods")
    assert "waiter" in system.cluster.bound()
    change(system, "desk", suspended=False)
    system.cluster.wait_bound("later", seconds=SOON)


def test_pods_that_run_already_are_counted_with_the_units_they_use_and_lose_none(system: System) -> None:
    for number, address in enumerate(("10.1.0.2", "10.1.0.2", "10.1.0.1")):
        options: Object = {"annotations": {USED_IP: address}, "node_name": "a-1"}
        system.cluster.create_pod(f"runs-{number}", {"berth.dev/host-ip": 1}, **options)
    report = system.berth.reconcile()
    assert any("runs-1 holds 1 of host-ip in a-1, 0 of them by name" in each for each in report["problems"])
    held = {claim.name: claim.units for claim in system.berth.ledger().claims()}
    assert held == {"runs-0": {("host-ip", "10.1.0.2")}, "runs-1": set(), "runs-2": {("host-ip", "10.1.0.1")}}
    assert status(system, "host-ip")["overCommitted"] == 1
    ask(system, "next", host_ip=1)
    says(system, "next", "1 host-ip: 0 of 2 free, 1 asked")
    system.cluster.delete_pod("runs-1")
    wait(lambda: len(system.berth.claims()) == 2, SOON, "the deleted pod's claim gone")
    system.cluster.delete_pod("runs-0")
    system.cluster.wait_bound("next", seconds=SOON)
    assert units(system, "next") == ["10.1.0.2"]


def test_a_lost_node_s_unit_stays_held_until_the_node_is_back(system: System) -> None:
    assert bound(system, "holder", device=1) == "b-1"
    ready(system, "b-1", "False")
    system.cluster.delete_pod("holder")
    wait(lambda: [claim.state for claim in system.berth.ledger().claims()] == ["lost"], SOON, "a lost claim")
    ask(system, "waiter", device=1)
    says(system, "waiter", "1 device: 0 of 1 free, 1 asked")
    ready(system, "b-1", "True")
    assert system.cluster.wait_bound("waiter", seconds=SOON) == {"waiter": "b-1"}
    assert units(system, "waiter") == ["k80-0"]


def test_scores_of_several_pools_are_averaged_and_one_without_a_score_has_no_say(system: System) -> None:
    bound(system, "holder", "a-2", even=9, silent=9)
    assert bound(system, "by-name", favourite=1, silent=1) == "a-2"
    assert bound(system, "by-both", favourite=1, even=1) != "a-2"


def test_two_of_one_pool_a_pool_claim_of_another_and_a_licence_come_together_or_not_at_all(
    system: System,
) -> None:
    made = {"apiVersion": "berth.dev/v1alpha1", "kind": "PoolClaim", "metadata": {"name": "k80-erc"}}
    system.cluster.call("POST", CLAIM_PATH, {**made, "spec": {"pool": "device"}})
    try:
        bound(system, "holder", licence=2)
        wait(
            lambda: "!default/k80-erc" in system.berth.ledger().domains["device"], SOON, "the PoolClaim known"
        )
        wanted = {"berth.dev/even": 2, "berth.dev/device": 1, "berth.dev/licence": 1}
        system.cluster.create_pod("all", wanted, annotations={"berth.dev/claims": "k80-erc"})
        says(system, "all", "1 licence: 0 of 2 free, 1 asked")
        assert {pod for pod, *_ in system.berth.claims()} == {"holder"}
        system.cluster.delete_pod("holder")
        assert system.cluster.wait_bound("all", seconds=SOON) == {"all": "b-1"}
        (claim,) = system.berth.ledger().claims()
        held = {each.pool: each.count for each in claim.holdings if not each.is_quota}
        assert held == {"even": 2, "device": 1, "licence": 1}
        assert units(system, "all") == ["k80-0"]
        assert said_to(system, "all", DEVICE) == '["k80-0"]'
        system.cluster.delete_pod("all")
        claiming = {"berth.dev/claims": "k80-erc"}
        system.cluster.create_pod("next", {"berth.dev/device": 1}, annotations=claiming)
        system.cluster.wait_bound("next", seconds=SOON)
        assert said_to(system, "next", DEVICE) == '["k80-0"]'
    finally:
        system.cluster.call("DELETE", f"{CLAIM_PATH}/k80-erc")


def test_after_the_ledger_is_lost_every_pod_has_the_units_that_it_had(system: System) -> None:
    for number in range(2):
        bound(system, f"nic-{number}", nic=1, licence=1)
        bound(system, f"rack-{number}", rack_port=1, even=2)
    bound(system, "address", host_ip=1)
    bound(system, "important", line=1, seat=2)
    wait(
        lambda: {claim.state for claim in system.berth.ledger().claims()} == {"bound"}, SOON, "all confirmed"
    )
    before = held(system)
    for each in system.berth.folder.glob("ledger.db*"):
        if each.suffix != ".lock":
            each.unlink(missing_ok=True)
    wait(lambda: system.berth.post("reconcile", {}).status == 200, 60, "a reconcile goes through")
    assert held(system) == before
    ask(system, "late", rack_port=1)
    says(system, "late", "3 rack-port: 0 of 1 free, 1 asked")
    bound(system, "nic-2", nic=1)
    assert units(system, "nic-2") == ["nic-2"]
    assert [said_to(system, f"nic-{number}", NIC) for number in range(3)] == [
        "nic-0 in a-2", "nic-1 in a-2", "nic-2 in a-2",
    ]  # fmt: skip
    settled(system)
