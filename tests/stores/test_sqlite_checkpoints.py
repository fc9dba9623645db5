"""A ledger's write-ahead log: how long it grows, and that no checkpoint is made while anybody commits."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from berth.stores import caution
from berth.stores.base import Document
from berth.stores.sqlite import SqliteStore, checkpoints

KIB = 1024
BODY = b"x" * (64 * KIB)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(path)) as opened:
        yield opened


def log_of(path: Path) -> int:
    """Bytes of the log."""
    return Path(f"{path.resolve()}-wal").stat().st_size


def test_a_log_is_copied_into_the_file_each_time_it_has_grown_to_its_limit(
    store: SqliteStore, path: Path
) -> None:
    longest = 0
    for number in range(3 * checkpoints.LIMIT // len(BODY)):
        assert store.commit({f"{number}": BODY}, {})
        longest = max(longest, log_of(path))
    assert checkpoints.LIMIT < longest < checkpoints.LIMIT + checkpoints.LOOK + 256 * KIB
    assert path.stat().st_size > 2 * checkpoints.LIMIT


def test_sqlite_makes_no_checkpoint_by_itself(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "is_due", lambda _: False)
    store.commit({"a": b""}, {})
    before = path.stat().st_size
    for _ in range(2 * checkpoints.LIMIT // len(BODY)):
        store.commit({"a": BODY}, {})
    assert path.stat().st_size == before


class Copying:
    """A connection that makes a checkpoint, and finds out whether others can commit meanwhile."""

    def __init__(self, db: sqlite3.Connection, other: sqlite3.Connection) -> None:
        self._db, self._other = db, other
        self.refused: list[str] = []

    def execute(self, sql: str) -> sqlite3.Cursor:
        with pytest.raises(sqlite3.OperationalError) as caught:
            self._other.execute("BEGIN IMMEDIATE")
        self.refused.append(str(caught.value))
        return self._db.execute(sql)


def connections(path: Path, count: int) -> list[sqlite3.Connection]:
    return [sqlite3.connect(path, 0, isolation_level=None) for _ in range(count)]


def test_nobody_can_commit_while_a_checkpoint_is_made(store: SqliteStore, path: Path) -> None:
    store.commit({"a": BODY}, {})
    before = path.stat().st_size
    locking, copying, other = connections(path, 3)
    watched: Any = Copying(copying, other)
    checkpoints.checkpoint(locking, watched)
    assert watched.refused == ["database is locked"]
    assert path.stat().st_size > before
    other.execute("BEGIN IMMEDIATE")  # afterwards it can
    for db in (locking, copying, other):
        db.close()


def test_no_checkpoint_is_made_while_another_commits_and_the_next_commit_makes_it(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "is_due", lambda _: False)
        for _ in range(2 * checkpoints.LIMIT // len(BODY)):
            store.commit({"a": BODY}, {})
    before = path.stat().st_size
    (other,) = connections(path, 1)
    with closing(other):
        other.execute("BEGIN IMMEDIATE")
        store._client.checkpoint(checkpoints.LOOK)
        assert path.stat().st_size == before
        other.execute("ROLLBACK")
    assert store.commit({"b": b"1"}, {})
    assert path.stat().st_size > before


def test_a_checkpoint_that_fails_is_no_failure_of_the_commit_before_it(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(checkpoints, "is_due", lambda _: True)
    monkeypatch.setattr(checkpoints, "checkpoint", fail)
    assert store.commit({"a": b"1"}, {})
    assert store.read(["a"])["a"].body == b"1"


def test_writers_that_make_a_checkpoint_after_each_commit_lose_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each store has connections of its own, as a process has. Every commit adds 1 to one document."""
    writers, additions = 6, 50
    monkeypatch.setattr(checkpoints, "is_due", lambda _: True)

    def write(_: int) -> None:
        with closing(SqliteStore(path, busy_seconds=60)) as own:
            done = 0
            while done < additions:
                there = own.read(["sum"]).get("sum", Document("", b"0"))
                done += own.commit({"sum": b"%d" % (int(there.body) + 1)}, {"sum": there.version or None})

    with ThreadPoolExecutor(writers) as threads:
        list(threads.map(write, range(writers)))
    with closing(SqliteStore(path)) as reader:
        assert reader.read(["sum"])["sum"].body == b"%d" % (writers * additions)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize(
    ("version", "has_defect"),
    [
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 0), False),
        ((4, 0, 0), False),
    ],
)
def test_a_version_with_the_defect_is_told_where_the_ledger_is_a_file(
    version: tuple[int, int, int], has_defect: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    monkeypatch.setattr(sqlite3, "sqlite_version", ".".join(map(str, version)))
    told = caution("sqlite:///ledger.db")
    assert told.startswith(f"SQLite {sqlite3.sqlite_version} can damage") == has_defect
    assert bool(told) == has_defect
    assert caution("redis://host") == ""
