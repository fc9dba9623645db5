"""The journal of use against the API server's watch on the real control plane: pods come and go, functions
are killed, the ledger is lost, and both tell the same unit-seconds for each namespace."""

import math
import random
import time
from contextlib import closing, suppress
from functools import partial

import pytest

from berth.ledger.ledger import Ledger
from berth.ledger.usage import DayUse, NamespaceUse
from berth.stores import open_store
from berth.stores.base import EPOCH
from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool
from tests.support.builders.damage import write
from tests.support.cluster import ApiError, wait
from tests.support.usewatch import UseWatch

WAIT_SECONDS = 1.5
"""How far the journal's waiting may be from the watch for one pod: the API server tells whole seconds."""
USE_SECONDS = 0.3
"""How far its use may be: bind reserves before the Binding, and on a busy machine the watch is late."""
LIFE_SECONDS = 1.0
"""How long a pod lives at least, so that the comparison says something."""

NODES = 3
UNITS = 3
TENANTS = ("team-a", "team-b", "team-c")


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(4, id="short", marks=pytest.mark.long),
        pytest.param(40, id="long", marks=pytest.mark.nightly),
    ],
)
def test_the_journal_equals_the_watch_after_killed_functions_and_a_lost_ledger(
    system_of: Systems, rounds: int
) -> None:
    system = system_of(NODES, pools=[pool(units=UNITS)])
    for tenant in TENANTS:
        system.cluster.create_namespace(tenant)
    dice = random.Random(7)
    with system.cluster.watch_use() as seen:
        for number in range(rounds):
            come_and_go(system, seen, number, dice)
            if number % 2:
                with suppress(ProcessLookupError):  # the last one that was killed is not replaced yet
                    system.berth.kill(dice.choice(("bind", "release", "filter")))
            if number == rounds // 2:
                lose_epoch(system)
            wait(lambda: reconciled(system), 60, "reconcile answers")
        seen.settle()
        until = counted(system, time.time())
    for tenant in TENANTS:
        use, pods, bound = used(system, tenant), seen.pods(tenant), seen.pods(tenant, seen.bound)
        held, denied = seen.used(tenant, until), seen.waited(tenant, until)
        print(f"{tenant}: {bound} of {pods} pods bound, {use}, by the watch {held:.3f} {denied:.3f}")
        assert use.used / 1000 == pytest.approx(held, abs=USE_SECONDS * bound)
        assert use.waited / 1000 == pytest.approx(denied, abs=WAIT_SECONDS * pods)
        assert held > 2 * USE_SECONDS * bound, "pods live for so short that the comparison says nothing"


def come_and_go(system: System, seen: UseWatch, number: int, dice: random.Random) -> None:
    """Six pods more, and some of those that are bound go: by their deletion, or because they finish."""
    cluster = system.cluster
    bound = len(seen.bound)
    for tenant in TENANTS:
        for pod in range(2):
            cluster.create_pod(f"pod-{number}-{pod}", namespace=tenant)
    free = NODES * UNITS - seen.total
    wait(lambda: len(seen.bound) >= bound + min(1, free), 60, "pods are bound")
    for tenant in TENANTS[: 1 + number % 2]:
        there = sorted(cluster.bound(tenant))
        for name in dice.sample(there, min(1, len(there))):
            wait(partial(lived_a_while, system, seen, tenant, name), 60, f"{name} lived a while")
            if dice.random() < 0.5:
                cluster.finish_pod(name, tenant)
            else:
                cluster.delete_pod(name, tenant)


def lived_a_while(system: System, seen: UseWatch, namespace: str, name: str) -> bool:
    uid = system.cluster.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["metadata"]["uid"]
    return time.time() - seen.bound.get(uid, math.inf) > LIFE_SECONDS


def lose_epoch(system: System) -> None:
    """As a store does that may have come back older than it was."""
    with closing(open_store(system.berth.store)) as store:
        write(store, EPOCH, None)


def reconciled(system: System) -> bool:
    try:
        return bool(system.berth.reconcile()["problems"] == [])
    except (AssertionError, ApiError, OSError):
        return False  # the function is being replaced


def counted(system: System, end: float) -> float:
    """Let reconcile count until after `end`. Return until when."""

    def until() -> float:
        reconciled(system)
        with closing(open_store(system.berth.store, reads_only=True)) as store:
            pages = Ledger(store).journal().pages().values()
            return max((page.until for page in pages), default=0) / 1000

    return wait(lambda: now if (now := until()) > end else 0.0, 60, "all is counted", every=0.5)


def used(system: System, namespace: str) -> NamespaceUse:
    with closing(open_store(system.berth.store, reads_only=True)) as store:
        total = DayUse()
        for page in Ledger(store).journal().pages().values():
            for day in page.days.values():
                total = total.plus(day)
    return total.namespaces[namespace]
