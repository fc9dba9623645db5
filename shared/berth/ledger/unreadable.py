"""Documents of a ledger that can't be read, which ones may be thrown away, and how that is done.
It does not rebuild what they said: reconcile does, in the ledger that is closed with the same commit."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import msgspec

from berth.api.pool import Pool
from berth.errors import ContentionError, StoreFailedError
from berth.ledger.keys import CLUSTER, DOMAIN, NODE, POOL, UNFENCED, domain_of
from berth.ledger.model import (
    Epoch,
    decode_domain,
    decode_epoch,
    decode_places,
    decode_pool,
    decode_uids,
)
from berth.ledger.transaction import versions_of
from berth.ledger.transitions import require_cluster
from berth.stores.base import EPOCH, LIMIT, Store

_TRIES = 5


class Unreadable(NamedTuple):
    """A document that can't be read. `why_kept` says why nobody but a person may throw it away; empty: it may
    go."""

    key: str
    why: str
    why_kept: str


def unreadable(
    bodies: Mapping[str, bytes], pools: Callable[[], Mapping[str, Pool]], agreed: Collection[str] = ()
) -> list[Unreadable]:
    """Return the documents that can't be read; `pools` reads the Pools of the active source, if need be.

    One may go if all that it can have said is rebuilt from pods, nodes and Pools, in a ledger that is closed
    until then. So these stay, unless a person has `agreed`:

    - what is JSON: a berth of another version may have written it, and its functions need it;
    - the epoch: it may have said that the ledger was moved, and a second one would be opened;
    - whose the ledger is: it may be another cluster's;
    - a domain of a Pool with `onLostNode: Hold` or `reuseAfterSeconds`: of pods that are gone nothing is
      left but what it said, and their units may be in use;
    - a Pool that the active source does not have: claims of pods that are gone are judged by it;
    - any at all while the ledger is being copied, or was moved.
    """
    wrong = {key: why for key in sorted(bodies) if (why := _trouble(key, bodies[key]))}
    if not wrong:
        return []
    epoch = decode_epoch(bodies.get(EPOCH)) if EPOCH not in wrong else None
    there = pools()
    known = {**_readable_pools(bodies, wrong), **there}
    return [
        Unreadable(
            key,
            why,
            "" if key in agreed and not _elsewhere(epoch) else _kept(key, bodies, known, there, epoch),
        )
        for key, why in wrong.items()
    ]


def forget(store: Store, bodies: Mapping[str, bytes], ours: Callable[[], str], name: str) -> None:
    """Throw these documents away, if they are still so, and close the ledger: a bind must not take for free
    what running pods hold. Raises OtherClusterError in a ledger of another cluster than `ours`, PausedError
    or MovedError in one that is being copied, or was moved, by now; `name` is for the first one's text."""
    keys = sorted(bodies)
    step = LIMIT - 2  # beside the epoch and the cluster
    for start in range(0, len(keys), step):
        _forget(store, {key: bodies[key] for key in keys[start : start + step]}, ours, name)


def _forget(store: Store, bodies: Mapping[str, bytes], ours: Callable[[], str], name: str) -> None:
    for _ in range(_TRIES):
        documents = store.read({EPOCH, CLUSTER, *bodies})
        if CLUSTER in documents and CLUSTER not in bodies:
            require_cluster(documents[CLUSTER].body, ours(), name)
        if EPOCH in documents and EPOCH not in bodies:
            _require_here(decode_epoch(documents[EPOCH].body))
        there = {key for key in bodies if key in documents and documents[key].body == bodies[key]}
        writes = dict.fromkeys({EPOCH, *there} if there else ())
        expected = versions_of(documents, {EPOCH, CLUSTER, *there})
        if not writes or store.commit(writes, expected):
            return
    raise ContentionError("berth's ledger is changed all the time; nothing was thrown away: try again")


def _trouble(key: str, body: bytes) -> str:
    """Return what is wrong with a document; empty: nothing."""
    try:
        if key.startswith(DOMAIN):
            claims = decode_domain(body).claims
            wrong = next((uid for uid, claim in claims.items() if claim.uid != uid), None)
            return "" if wrong is None else f"it has the claim of pod {claims[wrong].label} under another UID"
        if key.startswith(POOL):
            decode_pool(key.removeprefix(POOL), body)
        elif key.startswith(NODE):
            decode_places(body)
        elif key == EPOCH:
            decode_epoch(body)
        elif key == UNFENCED:
            decode_uids(body)
        elif key == CLUSTER:
            body.decode()
    except StoreFailedError as error:
        return str(error.__cause__)
    except UnicodeDecodeError as error:
        return str(error)
    return ""


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _readable_pools(bodies: Mapping[str, bytes], wrong: Collection[str]) -> dict[str, Pool]:
    """Return the ledger's Pools, as far as they can be read."""

    def pools() -> Iterator[Pool]:
        for key, body in bodies.items():
            if key.startswith(POOL) and key not in wrong:
                yield decode_pool(key.removeprefix(POOL), body)

    return {pool.name: pool for pool in pools()}


def _require_here(epoch: Epoch | None) -> None:
    """Raise where the epoch's mark keeps this ledger shut: without it a second one would give units."""
    if epoch is not None and (trouble := epoch.trouble()) is not None:
        raise trouble


def _elsewhere(epoch: Epoch | None) -> bool:
    return epoch is not None and epoch.trouble() is not None


def _kept(
    key: str,
    bodies: Mapping[str, bytes],
    known: Mapping[str, Pool],
    source: Mapping[str, Pool],
    epoch: Epoch | None,
) -> str:
    """Return why a document may not be thrown away unasked; empty: it may."""
    if _elsewhere(epoch):
        return "the ledger is being copied, or was moved"
    if key == EPOCH:
        return "it may have said that the ledger was moved to another store"
    if key == CLUSTER:
        return "the ledger may be another cluster's"
    if _is_json(bodies[key]):
        return "a berth of another version may have written it: run one version"
    if key.startswith(POOL) and key.removeprefix(POOL) not in source:
        return "the active source has no such Pool, by which claims of pods that are gone are judged"
    pool = known.get(domain_of(key)[0]) if key.startswith(DOMAIN) else None
    if pool is not None and pool.holds_lost:
        return f"Pool {pool.name} has onLostNode: Hold, and a lost node's pods may use what it said they hold"
    if pool is not None and pool.spec.reuse_after_seconds:
        return f"Pool {pool.name} has reuseAfterSeconds, and nobody else knows which units rest"
    return ""
