"""The embedded store: one SQLite file in WAL mode, shared by the processes of one machine.
Not for network file systems (SQLite's locks fail there). `changes` is exact: it never lags behind `read`."""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

from berth.errors import StoreFailedError, StoreUnavailableError
from berth.stores.base import Changes, Cursor, Document, Version

T = TypeVar("T")

_BUSY_SECONDS = 2.0
_KEPT_DELETIONS = 10_000  # deletions remembered for readers that are behind
_BATCH = 500  # keys in one statement; SQLite allows 32,766 parameters, older builds 999

_SCHEMA = """
CREATE TABLE docs (key TEXT PRIMARY KEY, rev INTEGER NOT NULL, body BLOB) WITHOUT ROWID;
CREATE INDEX docs_rev ON docs (rev);
CREATE TABLE meta (life TEXT NOT NULL, rev INTEGER NOT NULL, floor INTEGER NOT NULL);
PRAGMA user_version = 1;
"""
_RETRYABLE = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT)


class SqliteStore:
    """See `berth.stores.base.Store`. The file and its folder are made on first use."""

    def __init__(self, path: Path, new_life: Callable[[], str] = lambda: os.urandom(8).hex()) -> None:
        self._path = path.absolute()
        self._new_life = new_life
        self._local = threading.local()

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

        return self._run("IMMEDIATE", write)

    def changes(self, since: Cursor | None) -> Changes:
        def look(db: sqlite3.Connection, life: str) -> Changes:
            rev, floor = db.execute("SELECT rev, floor FROM meta").fetchone()
            known, _, seen = (since or "").partition(".")
            if known != life or int(seen) < floor:
                rows = db.execute("SELECT key, body FROM docs WHERE body IS NOT NULL")
                return Changes(dict(rows), f"{life}.{rev}", True)
            if int(seen) == rev:
                return Changes({}, f"{life}.{rev}", False)
            rows = db.execute("SELECT key, body FROM docs WHERE rev > ? ORDER BY rev", (int(seen),))
            return Changes(dict(rows), f"{life}.{rev}", False)

        return self._run("DEFERRED", look)

    def close(self) -> None:
        self._forget()

    def _run(self, mode: str, work: Callable[[sqlite3.Connection, str], T]) -> T:
        try:
            db, life = self._connected()
            with _transaction(db, mode):
                return work(db, life)
        except sqlite3.Error as error:
            self._forget()
            _explain(self._path, error)
        except OSError as error:
            raise StoreFailedError(
                f"berth's ledger {self._path} can't be used: {error.strerror}; check the path and its rights"
            ) from error

    def _connected(self) -> tuple[sqlite3.Connection, str]:
        """This thread's connection. A deleted file lives on in whoever has it open, beside the new one, so
        each call compares the inode (facts, 6)."""
        inode = _inode(self._path)
        if inode is not None and getattr(self._local, "inode", None) == inode:
            return self._local.db, self._local.life
        self._forget()
        while True:
            inode = _inode(self._path)
            if inode is None:
                self._create()
                continue
            db = self._open()
            life: str = db.execute("SELECT life FROM meta").fetchone()[
                0
            ]  # this opens the WAL beside the file
            if _inode(self._path) == inode:
                self._local.inode, self._local.db, self._local.life = inode, db, life
                return db, life
            db.close()

    def _open(self) -> sqlite3.Connection:
        # rw, not rwc: only _create makes a file, or a half-made one could be seen.
        db = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        # FULL: a claim that bind answered for must outlive a power cut, or its unit could be given twice.
        db.execute("PRAGMA synchronous = FULL")
        return db

    def _create(self) -> None:
        """Make the file whole and move it into place; the lock lets one process do it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self._path.with_name(self._path.name + ".lock")):
            if self._path.exists():
                return
            fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
            fresh.unlink(missing_ok=True)
            with closing(sqlite3.connect(fresh)) as db:
                db.execute("PRAGMA journal_mode = WAL")
                db.executescript(_SCHEMA)
                db.execute("INSERT INTO meta VALUES (?, 0, 0)", (self._new_life(),))
                db.commit()
            # What a deleted ledger left beside it belongs to that one, not to the new file.
            for suffix in ("-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            fresh.rename(self._path)

    def _forget(self) -> None:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        self._local.__dict__.clear()
        if db is not None:
            db.close()


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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


def _explain(path: Path, error: sqlite3.Error) -> NoReturn:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _RETRYABLE:
        raise StoreUnavailableError(
            f"berth's ledger {path} is busy ({error}); the pod will be retried"
        ) from error
    if "no such table" in str(error):
        raise StoreFailedError(f"{path} is not a berth ledger; point BERTH_STORE at another file") from error
    raise StoreFailedError(
        f"berth's ledger {path} can't be used: {error}; check the file, its rights and the disk"
    ) from error
