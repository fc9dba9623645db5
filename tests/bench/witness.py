"""What was really written to a store, and what it really holds: by the documents, not by Berth's word.
It knows of a document only where its claims stand and their states."""

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from berth.errors import StoreUnavailableError
from berth.stores.base import LIMIT, Changes, Document, Store

RESERVED, BOUND, GONE = "reserved", "bound", "gone"

Writes = Mapping[str, bytes | None]


class Witness:
    """A store that keeps what was committed, or may have been: where the store did not say. Which thread did
    it tells nothing: one may commit what several have decided."""

    def __init__(self, store: Store) -> None:
        self._store, self._commits = store, list[Writes]()
        self.batches, self.close = store.batches, store.close

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        return self._store.read(keys)

    def commit(self, writes: Writes, expected: Mapping[str, str | None]) -> bool:
        try:
            done = self._store.commit(writes, expected)
        except StoreUnavailableError:
            self._commits.append(writes)
            raise
        if done:
            self._commits.append(writes)
        return done

    def changes(self, since: str | None) -> Changes:
        return self._store.changes(since)

    def so_far(self) -> int:
        """How many commits it has kept."""
        return len(self._commits)

    def since(self, so_far: int) -> Sequence[Writes]:
        """All commits after that many."""
        return self._commits[so_far:]

    def forget(self) -> None:
        """Keep none of those until now."""
        self._commits.clear()


def states(uid: str, commits: Sequence[Writes]) -> list[str]:
    """What became of a pod's claim with these commits, in the documents where it came to be; what one did
    once more is told once."""
    bodies = [{key: body for key, body in writes.items() if key.startswith("domain/")} for writes in commits]
    mine = {key for writes in bodies for key, body in writes.items() if _state(uid, body) != GONE}
    found: list[str] = []
    for writes in bodies:
        here = {_state(uid, body) for key, body in writes.items() if key in mine}
        found += ["/".join(sorted(here))] if here else []
    told = [state for state, _ in itertools.groupby(found)]
    return told[1:] if told[:1] == [GONE] else told


def _state(uid: str, body: bytes | None) -> str:
    if body is None or uid.encode() not in body:
        return GONE
    claim = _claims(body).get(uid)
    return GONE if claim is None else str(claim.get("state", RESERVED))


def held(store: Store, keys: Sequence[str]) -> Counter[str]:
    """Claims by document, as the store has them at this moment."""
    found: Counter[str] = Counter()
    for start in range(0, len(keys), LIMIT):
        for key, document in store.read(keys[start : start + LIMIT]).items():
            found[key] = len(_claims(document.body))
    return found


def document(store: Store, key: str) -> dict[str, Any]:
    """One as it stands there."""
    found: dict[str, Any] = msgspec.json.decode(store.read([key])[key].body)
    return found


def _claims(body: bytes | None) -> dict[str, Any]:
    found: dict[str, Any] = {} if body is None else msgspec.json.decode(body).get("claims", {})
    return found
