"""Connections to a ledger's file, and calls on the one that is at its path now.
A call on a file that was replaced meanwhile is made again on the new one; no other call is made twice."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from berth.deadline import Deadline
from berth.errors import StoreFailedError
from berth.retry import retry
from berth.stores.sqlite import checkpoints
from berth.stores.sqlite.errors import store_error
from berth.stores.sqlite.generation import generation_of, make

T = TypeVar("T")


_PAUSES = (0.001, 0.005)  # between two tries of what another process has locked


class _LockedError(Exception):
    """Another process has locked the file, as a rule because it writes; nothing was done."""

    def __init__(self, reason: sqlite3.Error) -> None:
        super().__init__()
        self.reason = reason


class _Connection(NamedTuple):
    db: sqlite3.Connection
    inode: tuple[int, int] | None
    generation: str
    log: str  # the path of its write-ahead log


class Client:
    """Safe to use from many threads: each call has a connection to itself, taken from those that are idle."""

    def __init__(self, path: Path, new_generation: Callable[[], str], busy_seconds: float) -> None:
        self._path, self._new_generation, self._busy_seconds = path, new_generation, busy_seconds
        self._name = str(path)
        self._making = threading.Lock()
        self._idle: list[_Connection] = []
        self._since_look = checkpoints.LOOK  # bytes committed since the log's length was last looked at

    def run(self, mode: str, work: Callable[[sqlite3.Connection, str], T]) -> T:
        """Return what `work` returns of the file's generation, in one transaction; with an empty `mode` each
        statement is one of its own. Raises store errors.

        SQLite would wait for other processes itself, but longer and longer, up to 0.1 s between two tries:
        where several write all the time, one of them would not get its turn in a second.
        """
        try:
            with suppress(_LockedError):
                return self._run(mode, work)
            deadline = Deadline.after(self._busy_seconds, time.monotonic)
            return retry(partial(self._run, mode, work), _LockedError, deadline=deadline, pauses=_PAUSES)
        except _LockedError as error:
            raise store_error(error.reason, self._path) from error
        except (sqlite3.Error, OSError) as error:
            raise store_error(error, self._path) from error

    def _run(self, mode: str, work: Callable[[sqlite3.Connection, str], T]) -> T:
        """Do it as `run` does, at once. Raises _LockedError."""
        # Not berth.retry: there is another try only for another file, and nothing to wait for.
        while True:
            connection = self._connected()
            try:
                with _transaction(connection.db, mode):
                    result = work(connection.db, connection.generation)
            except sqlite3.Error as error:
                # One whose COMMIT failed is still in its transaction.
                locked = _is_locked(error) and not connection.db.in_transaction
                if locked:
                    self._idle.append(connection)
                else:
                    connection.db.close()
                if _inode(self._name) != connection.inode:
                    continue
                if locked:
                    raise _LockedError(error) from error
                raise
            except BaseException:
                connection.db.close()
                raise
            self._idle.append(connection)
            # A deleted file lives on in whoever has it open; what was done there is lost (decision 0003).
            if _inode(self._name) == connection.inode:
                return result

    def checkpoint(self, written: int) -> None:
        """Make a checkpoint if the file's log is long, and nobody commits now; `written` are about the bytes
        that the last commit added. Raises nothing: what was committed is safe in the log, and the next commit
        tries again."""
        self._since_look += written
        if self._since_look < checkpoints.LOOK:
            return
        with suppress(sqlite3.Error, OSError, StoreFailedError), self._lent() as locking:
            if checkpoints.is_due(locking.log):
                with self._lent() as copying:
                    if copying.inode == locking.inode:
                        checkpoints.checkpoint(locking.db, copying.db)
            else:
                self._since_look = 0

    @contextmanager
    def _lent(self) -> Iterator[_Connection]:
        """A connection, which is closed where it is left in a transaction."""
        connection = self._connected()
        try:
            yield connection
        finally:
            if connection.db.in_transaction:
                connection.db.close()
            else:
                self._idle.append(connection)

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
            db.execute("PRAGMA busy_timeout = 0")  # `run` waits
            checkpoints.prepare(db)
            (_, _, file) = db.execute("PRAGMA database_list").fetchone()
        except BaseException:
            db.close()
            raise
        return _Connection(db, _inode(self._name), generation, f"{file}-wal")


def _is_locked(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


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
