"""Promises 3 and 5 where one bind fails: nothing leaks, the claim is on the pod's node, no false Error.
Bind is called directly, as kube-scheduler calls it; it alone meets the faulty API server.
"""

import pytest

from tests.e2e.faults.checks import (
    AGED_SECONDS,
    BINDING,
    HOLD_SECONDS,
    POD,
    A,
    B,
    assert_nowhere,
    assert_on,
    caught,
)
from tests.e2e.faults.fault_world import World
from tests.e2e.faults.webhooks import STUCK, webhook_down
from tests.e2e.harness import settled
from tests.support.cluster import Object
from tests.support.fakes.proxy import ANSWER_LOST, CUT, Fault, answering, answering_after, held

HANGS = Fault(before=HOLD_SECONDS, forward=False, drop=True)


def bind_by_hand(world: World, node: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    world.cluster.call("POST", f"{POD}/binding", {"metadata": {"name": "pod"}, "target": target})


# The pod changes under bind


def test_a_pod_deleted_before_bind_holds_nothing(world: World, pod: Object) -> None:
    world.cluster.delete_pod("pod")
    assert "is gone" in world.bind(pod, A)
    assert_nowhere(world, pod)


def test_a_pod_deleted_during_bind_holds_nothing(world: World, pod: Object) -> None:
    rule, call = caught(world, pod)
    world.cluster.delete_pod("pod")
    rule.resume.set()
    assert call.result()
    assert_nowhere(world, pod)


def test_a_pod_replaced_during_bind_by_one_of_the_same_name_leaves_nothing_to_it(
    world: World, pod: Object
) -> None:
    rule, call = caught(world, pod)
    world.cluster.delete_pod("pod")
    successor = world.cluster.create_pod("pod")
    rule.resume.set()
    assert "is gone" in call.result()
    assert world.claims_of(successor) == []
    assert_nowhere(world, pod)


def test_a_pod_that_begins_to_be_deleted_during_bind_holds_nothing(world: World) -> None:
    pod = world.cluster.create_pod("pod")
    world.cluster.patch(POD, {"metadata": {"finalizers": ["example.com/wait"]}})
    rule, call = caught(world, pod)
    world.cluster.delete_pod("pod")
    rule.resume.set()
    assert "is being deleted" in call.result()
    assert world.claims_of(pod) == []
    world.cluster.patch(POD, {"metadata": {"finalizers": None}})
    assert_nowhere(world, pod)


def test_a_pod_written_to_during_bind_is_read_again_and_bound(world: World, pod: Object) -> None:
    rule, call = caught(world, pod)
    world.cluster.patch(POD, {"metadata": {"labels": {"changed": "meanwhile"}}})
    rule.resume.set()
    assert call.result() == ""
    assert_on(world, pod, A)


@pytest.mark.parametrize("where", [A, B])
def test_a_pod_bound_by_someone_else_before_bind_has_its_claim_on_its_node(
    world: World, pod: Object, where: str
) -> None:
    bind_by_hand(world, where)
    error = world.bind(pod, A)
    assert (error == "") == (where == A)
    assert_on(world, pod, where)


@pytest.mark.parametrize("where", [A, B])
def test_a_pod_bound_by_someone_else_during_bind_has_its_claim_on_its_node(
    world: World, pod: Object, where: str
) -> None:
    rule, call = caught(world, pod)
    bind_by_hand(world, where)
    rule.resume.set()
    assert (call.result() == "") == (where == A)
    assert_on(world, pod, where)


# The API server fails


@pytest.mark.parametrize("status", [409, 403, 404, 429, 500, 503])
def test_a_binding_that_is_always_refused_leaves_nothing(world: World, pod: Object, status: int) -> None:
    rule = world.proxy.on("POST", BINDING, answering(status))
    assert str(status) in world.bind(pod, A)
    assert 1 <= rule.seen <= 2
    assert_nowhere(world, pod)


def test_after_a_binding_refused_once_the_next_call_binds(world: World, pod: Object) -> None:
    refused = world.proxy.on("POST", BINDING, answering(409), times=1)
    # Some wake's patch may have come between: then bind tries again itself.
    node = B if world.bind(pod, A) else A
    assert refused.seen == 1
    assert world.bind(pod, node) == ""
    assert_on(world, pod, node)


@pytest.mark.parametrize(
    "fault", [answering_after(500), answering_after(504), answering_after(409), ANSWER_LOST]
)
def test_a_binding_that_was_made_is_a_success_whatever_became_of_its_answer(
    world: World, pod: Object, fault: Fault
) -> None:
    world.proxy.on("POST", BINDING, fault)
    assert world.bind(pod, A) == ""
    allocated = world.allocated(pod)
    assert allocated
    assert world.bind(pod, A) == ""
    assert world.allocated(pod) == allocated
    assert_on(world, pod, A)


def test_a_binding_made_whose_answer_comes_after_the_deadline_is_a_success(world: World, pod: Object) -> None:
    world.proxy.on("POST", BINDING, Fault(after=HOLD_SECONDS))
    assert world.bind(pod, A) == ""
    assert_on(world, pod, A)


def test_a_binding_that_hangs_is_fenced_and_cannot_land_afterwards(world: World, pod: Object) -> None:
    rule = world.proxy.on("POST", BINDING, held(HOLD_SECONDS))
    assert "did not answer" in world.bind(pod, A)
    assert world.claims_of(pod) == []
    rule.resume.set()
    assert rule.done.wait(60)
    assert_nowhere(world, pod)


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
@pytest.mark.long
def test_an_api_server_that_hangs_from_a_step_on_is_answered_for_in_time(
    world: World, pod: Object, method: str
) -> None:
    """GET: nothing answers. POST: the Binding and all later calls hang. PATCH: only the fence hangs."""
    for each in ("GET", "POST", "PATCH")[("GET", "POST", "PATCH").index(method) :]:
        world.proxy.on(each, "/pods", Fault(before=HOLD_SECONDS, forward=False, drop=True))
    if method == "POST":
        world.proxy.on("GET", "/pods", Fault(before=HOLD_SECONDS, forward=False, drop=True), skip=1)
    if method == "PATCH":
        world.proxy.on("POST", BINDING, answering(500))
    assert world.bind(pod, A)
    world.proxy.clear()
    settled(world)
    assert world.node_of(pod) is None
    assert world.claims_of(pod) == []


@pytest.mark.alone
@pytest.mark.long
def test_bind_answers_in_time_though_every_call_is_slow_and_many_wait_to_be_woken(
    world: World, pod: Object
) -> None:
    for number in range(12):
        world.cluster.create_pod(f"waiter-{number}")
    for method in ("GET", "PATCH"):
        world.proxy.on(method, "/pods", held(0.9))
    world.proxy.on("POST", BINDING, answering(500))
    assert world.bind(pod, A)
    assert_nowhere(world, pod)


def test_a_binding_that_lands_after_its_fence_was_lost_has_its_claim_after_a_reconcile(
    world: World, pod: Object
) -> None:
    late = world.proxy.on("POST", BINDING, held(HOLD_SECONDS))
    world.proxy.on("PATCH", "/pods/pod/status", CUT)
    assert world.bind(pod, A)
    assert world.claims_of(pod) == [(A, "reserved")]
    late.resume.set()
    assert late.done.wait(60)
    assert world.node_of(pod) == A
    settled(world)
    assert_on(world, pod, A)


def test_a_refused_connection_leaves_nothing(world: World, pod: Object) -> None:
    world.proxy.refuse()
    try:
        assert "did not answer" in world.bind(pod, A)
    finally:
        world.proxy.listen()
    assert_nowhere(world, pod)


def test_connections_cut_from_the_binding_on_leave_nothing_after_a_reconcile(
    world: World, pod: Object
) -> None:
    world.proxy.on("POST", BINDING, CUT)
    world.proxy.on("PATCH", "/pods/pod/status", CUT)
    assert world.bind(pod, A)
    world.proxy.clear()
    settled(world, AGED_SECONDS)
    assert_nowhere(world, pod)


@pytest.mark.parametrize("answer", [ANSWER_LOST, Fault(after=HOLD_SECONDS)], ids=["lost", "late"])
@pytest.mark.parametrize("fence", [CUT, HANGS], ids=["cut", "hangs"])
@pytest.mark.long
def test_a_binding_that_was_made_is_a_success_whatever_became_of_its_fence(
    world: World, pod: Object, answer: Fault, fence: Fault
) -> None:
    world.proxy.on("POST", BINDING, answer)
    world.proxy.on("PATCH", "/pods/pod/status", fence)
    assert world.bind(pod, A) == ""
    assert_on(world, pod, A)


def test_a_binding_that_was_made_is_a_success_though_a_webhook_keeps_its_pod_from_being_fenced(
    world: World,
) -> None:
    pod = world.cluster.create_pod("pod", labels=STUCK)
    world.proxy.on("POST", BINDING, ANSWER_LOST)
    with webhook_down(world.cluster, "pod"):
        assert world.bind(pod, A) == ""
        assert_on(world, pod, A)


def test_a_binding_made_whose_answer_fence_and_look_are_lost_has_its_claim_after_a_reconcile(
    world: World, pod: Object
) -> None:
    world.proxy.on("POST", BINDING, ANSWER_LOST)
    world.proxy.on("PATCH", "/pods/pod/status", CUT)
    world.proxy.on("GET", "/pods/pod$", CUT, skip=1)
    assert world.bind(pod, A)
    assert world.claims_of(pod) == [(A, "reserved")]
    world.proxy.clear()
    settled(world)
    assert_on(world, pod, A)
