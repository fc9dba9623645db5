"""Gangs in odd ways: wrong clocks, Pools that change between steps, pods that change their gang.
Whatever comes, no pod has two claims, nobody waits for ever, and nothing is held in vain for long."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from berth.api.gang import GANG, GANG_SIZE
from berth.controller.gang import drop_notes
from berth.controller.settle import BIND_SECONDS
from berth.handlers.preempt import Preempt
from berth.http.extender_v1 import BindingCall, PreemptionCall, Victims
from berth.ledger.gang_note import BELIEVED_SECONDS, LONGEST_REST, STUCK_SECONDS
from berth.ledger.ledger import Ledger
from berth.ledger.transaction import BusyError
from berth.testing.api_server import StandIn
from tests.features.test_gangs import GANG_SECONDS, NODES, POOLS, Gangs
from tests.support.builders.places import Place
from tests.support.builders.steps import each_step

pytestmark = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Gangs]:
    made: list[Gangs] = []
    with StandIn(clock=lambda: made[0].time() if made else 0.0) as api:
        made.append(Gangs(api, tmp_path, place, POOLS, NODES))
        with closing(made[0].store), closing(made[0].raw):
            yield made[0]


def claims_of(stage: Gangs, pod: BindingCall) -> int:
    return len(stage.ledger().view().claims_of(pod.uid))


def test_nobody_is_evicted_for_a_pod_of_a_gang(stage: Gangs) -> None:
    victims = [stage.bound_pod(f"victim-{number}", on="n1", gpu=1, priority=-1) for number in range(2)]
    pods = stage.gang("train", 3, gpu=2)
    call = PreemptionCall(stage.get(pods[0].name), {"n1": Victims(tuple(pod.uid for pod in victims))})
    assert Preempt(stage.ledger(), stage.time).run(call) == {}


def test_a_rest_that_a_wrong_clock_began_ends(stage: Gangs) -> None:
    pods = stage.gang("train", 3, seat=1)
    assert stage.bind(pods[0]) == ""
    stage.time.now += 10_000_000
    stage.reconcile()
    stage.time.now -= 10_000_000 - GANG_SECONDS
    assert stage.states() == {"train-0": "bound"}
    stage.time.now += LONGEST_REST + 1
    assert stage.whys(pods[1:]) == [{}, {}]
    assert stage.bind(pods[1]) == ""


def test_the_line_holds_all_that_the_rest_of_a_gang_asks_for_and_nothing_while_it_rests(stage: Gangs) -> None:
    pods = stage.gang("train", 3, seat=1)
    assert stage.bind(pods[0]) == ""
    stage.time.now += GANG_SECONDS
    stage.reconcile()
    assert not stage.ledger().view().line_holds
    small = stage.bound_pod("small", seat=1)
    stage.time.now += GANG_SECONDS
    stage.reconcile()
    assert [hold.count for hold in stage.ledger().view().line_holds.values()] == [2]
    held = "seat: 0 of 4 free, 1 asked; 2 more are held for default/train-1, first in line"
    assert stage.bind(stage.pod("new", seat=1)) == held
    assert [stage.bind(pod) for pod in pods[1:]] == ["", ""]
    stage.gone(small)
    stage.check_well()


@pytest.mark.long
def test_a_pool_that_goes_while_a_gang_is_bound_is_no_crash(stage: Gangs) -> None:
    for step in each_step():
        stage.clear_pods()
        stage.pools(seat=POOLS["seat"], gpu=POOLS["gpu"])
        noted = {GANG: f"gang-{step.number}", GANG_SIZE: "2"}
        launcher = stage.pod(f"launcher-{step.number}", annotations=noted, seat=1)
        worker = stage.pod(f"worker-{step.number}", annotations=noted, gpu=1)
        stage.bind(launcher, step=step.doing(lambda: stage.pools(seat=None)))
        assert [claims_of(stage, pod) for pod in (launcher, worker)] in ([0, 0], [0, 1], [1, 1])


def test_seats_wait_as_long_as_any_pool_of_the_gang_says(stage: Gangs) -> None:
    stage.pools(gpu={**POOLS["gpu"], "gangSeconds": 600})
    noted = {GANG: "mpi", GANG_SIZE: "2"}
    launcher = stage.pod("launcher", annotations=noted, seat=1)
    stage.pod("worker", annotations=noted, gpu=1)
    assert stage.bind(launcher) == ""
    stage.time.now += GANG_SECONDS
    stage.reconcile()
    assert stage.seats().keys() == {"worker"}


def test_a_pod_with_a_seat_that_names_another_gang_has_one_claim(stage: Gangs) -> None:
    pods = stage.gang("one", 2, gpu=1)
    assert stage.bind(pods[0]) == ""
    assert stage.seats() == {"one-1": "n1"}
    stage.note("one-1", {GANG: "two", GANG_SIZE: "2"})
    other = stage.pod("two-0", annotations={GANG: "two", GANG_SIZE: "2"}, gpu=1)
    assert stage.bind(pods[1], "n2") == ""
    assert [claims_of(stage, pod) for pod in (*pods, other)] == [1, 1, 1]


def test_a_pod_with_a_seat_that_names_another_gang_gets_no_second_one(stage: Gangs) -> None:
    pods = stage.gang("one", 2, gpu=1)
    assert stage.bind(pods[0]) == ""
    stage.note("one-1", {GANG: "two", GANG_SIZE: "2"})
    other = stage.pod("two-0", annotations={GANG: "two", GANG_SIZE: "2"}, gpu=1)
    stage.bind(other, "n2")
    assert [claims_of(stage, pod) for pod in pods] == [1, 1]
    stage.time.now += GANG_SECONDS
    stage.reconcile()
    assert stage.bind(other, "n2") == ""
    assert stage.bind(pods[1], "n2") == ""
    assert [claims_of(stage, pod) for pod in (*pods, other)] == [1, 1, 1]


def test_a_note_has_no_more_pods_than_a_gang_may_have(stage: Gangs, monkeypatch: Any) -> None:
    monkeypatch.setattr("berth.controller.gang.LARGEST_GANG", 4)
    stage.bound_pod("first", seat=3)
    pods = [stage.pod(f"train-{n}", annotations={GANG: "train", GANG_SIZE: "2"}, seat=1) for n in range(9)]
    assert stage.bind(pods[0]).startswith("gang train: no room for 2 pods")
    assert len(stage.ledger().view().gangs["default/train"].members) == 4


def test_a_gang_whose_pods_differ_too_much_takes_no_longer_than_bind_may(
    stage: Gangs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> None:
        stage.time.now += 1  # for each look whether a pod may go to a node

    monkeypatch.setattr("berth.controller.gang.why_not", slow)
    stage.pools(gpu={"capacity": {"perDomain": 9}})
    noted = {GANG: "varied", GANG_SIZE: "9"}
    pods = [stage.pod(f"varied-{n}", annotations=noted, tolerates=f"key-{n}", gpu=1) for n in range(9)]
    began = stage.time.now
    assert stage.bind(pods[0]).startswith(
        "gang varied: its pods select or tolerate too many different things"
    )
    assert stage.time.now - began < BIND_SECONDS + 1
    assert stage.states() == {}


def test_pods_that_select_and_tolerate_the_same_are_looked_at_once(
    stage: Gangs, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    monkeypatch.setattr("berth.controller.gang.why_not", lambda _, node: looked.append(node.metadata.name))
    stage.pools(gpu={"capacity": {"perDomain": 9}, "sticky": {"by": "Pod", "forSeconds": 60}})
    pods = stage.gang("train", 9, gpu=1)
    assert stage.bind(pods[0]) == ""
    assert sorted(looked) == ["n1", "n2"]


@pytest.mark.slow
def test_a_seat_can_be_taken_though_its_pool_has_a_limit_by_now(stage: Gangs) -> None:
    pods = stage.gang("train", 3, seat=1)
    assert stage.bind(pods[0]) == ""
    stage.pools(seat={**POOLS["seat"], "limits": {"default": 3}})
    assert [stage.bind(pod) for pod in pods[1:]] == ["", ""]


def test_units_kept_for_each_pod_of_a_gang_are_for_all_of_it(stage: Gangs) -> None:
    stage.pools(seat={**POOLS["seat"], "sticky": {"by": "Pod", "forSeconds": 86400}})
    pods = stage.gang("train", 3, seat=1)
    assert [stage.bind(pod) for pod in pods] == ["", "", ""]
    for pod in pods:
        stage.gone(pod)
    first = stage.bound_pod("first", seat=1)
    again = stage.gang("train", 3, there=2, seat=1)
    assert stage.bind(again[0]) == "gang train: 2 of its 3 pods are there"
    extra = stage.pod("train-2", annotations={GANG: "train", GANG_SIZE: "3"}, seat=2)
    assert stage.bind(extra).startswith("gang train: no room for 3 pods of it at once")
    stage.gone(first)
    assert stage.whys(again) == [{}, {}]


def test_filter_refuses_a_gang_that_its_namespace_may_not_hold_whole(stage: Gangs) -> None:
    """Else each of its pods would be bound in vain, again and again."""
    stage.pools(seat={**POOLS["seat"], "limits": {"default": 3}})
    pods = stage.gang("train", 4, seat=1)
    assert stage.bind(pods[0]).startswith("gang train: no room for 4 pods of it at once")
    why = (
        "seat: 3 of the 3 that namespace default may hold are free, 4 asked by 4 pods of gang train together"
    )
    assert stage.whys(pods) == [{"n1": why, "n2": why}] * 4
    stage.pools(seat={**POOLS["seat"], "limits": {"default": 4}})
    assert stage.whys(pods) == [{}] * 4
    assert stage.woken() == {pod.name for pod in pods}
    assert [stage.bind(pod) for pod in pods] == [""] * 4


def test_a_note_that_is_new_is_not_dropped_by_who_saw_the_old_one(
    stage: Gangs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the documents of seats for the next bind, whose View may lag as well."""
    pods = stage.gang("train", 3, there=2, seat=1)
    assert stage.bind(pods[0]) == "gang train: 2 of its 3 pods are there"
    lagging = stage.ledger()
    seen = lagging.view()
    monkeypatch.setattr(lagging, "view", lambda: seen)
    stage.time.now += BELIEVED_SECONDS + 1
    stage.pod("train-2", annotations={GANG: "train", GANG_SIZE: "3"}, seat=1)
    assert stage.bind(pods[0]) == ""
    drop_notes(lagging, [], stage.time.now)
    assert stage.ledger().view().gangs["default/train"].seats


def test_a_seat_is_not_given_back_for_one_that_its_pod_had_before(stage: Gangs) -> None:
    pods = stage.gang("train", 2, seat=1)
    assert stage.bind(pods[0]) == ""
    (before,) = (claim for claim in stage.ledger().view().claims() if claim.is_seat)
    stage.time.now += GANG_SECONDS
    stage.reconcile()
    stage.gone(pods[0])
    stage.time.now += GANG_SECONDS
    first = stage.pod("train-new", annotations={GANG: "train", GANG_SIZE: "2"}, seat=1)
    assert stage.bind(first) == ""
    assert stage.ledger().cancel(before) == ()
    assert stage.seats().keys() == {"train-1"}


@pytest.mark.long
def test_a_gang_of_whose_turn_nothing_came_has_its_pause_whoever_of_it_is_first(stage: Gangs) -> None:
    stage.gang("vain", 3, seat=1)
    held, looks = 0, 120
    filling = [stage.bound_pod(f"filling-{number}", seat=1) for number in range(4)]
    stage.time.now += 60
    stage.reconcile()
    for pod in filling:
        stage.gone(pod)
    for _ in range(looks):
        stage.time.now += 60
        stage.reconcile()
        held += bool(stage.ledger().view().line_holds)
    assert held < looks / 4, "its pods can't be bound, and others can't have the units meanwhile"


@pytest.mark.slow
def test_those_with_seats_are_woken_though_the_first_pod_is_written_meanwhile(stage: Gangs) -> None:
    for step in each_step():
        stage.clear_pods()
        pods = stage.gang(f"gang-{step.number}", 2, seat=1)
        note = step.doing(lambda: stage.note(pods[0].name, {"step": "1"}))  # noqa: B023
        assert stage.bind(pods[0], step=note) == ""
        assert stage.woken() == {pods[1].name}, f"step {step.number}"


def test_a_gang_is_bound_though_its_turn_can_not_be_ended(
    stage: Gangs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object, **__: object) -> None:
        raise BusyError

    pods = stage.gang("train", 2, seat=2)
    monkeypatch.setattr(Ledger, "drop_line_hold", busy)
    assert stage.bind(pods[0]) == ""
    assert stage.woken() == {"train-1"}


def test_who_lags_knows_all_seats_of_a_gang_after_a_pod_came_in_place_of_another(
    stage: Gangs, monkeypatch: pytest.MonkeyPatch
) -> None:
    lagging = stage.ledger()
    seen = lagging.view()
    monkeypatch.setattr(lagging, "view", lambda: seen)
    pods = stage.gang("train", 3, gpu=1)
    assert stage.bind(pods[0]) == ""
    assert stage.seats() == {"train-1": "n1", "train-2": "n2"}
    stage.gone(pods[0])
    new = stage.pod("train-new", annotations={GANG: "train", GANG_SIZE: "3"}, gpu=1)
    assert stage.bind(new) == ""
    assert lagging.gang("default/train").claims.keys() == {pods[1].uid, pods[2].uid, new.uid}


def test_a_gang_that_finds_no_room_in_what_is_free_is_not_bound_again_and_again(stage: Gangs) -> None:
    """Each bind lists the namespace's pods and the nodes, and kube-scheduler tries each pod every 10 s."""
    half = [stage.bound_pod(f"half-{node}", on=node, gpu=1) for node in ("n1", "n2")]
    pods = stage.gang("train", 2, gpu=1)
    stage.write_node("n2", taints=[{"key": "away", "effect": "NoSchedule"}])
    why = "gang train: no room for 2 pods of it at once (train-1: gpu: 0 of 2 free, 1 asked)"
    assert stage.bind(pods[0]) == why
    assert stage.whys(pods) == [{"n1": why, "n2": why}] * 2
    stage.time.now += STUCK_SECONDS
    assert stage.whys(pods) == [{}, {}], "a node may have another taint by now, say"
    assert stage.bind(pods[1]) == why.replace("train-1", "train-0")
    assert stage.whys(pods)[0].keys() == {"n1", "n2"}
    stage.gone(half[0])
    assert stage.woken() == {"train-0", "train-1"}
    assert [stage.bind(pod) for pod in pods] == ["", ""]


def test_a_gang_that_can_not_be_noted_is_a_problem_and_keeps_nobody_asleep(
    stage: Gangs, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = stage.gang("train", 3, seat=1)
    assert stage.bind(pods[0]) == ""
    single = stage.pod("single", seat=1)
    stage.time.now += GANG_SECONDS

    def busy(*_: object) -> object:
        raise BusyError

    monkeypatch.setattr(Ledger, "note_gang", busy)
    report = stage.reconcile()
    (problem,) = report.problems
    assert problem.startswith("gangs that gave back their seats were not noted: berth's ledger was too busy")
    assert single.name in stage.woken()
