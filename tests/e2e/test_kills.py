"""Every function killed with -9 at random through a burst with deletions, by one replica and by two.

Which process dies when is a matter of a seed, which is printed; no order of kills is claimed to be the worst.
"""

import random
import secrets
import time
from collections import Counter

import pytest

from tests.e2e.bursts import PATIENCE, creating, in_the_end, tell
from tests.e2e.conftest import Systems
from tests.e2e.harness import Berth, System, pool
from tests.support.cluster import wait
from tests.support.places import Place
from tests.support.podwatch import PodWatch

NODES, UNITS, PODS = 30, 5, 200
KILLS = 18
BETWEEN = 2  # pods bound between two kills, so that they hit a burst that goes on
STUCK_SECONDS = 3.0  # but no longer than this: pods that met a dead function are in back-off
REPLACED = 4  # bound pods that are deleted after each second kill, and as many that are made


def ready(berth: Berth) -> set[tuple[str, int]]:
    """Processes (function, replica) whose last word was that they answer."""
    told = [line for line in list(berth.lines) if "function" in line]
    said = {(line["function"], line.get("replica", 1)): line["state"] for line in told}
    return {which for which in berth.replica_pids if said.get(which) == "ready"}


class Killer:
    """Kills one process after the other, and keeps the burst going meanwhile."""

    def __init__(self, system: System, seen: PodWatch, seed: int) -> None:
        self._system, self._seen, self._random = system, seen, random.Random(seed)
        self.killed: Counter[str] = Counter()
        self._made = 0

    def run(self) -> None:
        for number in range(KILLS):
            self._let_some_be_bound()
            wait(self._kill_one, PATIENCE, "a process that answers, to be killed")
            if number % 2:
                self._replace_pods()

    def _let_some_be_bound(self) -> None:
        enough, until = len(self._seen.bound_at) + BETWEEN, time.monotonic() + STUCK_SECONDS
        wait(lambda: len(self._seen.bound_at) >= enough or time.monotonic() > until, PATIENCE, "a while")
        time.sleep(self._random.uniform(0, 0.1))  # anywhere in the next bind

    def _kill_one(self) -> bool:
        berth = self._system.berth
        alive = sorted(ready(berth))
        # Each function in its turn first, so that none is spared by chance.
        fewest = [which for which in alive if not self.killed[which[0]]] or alive
        if not fewest:
            return False
        function, replica = self._random.choice(fewest)
        try:
            berth.kill(function, replica)
        except ProcessLookupError:
            return False  # its death has not been told yet
        self.killed[function] += 1
        return True

    def _replace_pods(self) -> None:
        cluster = self._system.cluster
        bound = sorted(cluster.bound())
        for name in self._random.sample(bound, min(REPLACED, len(bound))):
            cluster.delete_pod(name)
        fresh = [f"late-{self._made + number:03}" for number in range(REPLACED)]
        self._made += REPLACED
        cluster.create_pods(*fresh)


@pytest.mark.parametrize("replicas", [1, 2])
def test_functions_killed_at_random_leave_nothing_that_one_reconcile_does_not_mend(
    system_of: Systems, place: Place, replicas: int, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    system = system_of(NODES, pools=[pool(units=UNITS)], store=place.url, replicas=replicas)
    everything = ready(system.berth)
    with system.cluster.watch_pods() as seen:
        killer = Killer(system, seen, seed)
        with creating(system.cluster, PODS):
            killer.run()
        bound_meanwhile = len(seen.bound_at)
        wait(lambda: ready(system.berth) >= everything, PATIENCE, "every process is started again")
        mended = system.berth.reconcile()
        in_the_end(system, seen, NODES, UNITS)
    assert set(killer.killed) == set(system.berth.urls)
    tell(
        capsys,
        f"{place.name}, {replicas} of each: {killer.killed.total()} kills {dict(killer.killed)}, "
        f"seed {seed}; {bound_meanwhile} pods bound meanwhile; mended {mended}",
    )
