"""Connections to a ledger's file, and calls on the one that is at its path now.
A call on a file that was replaced meanwhile is made again on the new one; nothing else is tried twice."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from berth.errors import StoreFailedError
from berth.stores.sqlite.errors import store_error
from berth.stores.sqlite.generation import generation_of, make

T = TypeVar("T")


class _Connection(NamedTuple):
    db: sqlite3.Connection
    inode: tuple[int, int] | None
    generation: str


class Client:
    """Safe to use from many threads: each call has a connection to itself, taken from those that are idle."""

    def __init__(self, path: Path, new_generation: Callable[[], str], busy_seconds: float) -> None:
        self._path, self._new_generation, self._busy_seconds = path, new_generation, busy_seconds
        self._name = str(path)
        self._making = threading.Lock()
        self._idle: list[_Connection] = []

    def run(self, mode: str, work: Callable[[sqlite3.Connection, str], T]) -> T:
        """Return what `work` returns of the file's generation, in one transaction; with an empty `mode` each
        statement is one of its own. Raises store errors."""
        # Not berth.retry: there is another try only for another file, and nothing to wait for.
        try:
            while True:
                connection = self._connected()
                try:
                    with _transaction(connection.db, mode):
                        result = work(connection.db, connection.generation)
                except BaseException as error:
                    connection.db.close()
                    if isinstance(error, sqlite3.Error) and _inode(self._name) != connection.inode:
                        continue
                    raise
                self._idle.append(connection)
                # A deleted file lives on in whoever has it open; what was done there is lost (decision 0003).
                if _inode(self._name) == connection.inode:
                    return result
        except (sqlite3.Error, OSError) as error:
            raise store_error(error, self._path) from error

    def close(self) -> None:
        while (idle := self._take_idle()) is not None:
            idle.db.close()

    def _connected(self) -> _Connection:
        """Return a connection to the file that is there now, this thread's alone until it is idle again."""
        while True:
            inode = _inode(self._name)
            if inode is None:
                with self._making:
                    make(self._path, self._new_generation, self._busy_seconds)
                continue
            try:
                connection = self._take_idle() or self._opened()
            except (sqlite3.Error, StoreFailedError):
                if _inode(self._name) == inode:
                    raise
                continue
            if connection.inode == inode:
                return connection
            connection.db.close()

    def _take_idle(self) -> _Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _opened(self) -> _Connection:
        """Return a new connection, with the inode that the path has after the file was opened."""
        # rw, not rwc: only `make` makes a file, or a half-made one could be seen.
        url, seconds = f"{self._path.as_uri()}?mode=rw", self._busy_seconds
        db = sqlite3.connect(url, seconds, isolation_level=None, check_same_thread=False, uri=True)
        try:
            generation = generation_of(db, self._path)
            # FULL: a claim that bind answered for must outlive a power cut, or its unit could be given twice.
            db.execute("PRAGMA synchronous = FULL")
        except BaseException:
            db.close()
            raise
        return _Connection(db, _inode(self._name), generation)


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - Path's takes thrice the time, and each call makes two
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def _transaction(db: sqlite3.Connection, mode: str) -> Iterator[None]:
    if not mode:
        yield
        return
    db.execute(f"BEGIN {mode}")
    try:
        yield
    except BaseException:
        db.rollback()
        raise
    db.commit()
