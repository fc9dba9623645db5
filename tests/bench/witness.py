"""What was really written to a store, and what it really holds: by the documents, not by Berth's word.
It knows of a document only where its claims stand and their states."""

import itertools
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from berth.errors import StoreUnavailableError
from berth.stores.base import LIMIT, Changes, Document, Store

RESERVED, BOUND, GONE = "reserved", "bound", "gone"

Writes = Mapping[str, bytes | None]


class Witness:
    """A store that keeps what each thread has committed, or may have: where the store did not say."""

    def __init__(self, store: Store) -> None:
        self._store, self._here = store, threading.local()
        self.batches, self.close = store.batches, store.close

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        return self._store.read(keys)

    def commit(self, writes: Writes, expected: Mapping[str, str | None]) -> bool:
        try:
            done = self._store.commit(writes, expected)
        except StoreUnavailableError:
            self._here.commits = [*self._commits(), writes]
            raise
        if done:
            self._here.commits = [*self._commits(), writes]
        return done

    def changes(self, since: str | None) -> Changes:
        return self._store.changes(since)

    def taken(self) -> Sequence[Writes]:
        """What this thread has committed since it asked last."""
        commits, self._here.commits = self._commits(), []
        return commits

    def _commits(self) -> list[Writes]:
        found: list[Writes] = getattr(self._here, "commits", [])
        return found


def states(uid: str, commits: Iterable[Writes]) -> list[str]:
    """What became of a pod's claim with these commits; what one did once more is told once."""
    found: list[str] = []
    for writes in commits:
        domains = [_claims(body) for key, body in writes.items() if key.startswith("domain/")]
        here = {claims[uid].get("state", RESERVED) if uid in claims else GONE for claims in domains}
        found += ["/".join(sorted(here))] if here else []
    return [state for state, _ in itertools.groupby(found)]


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
