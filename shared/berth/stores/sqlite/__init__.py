"""The embedded store: one SQLite file in WAL mode, shared by the processes of one machine.
Not for network file systems (SQLite's locks fail there). `changes` is exact: it never lags behind `read`."""

import fcntl
import glob
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from berth.errors import StoreFailedError
from berth.stores.base import Changes, Cursor, Document, Version, chunks
from berth.stores.sqlite.errors import busy, explained, not_ours, of_another_version

T = TypeVar("T")

_BUSY_SECONDS = 1.0
_MAKING = 10  # times that, for a file that another process makes: it is several files, and then on disk
_KEPT_DELETIONS = 10_000  # deletions remembered for readers that are behind
_BATCH = 500  # keys in one statement; SQLite allows 32,766 parameters, older builds 999

_APPLICATION, _VERSION = 0x42455254, 1
_SCHEMA = f"""
CREATE TABLE docs (key TEXT PRIMARY KEY, rev INTEGER NOT NULL, body BLOB) WITHOUT ROWID;
CREATE INDEX docs_rev ON docs (rev);
CREATE TABLE meta (life TEXT NOT NULL, rev INTEGER NOT NULL, floor INTEGER NOT NULL);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
"""


class _Connection(NamedTuple):
    db: sqlite3.Connection
    inode: tuple[int, int]
    life: str


class SqliteStore:
    """See `berth.stores.base.Store`. The file and its folder are made on first use.

    The path is a symbolic link to a file named after its life. SQLite finds a file's -wal and -shm by name:
    were names used again, an `rm` in progress, or an old connection that closes, would take those of the new
    file, and two processes would go on with two ledgers.
    """

    def __init__(
        self,
        path: Path,
        new_life: Callable[[], str] = lambda: os.urandom(8).hex(),
        busy_seconds: float = _BUSY_SECONDS,
    ) -> None:
        self._path = path.absolute()
        self._new_life, self._busy_seconds = new_life, busy_seconds
        self._creating = threading.Lock()
        self._turn = threading.Lock()
        self._idle: list[_Connection] = []

    def is_there(self) -> bool:
        return self._path.exists()

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        def look(db: sqlite3.Connection, life: str) -> dict[str, Document]:
            return {
                key: Document(f"{life}.{rev}", body)
                for key, (rev, body) in _select(db, keys).items()
                if body is not None
            }

        return self._run("DEFERRED", look)

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        def write(db: sqlite3.Connection, life: str) -> bool:
            if not _as_expected(db, life, expected):
                return False
            _store(db, writes)
            return True

        # The threads of a process queue here: SQLite lets whoever waits sleep and try again, in no order, and
        # in a burst the unlucky ones would run out of time.
        if not self._turn.acquire(timeout=self._busy_seconds):
            raise busy(self._path, "too many writers in this process")
        try:
            return self._run("IMMEDIATE", write)
        finally:
            self._turn.release()

    def changes(self, since: Cursor | None) -> Changes:
        def look(db: sqlite3.Connection, life: str) -> Changes:
            rev, floor = db.execute("SELECT rev, floor FROM meta").fetchone()
            known, _, seen = (since or "").partition(".")
            if known != life or not floor <= int(seen) <= rev:
                rows = db.execute("SELECT key, body FROM docs WHERE body IS NOT NULL")
                return Changes(dict(rows), f"{life}.{rev}", True)
            if int(seen) == rev:
                return Changes({}, f"{life}.{rev}", False)
            rows = db.execute("SELECT key, body FROM docs WHERE rev > ? ORDER BY rev", (int(seen),))
            return Changes(dict(rows), f"{life}.{rev}", False)

        return self._run("DEFERRED", look)

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        return chunks(keys)

    def close(self) -> None:
        while (idle := self._take_idle()) is not None:
            idle.db.close()

    def _run(self, mode: str, work: Callable[[sqlite3.Connection, str], T]) -> T:
        try:
            while True:
                connection = self._connected()
                try:
                    with _transaction(connection.db, mode):
                        result = work(connection.db, connection.life)
                except BaseException as error:
                    connection.db.close()
                    if isinstance(error, sqlite3.Error) and _inode(self._path) != connection.inode:
                        continue
                    raise
                self._idle.append(connection)
                # A deleted file lives on in whoever has it open; what was done there is lost (decision 0003).
                if _inode(self._path) == connection.inode:
                    return result
        except (sqlite3.Error, OSError) as error:
            raise explained(self._path, error) from error

    def _connected(self) -> _Connection:
        """A connection to the file that is there now, this thread's alone until it is idle again."""
        while True:
            inode = _inode(self._path)
            if inode is None:
                self._create()
                continue
            connection = self._take_idle() or self._opened(inode)
            if connection is not None and connection.inode == inode:
                return connection
            if connection is not None:
                connection.db.close()

    def _take_idle(self) -> _Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _opened(self, inode: tuple[int, int]) -> _Connection | None:
        """A new connection; None if the file is no longer the one of this inode."""
        db: sqlite3.Connection | None = None
        try:
            db = self._open()
            connection = _Connection(db, inode, _life(db, self._path))
        except (sqlite3.Error, StoreFailedError):
            if db is not None:
                db.close()
            if _inode(self._path) == inode:
                raise
            return None
        if _inode(self._path) == inode:
            return connection
        db.close()
        return None

    def _open(self) -> sqlite3.Connection:
        # rw, not rwc: only _create makes a file, or a half-made one could be seen.
        return sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw",
            uri=True,
            timeout=self._busy_seconds,
            isolation_level=None,
            check_same_thread=False,
        )

    def _create(self) -> None:
        """Make the file whole, then link the path to it; the locks let one thread of one process do it."""
        folder, name = self._path.parent, self._path.name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._creating, self._locked(folder):
            if self._path.exists():
                return
            for left in folder.glob(f"{glob.escape(name)}.life-*"):
                left.unlink(missing_ok=True)
            life = self._new_life()
            fresh = folder / f"{name}.life-{life}"
            # Whatever the umask: it says who holds what. SQLite gives -wal and -shm the file's own mode.
            os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with closing(sqlite3.connect(fresh)) as db:
                db.execute("PRAGMA journal_mode = WAL")
                db.executescript(_SCHEMA)
                db.execute("INSERT INTO meta VALUES (?, 0, 0)", (life,))
                db.commit()
            link = folder / f"{name}.life-link"
            link.symlink_to(fresh.name)
            link.rename(self._path)

    @contextmanager
    def _locked(self, folder: Path) -> Iterator[None]:
        # The folder itself: a lock file would be deleted together with the ledger, and a second one locked.
        handle = os.open(folder, os.O_RDONLY)
        give_up_at = time.monotonic() + _MAKING * self._busy_seconds
        try:
            while not _lock(handle):
                if time.monotonic() > give_up_at:
                    raise busy(self._path, "another process has not finished making it")
                time.sleep(0.005)
            yield
        finally:
            os.close(handle)


def _life(db: sqlite3.Connection, path: Path) -> str:
    """Which life of the ledger this file holds. Raises StoreFailedError if it is not ours to use."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION:
        raise not_ours(path)
    if version != _VERSION:
        raise of_another_version(path, version, _VERSION)
    # FULL: a claim that bind answered for must outlive a power cut, or its unit could be given twice.
    db.execute("PRAGMA synchronous = FULL")
    life: str = db.execute("SELECT life FROM meta").fetchone()[0]
    return life


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _lock(handle: int) -> bool:
    """Not waited for in the system: whoever makes the file may be stopped, and would stop all the others."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _transaction(db: sqlite3.Connection, mode: str) -> Iterator[None]:
    db.execute(f"BEGIN {mode}")
    try:
        yield
    except BaseException:
        db.rollback()
        raise
    db.commit()


def _select(db: sqlite3.Connection, keys: Collection[str]) -> dict[str, tuple[int, bytes | None]]:
    found: dict[str, tuple[int, bytes | None]] = {}
    ordered = list(keys)
    for start in range(0, len(ordered), _BATCH):
        some = ordered[start : start + _BATCH]
        marks = ",".join("?" * len(some))
        for key, rev, body in db.execute(f"SELECT key, rev, body FROM docs WHERE key IN ({marks})", some):
            found[key] = (rev, body)
    return found


def _as_expected(db: sqlite3.Connection, life: str, expected: Mapping[str, Version | None]) -> bool:
    found = {
        key: f"{life}.{rev}" for key, (rev, body) in _select(db, expected.keys()).items() if body is not None
    }
    return all(found.get(key) == version for key, version in expected.items())


def _store(db: sqlite3.Connection, writes: Mapping[str, bytes | None]) -> None:
    rev = db.execute("UPDATE meta SET rev = rev + 1 RETURNING rev").fetchone()[0]
    db.executemany(
        "INSERT OR REPLACE INTO docs VALUES (?, ?, ?)", [(key, rev, body) for key, body in writes.items()]
    )
    if None in writes.values():
        old = rev - _KEPT_DELETIONS
        if db.execute("DELETE FROM docs WHERE body IS NULL AND rev <= ?", (old,)).rowcount:
            db.execute("UPDATE meta SET floor = ?", (old,))
