"""A large ask in an endless traffic of small ones, on a real kube-scheduler: served where units are held for
the first in line, and never where they are not."""

import pytest

from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool, settled
from tests.support.cluster import wait

pytestmark = pytest.mark.long

UNITS = 4
HELD, OPEN = "seat", "open"
LINE = {HELD: {"holdAfterSeconds": 0, "whileHeldSeconds": 600}, OPEN: {"holds": "None"}}
_SECONDS = 60.0


class Traffic:
    """Small pods of one pool, as many as it has units: one of them ends when the next comes."""

    def __init__(self, system: System, name: str) -> None:
        self._cluster, self._name, self._made = system.cluster, name, 0
        for _ in range(UNITS):
            self.come()

    def come(self) -> str:
        self._made += 1
        name = f"{self._name}-{self._made:03}"
        self._cluster.create_pod(name, {f"berth.dev/{self._name}": 1})
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
    first = {hold.name for hold in system.berth.ledger().line_holds.values()}
    assert first == {f"big-{HELD}"}
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
