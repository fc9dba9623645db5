"""The SQLite file deleted under use, in the ways people do it, alone and while processes hammer it.
Whoever had it open goes on with the new one; nobody goes on with half of each."""

import multiprocessing
import os
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from threading import Thread

import pytest

from berth.errors import BerthError, StoreUnavailableError
from berth.stores import sqlite
from berth.stores.sqlite import SqliteStore
from tests.support.builders.races import SECONDS, persistently

Removal = Callable[[Path], None]


def let_others_make_it(path: Path) -> None:
    deadline = time.monotonic() + 0.02
    while not path.exists() and time.monotonic() < deadline:
        os.sched_yield()


def lose_link(path: Path) -> None:
    """What a person deletes who deletes "the file"."""
    path.unlink(missing_ok=True)


def lose_all(path: Path) -> None:
    """rm ledger.db*: the names are those of the start, however long it takes to delete them all."""
    for each in sorted(path.parent.glob(f"{path.name}*")):
        each.unlink(missing_ok=True)
        let_others_make_it(path)


def lose_with_old_names(path: Path) -> None:
    """rm ledger.db ledger.db-wal ledger.db-shm, while others make the file anew in between."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
        let_others_make_it(path)


def lose_target(path: Path) -> None:
    """Only the file that holds the data: the link leads nowhere."""
    path.resolve().unlink(missing_ok=True)


REMOVALS = (lose_link, lose_all, lose_with_old_names, lose_target)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path)
    yield opened
    opened.close()


def intact(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as db:
        return bool(db.execute("PRAGMA integrity_check").fetchall() == [("ok",)])


@pytest.mark.parametrize("lose", REMOVALS)
def test_a_deleted_file_is_a_new_empty_ledger_for_all_who_had_it_open(path: Path, lose: Removal) -> None:
    first, second = SqliteStore(path), SqliteStore(path)
    first.commit({"a": b"1"}, {})
    old, cursor = second.read(["a"])["a"].version, second.changes(None).cursor
    lose(path)
    assert first.read(["a"]) == {}
    assert not second.commit({"b": b"1"}, {"a": old})
    found = second.changes(cursor)
    assert (dict(found.documents), found.snapshot) == ({}, True)
    assert second.commit({"a": b"2"}, {"a": None})
    assert first.read(["a"])["a"].body == b"2"
    first.close()
    second.close()
    assert intact(path)


def test_no_version_comes_twice_over_many_lives(store: SqliteStore, path: Path) -> None:
    seen = set()
    for _ in range(10):
        store.commit({"a": b"same"}, {"a": None})
        seen.add(store.read(["a"])["a"].version)
        lose_link(path)
    assert len(seen) == 10


def test_what_deleted_files_left_is_cleaned_up_and_nothing_else(store: SqliteStore, path: Path) -> None:
    mine = path.with_name("ledger.db.bak")
    mine.write_text("a person's copy")
    for _ in range(3):
        store.commit({"a": b"1"}, {})
        path.unlink()
    store.commit({"a": b"1"}, {})
    assert len([each for each in path.parent.iterdir() if each.suffix.startswith(".life")]) == 3
    assert mine.read_text() == "a person's copy"


def test_a_commit_that_was_under_way_when_the_file_vanished_is_not_reported_as_done(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went into a file that nobody can find; its versions are of a life that is over."""
    store.commit({"a": b"1"}, {})
    old = store.read(["a"])["a"].version
    write = sqlite._store

    def vanishes(db: sqlite3.Connection, writes: dict[str, bytes | None]) -> None:
        write(db, writes)
        path.unlink()

    monkeypatch.setattr(sqlite, "_store", vanishes)
    assert not store.commit({"a": b"2"}, {"a": old})
    monkeypatch.undo()
    assert store.read(["a"]) == {}


def test_an_old_connection_that_closes_takes_nothing_of_the_new_file(path: Path) -> None:
    old, new = SqliteStore(path), SqliteStore(path)
    old.commit({"a": b"1"}, {})
    path.unlink()
    new.commit({"b": b"1"}, {})
    old.close()
    new.commit({"c": b"1"}, {})
    third = SqliteStore(path)
    assert dict(third.changes(None).documents) == {"b": b"1", "c": b"1"}
    assert third.commit({"d": b"1"}, {})
    assert set(new.changes(None).documents) == {"b", "c", "d"}
    for each in (new, third):
        each.close()
    assert intact(path)


def count_up(path: str, stop: Event, results: "Queue[tuple[list[str], list[str]]]") -> None:
    """Four threads count up one document, which names the life it was made in: "life:count"."""
    store, counted, errors = SqliteStore(Path(path)), list[str](), list[str]()

    def count() -> None:
        while not stop.is_set():
            try:
                found = store.read(["n"]).get("n")
                life, _, last = (found.body.decode() if found else f"{uuid.uuid4().hex}:-1").partition(":")
                body = f"{life}:{int(last) + 1}"
                if store.commit({"n": body.encode()}, {"n": found.version if found else None}):
                    counted.append(body)
            except StoreUnavailableError:
                continue  # a busy machine: nothing was counted, and the next turn tries again
            except BerthError as error:
                errors.append(f"{error!r} {error.__cause__!r}")

    threads = [Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    results.put((counted, errors))


def seen_by(watcher: SqliteStore) -> tuple[str, int]:
    """The life there is now, and its count."""
    found = persistently(lambda: watcher.read(["n"])).get("n")
    life, _, count = (found.body.decode() if found else ":0").partition(":")
    return life, int(count)


def lose_it_ten_times(path: Path, lose: Removal, watcher: SqliteStore) -> int:
    """Each life once it has counted beyond 20; how many lives that were."""
    lives = set[str]()
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        life, count = seen_by(watcher)
        if count > 20 and len(lives) == 10:
            break
        if count > 20:
            lives.add(life)
            lose(path)
    return len(lives)


@pytest.mark.slow
@pytest.mark.parametrize("lose", REMOVALS)
@pytest.mark.long
def test_processes_that_hammer_a_file_that_is_deleted_again_and_again_lose_no_commit(
    path: Path, lose: Removal
) -> None:
    """Were two files in use at once, or one with the other's -wal, a count would come twice."""
    spawn = multiprocessing.get_context("spawn")
    stop, results = spawn.Event(), spawn.Queue()
    arguments = (str(path), stop, results)
    workers = [spawn.Process(target=count_up, args=arguments, daemon=True) for _ in range(3)]
    for worker in workers:
        worker.start()
    watcher = SqliteStore(path)
    try:
        lives = lose_it_ten_times(path, lose, watcher)
    finally:
        stop.set()
    found_by = [results.get(timeout=SECONDS) for _ in workers]
    for worker in workers:
        worker.join(timeout=SECONDS)
    assert lives == 10
    assert [error for _, errors in found_by for error in errors] == []
    counted = Counter(body for bodies, _ in found_by for body in bodies)
    assert [body for body, times in counted.items() if times > 1] == []
    life, last = seen_by(watcher)
    # In a life that is over a count may be left out: it landed, but the file had gone before it was answered.
    assert {body for body in counted if body.startswith(life)} == {f"{life}:{i}" for i in range(last + 1)}
    watcher.close()
    assert intact(path)
