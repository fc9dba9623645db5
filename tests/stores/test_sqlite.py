"""What is SQLite's own: a file that is no ledger, is locked, newer, cut short or out of reach; old cursors.
What every store promises is in test_contract.py; a file deleted under use in test_sqlite_lost.py; disks,
rights and processes that are killed in test_sqlite_trouble.py."""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest import mock

import pytest

from berth.errors import StoreFailedError, StoreUnavailableError
from berth.stores import sqlite
from berth.stores.sqlite import SqliteStore
from tests.support.cluster import wait

SECONDS = 30
MANY = 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path)
    yield opened
    opened.close()


# What is no ledger, or is out of reach


def test_a_file_that_is_no_database_is_left_alone_and_named(store: SqliteStore, path: Path) -> None:
    path.write_text("certainly not a database, and quite long enough to hold a header " * 20)
    before = path.read_bytes()
    with pytest.raises(StoreFailedError) as caught:
        store.read(["a"])
    assert str(caught.value) == (
        f"berth's ledger can't be used (sqlite:///{path}, it is not a berth ledger); point BERTH_STORE at "
        "another file"
    )
    assert path.read_bytes() == before


@pytest.mark.parametrize("made", ["", "CREATE TABLE t (a); PRAGMA user_version = 1;"])
def test_another_program_s_database_is_left_alone(store: SqliteStore, path: Path, made: str) -> None:
    path.touch()
    with closing(sqlite3.connect(path)) as db:
        db.executescript(made)
    before = path.read_bytes()
    with pytest.raises(StoreFailedError, match="not a berth ledger"):
        store.commit({"a": b"1"}, {})
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused_and_says_what_to_do(store: SqliteStore, path: Path) -> None:
    store.commit({"a": b"1"}, {})
    store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 2")
    newer = SqliteStore(path)
    with pytest.raises(StoreFailedError) as caught:
        newer.read(["a"])
    assert str(caught.value) == (
        f"berth's ledger can't be used (sqlite:///{path}, it has schema 2, and this berth knows 1); run one "
        "version of berth, or delete the file and let reconcile rebuild it"
    )
    path.unlink()
    assert newer.read(["a"]) == {}
    newer.close()


def test_a_folder_in_the_file_s_place_is_named(store: SqliteStore, path: Path) -> None:
    path.mkdir()
    with pytest.raises(
        StoreFailedError, match=r"can't be opened \(.*ledger\.db, it is no file, or may not be"
    ):
        store.read(["a"])


def test_a_folder_that_can_t_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for store in (SqliteStore(tmp_path / "file" / "ledger.db"), SqliteStore(Path("/proc/berth/ledger.db"))):
        with pytest.raises(
            StoreFailedError, match=r"can't be opened \(sqlite:////.*\); check the path, and the rights"
        ):
            store.commit({"a": b"1"}, {})


def test_a_file_cut_short_is_a_store_error_until_it_is_deleted(store: SqliteStore, path: Path) -> None:
    store.commit({f"{i}": b"x" * 500 for i in range(200)}, {})
    store.close()
    os.truncate(path, 8192)
    with pytest.raises(StoreFailedError, match=r"is damaged \(.*\); delete the file, and reconcile rebuilds"):
        store.changes(None)
    path.unlink()
    assert store.commit({"a": b"1"}, {"a": None})


# Locks


@pytest.fixture
def locked(path: Path) -> Iterator[None]:
    """Another process writes, and does not end."""
    SqliteStore(path).read([])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@pytest.mark.usefixtures("locked")
def test_a_writer_that_finds_the_file_locked_for_too_long_is_told_to_retry(path: Path) -> None:
    store = SqliteStore(path, busy_seconds=0.05)
    with pytest.raises(StoreUnavailableError, match=r"is busy \(sqlite:////.*ledger\.db, "):
        store.commit({"a": b"1"}, {})
    assert store.read(["a"]) == {}
    store.close()


def test_a_writer_whose_turn_does_not_come_in_time_is_told_to_retry_and_readers_go_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(path, busy_seconds=0.05)
    began, let_go = Event(), Event()
    work = store._commits._work

    def slowly(commits: Sequence[Any]) -> None:
        began.set()
        assert let_go.wait(SECONDS)
        work(commits)

    monkeypatch.setattr(store._commits, "_work", slowly)
    first = Thread(target=store.commit, args=({"b": b"1"}, {}))
    first.start()
    assert began.wait(SECONDS)
    with pytest.raises(StoreUnavailableError, match=r"is busy \(sqlite:////.*ledger\.db, "):
        store.commit({"a": b"1"}, {})
    assert store.read(["a"]) == {}
    let_go.set()
    first.join(SECONDS)
    assert store.read(["a", "b"]).keys() == {"b"}
    assert store.commit({"a": b"1"}, {})
    store.close()


def test_commits_that_wait_for_each_other_are_made_in_one_transaction_each_or_none_of_it(path: Path) -> None:
    store, done = SqliteStore(path, busy_seconds=SECONDS), list[int]()
    assert store.commit({"a": b"", "b": b""}, {})
    version = store.read(["a"])["a"].version
    runs = mock.Mock(wraps=store._client.run)

    def commit(number: int) -> None:
        if store.commit({"a": b"%d" % number, f"own-{number}": b""}, {"a": version}):
            done.append(number)

    threads = [Thread(target=commit, args=(number,)) for number in range(MANY)]
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        first = Thread(target=store.commit, args=({"b": b"1"}, {}))
        first.start()
        wait(lambda: store._commits._taken, SECONDS, "that the first one waits for the file")
        for thread in threads:
            thread.start()
        wait(lambda: len(store._commits._waiting) == MANY, SECONDS, "that all others wait for the first")
        with mock.patch.object(store._client, "run", runs):
            other.execute("ROLLBACK")
            for thread in (first, *threads):
                thread.join(SECONDS)
    (winner,) = done
    documents = store.read(["a", "b", *(f"own-{number}" for number in range(MANY))])
    assert documents.keys() == {"a", "b", f"own-{winner}"}
    assert documents["a"].body == b"%d" % winner
    assert runs.call_count == 1
    store.close()


@pytest.mark.usefixtures("locked")
def test_a_file_that_was_deleted_while_it_was_locked_is_no_longer_waited_for(path: Path) -> None:
    store = SqliteStore(path, busy_seconds=0.2)
    deleting = Thread(target=path.unlink)
    deleting.start()
    deadline = time.monotonic() + 10
    done = False
    while not done and time.monotonic() < deadline:
        try:
            done = store.commit({"a": b"1"}, {})
        except StoreUnavailableError:
            continue
    deleting.join()
    assert store.read(["a"])["a"].body == b"1"
    store.close()


# changes


def test_a_cursor_older_than_the_deletions_that_are_kept_gets_a_snapshot(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_KEPT_DELETIONS", 3)
    store.commit({"stays": b"1"}, {})
    cursors = [store.changes(None).cursor]
    for i in range(8):
        store.commit({f"{i}": b"1"}, {})
        store.commit({f"{i}": None}, {})
        cursors.append(store.changes(cursors[-1]).cursor)
    assert store.changes(cursors[0]).snapshot
    assert dict(store.changes(cursors[0]).documents) == {"stays": b"1"}
    recent = store.changes(cursors[-2])
    assert (dict(recent.documents), recent.snapshot) == ({"7": None}, False)


def test_a_reader_with_any_cursor_ends_up_with_what_there_is(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deltas and snapshots around the bound of kept deletions: neither may miss a deletion."""
    monkeypatch.setattr(sqlite, "_KEPT_DELETIONS", 4)
    readers: list[tuple[str | None, dict[str, bytes | None]]] = [(None, {})]
    for i in range(40):
        store.commit({f"{i * i % 7}": None if i % 3 else b"%d" % i}, {})
        there = store.changes(None)
        for cursor, known in readers:
            found = store.changes(cursor)
            state = {**({} if found.snapshot else known), **found.documents}
            assert {key: body for key, body in state.items() if body is not None} == there.documents
        readers.append((there.cursor, dict(there.documents)))


def test_a_file_that_came_back_older_gives_readers_a_snapshot(store: SqliteStore, path: Path) -> None:
    store.commit({"a": b"1"}, {})
    store.close()
    older = path.read_bytes()
    store.commit({"b": b"1"}, {})
    cursor = store.changes(None).cursor
    store.close()
    path.write_bytes(older)
    found = store.changes(cursor)
    assert (dict(found.documents), found.snapshot) == ({"a": b"1"}, True)
