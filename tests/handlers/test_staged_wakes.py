"""Waiters are woken in two stages, in line; filter leaves what came free to those that were woken for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth.controller.alarm import Alarm, Room
from berth.controller.requeue import wake
from berth.errors import ClusterRefusedError
from berth.handlers import filter as filter_verb
from berth.handlers.release import Release
from berth.http import extender_v1
from berth.http.cloudevents import Event
from berth.kube.cluster import list_waiting
from berth.kube.types import Pod, PodToBind
from berth.kube.writes import PodWrites
from berth.ledger.freed import MOMENT_SECONDS, Waiters, moment
from berth.ledger.ledger import Ledger
from tests.support.builders.objects import event
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged
from tests.unit.controller.test_alarm import Clock

POOLS: dict[str, Any] = {
    "seat": {"scope": "Cluster", "capacity": {"domains": {"*": 2}}},
    "ip": {"capacity": {"perDomain": 1}},
    "resting": {"scope": "Cluster", "capacity": {"domains": {"*": 1}}, "reuseAfterSeconds": 5},
}


class Turns:
    """A stage, one alarm of a release, and one ledger."""

    def __init__(self, stage: PoolsStage) -> None:
        self.stage, self.clock = stage, Clock()
        self.clock.now = stage.time()
        self.ledger = Ledger(stage.store, clock=stage.time)
        self.said = set[str]()
        self.alarm = Alarm(self.ledger.view, self._ring, clock=stage.time, start=self.clock.start)

    def pass_(self, seconds: float) -> None:
        """Let time pass, for timers too."""
        until = self.clock.now + seconds
        while (at := min((at for at, _ in self.clock.timers.values()), default=until + 1)) <= until:
            self.stage.time.now = max(self.stage.time.now, at)
            self.clock.pass_(max(0.0, at - self.clock.now))
        self.clock.pass_(until - self.clock.now)
        self.stage.time.now = until

    def wake(self, room: dict[str, int], *, a_pod_went: bool = True) -> int:
        staged = self.alarm.later(a_pod_went=a_pod_went)
        return self._wake(room, staged=staged)

    def _ring(self, room: Room) -> int:
        return self._wake(room.units)

    def _wake(self, room: Any, **how: Any) -> int:
        return wake(self.ledger, self.stage.cluster, ["berth"], room, self.stage.time(), **how)

    def tried(self, call: extender_v1.BindingCall, *names: str) -> set[str]:
        """What filter says to kube-scheduler of a pod as it is now: the nodes that it may have."""
        pod = self.stage.cluster._get(PodToBind, f"/api/v1/namespaces/default/pods/{call.name}", 5.0)
        assert pod is not None
        offered = extender_v1.Candidates(pod, list(names or ("n1",)), True, None)
        refused = filter_verb.run(self.ledger.view, offered, self.stage.time)
        self.said = set(refused.reasons.values())
        return set(offered.names) - refused.reasons.keys()

    def versions(self) -> dict[str, str]:
        items, _ = self.stage.cluster.snapshot("/api/v1/pods", {})
        return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}

    def free(self, holder: extender_v1.BindingCall) -> None:
        """Release what a pod held, by its deletion, and wake nobody yet."""
        pod = self.stage.get(holder.name)
        self.stage.cluster.delete(f"/api/v1/namespaces/default/pods/{holder.name}")
        waiting = self.alarm.known.counts(
            lambda: list_waiting(self.stage.cluster, ["berth"]), self.ledger.view()
        )
        self.ledger.release(pod.metadata.uid, bound=True, waiting=Waiters(self.stage.time(), waiting))


@pytest.fixture
def turns(tmp_path: Path, place: Place) -> Iterator[Turns]:
    with pools_staged(tmp_path, place, POOLS) as stage:
        yield Turns(stage)


def full(turns: Turns) -> list[extender_v1.BindingCall]:
    return [turns.stage.bound_pod(seat=1) for _ in range(2)]


def waiters(turns: Turns, count: int, **asked: Any) -> list[extender_v1.BindingCall]:
    """Pods that filter has refused, the first in line first."""
    asks: dict[str, Any] = asked or {"seat": 1}
    made = [turns.stage.pod(f"waiter-{number:02}", **asks) for number in range(count)]
    for call in made:
        assert not turns.tried(call)
    return made


def test_as_many_are_woken_as_there_are_units_and_the_others_where_these_do_not_take_them(
    turns: Turns,
) -> None:
    holders = full(turns)
    line = waiters(turns, 20)
    before = turns.versions()
    turns.free(holders[0])
    assert turns.wake({"seat": 1}) == 1
    assert turns.stage.woken() == {line[0].name}
    turns.pass_(moment(20) + 0.1)
    assert turns.stage.woken() == {call.name for call in line[:10]}  # 2 n + 8
    assert before.keys() >= {call.name for call in line}


def test_nobody_else_is_woken_once_the_first_have_what_came_free(turns: Turns) -> None:
    holders = full(turns)
    line = waiters(turns, 12)
    for holder in holders:
        turns.free(holder)
    assert turns.wake({"seat": 2}) == 2
    for call in line[:2]:
        assert turns.stage.bind(call, "n1") == ""
    before = turns.versions()
    turns.pass_(10)
    assert turns.versions() == before
    assert not turns.clock.timers


def test_units_that_come_free_one_after_another_are_each_for_the_next_in_line(turns: Turns) -> None:
    """The first is not bound yet when the second unit comes free: that is not for it again."""
    holders = full(turns)
    line = waiters(turns, 5)
    for holder in holders:
        turns.free(holder)
        assert turns.wake({"seat": 1}) == 1
    assert turns.stage.woken() == {line[0].name, line[1].name}


def test_a_waiter_that_went_meanwhile_keeps_its_turn_from_nobody(turns: Turns) -> None:
    holders = full(turns)
    line = waiters(turns, 3)
    turns.free(holders[0])
    turns.wake({"seat": 1})
    turns.stage.cluster.delete(f"/api/v1/namespaces/default/pods/{line[1].name}")
    turns.free(holders[1])
    assert turns.wake({"seat": 1}) == 1
    assert turns.stage.woken() == {line[0].name, line[2].name}


def test_what_came_free_is_left_to_who_is_woken_for_it_for_a_moment(turns: Turns) -> None:
    holders = full(turns)
    first, second, third = waiters(turns, 3)
    turns.free(holders[0])
    assert not turns.tried(third)  # kube-scheduler tries all when a pod goes
    assert turns.said == {"seat: 0 of 2 free, 1 asked"}  # as before: no other text, so no write to the pod
    turns.wake({"seat": 1})
    assert not turns.tried(second)
    assert turns.tried(first) == {"n1"}


def test_it_is_nobodys_once_the_moment_is_over(turns: Turns) -> None:
    holders = full(turns)
    _, _, third = waiters(turns, 3)
    turns.free(holders[0])
    assert not turns.tried(third)
    turns.stage.time.now += moment(3) + 0.001
    assert turns.tried(third) == {"n1"}


def test_who_was_refused_in_the_moment_is_woken_when_it_is_over(turns: Turns) -> None:
    """A pod that came after the list was made is in none: it must not sleep beside a free unit."""
    holders = full(turns)
    (gone,) = waiters(turns, 1)
    turns.free(holders[0])
    turns.stage.cluster.delete(f"/api/v1/namespaces/default/pods/{gone.name}")
    assert turns.wake({"seat": 1}) == 0
    new = turns.stage.pod("new", seat=1)
    assert not turns.tried(new)
    turns.pass_(MOMENT_SECONDS + 0.2)
    assert turns.stage.woken() == {"new"}
    assert turns.tried(new) == {"n1"}
    turns.pass_(5)
    assert not turns.clock.timers


def test_where_nobody_else_waits_a_new_pod_has_the_unit_at_once(turns: Turns) -> None:
    holders = full(turns)
    turns.free(holders[0])
    assert turns.tried(turns.stage.pod("again", seat=1)) == {"n1"}


def test_units_that_were_free_before_are_everybodys(turns: Turns) -> None:
    on_n1 = turns.stage.bound_pod(on="n1", ip=1)
    waits = turns.stage.pod("waits", ip=1)
    assert not turns.tried(waits, "n1")
    turns.free(on_n1)
    new = turns.stage.pod("new", ip=1)
    assert turns.tried(new, "n1", "n2") == {"n2"}


def test_a_pod_for_which_room_was_made_on_its_nominated_node_is_not_held_up(turns: Turns) -> None:
    holders = full(turns)
    _, second = waiters(turns, 2)
    turns.free(holders[0])
    nominated = {"status": {"nominatedNodeName": "n1"}}
    turns.stage.cluster._merge(f"/api/v1/namespaces/default/pods/{second.name}/status", nominated)
    assert turns.tried(second) == {"n1"}


def test_a_rest_s_end_wakes_the_first_in_line_and_nothing_before(turns: Turns) -> None:
    holder = turns.stage.bound_pod(resting=1)
    (first,) = waiters(turns, 1, resting=1)
    turns.free(holder)
    turns.wake({"resting": 1})
    turns.alarm.arm(turns.ledger.view())
    turns.pass_(4.9)
    assert turns.stage.woken() == set()
    turns.pass_(0.2)
    assert turns.stage.woken() == {first.name}
    assert turns.tried(first) == {"n1"}


def test_a_hundred_pods_that_go_at_once_cost_few_lists(turns: Turns) -> None:
    turns.stage.pools(seat={"scope": "Cluster", "capacity": {"domains": {"*": 40}}})
    holders = [turns.stage.bound_pod(seat=1) for _ in range(40)]
    waiters(turns, 40)
    lists, listed = 0, turns.stage.cluster.unbound_pods

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal lists
        lists += 1
        return listed(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns.stage.cluster, "unbound_pods", counted)
        for holder in holders:
            turns.free(holder)
            assert turns.wake({"seat": 1}) == 1
    assert len(turns.stage.woken()) == 40
    assert lists == 1


def test_pods_that_go_while_they_wait_cost_the_api_server_nothing(turns: Turns) -> None:
    """20 holders and 80 waiters may go at once, and their events come one by one."""
    stage = turns.stage
    (holder, _), (gone, *_) = full(turns), waiters(turns, 3)
    release = Release(turns.ledger, stage.cluster, ("berth",), stage.time, alarm=turns.alarm)
    left, waited = (stage.get(call.name) for call in (holder, gone))
    for pod in (left, waited):
        stage.cluster.delete(f"/api/v1/namespaces/default/pods/{pod.metadata.name}")
    assert release.run(deleted(left)) == {"released": 1, "woken": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage.cluster, "pod", None)  # an error if it is called
        patch.setattr(stage.cluster, "unbound_pods", None)
        done = release.run(deleted(waited))
    assert done == {"released": 0, "woken": 0, "why": "the pod was on no node, and held no unit"}


def test_what_came_free_is_for_new_pods_at_once_where_all_who_waited_go(turns: Turns) -> None:
    """A new pod that is refused for those who went sits in back-off for a second, beside a free unit."""
    stage = turns.stage
    holders, line = full(turns), waiters(turns, 3)
    release = Release(turns.ledger, stage.cluster, ("berth",), stage.time, alarm=turns.alarm, wall=stage.time)
    gone = [stage.get(call.name) for call in (*holders, *line)]
    for pod in gone:
        stage.cluster.delete(f"/api/v1/namespaces/default/pods/{pod.metadata.name}")
    late = stage.pod("late", seat=1)
    turns.alarm.known.forget()
    for pod in gone[:-1]:
        release.run(deleted(pod))
    assert turns.tried(late) == {"n1"}
    assert stage.woken() == {"late"}


def test_a_pod_that_goes_before_it_is_bound_gives_back_what_it_had_reserved(turns: Turns) -> None:
    stage = turns.stage
    pod = stage.get(stage.pod(seat=1).name)
    turns.ledger.reserve(stage.claim(pod, "n1"))
    release = Release(turns.ledger, stage.cluster, ("berth",), stage.time, alarm=turns.alarm)
    stage.cluster.delete(f"/api/v1/namespaces/default/pods/{pod.metadata.name}")
    assert release.run(deleted(pod))["released"] == 1


def deleted(pod: Pod) -> Event:
    return event("delete", {"kind": "Pod", **msgspec.to_builtins(pod)})


def test_a_reconcile_tells_of_the_first_in_line_that_was_not_woken_and_wakes_the_next(turns: Turns) -> None:
    stage = turns.stage
    holders = full(turns)
    line = waiters(turns, 2)
    stage.cluster.delete(f"/api/v1/namespaces/default/pods/{holders[0].name}")
    writes, set_condition = PodWrites(stage.cluster), stage.cluster.set_condition

    def refused(pod: Any, *arguments: Any) -> Any:
        if pod.metadata.name == line[0].name:
            raise ClusterRefusedError("a webhook says no", 403)
        return set_condition(pod, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage.cluster, "set_condition", refused)
        turns.ledger.release(stage.get(holders[1].name).metadata.uid, bound=True)
        staged = turns.alarm.later(rotate=True)
        assert turns._wake({"seat": 1}, staged=staged, writes=writes, rotate=True) == 1
    assert writes.problems == [f"pod default/{line[0].name} was not woken: a webhook says no"]
    assert stage.woken() == {line[1].name}


def test_a_pod_that_was_woken_before_the_rest_was_over_for_filter_is_woken_again(
    turns: Turns,
) -> None:
    """Clocks of functions differ: what is over for one is not yet over for the other."""
    holder = turns.stage.bound_pod(resting=1)
    (first,) = waiters(turns, 1, resting=1)
    turns.free(holder)
    turns.alarm.arm(turns.ledger.view())
    turns.pass_(5.02)
    early = turns.versions()[first.name]
    assert turns.stage.woken() == {first.name}
    turns.pass_(0.6)
    later = turns.versions()[first.name]
    assert later != early
    turns.pass_(1)
    assert turns.versions()[first.name] != later
    turns.pass_(10)
    assert not turns.clock.timers
