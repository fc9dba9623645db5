"""The short form of `make chaos`: all faults, one world a store.

Bind's steps and the faults of events and of the API server are shared out among the stores, which together
cover each; the long form has each on every store. The seed is printed, and CHAOS_SEED sets it; timing is not
fixed by it.
"""

import os
import random
import secrets
from pathlib import Path

import pytest

from tests.chaos.faults import chosen, suffer
from tests.chaos.runs import told
from tests.chaos.store_faults import STORES
from tests.chaos.world import PROXIED, SHORT, world_of
from tests.support.neighbours import MEASURED

pytestmark = pytest.mark.long


def the_seed() -> int:
    """One seed for all processes of a run: each store must know which steps are its own."""
    given = os.environ.get("CHAOS_SEED")
    run = os.environ.setdefault("PYTEST_XDIST_TESTRUNUID", secrets.token_hex(8))
    return int(given) if given else random.Random(run).getrandbits(32)


@pytest.mark.parametrize(
    "store",
    [pytest.param(store, marks=[] if store == "sqlite" else pytest.mark.nightly) for store in STORES],
)
@pytest.mark.usefixtures("redis_installed")
def test_whatever_breaks_one_reconcile_later_the_ledger_equals_the_pods_and_all_that_fits_is_bound(
    store: str, binaries: Path, haproxy_program: Path, tmp_path: Path
) -> None:
    seed = the_seed()
    proxy = haproxy_program if store == PROXIED else None
    print(f"{MEASURED}chaos, {store}: seed {seed}")
    with world_of(binaries, tmp_path, store, SHORT, seed, proxy) as world:
        try:
            for fault in chosen(world, store):
                print(f"{fault} …")
                outcome = suffer(world, fault)
                print(f"{MEASURED}chaos, {store}: {fault}: {told(outcome)}; {outcome.lasted:.1f} s in all")
        finally:
            print(world.berth.said())  # shown for a failed test
