"""Pods land where units are free, and a pod that no node can take says why: the main job.

How fast waiters are woken when units are released is tested elsewhere (test_wake*.py).
"""

import time
from collections import Counter

import pytest

from berth.ledger.view import View
from tests.e2e.conftest import Systems
from tests.e2e.harness import CONTROL_PLANE, System, pool, settled
from tests.support.cluster import UNDERLAY_IP, Object, wait

WORKERS = ("worker-1", "worker-2", "worker-3")
SOON = 30.0  # on a busy machine; after a minute the next tick would do it, and hide an event that does not


@pytest.mark.alone
@pytest.mark.long
def test_thirty_pods_fill_three_workers_and_the_next_waits_until_a_node_is_added(
    system_of: Systems,
) -> None:
    system = system_of({**{name: {} for name in WORKERS}, "master": {"labels": CONTROL_PLANE}})
    cluster = system.cluster
    with cluster.watch_pods() as seen:
        for number in range(30):
            cluster.create_pod(f"pod-{number}")
        cluster.wait_bound()
        cluster.create_pod("waiter")
        said = system.refusal_of("waiter")
    assert seen.peak == dict.fromkeys(WORKERS, 10)
    assert cluster.per_node() == dict.fromkeys(WORKERS, 10)
    assert said.startswith("0/4 nodes are available: ")
    assert "3 underlay-ip: 0 of 10 free, 1 asked" in said
    assert "1 underlay-ip: none on this node" in said

    with cluster.watch_pods() as seen:
        cluster.create_node("worker-4")
        added = time.monotonic()
        assert cluster.wait_bound("waiter", seconds=5) == {"waiter": "worker-4"}
    assert seen.bound_at["waiter"] - added < 2
    settled(system)
    assert system.berth.claims("worker-4") == [("waiter", "underlay-ip", 1)]

    cluster.delete_node("worker-4")
    wait(lambda: _capacity(system.berth.ledger(), "worker-4") is None, SOON, "worker-4's capacity gone")
    cluster.delete_pod("waiter")  # as the pod garbage collector of a real cluster does
    wait(lambda: not system.berth.claims("worker-4"), SOON, "worker-4's claims gone")
    first = settled(system)
    assert not first["released"], "the event should have freed the claim, not the reconcile"
    # The journal has counted the use some seconds later; until then a note of it keeps the node's document.
    wait(lambda: counted(system) == set(WORKERS), SOON, "nothing of worker-4 is left")


def counted(system: System) -> set[str]:
    """The nodes that the ledger knows of after a reconcile, which counts the use."""
    system.berth.reconcile()
    return set(system.berth.ledger().domains["underlay-ip"])


def _capacity(view: View, node: str) -> int | None:
    domains = view.domains["underlay-ip"]
    return domains[node].capacity if node in domains else None


@pytest.mark.long
def test_a_pod_keeps_to_its_units_though_another_node_is_nominated_and_goes_there_when_it_must(
    system_of: Systems,
) -> None:
    """kube-scheduler offers a nominated node alone, then all nodes, and then perhaps that one alone again."""
    pools = [pool(units=2, sticky={"by": "Pod", "forSeconds": 3600})]
    system = system_of({"worker-1": {}, "worker-2": {}}, pools=pools)
    cluster, path = system.cluster, "/api/v1/namespaces/default/pods/web-0"
    cluster.create_pod("web-0")
    (kept,) = cluster.wait_bound("web-0").values()
    (other,) = {"worker-1", "worker-2"} - {kept}

    def come_again() -> str:
        """The next pod of that name, nominated for the other node before kube-scheduler sees it."""
        cluster.delete_pod("web-0")
        wait(lambda: not system.berth.claims(kept), SOON, "the unit is kept and nobody has it")
        cluster.create_pod("web-0", scheduling_gates=("not-yet",))
        cluster.patch(f"{path}/status", {"status": {"nominatedNodeName": other}})
        cluster.patch(path, {"spec": {"schedulingGates": None}})
        return cluster.wait_bound("web-0", seconds=SOON)["web-0"]

    assert come_again() == kept
    cluster.patch(f"/api/v1/nodes/{kept}", {"spec": {"unschedulable": True}})
    assert come_again() == other
    settled(system)


@pytest.mark.alone
@pytest.mark.long
def test_ten_pods_bind_at_once_when_one_of_300_nodes_has_the_pool(system_of: Systems) -> None:
    nodes: dict[str, Object] = {f"node-{number}": {} for number in range(299)}
    nodes["special"] = {"labels": {"network": "underlay"}}
    system = system_of(nodes, pools=[pool(nodeSelector={"matchLabels": {"network": "underlay"}})])
    with system.cluster.watch_pods() as seen:
        for number in range(10):
            system.cluster.create_pod(f"pod-{number}")
        created = time.monotonic()
        bound = system.cluster.wait_bound(seconds=10)
    assert set(bound.values()) == {"special"}
    assert max(seen.bound_at.values()) - created < 5
    # Nobody had to try twice.
    assert not [message for name in bound for message in system.cluster.events_of(name)]


@pytest.mark.long
@pytest.mark.nightly
def test_a_pod_that_1000_nodes_refuse_has_a_condition_of_under_400_bytes(system_of: Systems) -> None:
    nodes = {
        f"node-{number:03}": {"annotations": {"example.com/seats": str(number % 50)}}
        for number in range(1000)
    }
    pools = [pool(), pool("seats", {"nodeAnnotation": "example.com/seats"})]
    system = system_of(nodes, pools=pools)
    asked = {
        "uniform": {UNDERLAY_IP: 11},
        "mixed": {"berth.dev/seats": 100},
        "both": {UNDERLAY_IP: 11, "berth.dev/seats": 40},
        "unknown": {"berth.dev/seat": 1},
    }
    for name, resources in asked.items():
        system.cluster.create_pod(name, resources)
    said = {name: _unschedulable(system, name) for name in asked}
    assert "1000 underlay-ip: 10 of 10 free, 11 asked" in said["uniform"]
    assert "1000 seats: fewer free than the 100 asked" in said["mixed"]
    assert "800 seats: fewer free than the 40 asked; underlay-ip: fewer free than" in said["both"]
    assert "berth.dev/seat: no Pool has this resource; there are: " in said["unknown"]
    assert {name: len(text.encode()) for name, text in said.items() if len(text.encode()) >= 400} == {}


def _unschedulable(system: System, name: str) -> str:
    condition = wait(lambda: system.cluster.condition(name, "PodScheduled"), 60, f"a condition of {name}")
    assert condition is not None
    assert condition["reason"] == "Unschedulable"
    return str(condition["message"])


@pytest.mark.long
def test_spread_fills_nodes_evenly_and_pack_one_after_the_other(system_of: Systems) -> None:
    pools = [pool("spread", 4), pool("pack", 4, score="Pack")]
    system = system_of(3, pools=pools)
    # One after the other: at once, filter's view of the last bind would be behind.
    for kind, expected in (("spread", [2, 2, 2]), ("pack", [2, 4])):
        for number in range(6):
            system.cluster.create_pod(f"{kind}-{number}", {f"berth.dev/{kind}": 1})
            system.cluster.wait_bound(f"{kind}-{number}")
        placed = system.cluster.bound().items()
        assert sorted(Counter(node for pod, node in placed if pod.startswith(kind)).values()) == expected
    settled(system)
