"""The store as the property test's processes have it: each call may be stopped, and what it took is told.
It changes no answer."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar

from berth.stores.base import Changes, Cursor, Document, Store, Version

T = TypeVar("T")


class Watcher(Protocol):
    def at_store(self, what: str, call: Callable[[], T]) -> T: ...

    def committed(self, writes: Mapping[str, bytes | None]) -> None: ...

    def lags(self) -> bool: ...


class Watched:
    """See berth.stores.base.Store."""

    def __init__(self, store: Store, world: Watcher) -> None:
        self._store, self._world = store, world

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        return self._world.at_store("read", lambda: self._store.read(keys))

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        def commit() -> bool:
            done = self._store.commit(writes, expected)
            if done:
                self._world.committed(writes)
            return done

        return self._world.at_store("commit", commit)

    def changes(self, since: Cursor | None) -> Changes:
        def changes() -> Changes:
            if since is not None and self._world.lags():
                return Changes({}, since, False)
            return self._store.changes(since)

        return self._world.at_store("changes", changes)

    def batches(self, keys: Collection[str]) -> Any:
        return self._store.batches(keys)

    def close(self) -> None:
        self._store.close()
