"""A ledger's documents in this process's memory: a copy on which something is tried out.
No URL names it, nothing of it is kept, and no other process sees it."""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence

from berth.stores.base import Changes, Cursor, Document, Version, as_expected, chunks


class MemoryStore:
    """A Store that begins with these documents and ends with the process."""

    def __init__(self, bodies: Mapping[str, bytes | None] | None = None) -> None:
        self._lock = threading.Lock()
        there = ((key, body) for key, body in (bodies or {}).items() if body is not None)
        self._documents = {key: Document("0", body) for key, body in there}
        self._written: list[str] = []  # keys, in the order in which they were written
        self._commits = 0

    def bodies(self) -> dict[str, bytes]:
        """Return all documents as they are now."""
        with self._lock:
            return {key: document.body for key, document in self._documents.items()}

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        with self._lock:
            return {key: self._documents[key] for key in keys if key in self._documents}

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        with self._lock:
            if not as_expected(self._documents, expected):
                return False
            self._commits += 1
            for key, body in writes.items():
                self._documents.pop(key, None)
                if body is not None:
                    self._documents[key] = Document(str(self._commits), body)
            self._written += writes
            return True

    def changes(self, since: Cursor | None) -> Changes:
        with self._lock:
            keys = self._documents if since is None else dict.fromkeys(self._written[int(since) :])
            bodies = {key: self._documents[key].body if key in self._documents else None for key in keys}
            return Changes(bodies, str(len(self._written)), since is None)

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        return chunks(keys)

    def close(self) -> None:
        """Do nothing: there is nothing open."""
