"""A process that fills a ledger, then changes one claim for each line that it reads; it ends with its input.
It runs on the berth that PYTHONPATH names: a ledger of another version is filled by that version."""

import argparse
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from berth.documents import Claim, Domain, Holding, domain_key, encode
from berth.errors import RetryableError
from berth.ledger import Ledger
from berth.policy import pools
from berth.stores import open_store
from berth.stores.base import Store
from tests.bench.bodies import POOL, hash_of, node_names

CAPACITY = 10
_PATIENCE_SECONDS = 60.0
_BATCH = 96  # documents in a commit: every store takes so many
_POOL = {
    "apiVersion": pools.API_VERSION,
    "kind": "Pool",
    "metadata": {"name": POOL},
    "spec": {"capacity": {"perDomain": CAPACITY}},
}


def fill(store: Store, names: list[str]) -> None:
    """An open ledger whose domains hold from 0 to all 10 units, as many domains of each: 5 on average."""
    patiently(lambda: _open(store))
    hold(store, {name: hash_of(name) * 7 % (CAPACITY + 1) for name in names})


def _open(store: Store) -> None:
    keeper = Ledger(store, while_closed=True)
    mark = keeper.begin_rebuild("bench")
    keeper.apply_pools(pools.parse([_POOL], "bench"))
    if not keeper.view().open:
        keeper.open("bench", mark)


def hold(store: Store, held: Mapping[str, int], capacity: int = CAPACITY) -> None:
    """Make each of these domains one in which so many units are held."""
    documents = {domain_key(POOL, name): encode(_domain(name, held[name], capacity)) for name in held}
    # Straight into the store: 25,000 claims one by one, each on disk, would take minutes.
    for some in _batches(store, list(documents)):
        patiently(partial(store.commit, {key: documents[key] for key in some}, {}))


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


def _batches(store: Store, keys: list[str]) -> Iterable[Sequence[str]]:
    """As the store likes it best; one of a version that had no word on it likes any."""
    if hasattr(store, "batches"):
        return store.batches(keys)
    return (keys[start : start + _BATCH] for start in range(0, len(keys), _BATCH))


def _domain(name: str, held: int, capacity: int) -> Domain:
    claims = (_claim(name, number) for number in range(held))
    return Domain(capacity, {claim.uid: claim for claim in claims})


def _claim(name: str, number: int) -> Claim:
    # By chance, as real ones are: some stores pack what they hold.
    chance = random.Random(100 * hash_of(name) + number)
    return Claim(
        uid=str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        namespace="default",
        name=f"holder-{hash_of(name)}-{number}",
        node=name,
        holdings=(Holding(POOL, name, 1),),
        state="bound",
        attempt=f"{chance.getrandbits(48):012x}",
        since=1.7e9 + chance.randrange(10**12) / 1e6,
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
