"""Promises 4 and 5 for bind calls that overlap, repeat, lie or are killed: one claim, on the pod's node.
Bind is called directly; that kube-scheduler does make such calls is shown in test_bind_scheduled.
"""

import time
from functools import partial

import pytest

from tests.e2e.faults.checks import AGED_SECONDS, BINDING, UNITS, A, B, assert_nowhere, assert_on, caught
from tests.e2e.faults.fault_world import Background, World
from tests.e2e.harness import event, settled
from tests.support.cluster import Object, wait
from tests.support.fakes.proxy import answering

STEPS_BEFORE = ("before reserve", "after reserve", "before Binding")
STEPS_AFTER = ("after Binding", "before confirm", "after confirm")


# Two calls for one pod


def test_the_same_call_twice_at_once_is_a_success_twice_with_the_same_units(world: World) -> None:
    for _ in range(10):
        pod = world.cluster.create_pod("pod")
        calls = [Background(partial(world.bind, pod, A)) for _ in range(2)]
        assert [call.result() for call in calls] == ["", ""]
        assert world.claims_of(pod) == [(A, "bound")]
        assert world.free()[A] == UNITS - 1
        world.remove_pods()


def test_the_same_call_again_while_the_first_hangs_is_a_success_for_both(world: World, pod: Object) -> None:
    rule, first = caught(world, pod)
    assert world.bind(pod, A) == ""
    allocated = world.allocated(pod)
    rule.resume.set()
    assert first.result() == ""
    assert world.allocated(pod) == allocated
    assert_on(world, pod, A)


def test_a_second_call_to_another_node_wins_over_a_first_that_hangs(world: World, pod: Object) -> None:
    rule, first = caught(world, pod)
    assert world.bind(pod, B) == ""
    rule.resume.set()
    assert f"bound to node {B} already" in first.result()
    assert_on(world, pod, B)


def test_a_binding_that_arrives_after_both_deadlines_moves_nothing(world: World, pod: Object) -> None:
    rule, first = caught(world, pod)
    assert first.result()
    assert world.bind(pod, B) == ""
    rule.resume.set()
    assert rule.done.wait(60)
    assert_on(world, pod, B)


def test_two_calls_to_two_nodes_at_once_end_with_one_claim_on_the_pod_s_node(world: World) -> None:
    for _ in range(10):
        pod = world.cluster.create_pod("pod")
        calls = [Background(partial(world.bind, pod, node)) for node in (A, B)]
        errors = dict(zip((A, B), (call.result() for call in calls), strict=True))
        node = world.node_of(pod)
        assert node, errors
        assert errors[node] == ""
        assert errors[B if node == A else A]
        assert_on(world, pod, node)
        world.remove_pods()


def test_the_last_unit_asked_for_by_many_calls_at_once_is_given_once(world: World) -> None:
    pods = [world.cluster.create_pod(f"pod-{number}") for number in range(3 * UNITS)]
    calls = [Background(partial(world.bind, pod, A)) for pod in pods]
    errors = [call.result() for call in calls]
    assert errors.count("") == UNITS, errors
    assert {error for error in errors if error} == {"underlay-ip: 0 of 8 free, 1 asked"}
    assert world.cluster.per_node() == {A: UNITS}
    settled(world)


# Calls that must not be followed


def test_a_call_with_another_pod_s_uid_binds_and_takes_nothing(world: World, pod: Object) -> None:
    other = world.cluster.create_pod("other")
    assert world.bind(other, B) == ""
    forged = {"metadata": {**pod["metadata"], "uid": other["metadata"]["uid"]}}
    assert "is gone" in world.bind(forged, A)
    assert world.node_of(pod) is None
    assert world.claims_of(other) == [(B, "bound")]
    settled(world)


def test_a_call_or_event_with_a_name_that_is_gone_and_the_uid_of_a_pod_that_lives_frees_nothing(
    world: World, pod: Object
) -> None:
    assert world.bind(pod, A) == ""
    forged = {**pod, "metadata": {**pod["metadata"], "name": "long-gone"}}
    assert "is gone" in world.bind(forged, A)
    assert world.claims_of(pod) == [(A, "bound")]
    assert world.berth.post("release", forged, event("delete", forged)).status == 204
    assert_on(world, pod, A)


def test_a_call_for_a_pod_of_another_scheduler_is_refused(world: World) -> None:
    pod = world.cluster.create_pod("pod", scheduler="default-scheduler")
    assert "has schedulerName default-scheduler" in world.bind(pod, A)
    assert_nowhere(world, pod)


def test_a_call_for_a_gated_pod_is_refused(world: World) -> None:
    pod = world.cluster.create_pod("pod", scheduling_gates=["example.com/wait"])
    assert "has scheduling gates" in world.bind(pod, A)
    assert_nowhere(world, pod)


@pytest.mark.parametrize("node", ["outside", "nowhere"])
def test_a_call_to_a_node_without_the_pool_is_refused(world: World, pod: Object, node: str) -> None:
    assert "underlay-ip" in world.bind(pod, node)
    assert_nowhere(world, pod)


# Bind is killed


def killed(world: World, pod: Object, step: str) -> None:
    """The call during which bind died with -9; afterwards it runs again."""
    world.faults.set("die", step)
    with pytest.raises(Exception, match=r"Connection aborted|Remote end closed|reset"):
        world.berth.post("bind", call_for(pod, A))
    assert not world.faults.is_set("die")


def call_for(pod: Object, node: str) -> Object:
    meta = pod["metadata"]
    return {"PodName": meta["name"], "PodNamespace": "default", "PodUID": meta["uid"], "Node": node}


@pytest.mark.parametrize("step", STEPS_BEFORE)
def test_a_bind_killed_before_its_binding_leaves_nothing_after_a_reconcile(
    world: World, pod: Object, step: str
) -> None:
    killed(world, pod, step)
    settled(world, AGED_SECONDS)
    assert_nowhere(world, pod)


@pytest.mark.long
def test_a_bind_killed_between_reserve_and_fence_leaves_nothing_after_a_reconcile(
    world: World, pod: Object
) -> None:
    for step in ("before fence", "after fence"):
        world.proxy.on("POST", BINDING, answering(500))
        killed(world, pod, step)
        settled(world, AGED_SECONDS)
        assert_nowhere(world, pod)


@pytest.mark.parametrize("step", STEPS_AFTER)
def test_a_bind_killed_after_its_binding_has_its_claim_after_a_reconcile(
    world: World, pod: Object, step: str
) -> None:
    killed(world, pod, step)
    settled(world)
    assert_on(world, pod, A)


@pytest.mark.parametrize("step", STEPS_BEFORE + STEPS_AFTER)
def test_the_next_call_after_a_kill_binds_at_once_to_whatever_node(
    world: World, pod: Object, step: str
) -> None:
    killed(world, pod, step)
    wait(lambda: world.berth.post("bind", call_for(pod, B)).status == 200, 60, "bind answers again")
    assert_on(world, pod, A if step in STEPS_AFTER else B)


def test_a_young_reservation_is_left_alone_by_reconcile_until_bind_s_deadline(
    world: World,
) -> None:
    """The look has to fall into the reservation's youth: where the machine was too slow, nothing was seen."""
    for _ in range(10):
        pod = world.cluster.create_pod("pod")
        began = time.monotonic()
        rule, call = caught(world, pod)
        world.berth.reconcile()
        seen, looked_in_time = world.claims_of(pod), time.monotonic() - began < 1
        rule.resume.set()
        answer = call.result()
        if looked_in_time:
            break
        world.remove_pods()
    assert looked_in_time, "reconcile was too slow for this test to mean anything"
    assert (seen, answer) == ([(A, "reserved")], "")
    assert_on(world, pod, A)
