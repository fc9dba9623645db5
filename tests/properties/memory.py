"""A store in this process's memory: all that the contract asks, and nothing that takes time.
For the seeded bugs, which are in what uses a store; that the promises hold is shown on the real ones."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count

from berth.stores.base import Changes, Cursor, Document, Version, chunks


class MemoryStore:
    """See `berth.stores.base.Store`; for one thread at a time."""

    def __init__(self) -> None:
        self._documents: dict[str, Document] = {}
        self._log: dict[str, int] = {}  # when each key was written last
        self._revisions = count(1)
        self._revision = self._floor = 0

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        return {key: self._documents[key] for key in keys if key in self._documents}

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        found = self.read(expected)
        if any((found[key].version if key in found else None) != expected[key] for key in expected):
            return False
        self._revision = next(self._revisions)
        for key, body in writes.items():
            self._log[key] = self._revision
            if body is None:
                self._documents.pop(key, None)
            else:
                self._documents[key] = Document(str(self._revision), body)
        return True

    def changes(self, since: Cursor | None) -> Changes:
        if since is None or int(since) < self._floor:
            bodies = {key: document.body for key, document in self._documents.items()}
            return Changes(bodies, str(self._revision), True)
        changed = [key for key, revision in self._log.items() if revision > int(since)]
        documents = {key: self._documents[key].body if key in self._documents else None for key in changed}
        return Changes(documents, str(self._revision), False)

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        return chunks(keys)

    def close(self) -> None:
        pass

    def lose(self) -> None:
        """Everything that is in it; no version or cursor of before is worth anything."""
        self._documents, self._log = {}, {}
        self._revision = self._floor = next(self._revisions)
