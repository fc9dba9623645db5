"""Promise 6 on the real kube-scheduler: whatever makes room, a waiter that fits is bound within a second.
Times are the API server's own, by its watch: from the DELETE's answer to the waiter's Binding.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.controlplane.lent import Planes
from tests.e2e.faults.fault_world import World, world_of
from tests.e2e.faults.webhooks import STUCK, webhook_down
from tests.e2e.harness import pool, settled
from tests.support.cluster import Object, wait
from tests.support.fakes.proxy import Fault, wait_reached
from tests.support.kubernetes import AT_ONCE
from tests.support.neighbours import MEASURED
from tests.support.selection import IS_LONG, examples

pytestmark = pytest.mark.alone

ROUNDS = examples(6, 20)
STALL_SECONDS = 15.0 if IS_LONG else 5.0
POOLS = [pool(units=2), pool("licence", 2, scope="Cluster")]
SMALL, LARGE = "small", "large"  # two units each; by CPU a pod of 4 fits on the large one alone


@pytest.fixture(scope="module")
def shared(planes: Planes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("wake")
    with world_of(planes, folder, {SMALL: {"cpu": "2"}, LARGE: {}}, 2, POOLS) as world, world.scheduling():
        yield world


@pytest.fixture
def world(shared: World) -> Iterator[World]:
    """All four units taken: full-1 to full-4."""
    with shared.fresh():
        for number in range(1, 5):
            shared.cluster.create_pod(f"full-{number}")
        shared.cluster.wait_bound()
        yield shared


def holder_on(world: World, node: str) -> str:
    return next(name for name, where in sorted(world.cluster.bound().items()) if where == node)


def seconds_to_bind(world: World, make_room: Callable[[], object], *names: str, limit: float = 20) -> float:
    """From make_room's return to the Binding of the first of these pods, by the API server's watch."""
    with world.cluster.watch_pods() as seen:
        make_room()
        began = time.monotonic()
        wait(lambda: seen.bound_at.keys() & set(names), limit, f"one of {names} is bound", every=0.005)
    return min(seen.bound_at[name] for name in names if name in seen.bound_at) - began


def tell(what: str, times: list[float]) -> None:
    low, middle, high = min(times), statistics.median(times), max(times)
    print(f"{MEASURED}{what}: min {low:.3f} s, median {middle:.3f} s, max {high:.3f} s of {len(times)}")


def stays_pending(world: World, name: str, seconds: float) -> None:
    """The stall over time is what is shown, so this waits it out."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert name not in world.cluster.bound(), f"{name} was bound though nobody woke it"
        time.sleep(0.2)


@pytest.mark.drawn
def test_a_deleted_pod_s_unit_goes_to_the_waiter_within_a_second_each_time(world: World) -> None:
    times = []
    for number in range(ROUNDS):
        name = f"waiter-{number}"
        world.cluster.create_pod(name)
        world.wait_idle(1)
        victim = sorted(world.cluster.bound())[0]
        times.append(seconds_to_bind(world, partial(world.cluster.delete_pod, victim), name))
    tell("from DELETE to Binding, one waiter", times)
    assert len(times) == ROUNDS
    assert max(times) < AT_ONCE, times
    settled(world)


def test_a_floating_licence_goes_to_the_waiter_within_a_second_too(world: World) -> None:
    licence: dict[str, int | str] = {"berth.dev/licence": 1}
    for name in ("holder-1", "holder-2"):
        world.cluster.create_pod(name, licence)
    world.cluster.wait_bound("holder-1", "holder-2")
    world.cluster.create_pod("waiter", licence)
    world.wait_idle(1)
    took = seconds_to_bind(world, partial(world.cluster.delete_pod, "holder-1"), "waiter")
    tell("from DELETE to Binding, a licence for the whole cluster", [took])
    assert took < AT_ONCE


def test_a_waiter_in_a_long_line_is_bound_within_a_second_too(world: World) -> None:
    waiters = [f"waiter-{number:02}" for number in range(12)]
    for name in waiters:
        world.cluster.create_pod(name)
    times = []
    for _ in range(5):
        world.wait_idle(len(waiters))
        victim = sorted(world.cluster.bound())[0]
        times.append(seconds_to_bind(world, partial(world.cluster.delete_pod, victim), *waiters))
        waiters = [name for name in waiters if name not in world.cluster.bound()]
    tell("from DELETE to Binding, up to 12 waiters", times)
    assert max(times) < AT_ONCE, times


def test_the_next_waiter_is_bound_when_the_first_in_line_cannot_use_the_room(world: World) -> None:
    times = []
    world.cluster.create_pod("needs-cpu", cpu="4")
    for number in range(5):
        world.cluster.create_pod(f"waiter-{number}")
        world.wait_idle(2)
        victim = holder_on(world, SMALL)
        times.append(seconds_to_bind(world, partial(world.cluster.delete_pod, victim), f"waiter-{number}"))
    tell("from DELETE to Binding, behind one that needs more CPU", times)
    assert max(times) < AT_ONCE, times
    assert "needs-cpu" not in world.cluster.bound()


def test_reconcile_wakes_the_one_behind_many_who_cannot_use_the_room(world: World) -> None:
    for number in range(12):
        world.cluster.create_pod(f"needs-cpu-{number:02}", cpu="4")
    world.cluster.create_pod("waiter")
    world.wait_idle(13)
    world.faults.set("deaf")
    world.cluster.delete_pod(holder_on(world, SMALL))
    world.wait_idle(13)
    took = seconds_to_bind(world, world.berth.reconcile, "waiter")
    tell("from the end of reconcile to Binding, behind 12 who need more CPU", [took])
    assert took < AT_ONCE


def test_a_lost_event_s_unit_goes_to_the_waiter_after_a_reconcile(world: World) -> None:
    world.cluster.create_pod("waiter")
    world.wait_idle(1)
    world.faults.set("deaf")
    world.cluster.delete_pod("full-1")
    stays_pending(world, "waiter", 2)
    took = seconds_to_bind(world, world.berth.reconcile, "waiter")
    tell("from the end of reconcile to Binding", [took])
    assert took < AT_ONCE
    settled(world)


def test_a_waiter_that_can_not_be_written_to_keeps_the_unit_from_nobody(world: World) -> None:
    world.cluster.create_pod("stuck", labels=STUCK, cpu="4")
    world.cluster.create_pod("waiter")
    world.wait_idle(2)
    with webhook_down(world.cluster, "stuck"):
        victim = holder_on(world, SMALL)
        took = seconds_to_bind(world, partial(world.cluster.delete_pod, victim), "waiter")
        tell("from DELETE to Binding, behind one whose webhook is down", [took])
        assert took < AT_ONCE
        world.faults.set("deaf")
        world.cluster.create_pod("young")
        world.wait_idle(2)
        world.cluster.delete_pod(holder_on(world, SMALL))
        world.wait_idle(2)
        with world.cluster.watch_pods() as seen:
            report = world.berth.reconcile()
            wait(lambda: "young" in seen.bound_at, 20, "the next one is bound")
    (told,) = report["problems"]
    assert told.startswith("pod default/stuck was not woken: the API server answered 500 to PATCH")
    settled(world)


@contextmanager
def cordoned(world: World, node: str) -> Iterator[Callable[[], object]]:
    """The node takes no pods until the block ends, or until what it gives is called."""

    def uncordon() -> None:
        world.cluster.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})

    world.cluster.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    try:
        yield uncordon
    finally:
        uncordon()


def test_a_unit_on_a_cordoned_node_wakes_nobody_and_is_used_as_soon_as_the_node_takes_pods(
    world: World,
) -> None:
    waiters = [f"waiter-{number}" for number in range(4)]
    with cordoned(world, SMALL) as uncordon:
        for name in waiters:
            world.cluster.create_pod(name)
        world.wait_idle(len(waiters))
        world.cluster.delete_pod(holder_on(world, SMALL))
        wait(lambda: world.free()[SMALL] == 1, 60, "release frees the unit")
        world.wait_idle(len(waiters))
        before = {name: world.cluster.get_pod(name)["metadata"]["resourceVersion"] for name in waiters}
        assert [world.berth.reconcile()["woken"] for _ in range(3)] == [0, 0, 0]
        after = {name: world.cluster.get_pod(name)["metadata"]["resourceVersion"] for name in waiters}
        assert after == before
        took = seconds_to_bind(world, uncordon, *waiters)
    tell("from uncordon to Binding", [took])
    assert took < AT_ONCE
    settled(world)


def delete_looked_at(world: World, name: str, fault: str) -> None:
    """The pod's event meets the fault, after kube-scheduler saw the deletion and tried the waiter in vain."""
    world.faults.set(fault)
    before = world.attempts()
    world.cluster.delete_pod(name)
    wait(lambda: world.attempts() > before, 60, "kube-scheduler looks")
    world.wait_idle(1)
    world.faults.set("go")


def test_a_release_killed_once_between_commit_and_patch_is_made_good_by_the_repeated_event(
    world: World,
) -> None:
    world.cluster.create_pod("waiter")
    world.wait_idle(1)
    delete_looked_at(world, "full-1", "dies-once")
    world.cluster.wait_bound("waiter")
    assert not world.faults.is_set("dies-once")
    settled(world)


def test_a_release_killed_each_time_between_commit_and_patch_is_made_good_by_reconcile(world: World) -> None:
    world.cluster.create_pod("waiter")
    world.wait_idle(1)
    since = len(world.berth.lines)
    delete_looked_at(world, "full-1", "dies")
    world.berth.wait_line(since, state="lost", to="release")
    world.faults.clear()
    assert sum(world.free().values()) == 1
    assert "waiter" not in world.cluster.bound()
    took = seconds_to_bind(world, world.berth.reconcile, "waiter")
    tell("from the end of reconcile to Binding, after kills", [took])
    assert took < AT_ONCE
    settled(world)


@pytest.mark.drawn
def test_without_a_wake_the_waiter_sleeps_beside_a_free_unit_and_one_patch_binds_it(world: World) -> None:
    world.cluster.create_pod("waiter")
    world.wait_idle(1)
    delete_looked_at(world, "full-1", "mute")
    wait(lambda: sum(world.free().values()) == 1, 60, "release frees the unit")
    stays_pending(world, "waiter", STALL_SECONDS)
    took = seconds_to_bind(world, lambda: patch_waiting(world, "waiter"), "waiter")
    tell("from one patch to Binding", [took])
    assert took < AT_ONCE


def patch_waiting(world: World, name: str) -> None:
    said = {"type": "berth.dev/Waiting", "status": "False", "reason": "Woken", "message": "by the test"}
    world.cluster.patch(
        f"/api/v1/namespaces/default/pods/{name}/status", {"status": {"conditions": [said]}}, "strategic"
    )


def test_a_failed_bind_wakes_the_next_waiter(world: World) -> None:
    """Who got the unit cannot be bound; the unit must not lie idle beside the one who waits."""
    world.cluster.create_pod("unlucky")
    world.wait_idle(1)
    refused = world.proxy.on("POST", r"/pods/unlucky/binding", Fault(before=10, forward=False, answer=409))
    world.cluster.delete_pod("full-1")
    wait_reached(refused)
    # Only now: side by side either of them may be tried first, and a refused bind means back-off.
    world.cluster.create_pod("waiter")
    wait(lambda: world.pending()["unschedulable"] == 1, 60, "the waiter is refused: the unit is held")
    took = seconds_to_bind(world, refused.resume.set, "waiter")
    tell("from the refusal of a Binding to the next one's", [took])
    assert took < AT_ONCE
    settled(world)


def test_raised_capacity_wakes_the_waiter(world: World) -> None:
    world.cluster.create_pod("waiter")
    world.wait_idle(1)
    world.faults.unset("no-tick")  # a changed file of Pools is taken over by a tick out of turn
    try:
        room = pool(units={"perDomain": 2, "domains": {LARGE: 3}})
        took = seconds_to_bind(world, lambda: world.berth.write_pools([room]), "waiter")
        tell("from the Pool's change to Binding", [took])
        assert took < AT_ONCE
    finally:
        world.berth.write_pools(POOLS)
        world.berth.reconcile()


def test_a_new_node_wakes_the_waiter(world: World) -> None:
    world.cluster.create_pod("waiter", cpu="1")
    world.wait_idle(1)
    try:
        took = seconds_to_bind(world, lambda: world.cluster.create_node("new"), "waiter")
        tell("from the node's creation to Binding", [took])
        assert took < AT_ONCE
    finally:
        world.cluster.delete_pod("waiter")
        world.cluster.delete_node("new")


def test_a_pool_added_wakes_the_pod_that_asked_for_it(world: World) -> None:
    seat: dict[str, int | str] = {"berth.dev/seat": 1}
    world.cluster.create_pod("early", seat)
    wait(lambda: refusal(world, "early"), 60, "a refusal that names the Pools there are")
    world.faults.unset("no-tick")  # a changed file of Pools is taken over by a tick out of turn
    try:
        added: list[Object] = [*POOLS, pool("seat", 1)]
        took = seconds_to_bind(world, lambda: world.berth.write_pools(added), "early")
        tell("from the Pool's creation to Binding", [took])
        assert took < AT_ONCE
    finally:
        world.cluster.delete_pod("early")
        world.berth.write_pools(POOLS)


def refusal(world: World, name: str) -> bool:
    found = world.cluster.condition(name, "PodScheduled") or {}
    return "berth.dev/seat" in found.get("message", "") and world.pending().get("active") == 0
