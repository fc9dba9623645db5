"""Preemption on the real kube-scheduler: one victim for one pod, however late its release comes, and none
where evicting can't work. What the verb answers is tested in tests/unit and tests/features.

There is no kubelet, so the victims' grace period is 0: deleted is gone.
"""

from collections.abc import Iterator

import pytest

from tests.controlplane.lent import Planes
from tests.e2e.faults.fault_world import World, world_of
from tests.e2e.harness import pool, settled
from tests.support.cluster import Object, wait

K80, PLAIN, RACK, SEAT = "native.berth.dev/k80", "berth.dev/plain", "berth.dev/rack", "berth.dev/seat"
NODES = ("node-1", "node-2", "node-3")
LABEL = "example.com/rack"
POOLS = [
    pool("k80", 1, preemption="Native"),
    pool("plain", 1),
    pool("rack", {"domains": {"r1": 1}}, scope="Topology", topologyKey=LABEL),
    pool("seat", 1, scope="Cluster"),
]
AT_ONCE_GONE = {"terminationGracePeriodSeconds": 0}


@pytest.fixture(scope="module")
def shared(planes: Planes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("preemption")
    nodes = {name: {"labels": {LABEL: "r1"}} for name in NODES}
    with world_of(planes, folder, nodes, 1, POOLS) as world:
        for name, value in (("low", 10), ("high", 1000), ("top", 2000)):
            world.cluster.create_priority_class(name, value)
        with world.scheduling():
            yield world


@pytest.fixture
def world(shared: World) -> Iterator[World]:
    with shared.fresh():
        yield shared


def create(world: World, name: str, *resources: str, priority: str = "low") -> None:
    asked = dict.fromkeys(resources, 1)
    world.cluster.create_pod(name, asked, priority_class=priority, spec=AT_ONCE_GONE)


def holders(world: World, resource: str, count: int) -> dict[str, str]:
    """So many pods of low priority, bound, each with a unit; their nodes."""
    names = [f"holder-{number}" for number in range(count)]
    for name in names:
        create(world, name, resource)
    return world.cluster.wait_bound(*names)


def refusal(world: World, name: str) -> str:
    """Why the pod is not scheduled, by its condition: pods of other tests had the same name, and events."""
    found = wait(lambda: world.cluster.condition(name, "PodScheduled"), 60, f"a condition of {name}")
    assert found is not None
    return str(found["message"])


def shown(world: World, name: str) -> set[str | None]:
    """What the node's status says of k80."""
    status = world.cluster.get(f"/api/v1/nodes/{name}")["status"]
    return {status[field].get(K80) for field in ("capacity", "allocatable")}


def overwrite(world: World, name: str, units: str | None) -> None:
    body: Object = {
        "status": {"capacity": {K80: units}, "allocatable": {K80: units, "native.berth.dev/old": "3"}}
    }
    world.cluster.patch(f"/api/v1/nodes/{name}/status", body)


@pytest.mark.long
def test_the_capacity_is_in_every_node_s_status_and_mended_there_when_it_was_overwritten(
    world: World,
) -> None:
    for units in ("7", None):
        assert {name: shown(world, name) for name in NODES} == {name: {"1"} for name in NODES}
        overwrite(world, "node-1", units)
        wait(lambda: shown(world, "node-1") == {"1"}, 60, f"node-1's status mended: {shown(world, 'node-1')}")
    said = world.cluster.get("/api/v1/nodes/node-1")["status"]["allocatable"]
    assert "native.berth.dev/old" not in said
    assert PLAIN not in said


@pytest.mark.parametrize("late", ["0", "0.05", "1"])
def test_a_pod_of_higher_priority_gets_a_unit_with_exactly_one_victim_and_no_waiter_steals_it(
    world: World, late: str
) -> None:
    before = holders(world, K80, len(NODES))
    waiters = {f"waiter-{number}" for number in range(5)}
    for name in waiters:
        create(world, name, K80)
    for name in waiters:
        assert f"Insufficient {K80}" in refusal(world, name)
    world.faults.set("late", late)
    with world.cluster.watch_pods(K80) as seen:
        create(world, "high", K80, priority="high")
        (node,) = world.cluster.wait_bound("high").values()
    after = world.cluster.bound()
    victims = before.keys() - after.keys()
    assert [before[name] for name in victims] == [node], f"victims: {victims}"
    assert after.keys() == before.keys() - victims | {"high"}
    assert max(seen.peak.values()) == 1
    settled(world)
    assert world.cluster.bound() == after


@pytest.mark.parametrize(("resource", "units"), [(PLAIN, 3), (RACK, 1), (SEAT, 1)])
def test_units_of_a_rack_of_the_cluster_or_of_a_pool_without_it_evict_nobody(
    world: World, resource: str, units: int
) -> None:
    before = holders(world, resource, units)
    create(world, "high", resource, priority="high")
    assert "0 of 1 free, 1 asked" in refusal(world, "high")
    assert "nominatedNodeName" not in world.cluster.get_pod("high")["status"]
    assert world.cluster.bound() == before


def test_nobody_is_evicted_for_a_pod_that_lacks_a_unit_that_evicting_does_not_free(world: World) -> None:
    before = holders(world, K80, len(NODES))
    create(world, "seated", SEAT)
    before |= world.cluster.wait_bound("seated")
    create(world, "high", K80, SEAT, priority="high")
    assert f"Insufficient {K80}" in refusal(world, "high")
    assert "nominatedNodeName" not in world.cluster.get_pod("high")["status"]
    assert world.cluster.bound() == before


def nominated(world: World, name: str, node: str) -> None:
    """A pod of high priority that somebody else nominates for a node before it is tried."""
    gates = ["example.com/nominated"]
    world.cluster.create_pod(name, {K80: 1}, priority_class="high", spec=AT_ONCE_GONE, scheduling_gates=gates)
    path = f"/api/v1/namespaces/default/pods/{name}"
    world.cluster.patch(f"{path}/status", {"status": {"nominatedNodeName": node}})
    world.cluster.patch(path, {"spec": {"schedulingGates": []}})


@pytest.mark.parametrize("to", ["more important", "not there", "candidate"])
def test_a_nomination_by_others_keeps_nobody_from_being_evicted_elsewhere(world: World, to: str) -> None:
    """It was: 90 s in which nobody was evicted, and then nothing that had the pod tried again."""
    create(world, "top", K80, priority="top")
    (top,) = world.cluster.wait_bound("top").values()
    before = holders(world, K80, len(NODES) - 1)
    nominated(world, "high", {"more important": top, "not there": "node-9"}.get(to, before["holder-0"]))
    (node,) = world.cluster.wait_bound("high", seconds=30).values()
    victims = before.keys() - world.cluster.bound().keys()
    assert [before[name] for name in victims] == [node]
    settled(world)
