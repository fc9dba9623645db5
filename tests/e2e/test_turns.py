"""Turns of large asks on a real kube-scheduler (promise 11): no ask idles units for longer than its Pool
says, units are held where they come free, and an ask that can't come true by what is known has no turn."""

import time
from typing import Any

import pytest

from berth.api.run_time import RUNS_FOR
from berth.controller import line_budget
from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool, settled
from tests.support.cluster import Object, pod_path, wait
from tests.support.kubernetes import AT_ONCE

pytestmark = pytest.mark.long
NIGHTLY = [pytest.param(lacks, marks=pytest.mark.nightly) for lacks in ("a unit of the pool", "CPU")]

SEAT, DESK = "berth.dev/seat", "berth.dev/desk"
UNITS = 4
IDLE_SECONDS = 3
LINE: Object = {"holdAfterSeconds": 0, "whileHeldSeconds": 600, "idleSeconds": IDLE_SECONDS}
_SECONDS = 60.0


def seat(units: int = UNITS, **spec: object) -> Object:
    return pool("seat", units, scope="Cluster", line=LINE, **spec)


def desk(units: int) -> Object:
    return pool("desk", units, scope="Cluster", line=LINE)


def running(system: System, *names: str, resource: str = SEAT, **options: Any) -> None:
    for name in names:
        system.cluster.create_pod(name, {resource: 1}, **options)
    system.cluster.wait_bound(*names, seconds=_SECONDS)


def in_line(system: System) -> set[str]:
    """Return the pods for which units are held after a reconcile."""
    system.berth.reconcile()
    return {hold.label for hold in system.berth.ledger().line_holds.values()}


def seconds_until_bound(system: System, name: str) -> float:
    """Return how long it took until the pod was bound, with a reconcile now and then."""
    began = time.monotonic()

    def is_bound() -> bool:
        system.berth.reconcile()
        return name in system.cluster.bound()

    wait(is_bound, _SECONDS, f"{name} is bound", every=0.2)
    return time.monotonic() - began


def explained(system: System, name: str) -> str:
    done = system.berth.run("explain", "pod", f"default/{name}", "--store", system.berth.store, seconds=60)
    return done.stdout


def test_an_ask_for_more_than_is_not_used_outside_the_cluster_keeps_nothing_from_others(
    system_of: Systems,
) -> None:
    system = system_of(1, pools=[seat(external=1)])
    system.cluster.create_pod("big", {SEAT: UNITS})
    system.refusal_of("big")
    assert in_line(system) == set()
    assert "nothing is held for it: 3 of 4 units of seat in * can come free at most" in explained(
        system, "big"
    )
    running(system, "small-1", "small-2", "small-3")
    settled(system)


@pytest.mark.parametrize("lacks", ["another pool's unit", *NIGHTLY])
def test_units_are_idle_no_longer_than_their_pool_says_whatever_is_missing(
    system_of: Systems, lacks: str
) -> None:
    system = system_of(1, pools=[seat(), desk(1)])
    asks: dict[str, int | str] = {SEAT: UNITS}
    if lacks == "another pool's unit":
        running(system, "holder", resource=DESK)
        asks |= {DESK: 1}
    elif lacks == "a unit of the pool":
        running(system, "holder")
    system.cluster.create_pod("big", asks, cpu="1000" if lacks == "CPU" else None)
    system.refusal_of("big")
    assert in_line(system) == {"default/big"}
    system.cluster.create_pod("small", {SEAT: 1})
    assert "held for default/big, first in line" in system.refusal_of("small")
    # A second for the tick that begins the turn, and as many for the one that ends it and for the wake.
    assert seconds_until_bound(system, "small") < IDLE_SECONDS + 3 * AT_ONCE
    running(system, "after")  # the line rests: it keeps nothing from the next either
    settled(system)


@pytest.mark.nightly
def test_a_turn_that_is_interrupted_now_and_then_is_no_new_turn(system_of: Systems) -> None:
    system = system_of(1, pools=[seat()])
    system.cluster.create_priority_class("urgent", 1000)
    system.cluster.create_pod("big", {SEAT: UNITS}, cpu="1000")
    system.refusal_of("big")
    assert in_line(system) == {"default/big"}
    system.cluster.create_pod("small", {SEAT: 1})
    system.refusal_of("small")
    began, number = time.monotonic(), 0
    while "small" not in system.cluster.bound():
        number += 1
        running(system, f"urgent-{number}", priority_class="urgent")
        system.cluster.delete_pod(f"urgent-{number}")
        system.berth.reconcile()
        assert time.monotonic() - began < 10 * IDLE_SECONDS, (
            f"{number} interruptions, and nobody else has a unit"
        )


def test_units_are_held_on_the_node_where_they_come_free(system_of: Systems) -> None:
    """On node-a one unit is missing, of a pod that runs for an hour; on node-b two, of pods that end soon."""
    system = system_of({"node-a": {}, "node-b": {}}, pools=[pool("ip", 2, line=LINE)])

    def on(node: str, **options: object) -> Object:
        return {"spec": {"nodeSelector": {"kubernetes.io/hostname": node}}, **options}

    def ends(seconds: int) -> Object:
        return {"annotations": {RUNS_FOR: str(seconds)}}

    running(system, "long", resource="berth.dev/ip", **on("node-a", **ends(3600)))
    running(system, "b-1", "b-2", resource="berth.dev/ip", **on("node-b", **ends(30)))
    system.cluster.create_pod("big", {"berth.dev/ip": 2})
    system.refusal_of("big")
    assert in_line(system) == {"default/big"}
    assert {key.rpartition("/")[2] for key in system.berth.ledger().line_holds} == {"node-b"}
    for name in ("b-1", "b-2"):
        system.cluster.delete_pod(name)
    assert system.cluster.wait_bound("big", seconds=_SECONDS) == {"big": "node-b"}
    settled(system)


@pytest.mark.nightly
def test_pods_that_may_go_nowhere_keep_nobody_of_another_pool_from_a_turn(system_of: Systems) -> None:
    system = system_of(1, pools=[seat(), desk(2)])
    running(system, "holder", resource=DESK)
    names = [f"nowhere-{number}" for number in range(2 * line_budget.MOST_READ)]
    system.cluster.create_pods(*names, resources={SEAT: 2}, spec={"nodeSelector": {"no": "node"}})
    system.cluster.create_pod("big", {DESK: 2})
    system.refusal_of("big")
    assert "default/big" in in_line(system)


@pytest.mark.nightly
def test_an_ask_is_served_within_its_namespace_s_limit_in_traffic_of_its_own(system_of: Systems) -> None:
    system = system_of(1, pools=[seat(8, limits={"default": 4})])
    running(system, *(f"small-{number}" for number in range(4)))
    system.cluster.create_pod("big", {SEAT: 4})
    system.refusal_of("big")
    assert in_line(system) == {"default/big"}
    for number in range(4):
        system.cluster.create_pod(f"late-{number}", {SEAT: 1})
        system.refusal_of(f"late-{number}")
    for number in range(4):
        system.cluster.delete_pod(f"small-{number}")
    assert set(system.cluster.wait_bound("big", seconds=_SECONDS)) == {"big"}
    settled(system)


def keep(system: System, name: str, *finalizers: str) -> None:
    system.cluster.patch(pod_path(name), {"metadata": {"finalizers": finalizers}})


def test_others_are_bound_at_once_where_the_first_in_line_is_deleted_and_a_finalizer_keeps_it(
    system_of: Systems,
) -> None:
    system = system_of(1, pools=[seat()])
    running(system, "holder")
    system.cluster.create_pod("big", {SEAT: UNITS})
    keep(system, "big", "example.com/kept")
    system.refusal_of("big")
    assert in_line(system) == {"default/big"}
    system.cluster.create_pod("small", {SEAT: 1})
    system.refusal_of("small")
    with system.cluster.watch_pods() as seen:
        system.cluster.delete_pod("big")
        began = time.monotonic()
        wait(lambda: "small" in seen.bound_at, _SECONDS, "small is bound", every=0.01)
    assert seen.bound_at["small"] - began < AT_ONCE
    keep(system, "big")
    settled(system)
