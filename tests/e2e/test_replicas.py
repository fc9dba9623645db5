"""kill -9 of one process each second, while hundreds of pods come and go: nothing is lost.
At which step of a bind a process dies is by chance here; tests/chaos kills at each of them.
BERTH_TEST_ROUNDS=10 makes it a thousand pods.
"""

import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from berth.controller.settle import BIND_SECONDS
from tests.e2e.bursts import PATIENCE, in_the_end, names, tell
from tests.e2e.conftest import Systems
from tests.e2e.harness import Berth, System, pool
from tests.support.builders.places import Place
from tests.support.cluster import Cluster, Object, wait

NODES, UNITS = 30, 10
WAITING = 30  # pods beside those that fit
KEPT, EACH = 150, 67  # once so many are bound, so many of them are replaced
PODS = NODES * UNITS + WAITING + EACH * int(os.environ.get("BERTH_TEST_ROUNDS", "3"))
FUNCTIONS = ("filter", "prioritize", "preempt", "bind", "release", "inventory", "reconcile", "status")
REPLICAS = 2
KILL_SECONDS = 1.0

Process = tuple[str, int]


class Killer(threading.Thread):
    """Kills one process each second, of the next function whose processes all answer: on a slow machine that
    is not every second, and the other one takes the calls. `killed` counts by function."""

    def __init__(self, berth: Berth) -> None:
        super().__init__(name="killer", daemon=True)
        self.killed: Counter[str] = Counter()
        self._berth, self._turns = berth, itertools.cycle(FUNCTIONS)
        self._pids: set[int] = set()
        self._stop_now = threading.Event()

    def run(self) -> None:
        while not self._stop_now.wait(KILL_SECONDS):
            there = answering(self._berth, but=self._pids)
            whole = [name for name in itertools.islice(self._turns, len(FUNCTIONS)) if is_whole(name, there)]
            if whole:
                self._kill(whole[0])

    def stop(self) -> None:
        self._stop_now.set()
        self.join(PATIENCE)

    def _kill(self, function: str) -> None:
        number = self.killed[function] % REPLICAS + 1
        self._pids.add(self._berth.kill(function, number))
        self.killed[function] += 1
        while next(self._turns) != function:
            pass  # the turn goes on behind it


def is_whole(function: str, there: set[Process]) -> bool:
    return all((function, number) in there for number in range(1, REPLICAS + 1))


def answering(berth: Berth, but: set[int]) -> set[Process]:
    """Those whose last word was that they answer, and whose pid is none of these."""
    lines = [line for line in list(berth.lines) if "replica" in line]
    last = {(line["function"], line["replica"]): line for line in lines}
    return {which for which, line in last.items() if line["state"] == "ready" and line["pid"] not in but}


@contextmanager
def kills(berth: Berth) -> Iterator[Killer]:
    """Until each function had its turn; then all answer again."""
    killer = Killer(berth)
    killer.start()
    try:
        yield killer
        wait(lambda: set(killer.killed) == set(FUNCTIONS), PATIENCE, "each function has its turn")
    finally:
        killer.stop()
    wait(
        lambda: len(answering(berth, killer._pids)) == REPLICAS * len(FUNCTIONS),
        PATIENCE,
        "every process answers again",
    )


def come_and_go(cluster: Cluster) -> None:
    """PODS of them, bound ones replaced by new ones."""
    dice, fresh = random.Random(6), iter(names(PODS))
    cluster.create_pods(*itertools.islice(fresh, NODES * UNITS + WAITING))
    while some := list(itertools.islice(fresh, EACH)):
        bound = wait(lambda: enough(cluster), PATIENCE, f"{KEPT} pods are bound", every=0.1)
        with ThreadPoolExecutor(8) as workers:
            list(workers.map(cluster.delete_pod, dice.sample(bound, EACH)))
        cluster.create_pods(*some)


def enough(cluster: Cluster) -> list[str]:
    """The bound ones, once they are so many."""
    found = sorted(cluster.bound())
    return found if len(found) >= KEPT else []


def aged(system: System) -> bool:
    """Only a reservation younger than bind's deadline may wait for the next reconcile (promise 3)."""
    claims, now = system.berth.ledger().claims(), time.time()
    return all(claim.state == "bound" or now - claim.since > BIND_SECONDS for claim in claims)


@pytest.mark.alone  # it takes the machine whole: each process that starts again is a second of a core
@pytest.mark.long  # a killed replica that costs no pod is in test_up
@pytest.mark.parametrize("place", ["redis"], indirect=True)  # stores under load: test_burst, tests/chaos
def test_with_a_process_killed_each_second_pods_that_come_and_go_lose_nothing(
    system_of: Systems, place: Place
) -> None:
    system = system_of(
        NODES, start_scheduler=False, pools=[pool(units=UNITS)], store=place.url, replicas=REPLICAS
    )
    # A pod whose call was killed is tried again soon, or most of the time would be its back-off.
    system.plane.start_scheduler(system.scheduler_config("impatient", podMaxBackoffSeconds=1))
    with system.cluster.watch_pods() as seen:
        began = time.monotonic()
        with kills(system.berth) as killer:
            come_and_go(system.cluster)
        burst = time.monotonic() - began
        wait(lambda: aged(system), PATIENCE, "no reservation is younger than bind's deadline", every=0.2)
        mended = system.berth.reconcile()
        in_the_end(system, seen, NODES, UNITS)
    assert len(seen.bound_at) >= PODS - WAITING
    killed = f"killed {dict(killer.killed)}"
    tell(f"{place.name}: {PODS} pods came and went in {burst:.0f} s; {killed}; then mended {_some(mended)}")


def _some(report: Object) -> Object:
    return {name: found for name, found in report.items() if found}
