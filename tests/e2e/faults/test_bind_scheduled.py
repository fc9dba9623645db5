"""Promises 1, 3 and 5 where binds fail under a real kube-scheduler, which retries and times out by itself.
What bind answers is not looked at here; only pods, claims and the API server's watch are.
"""

import random

import pytest

from tests.e2e.faults.checks import UNITS
from tests.e2e.faults.fault_world import World
from tests.e2e.harness import settled
from tests.support.cluster import wait
from tests.support.fakes.proxy import ANSWER_LOST, CUT, Fault, answering, answering_after, held, wait_reached

pytestmark = pytest.mark.long

FAULTS = [
    answering(409),
    answering(500),
    answering_after(500),
    ANSWER_LOST,
    CUT,
    held(0.3),
    Fault(after=0.3),
    held(3),
]


@pytest.mark.parametrize(
    "fault",
    [answering(409), answering(500), answering_after(500), ANSWER_LOST, CUT, held(20)],
    ids=["409", "500", "500 though done", "answer lost", "cut", "hangs"],
)
def test_a_pod_whose_first_binding_goes_wrong_ends_bound_once_whoever_tries_again(
    world: World, fault: Fault
) -> None:
    with world.scheduling():
        rule = world.proxy.on("POST", "/binding$", fault, times=1)
        pods = [world.cluster.create_pod(f"pod-{number}") for number in range(3)]
        bound = world.cluster.wait_bound()
        rule.resume.set()
        settled(world)
    assert rule.seen == 1
    assert world.cluster.bound() == bound
    assert [world.claims_of(pod) for pod in pods] == [
        [(bound[pod["metadata"]["name"]], "bound")] for pod in pods
    ]


def test_a_first_bind_that_outlives_the_scheduler_s_time_out_yields_to_the_second_on_another_node(
    world: World,
) -> None:
    """kube-scheduler waits one second here, so that bind, within its own four, can still be under way."""
    with world.cluster.watch_pods() as seen, world.scheduling(bind_timeout="1s"):
        late = world.proxy.on("POST", "/binding$", held(20), times=1)
        pod = world.cluster.create_pod("pod")
        wait_reached(late)
        (first,) = [node for node, free in world.free().items() if free < UNITS]
        world.cluster.patch(f"/api/v1/nodes/{first}", {"spec": {"unschedulable": True}})
        try:
            second = world.cluster.wait_bound("pod")["pod"]
            late.resume.set()
            assert late.done.wait(60)
            settled(world)
        finally:
            world.cluster.patch(f"/api/v1/nodes/{first}", {"spec": {"unschedulable": None}})
    assert second != first
    assert world.node_of(pod) == second
    assert world.claims_of(pod) == [(second, "bound")]
    assert seen.peak == {second: 1}


def test_a_burst_under_all_faults_fills_every_unit_once(world: World) -> None:
    dice = random.Random(7)
    for number in range(24):
        world.proxy.on("POST", "/binding$", dice.choice(FAULTS), times=1, skip=number)
    with world.cluster.watch_pods() as seen, world.scheduling():
        pods = [world.cluster.create_pod(f"pod-{number:02}") for number in range(2 * UNITS + 4)]
        for step in ["after reserve", "after Binding"]:
            dies_next(world, step)
        world.proxy.on("POST", "/binding$", CUT)  # no outcome is known: whoever binds now has to fence
        dies_next(world, "before fence")
        world.proxy.clear()
        wait(lambda: all_fits(world), 120, "all that fits is bound")
        settled(world)
    assert max(seen.peak.values()) <= UNITS, seen.peak
    holders = world.cluster.bound()
    for pod in pods:
        name = pod["metadata"]["name"]
        assert world.claims_of(pod) == ([(holders[name], "bound")] if name in holders else [])


def dies_next(world: World, step: str) -> None:
    """The next bind that comes to the step dies there; one comes, for there is room and a pod that waits."""
    world.faults.set("die", step)
    if bound := world.cluster.bound():
        world.cluster.delete_pod(min(bound))
    wait(lambda: not world.faults.is_set("die"), 60, f"bind dies {step}")


def all_fits(world: World) -> bool:
    """Reconcile is what mends a killed bind; in production a minute apart."""
    if sum(world.cluster.per_node().values()) == 2 * UNITS:
        return True
    world.berth.reconcile()
    return False
