"""One bind, and between any two of its calls something else happens: the promises hold each time.
Every case is exact and repeatable; races of threads are in test_races.py, real crashes in tests/e2e."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from berth.controller.settle import BIND_SECONDS
from berth.http import extender_v1
from tests.support.builders.places import Place
from tests.support.builders.stage import KilledError, Stage, staged

# What is tried here is the verb's order, not the store's; on every store: tests/properties.
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)]

Call = extender_v1.BindingCall
MOST_STEPS = 40  # a bind makes fewer calls; the test says so if that changes


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Stage]:
    with staged(tmp_path, place) as found:
        yield found


def killed(_: Stage, __: Call, ___: Call) -> None:
    raise KilledError


def the_pod_is_deleted(stage: Stage, call: Call, _: Call) -> None:
    stage.delete(call)


def the_same_call_comes_again(stage: Stage, call: Call, _: Call) -> None:
    stage.bind(call)


def a_call_for_the_other_node_comes(stage: Stage, call: Call, _: Call) -> None:
    stage.bind(call, "n2")


def somebody_else_binds_it_there(stage: Stage, call: Call, _: Call) -> None:
    _bind_around_us(stage, call, "n1")


def somebody_else_binds_it_elsewhere(stage: Stage, call: Call, _: Call) -> None:
    _bind_around_us(stage, call, "n2")


def a_rival_wants_the_unit(stage: Stage, _: Call, rival: Call) -> None:
    stage.bind(rival)


def a_late_reconcile_and_a_rival(stage: Stage, _: Call, rival: Call) -> None:
    stage.time.now += BIND_SECONDS + 1
    stage.reconcile()
    stage.bind(rival)


def the_ledger_is_lost_and_a_rival_comes(stage: Stage, _: Call, rival: Call) -> None:
    stage.lose_ledger()
    stage.bind(rival)


def the_ledger_is_lost_and_rebuilt_and_a_rival_comes(stage: Stage, _: Call, rival: Call) -> None:
    stage.lose_ledger()
    stage.reconcile()
    stage.bind(rival)


def a_late_reconcile_with_a_rival_at_each_step(stage: Stage, _: Call, rival: Call) -> None:
    _fill_the_other_node(stage)
    stage.time.now += BIND_SECONDS + 1
    stage.reconcile(step=lambda: stage.bind(rival))


def the_ledger_is_lost_and_rebuilt_with_a_rival_at_each_step(stage: Stage, _: Call, rival: Call) -> None:
    _fill_the_other_node(stage)
    stage.lose_ledger()
    stage.reconcile(step=lambda: stage.bind(rival))


def the_pod_is_written(stage: Stage, call: Call, _: Call) -> None:
    pod = stage.cluster.pod("default", call.name)
    if pod is not None:
        stage.cluster.set_condition(
            pod, {"type": "example.com/x", "status": "True", "message": str(stage.time())}
        )


MEANWHILE: list[Callable[[Stage, Call, Call], None]] = [
    killed,
    the_pod_is_deleted,
    the_same_call_comes_again,
    a_call_for_the_other_node_comes,
    somebody_else_binds_it_there,
    somebody_else_binds_it_elsewhere,
    a_rival_wants_the_unit,
    a_late_reconcile_and_a_rival,
    the_ledger_is_lost_and_a_rival_comes,
    the_ledger_is_lost_and_rebuilt_and_a_rival_comes,
    the_pod_is_written,
]
AT_EACH_STEP = [
    pytest.param(each, marks=pytest.mark.long)
    for each in (
        a_late_reconcile_with_a_rival_at_each_step,
        the_ledger_is_lost_and_rebuilt_with_a_rival_at_each_step,
    )
]


def test_an_undisturbed_bind_leaves_a_bound_claim_and_its_annotation(stage: Stage) -> None:
    stage.clear()
    call = stage.add_pod()
    assert stage.bind(call) == ""
    assert stage.claims() == {call.name: ("n1", "bound")}
    pod = stage.cluster.pod("default", call.name)
    assert pod is not None
    expected = '[{"pool":"ip","domain":"n1","count":1}]'
    assert (pod.metadata.annotations or {})["berth.dev/allocated"] == expected


@pytest.mark.parametrize("meanwhile", [*MEANWHILE, *AT_EACH_STEP], ids=lambda found: found.__name__)
def test_whatever_happens_in_the_middle_of_a_bind_no_unit_is_doubled_or_lost(
    stage: Stage, meanwhile: Callable[[Stage, Call, Call], None]
) -> None:
    for at in range(1, MOST_STEPS + 1):
        stage.clear()
        call, rival = stage.add_pod(), stage.add_pod()
        steps = 0

        def step() -> None:
            nonlocal steps
            steps += 1
            if steps == at:  # noqa: B023 - it runs within this turn of the loop
                meanwhile(stage, call, rival)  # noqa: B023

        answer = _bound_or_killed(stage, call, step)
        _check_answer(stage, call, answer, at)
        _check_units(stage, at)
        stage.time.now += BIND_SECONDS + 1
        stage.reconcile()
        _check_units(stage, at)
        assert stage.claims() == {name: (node, "bound") for name, node in stage.bound().items()}, f"step {at}"
        if steps < at:
            return  # the bind was over before: every place in it has been tried
    pytest.fail(f"a bind makes more than {MOST_STEPS} calls")


def _bound_or_killed(stage: Stage, call: Call, step: Callable[[], None]) -> str:
    try:
        return stage.bind(call, step=step)
    except KilledError:
        return "killed"


def _check_answer(stage: Stage, call: Call, answer: str, at: int) -> None:
    """Success exactly if the pod is on the node, unless bind had no chance to answer."""
    if answer != "killed" and stage.cluster.pod("default", call.name) is not None:
        assert (answer == "") == (stage.bound().get(call.name) == "n1"), f"step {at}: {answer}"


def _check_units(stage: Stage, at: int) -> None:
    ours = [node for name, node in stage.bound().items()]
    assert len(ours) == len(set(ours)), f"step {at}: two pods share a unit: {stage.bound()}"


def _fill_the_other_node(stage: Stage) -> None:
    """With room left anywhere, reconcile's wake would write to the pod, and so hide a missing fence."""
    stage.bind(stage.add_pod(), "n2")


def _bind_around_us(stage: Stage, call: Call, node: str) -> None:
    pod = stage.cluster.pod("default", call.name)
    if pod is not None and not pod.spec.node_name:
        stage.cluster.bind(pod, node, {}, 5.0)
