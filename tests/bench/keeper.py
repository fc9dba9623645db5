"""A process that fills a ledger, then changes one claim for each line it reads; it ends with its input.
It runs on the berth that PYTHONPATH names: a ledger of another version is filled by that version."""

import argparse
import sys
from collections.abc import Iterator

from berth.documents import Claim, Domain, Holding, domain_key, encode
from berth.ledger import Ledger
from berth.policy import pools
from berth.stores import open_store
from berth.stores.base import Store
from tests.bench.bodies import POOL, hash_of, node_names

CAPACITY = 10
_BATCH = 500
_POOL = {
    "apiVersion": pools.API_VERSION,
    "kind": "Pool",
    "metadata": {"name": POOL},
    "spec": {"capacity": {"perDomain": CAPACITY}},
}


def fill(store: Store, names: list[str]) -> None:
    """An open ledger whose domains hold from 0 to all 10 units, as many domains of each: 5 on average."""
    keeper = Ledger(store, while_closed=True)
    mark = keeper.begin_rebuild("bench")
    keeper.apply_pools(pools.parse([_POOL], "bench"))
    for start in range(0, len(names), _BATCH):
        some = names[start : start + _BATCH]
        # Straight into the store: 25,000 claims one by one, each on disk, would take minutes.
        store.commit({domain_key(POOL, name): encode(_domain(name)) for name in some}, {})
    keeper.open("bench", mark)


def _domain(name: str) -> Domain:
    claims = (_claim(name, number) for number in range(hash_of(name) * 7 % (CAPACITY + 1)))
    return Domain(CAPACITY, {claim.uid: claim for claim in claims})


def _claim(name: str, number: int) -> Claim:
    return Claim(
        uid=f"20000000-0000-4000-8000-{hash_of(name) * 100 + number:012}",
        namespace="default",
        name=f"holder-{hash_of(name)}-{number}",
        node=name,
        holdings=(Holding(POOL, name, 1),),
        state="bound",
        attempt="bench",
        since=1.0,
    )


def changes(ledger: Ledger, names: list[str]) -> Iterator[None]:
    """Each step is one commit: a claim comes, the next step it goes."""
    for turn in range(10**9):
        claim = _claim(names[turn * 11 % len(names)], 99)
        ledger.adopt(claim)
        yield
        ledger.release(claim.uid)
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--store", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    options = parser.parse_args()
    store, names = open_store(options.store), node_names(options.nodes)
    try:
        fill(store, names)
        print("ready", flush=True)
        for _, _ in zip(sys.stdin, changes(Ledger(store), names), strict=False):
            print("done", flush=True)
    finally:
        store.close()


if __name__ == "__main__":
    main()
