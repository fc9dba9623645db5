"""A store in this process's memory, for what is thrown away: a copy of a ledger on which something is tried.
No URL names it, and no other process sees it. `changes` is exact: it never lags behind `read`."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from berth.stores.base import Changes, Cursor, Document, Version, as_expected, chunks


class MemoryStore:
    """See `berth.stores.base.Store`; for one thread. It remembers what was deleted."""

    def __init__(self, bodies: Mapping[str, bytes | None] | None = None) -> None:
        self._written = 1
        # In the order of their last writes; a version is the number of that write.
        self._documents: dict[str, tuple[int, bytes | None]] = {}
        self._documents.update((key, (1, body)) for key, body in (bodies or {}).items())

    def bodies(self) -> dict[str, bytes]:
        """Return all documents."""
        return {key: body for key, (_, body) in self._documents.items() if body is not None}

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        there = ((key, self._documents.get(key, (0, None))) for key in keys)
        return {key: Document(str(number), body) for key, (number, body) in there if body is not None}

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        if not as_expected(self.read(expected), expected):
            return False
        self._written += 1
        for key, body in writes.items():
            self._documents.pop(key, None)
            self._documents[key] = (self._written, body)
        return True

    def changes(self, since: Cursor | None) -> Changes:
        cursor = str(self._written)
        if since is None:
            return Changes(self.bodies(), cursor, True)
        changed: dict[str, bytes | None] = {}
        for key in reversed(self._documents):
            number, body = self._documents[key]
            if number <= int(since):
                break
            changed[key] = body
        return Changes(changed, cursor, False)

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        return chunks(keys)

    def close(self) -> None:
        self._documents = {}
