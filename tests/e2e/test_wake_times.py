"""How soon, and in which order, waiters are bound after whatever makes room (promise 6), beside a real
kube-scheduler. `make bench-wakes` prints what docs/concepts/claims-and-waking.md has in its table.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.controlplane.lent import Planes
from tests.e2e.faults.fault_world import World, world_of
from tests.e2e.harness import pool
from tests.support.cluster import Object, wait
from tests.support.kubernetes import AT_ONCE, since
from tests.support.neighbours import MEASURED

pytestmark = [pytest.mark.alone, pytest.mark.long]

RESTS = 2
NODE = "node"
NOTED, LICENCES = "example.com/noted", 60
POLLER = {"Authorization": "Bearer poller"}
IS_BENCH = os.environ.get("BERTH_BENCH_WAKES") == "1"


def rounds(few: int, all_of_them: int) -> int:
    """How many rounds are made, or pods: all of them where they are to be measured."""
    return all_of_them if IS_BENCH else few


def one_place(name: str, units: int, **spec: object) -> Object:
    return pool(name, {"domains": {"*": units}}, scope="Cluster", **spec)


POOLS = [
    one_place("seat", 1),
    one_place("twenty", 20),
    one_place("hundred", 100),
    one_place("resting", 1, reuseAfterSeconds=RESTS),
    one_place("kept", 1, sticky={"by": "Pod", "forSeconds": RESTS}),
    pool("noted", {"nodeAnnotation": NOTED}),
    one_place("licence", LICENCES, externalFrom={"feature": "F", "format": "json"}),
]


IN_LINE = since("1.33", "there the first in line sits out its back-off, and the next may be quicker")


@pytest.fixture(scope="module")
def shared(planes: Planes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("times")
    token = {"BERTH_EXTERNAL_TOKEN": "poller"}
    with world_of(planes, folder, {NODE: {}}, 0, POOLS, token) as world, world.scheduling():
        yield world


@pytest.fixture
def world(shared: World) -> Iterator[World]:
    with shared.fresh():
        yield shared


def asking(name: str) -> dict[str, int | str]:
    return {f"berth.dev/{name}": 1}


def tell(what: str, times: Sequence[float]) -> None:
    ordered = sorted(times)
    p50, p99 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.99))
    print(f"{MEASURED}{what}: p50 {p50:.2f} s, p99 {p99:.2f} s of {len(ordered)}")


def seconds_until_bound(world: World, make_room: Callable[[], object], *names: str) -> list[float]:
    """From the end of `make_room` to the Binding of each of these pods; 0 where that came first."""
    with world.cluster.watch_pods() as seen:
        make_room()
        began = time.monotonic()
        wait(lambda: seen.bound_at.keys() >= set(names), 90, f"{len(names)} are bound", every=0.005)
    return [max(0.0, seen.bound_at[name] - began) for name in names]


def taken_by(world: World, name: str) -> None:
    world.cluster.create_pod("holder", asking(name))
    world.cluster.wait_bound("holder")


def test_after_a_delete(world: World) -> None:
    times = []
    taken_by(world, "seat")
    last = "holder"
    for number in range(rounds(5, 50)):
        name = f"waiter-{number}"
        world.cluster.create_pod(name, asking("seat"))
        world.wait_idle(1)
        times += seconds_until_bound(world, partial(world.cluster.delete_pod, last), name)
        last = name
    tell("a delete", times)
    assert max(times) < AT_ONCE, times


@pytest.mark.parametrize("name", ["resting", "kept"])
def test_after_the_end_of_a_rest(world: World, name: str) -> None:
    times = []
    taken_by(world, name)
    last = "holder"
    for number in range(rounds(3, 50 if name == "resting" else 10)):
        waiter = f"waiter-{number}"
        world.cluster.create_pod(waiter, asking(name))
        world.wait_idle(1)
        (took,) = seconds_until_bound(world, partial(world.cluster.delete_pod, last), waiter)
        times.append(took - RESTS)
        last = waiter
    tell(f"the end of a rest, {name}", times)
    assert min(times) > -0.1, f"a unit was given while it rested: {times}"
    assert max(times) < AT_ONCE, times


def test_after_a_raised_capacity(world: World) -> None:
    times = []
    for number in range(rounds(5, 50)):
        waiter = f"waiter-{number}"
        world.cluster.create_pod(waiter, asking("noted"))
        world.wait_idle(1)
        noted = {"metadata": {"annotations": {NOTED: str(number + 1)}}}
        times += seconds_until_bound(
            world, partial(world.cluster.patch, f"/api/v1/nodes/{NODE}", noted), waiter
        )
    tell("a raised capacity", times)
    assert max(times) < AT_ONCE, times


def test_after_a_reading(world: World) -> None:
    """Others give back one licence each time."""
    times = []
    read(world, LICENCES)
    for number in range(rounds(5, 50)):
        waiter = f"waiter-{number}"
        world.cluster.create_pod(waiter, asking("licence"))
        world.wait_idle(1)
        times += seconds_until_bound(world, partial(read, world, LICENCES - number - 1), waiter)
    read(world, 0)
    tell("a reading of a licence server", times)
    assert max(times) < AT_ONCE, times


def read(world: World, others: int) -> None:
    """Tell inventory that others use so many licences."""
    rows = [{"host": "desk", "count": others}]
    said = {"features": [{"name": "F", "issued": LICENCES, "checkouts": rows}]}
    reply = world.berth.post("inventory", said, POLLER, "/licences?pool=licence")
    assert (reply.status, reply.body["external"]) == (200, others), reply


def test_a_release_killed_while_a_unit_rests_is_made_good_at_the_latest_by_reconcile(world: World) -> None:
    """What it had in mind is lost; a repeated event, or another function's alarm, may be sooner."""
    taken_by(world, "resting")
    world.cluster.create_pod("waiter", asking("resting"))
    world.wait_idle(1)
    since = len(world.berth.lines)
    world.cluster.delete_pod("holder")
    wait(lambda: not world.berth.ledger().claims(), 30, "release has freed the unit, which rests")
    world.berth.kill("release")
    world.berth.wait_line(since, function="release", state="ready")
    until = time.monotonic() + RESTS
    wait(lambda: time.monotonic() > until, 10, "the rest is over")
    world.berth.reconcile()
    world.cluster.wait_bound("waiter")


def test_after_100_deletes_at_once(world: World) -> None:
    holders = [f"holder-{number}" for number in range(100)]
    waiters = [f"waiter-{number}" for number in range(100)]
    world.cluster.create_pods(*holders, resources=asking("hundred"))
    world.cluster.wait_bound(*holders, seconds=120)
    world.cluster.create_pods(*waiters, resources=asking("hundred"))
    world.wait_idle(len(waiters), 120)
    times = seconds_until_bound(world, partial(delete_all, world, holders), *waiters)
    tell("100 deletes at once", times)


def delete_all(world: World, names: Sequence[str]) -> None:
    with ThreadPoolExecutor(16) as workers:
        list(workers.map(world.cluster.delete_pod, names))


def test_after_holders_and_waiters_go_together_new_pods_are_bound(world: World) -> None:
    """20 hold, 80 wait; all go at once, and 20 new ones come."""
    longest, calls = [], []
    for number in range(rounds(1, 5)):
        holders = [f"holder-{number}-{one}" for one in range(20)]
        waiters = [f"waiter-{number}-{one}" for one in range(80)]
        new = [f"new-{number}-{one}" for one in range(20)]
        world.cluster.create_pods(*holders, resources=asking("twenty"))
        world.cluster.wait_bound(*holders, seconds=60)
        world.cluster.create_pods(*waiters, resources=asking("twenty"))
        world.wait_idle(len(waiters), 120)

        def change(gone: Sequence[str] = (*holders, *waiters), come: Sequence[str] = new) -> None:
            delete_all(world, gone)
            world.cluster.create_pods(*come, resources=asking("twenty"))

        times = seconds_until_bound(world, change, *new)
        longest.append(max(times))
        calls.append(len(times))
        tell("20 new pods after 20 holders and 80 waiters went", times)
        delete_all(world, new)
        wait(lambda: not world.berth.ledger().claims(), 60, "nothing is held")
    tell("the last of 20 new pods", longest)


@IN_LINE
def test_the_first_in_line_is_served_first(world: World) -> None:
    """One unit, 200 who asked for it in about a second: it goes to the first in line each time."""
    asks = rounds(20, 200)
    taken_by(world, "seat")
    waiters = [f"waiter-{number:03}" for number in range(asks)]
    world.cluster.create_pods(*waiters, resources=asking("seat"))
    places, times, last = [], [], "holder"
    for _ in range(rounds(3, 10)):
        world.wait_idle(len(waiters), 180)
        line = in_line(world)
        with world.cluster.watch_pods() as seen:
            world.cluster.delete_pod(last)
            began = time.monotonic()
            wait(lambda: seen.bound_at.keys() & set(waiters), 90, "one of them is bound", every=0.005)
        ((last, at),) = ((name, at) for name, at in seen.bound_at.items() if name in waiters)
        places.append(line.index(last) + 1)
        times.append(at - began)
        waiters.remove(last)
    print(f"{MEASURED}places served first, of {asks}: {places}; seconds {[round(at, 2) for at in times]}")
    assert places.count(1) >= 0.9 * len(places), places


@IN_LINE
def test_the_first_of_two_is_served_first(world: World) -> None:
    """A pod that is told that it is in line 1 of 2 is not overtaken, though it was tried more often."""
    taken_by(world, "seat")
    places, last = [], "holder"
    for number in range(rounds(4, 20)):
        pair = [f"pair-{number}-{one}" for one in "ab"]
        for name in pair:
            world.cluster.create_pod(name, asking("seat"))
            world.refusal_of(name)
        line = in_line(world)
        assert line == pair
        seconds_until_bound_first = seconds_until_first(world, partial(world.cluster.delete_pod, last), pair)
        places.append(line.index(seconds_until_bound_first) + 1)
        last = seconds_until_bound_first
        (other,) = set(pair) - {last}
        world.cluster.delete_pod(other)
    print(f"{MEASURED}places served first, of 2: {places}")
    assert places.count(1) >= 0.9 * len(places), places


def seconds_until_first(world: World, make_room: Callable[[], object], names: Sequence[str]) -> str:
    """Return which of these pods is bound first."""
    with world.cluster.watch_pods() as seen:
        make_room()
        wait(lambda: seen.bound_at.keys() & set(names), 90, "one of them is bound", every=0.005)
    return min(seen.bound_at.keys() & set(names), key=lambda name: seen.bound_at[name])


def in_line(world: World) -> list[str]:
    """Return who waits, as `berth waiting` has them."""
    pods = [pod["metadata"] for pod in world.cluster.list_pods() if not pod["spec"].get("nodeName")]
    return [pod["name"] for pod in sorted(pods, key=lambda pod: (pod["creationTimestamp"], pod["name"]))]
