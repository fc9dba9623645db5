"""A process that fills a ledger, then changes a claim as each line says; it ends with its input.
It runs on the berth beside it: a ledger of another tree is filled by that tree's own keeper."""

import argparse
import random
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial

from berth.api import pool
from berth.api.names import API_VERSION
from berth.errors import RetryableError
from berth.ledger.keys import domain_key, poolclaim_quota
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Domain, Holding, PoolClaimSpec, encode
from berth.stores import open_store
from berth.stores.base import Store
from tests.bench.contents import CAPACITY, POOL, POOL_CLAIM, node_names, number_of, units_held

_PATIENCE_SECONDS = 60.0
_POOL = {
    "apiVersion": API_VERSION,
    "kind": "Pool",
    "metadata": {"name": POOL},
    "spec": {"capacity": {"perDomain": CAPACITY}},
}


def fill(store: Store, names: list[str]) -> None:
    """An open ledger whose domains hold what contents.py says."""
    patiently(lambda: _open(store))
    hold(store, {name: units_held(name) for name in names})


def _open(store: Store) -> None:
    keeper = Ledger(store, while_closed=True)
    mark = keeper.begin_rebuild("bench")
    keeper.apply_pools(pool.parse([_POOL], "bench"))
    if not keeper.view().open:
        keeper.open("bench", mark)


def hold(store: Store, held: Mapping[str, int], capacity: int = CAPACITY) -> None:
    """Make each of these domains one in which so many units are held."""
    bodies = {domain_key(POOL, name): encode(_domain(name, held[name], capacity)) for name in held}
    # Straight into the store: 25,000 claims one by one, each on disk, would take minutes.
    for some in store.batches(list(bodies)):
        patiently(partial(store.commit, {key: bodies[key] for key in some}, {}))


def patiently(call: Callable[[], object]) -> None:
    """A store that is too busy for a moment is asked again: making ready is not what is measured."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            call()
        except RetryableError:
            if time.monotonic() > until:
                raise
            continue
        return


def _domain(name: str, held: int, capacity: int) -> Domain:
    claims = (holder(name, number) for number in range(held))
    return Domain(capacity, {claim.uid: claim for claim in claims})


def holder(name: str, number: int) -> Claim:
    """The claim of one of the pods that hold a node's units at the beginning."""
    # By chance, as real ones are: some stores pack what they hold.
    chance = random.Random(100 * number_of(name) + number)
    return Claim(
        uid=str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        namespace="default",
        name=f"holder-{number_of(name)}-{number}",
        node=name,
        holdings=(Holding(POOL, name, 1),),
        state="bound",
        attempt=f"{chance.getrandbits(48):012x}",
        since=1.7e9 + chance.randrange(10**12) / 1e6,
    )


def add_pool_claim(store: Store) -> None:
    """Add one that no pod has."""
    key = domain_key(POOL, poolclaim_quota(f"default/{POOL_CLAIM}"))
    body = encode(Domain(1, poolclaim=PoolClaimSpec(1)))
    patiently(lambda: store.commit({key: body}, {}))


def change(ledger: Ledger, node: str, more: int) -> None:
    """In one commit a claim comes to the node, or goes."""
    claim = holder(node, 99)
    changed = ledger.adopt(claim) is not None if more > 0 else ledger.release(claim.uid)
    assert changed, f"nothing was changed by {more} on {node}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--store", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    options = parser.parse_args()
    store = open_store(options.store)
    try:
        fill(store, node_names(options.nodes))
        add_pool_claim(store)
        ledger = Ledger(store)
        print("ready", flush=True)
        for line in sys.stdin:
            node, more = line.split()
            change(ledger, node, int(more))
            print("done", flush=True)
    finally:
        store.close()


if __name__ == "__main__":
    main()
