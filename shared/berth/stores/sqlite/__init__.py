"""The embedded store: one SQLite file in WAL mode, shared by the processes of one machine.
Not for network file systems (SQLite's locks fail there). `changes` is exact: it never lags behind `read`."""

import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.coalesce import Grouped
from berth.stores.base import Changes, Cursor, Document, Version, as_expected, chunks
from berth.stores.sqlite import checkpoints
from berth.stores.sqlite.client import Client
from berth.stores.sqlite.errors import busy, store_error
from berth.stores.sqlite.url import parse

_BUSY_SECONDS = 1.0
_FILE = frozenset(["file"])  # which only one writes at a time
_KEPT_DELETIONS = 10_000  # deletions remembered for readers that are behind


@dataclass(eq=False)
class _Commit:
    """One caller's commit, and whether it was done."""

    writes: Mapping[str, bytes | None]
    expected: Mapping[str, Version | None]
    done: bool = False


class SqliteStore:
    """See `berth.stores.base.Store`. The file and its folder are made on first use.

    The path is a symbolic link to a file named after its generation. SQLite finds a file's -wal and -shm by
    name: were names used again, an `rm` in progress, or an old connection that closes, would take those of
    the new file, and two processes would go on with two ledgers.
    """

    def __init__(
        self,
        path: Path,
        new_generation: Callable[[], str] = lambda: os.urandom(8).hex(),
        busy_seconds: float = _BUSY_SECONDS,
    ) -> None:
        self._path, self._busy_seconds = path.absolute(), busy_seconds
        self._client = Client(self._path, new_generation, busy_seconds)
        # The threads of a process queue here: SQLite lets whoever waits sleep and try again, in no order, and
        # in a burst the unlucky ones would run out of time. Those who wait share a transaction, and its sync.
        self._commits = Grouped(self._commit_all, 1)

    def is_there(self) -> bool:
        try:
            return self._path.exists()
        except OSError as error:
            raise store_error(error, self._path) from error

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        return self._client.run("DEFERRED", lambda db, generation: _documents(db, generation, keys))

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        commit = _Commit(writes, expected)
        try:
            self._commits.do(commit, self._busy_seconds, _FILE)
        except TimeoutError as error:
            raise busy(self._path, "too many writers in this process") from error
        return commit.done

    def _commit_all(self, commits: Sequence[_Commit]) -> None:
        """Make these commits one after the other in one transaction, each of them whole or not at all."""

        def write(db: sqlite3.Connection, generation: str) -> None:
            for commit in commits:
                there = _documents(db, generation, commit.expected.keys())
                commit.done = as_expected(there, commit.expected)
                if commit.done:
                    _store(db, commit.writes)

        self._client.run("IMMEDIATE", write)
        bodies = (body for commit in commits for body in commit.writes.values())
        self._client.checkpoint(sum(checkpoints.PAGES + len(body or b"") for body in bodies))

    def changes(self, since: Cursor | None) -> Changes:
        def cursor(db: sqlite3.Connection, generation: str) -> Cursor:
            return f"{generation}.{db.execute('SELECT rev FROM meta').fetchone()[0]}"

        def look(db: sqlite3.Connection, generation: str) -> Changes:
            rev, floor = db.execute("SELECT rev, floor FROM meta").fetchone()
            known, _, seen = (since or "").partition(".")
            if known != generation or not floor <= int(seen) <= rev:
                rows = db.execute("SELECT key, body FROM docs WHERE body IS NOT NULL")
                return Changes(dict(rows), f"{generation}.{rev}", True)
            rows = db.execute("SELECT key, body FROM docs WHERE rev > ? ORDER BY rev", (int(seen),))
            return Changes(dict(rows), f"{generation}.{rev}", False)

        # As a rule nothing has changed, which one statement tells in a sixth of a transaction's time.
        if since is not None and self._client.run("", cursor) == since:
            return Changes({}, since, False)
        return self._client.run("DEFERRED", look)

    def changes_at_once(self, since: Cursor) -> Changes:
        """Return the changes, always: a reader waits for nobody, as long as the disk does not hang."""
        return self.changes(since)

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        return chunks(keys)

    def close(self) -> None:
        self._client.close()


def open_store(url: str, *, reads_only: bool = False) -> SqliteStore:  # noqa: ARG001 - who reads writes -shm
    """Return the store of this URL. Raises SettingsError."""
    return SqliteStore(parse(url))


def caution() -> str:
    """Return what an operator should know of the SQLite that Python has here; empty: nothing."""
    if not checkpoints.has_defect(sqlite3.sqlite_version_info):
        return ""
    return (
        f"SQLite {sqlite3.sqlite_version} can damage a file that two programs write (corrected in 3.51.3); "
        "berth's own processes avoid it, see docs/stores/sqlite.md"
    )


def _documents(db: sqlite3.Connection, generation: str, keys: Collection[str]) -> dict[str, Document]:
    marks = ",".join("?" * len(keys))
    rows = db.execute(f"SELECT key, rev, body FROM docs WHERE key IN ({marks})", tuple(keys))
    return {key: Document(f"{generation}.{rev}", body) for key, rev, body in rows if body is not None}


def _store(db: sqlite3.Connection, writes: Mapping[str, bytes | None]) -> None:
    rev = db.execute("UPDATE meta SET rev = rev + 1 RETURNING rev").fetchone()[0]
    db.executemany(
        "INSERT OR REPLACE INTO docs VALUES (?, ?, ?)", [(key, rev, body) for key, body in writes.items()]
    )
    if None in writes.values():
        old = rev - _KEPT_DELETIONS
        if db.execute("DELETE FROM docs WHERE body IS NULL AND rev <= ?", (old,)).rowcount:
            db.execute("UPDATE meta SET floor = ?", (old,))
