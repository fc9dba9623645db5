"""Gangs on a real kube-scheduler, which tries their pods one by one: served whole or not at all."""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from berth.api.gang import GANG, GANG_SIZE
from tests.e2e.conftest import Systems
from tests.e2e.counting import CountedFilter
from tests.e2e.harness import System, pool, settled
from tests.e2e.test_line import AT_ONCE, FOR_LONG, UNITS, Traffic, reconciled
from tests.support.cluster import Cluster, wait

pytestmark = pytest.mark.long
NIGHTLY = pytest.mark.nightly

SEAT = pool("seat", 4, scope="Cluster")
GPU = pool("gpu", 2)
_SECONDS = 60.0
IDLE_SECONDS = 30


def _says(system: System, text: str, name: str) -> bool:
    return text in system.refusal_of(name)


def _all_say(system: System, text: str, count: int) -> bool:
    return all(_says(system, text, f"train-{number}") for number in range(count))


def gang(
    cluster: Cluster, name: str, size: int, asks: Mapping[str, int] | None = None, **how: Any
) -> list[str]:
    """Make the pods of a gang, one after the other."""
    names = [f"{name}-{number}" for number in range(size)]
    for each in names:
        noted = {GANG: name, GANG_SIZE: str(size)}
        cluster.create_pod(each, asks or {"berth.dev/seat": 1}, annotations=noted, **how)
    return names


def of(system: System, name: str) -> set[str]:
    return {pod for pod in system.cluster.bound() if pod.startswith(f"{name}-")}


def test_four_pods_of_a_gang_for_three_units_wait_and_all_say_why(system_of: Systems) -> None:
    system = system_of(2, pools=[SEAT])
    system.cluster.create_pod("single", {"berth.dev/seat": 1})
    system.cluster.wait_bound("single")
    names = gang(system.cluster, "train", 4)
    why = "seat: 3 free, 4 asked by 4 pods of gang train together"
    for name in names:
        wait(lambda name=name: why in system.refusal_of(name), _SECONDS, f"{name} says why")  # type: ignore[misc]
    assert set(system.cluster.bound()) == {"single"}
    assert system.berth.claims() == [("single", "seat", 1)]
    system.cluster.delete_pod("single")
    assert set(system.cluster.wait_bound(*names, seconds=_SECONDS)) == {*names}
    settled(system)


def test_of_two_gangs_one_is_served_whole_and_then_the_other(system_of: Systems) -> None:
    system = system_of(2, pools=[SEAT])
    one, two = gang(system.cluster, "one", 3), gang(system.cluster, "two", 3)
    wait(lambda: len(of(system, "one")) == 3 or len(of(system, "two")) == 3, _SECONDS, "one of them")
    first, second = (one, two) if of(system, "one") else (two, one)
    assert not {*second} & system.cluster.bound().keys()
    for name in first:
        assert not {*second} & system.cluster.bound().keys()
        system.cluster.delete_pod(name)
    assert set(system.cluster.wait_bound(*second, seconds=_SECONDS)) == {*second}
    settled(system)


def test_a_gang_is_served_in_the_traffic_of_single_pods(system_of: Systems) -> None:
    """As one pod that asks for all: what comes free is held for it."""
    system = system_of(1, pools=[pool("seat", UNITS, scope="Cluster", line={**AT_ONCE, **FOR_LONG})])
    traffic = Traffic(system, "seat")
    wait(lambda: len(traffic.running()) == UNITS, _SECONDS, "the pool is full")
    names = gang(system.cluster, "big", UNITS)  # before seat-…, where made in the same second
    for name in names:
        system.refusal_of(name)
    system.berth.reconcile()
    for _ in range(UNITS):
        traffic.come()
    for _ in range(UNITS):
        traffic.goes_on()
    assert set(system.cluster.wait_bound(*names, seconds=_SECONDS)) == {*names}
    assert traffic.running() == []
    settled(system)


def test_a_gang_across_pools_and_scopes_is_served_whole(system_of: Systems) -> None:
    system = system_of(2, pools=[SEAT, GPU])
    asks = {"berth.dev/seat": 1, "berth.dev/gpu": 1}
    names = gang(system.cluster, "mixed", 4, asks)
    system.cluster.wait_bound(*names, seconds=_SECONDS)
    assert system.cluster.per_node() == {"node-1": 2, "node-2": 2}
    settled(system)


def test_members_that_never_run_keep_nothing_for_long(system_of: Systems) -> None:
    """Two of three lack CPU: the third is bound, and what was reserved for them is given back and told."""
    system = system_of(1, pools=[pool("seat", 4, scope="Cluster", gangSeconds=10)])
    noted = {GANG: "half", GANG_SIZE: "3"}
    for number in range(2):
        system.cluster.create_pod(f"half-{number}", {"berth.dev/seat": 1}, annotations=noted, cpu="1000")
    system.cluster.create_pod("half-2", {"berth.dev/seat": 1}, annotations=noted)
    system.cluster.wait_bound("half-2", seconds=_SECONDS)
    system.cluster.create_pod("large", {"berth.dev/seat": 3})
    assert "seat: 1 of 4 free, 3 asked" in system.refusal_of("large")

    def given_back() -> bool:
        system.berth.reconcile()
        return system.berth.claims() == [("half-2", "seat", 1)] or "large" in system.cluster.bound()

    wait(given_back, _SECONDS, "the seats are given back", every=0.5)
    system.cluster.wait_bound("large", seconds=_SECONDS)
    told = "gang half: 2 of its pods were not bound in time, and their units are given back; 1 of it is bound"
    wait(lambda: told in system.cluster.events_of("half-2", reason="FailedClaim"), _SECONDS, "it is told")
    settled(system)


@pytest.mark.parametrize("killed", [0, *(pytest.param(kill, marks=NIGHTLY) for kill in range(1, 6))])
def test_bind_killed_while_gangs_are_bound_leaves_none_by_half(system_of: Systems, killed: int) -> None:
    system = system_of(2, pools=[SEAT])
    one = gang(system.cluster, "one", 3)
    wait(lambda: len(of(system, "one")) > killed % 3, _SECONDS, "it is being bound", every=0.001)
    system.berth.kill("bind")
    two = gang(system.cluster, "two", 3)
    wait(lambda: reconciled(system), _SECONDS, "reconcile answers")
    wait(lambda: len(of(system, "one")) == 3, 2 * _SECONDS, "it is bound whole", every=0.2)
    assert not {*two} & system.cluster.bound().keys()
    for name in one:
        system.cluster.delete_pod(name)
    system.cluster.wait_bound(*two, seconds=_SECONDS)
    settled(system)


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([2] * 520, marks=NIGHTLY, id="crowd"),
        pytest.param([4, 4, 4, 1], id="four and one"),  # one of its own size is served if it comes first
        pytest.param([2, 3], marks=NIGHTLY, id="two and three"),
        pytest.param([4, 4], marks=NIGHTLY, id="absent"),
    ],
)
def test_pods_of_a_gang_that_waits_cost_at_most_two_filter_calls_each_in_30_idle_seconds(
    system_of: Systems, tmp_path: Path, sizes: list[int]
) -> None:
    """More of them than a note takes, pods that disagree, and some that wait for others."""
    counted = CountedFilter(tmp_path)
    system = system_of(2, pools=[SEAT], functions=counted.functions)
    system.cluster.create_pod("single", {"berth.dev/seat": 3})
    system.cluster.wait_bound("single")
    for number, size in enumerate(sizes):
        noted = {GANG: "train", GANG_SIZE: str(size)}
        system.cluster.create_pod(f"train-{number}", {"berth.dev/seat": 1}, annotations=noted)
    for number in range(len(sizes)):
        system.refusal_of(f"train-{number}", 2 * _SECONDS)
    if len(set(sizes)) > 1:
        disagree = partial(_all_say, system, "say different sizes", len(sizes))
        wait(disagree, _SECONDS, "all of them say what is wrong")
    before = counted.calls
    time.sleep(IDLE_SECONDS)  # the promise is about this time itself
    made = counted.calls - before
    assert sum(made.values()) <= 2 * len(sizes), f"filter calls: {made}"
    assert max(made.values(), default=0) <= 2, f"filter calls: {made}"
    assert set(system.cluster.bound()) == {"single"}


def test_one_that_asks_for_nothing_and_comes_last_wakes_the_rest(system_of: Systems) -> None:
    system = system_of(2, pools=[SEAT])
    noted = {GANG: "mpi", GANG_SIZE: "4"}
    workers = [f"worker-{number}" for number in range(3)]
    for name in workers:
        system.cluster.create_pod(name, {"berth.dev/seat": 1}, annotations=noted)
    for name in workers:
        absent = partial(_says, system, "3 of its 4 pods are there", name)
        wait(absent, _SECONDS, f"{name} waits")
    system.cluster.create_pod("launcher", {}, annotations=noted)
    system.cluster.wait_bound("launcher", *workers, seconds=20)
    settled(system)
