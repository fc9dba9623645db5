"""A large ask in an endless traffic of small ones, on a real kube-scheduler: served where units are held for
the first in line, and never where they are not."""

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from math import ceil
from random import Random
from statistics import mean

import pytest
import urllib3

from berth.api.run_time import RUNS_FOR
from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool, settled
from tests.support.cluster import Object, wait
from tests.support.neighbours import MEASURED
from tests.support.podwatch import Moment, PodWatch

pytestmark = pytest.mark.long

UNITS = 4
HELD, OPEN, LENT = "seat", "open", "lent"
AT_ONCE, FOR_LONG = {"holdAfterSeconds": 0}, {"whileHeldSeconds": 600}
LINE: dict[str, Object] = {HELD: {**AT_ONCE, **FOR_LONG}, OPEN: {"holds": "None"}}
_SECONDS = 60.0


class Traffic:
    """Small pods of one pool, as many as it has units: one of them ends when the next comes."""

    def __init__(self, system: System, name: str, says: Callable[[str], Object] | None = None) -> None:
        """`says` are the options of a pod of this name; without it, they have none."""
        self._cluster, self._name, self._made = system.cluster, name, 0
        self._says = says or (lambda _: {})
        for _ in range(UNITS):
            self.come()

    def come(self) -> str:
        self._made += 1
        name = f"{self._name}-{self._made:03}"
        self._cluster.create_pod(name, {f"berth.dev/{self._name}": 1}, **self._says(name))
        return name

    def running(self) -> list[str]:
        return sorted(name for name in self._cluster.bound() if name.startswith(f"{self._name}-"))

    def goes_on(self) -> None:
        """One ends and another comes. There is never more than one unit that nobody has asked for."""
        for name in self.running()[:1]:
            self._cluster.delete_pod(name)
            self.come()


def test_a_large_ask_is_served_in_the_traffic_of_small_ones(system_of: Systems) -> None:
    pools = [pool(name, UNITS, scope="Cluster", line=line) for name, line in LINE.items()]
    system = system_of(1, pools=pools)
    held, open_ = (Traffic(system, name) for name in LINE)
    wait(lambda: len(held.running()) == len(open_.running()) == UNITS, _SECONDS, "both pools are full")
    for name in LINE:
        system.cluster.create_pod(f"big-{name}", {f"berth.dev/{name}": UNITS})
        system.refusal_of(f"big-{name}")
    for _ in range(UNITS):
        held.come()
        open_.come()
    system.berth.reconcile()
    first = {hold.label for hold in system.berth.ledger().line_holds.values()}
    assert first == {f"default/big-{HELD}"}
    held.goes_on()
    held_for = f"held for default/big-{HELD}, first in line"
    wait(
        lambda: held_for in system.refusal_of(held.come()),
        _SECONDS,
        "a pod is told whom it waits for",
        every=0.5,
    )
    for _ in range(UNITS - 1):
        held.goes_on()
        open_.goes_on()
        wait(lambda: len(open_.running()) == UNITS, _SECONDS, "who asks for less goes before")
    bound = system.cluster.wait_bound(f"big-{HELD}", seconds=_SECONDS)
    assert (set(bound), held.running()) == ({f"big-{HELD}"}, [])
    for _ in range(5 * UNITS):
        open_.goes_on()
        wait(lambda: len(open_.running()) == UNITS, _SECONDS, "who asks for less goes before")
    assert f"big-{OPEN}" not in system.cluster.bound()
    system.cluster.delete_pod(f"big-{HELD}")
    wait(lambda: len(held.running()) == UNITS, _SECONDS, "the others come then")
    settled(system)


def test_a_pod_that_lacks_cpu_keeps_the_others_waiting_for_its_turn_alone(system_of: Systems) -> None:
    system = system_of(1, pools=[pool(HELD, UNITS, scope="Cluster", line={**AT_ONCE, "whileHeldSeconds": 1})])
    system.cluster.create_pod("hopeless", {f"berth.dev/{HELD}": UNITS}, cpu="1000")
    assert "Insufficient cpu" in system.refusal_of("hopeless")
    system.berth.reconcile()
    system.cluster.create_pod("small", {f"berth.dev/{HELD}": 1})
    assert f"{UNITS} more are held for default/hopeless, first in line" in system.refusal_of("small")
    wait(lambda: turn_is_over(system), _SECONDS, "its turn is over", every=0.2)
    assert set(system.cluster.wait_bound("small", seconds=_SECONDS)) == {"small"}
    settled(system)


def turn_is_over(system: System) -> bool:
    system.berth.reconcile()
    return not system.berth.ledger().line_holds


def test_kills_and_a_lost_ledger_cost_nobody_the_turn(system_of: Systems) -> None:
    """Whoever dies while units come free for the first in line, and though all that is written is lost."""
    system = system_of(1, pools=[pool(HELD, UNITS, scope="Cluster", line={**AT_ONCE, **FOR_LONG})])
    traffic = Traffic(system, HELD)
    wait(lambda: len(traffic.running()) == UNITS, _SECONDS, "the pool is full")
    system.cluster.create_pod("big", {f"berth.dev/{HELD}": UNITS})
    system.refusal_of("big")
    wait(lambda: reconciled(system), _SECONDS, "reconcile answers")
    for _ in range(UNITS):
        traffic.come()
    for function in ("release", "bind", "reconcile"):
        system.berth.kill(function)
        system.cluster.delete_pod(traffic.running()[0])
        wait(lambda: reconciled(system), _SECONDS, "reconcile answers")
    for path in system.berth.folder.glob("ledger.db*"):
        path.unlink()
    wait(lambda: reconciled(system), _SECONDS, "reconcile answers")
    assert {hold.label for hold in system.berth.ledger().line_holds.values()} == {"default/big"}
    assert len(traffic.running()) == 1, "what came free is given to nobody else"
    system.cluster.delete_pod(traffic.running()[0])
    assert set(system.cluster.wait_bound("big", seconds=_SECONDS)) == {"big"}
    settled(system)


def reconciled(system: System) -> bool:
    """Whether it went through: after a kill its process is being replaced."""
    try:
        system.berth.reconcile()
    except (AssertionError, OSError, urllib3.exceptions.HTTPError):
        return False
    return True


AFTER = 5
ONE_ASK, MANY_ASKS = 40.0, 60.0
"""Seconds that the traffic goes on, with one large ask after a quarter of them, or one after the other."""


def alike(name: str) -> float:
    """Seconds that a pod runs, where all run much alike."""
    return Random(name).uniform(1.0, 3.0)


def mixed(name: str) -> float:
    """Seconds that a pod runs, where one of four runs much longer; the same in both pools, and the large asks
    as long as each other."""
    if name.startswith("big-"):
        return 1.0
    dice = Random(name.partition("-")[2])
    return dice.uniform(7.0, 9.0) if dice.random() < 0.25 else dice.uniform(0.6, 2.0)


class Running:
    """Traffic by the clock: each pod ends after a while, and another comes; large asks come meanwhile."""

    def __init__(
        self,
        system: System,
        name: str,
        seen: PodWatch,
        lasts: Callable[[str], float],
        says: Callable[[str], Object] | None = None,
    ) -> None:
        self._cluster, self.name, self.seen, self._lasts = system.cluster, name, seen, lasts
        self._traffic, self.asked = Traffic(system, name, says), dict[str, float]()
        for _ in range(UNITS):
            self._traffic.come()

    def goes_on(self, now: float) -> None:
        ends = {name: at + self._lasts(name) for name, at in self._bound_at()}
        over = {name for name, end in ends.items() if now >= end}
        for name in over & self._cluster.bound().keys():
            self._cluster.delete_pod(name)
            if name not in self.asked:
                self._traffic.come()

    def _bound_at(self) -> list[tuple[str, float]]:
        return [(name, at) for name, at in list(self.seen.bound_at.items()) if self.name in name]

    def asks_for_all(self, now: float) -> None:
        name = f"big-{self.name}-{len(self.asked)}"
        self.asked[name] = now
        self._cluster.create_pod(name, {f"berth.dev/{self.name}": UNITS})

    def is_asked(self) -> bool:
        """Whether a large ask waits, or is served."""
        return bool(
            self.asked.keys() - self.seen.bound_at.keys() or self.asked.keys() & self._cluster.bound()
        )

    def waited(self) -> list[float]:
        """What the large asks that were served had waited, in seconds."""
        return [
            self.seen.bound_at[name] - at for name, at in self.asked.items() if name in self.seen.bound_at
        ]

    def in_use(self, since: float, until: float) -> float:
        """The part of the pool that was in use, in the mean."""
        return _mean([moment for moment in self.seen.history if moment.at <= until], since, until) / UNITS


def _mean(history: Iterable[Moment], since: float, until: float) -> float:
    units, at, total = 0, since, 0.0
    for moment in history:
        total += units * max(0.0, moment.at - at)
        units, at = moment.held, max(at, moment.at)
    return (total + units * (until - at)) / (until - since)


def go_on(system: System, traffics: Iterable[Running], seconds: float) -> tuple[float, float]:
    """Let the traffics go on for so long, with large asks in each, and a reconcile each second. Return when
    they began and ended."""
    wait(lambda: all(each.seen.total == UNITS for each in traffics), _SECONDS, "the pools are full")
    began = ticked = time.monotonic()

    def goes_on() -> bool:
        nonlocal ticked
        now = time.monotonic()
        for each in traffics:
            each.goes_on(now)
            is_late = now - began > seconds / 4 and not each.asked
            if is_late if seconds == ONE_ASK else not each.is_asked():
                each.asks_for_all(now)
        if now - ticked >= 1:
            ticked = now
            system.berth.reconcile()
        return now - began > seconds

    wait(goes_on, 2 * seconds, "the traffic is over")
    return began, time.monotonic()


def saying(lasts: Callable[[str], float]) -> Callable[[str], Object]:
    """Return what a pod says of itself that runs so long, and ends at once."""

    def says(name: str) -> Object:
        annotations = {RUNS_FOR: str(ceil(lasts(name)))}
        return {"annotations": annotations, "spec": {"terminationGracePeriodSeconds": 0}}

    return says


@pytest.mark.nightly
def test_what_a_large_ask_waits_and_what_that_costs_the_others(system_of: Systems) -> None:
    """On three pools, with the same traffic: in two of them the large ask has its turn, and in one of these
    the pods say how long they run."""
    turns = {"holdAfterSeconds": AFTER, **FOR_LONG}
    lines = {HELD: turns, LENT: turns, OPEN: LINE[OPEN]}
    pools = [pool(name, UNITS, scope="Cluster", line=line) for name, line in lines.items()]
    system = system_of(1, pools=pools)
    with ExitStack() as stack:
        seen = {name: stack.enter_context(system.cluster.watch_pods(f"berth.dev/{name}")) for name in lines}
        says = {LENT: saying(alike)}
        traffics = [Running(system, name, seen[name], alike, says.get(name)) for name in lines]
        began, ended = go_on(system, traffics, ONE_ASK)
        assert all(each.waited() for each in traffics[:2])
    for each in traffics:
        used = each.in_use(began, ended)
        waited = f"bound after {each.waited()[0]:.1f} s" if each.waited() else "never bound"
        print(f"{MEASURED}line, {each.name}: who asks for all is {waited}; {used:.0%} in use in the mean")
    assert not system.berth.ledger().overruns


@pytest.mark.nightly
def test_what_is_held_is_in_use_meanwhile_where_pods_say_how_long_they_run(system_of: Systems) -> None:
    """On two pools, with the same traffic of short and long pods: in one of them the pods say it."""
    turns = {"holdAfterSeconds": AFTER, **FOR_LONG}
    system = system_of(1, pools=[pool(name, UNITS, scope="Cluster", line=turns) for name in (HELD, LENT)])
    with ExitStack() as stack:
        held, lent = (
            stack.enter_context(system.cluster.watch_pods(f"berth.dev/{name}")) for name in (HELD, LENT)
        )
        says = Running(system, LENT, lent, mixed, saying(mixed))
        both = [Running(system, HELD, held, mixed), says]
        began, ended = go_on(system, both, MANY_ASKS)
    for each in both:
        # Others come when all is free by chance, before the small ones are out of their back-off.
        waits = sorted(seconds for seconds in each.waited() if seconds > AFTER)
        waited = f"{len(waits)} turns came after {mean(waits):.1f} s in the mean, {waits[-1]:.1f} s at most"
        print(f"{MEASURED}line, {each.name}: {waited}; {each.in_use(began, ended):.0%} in use in the mean")
    assert both[0].in_use(began, ended) < says.in_use(began, ended)
    assert not system.berth.ledger().overruns
