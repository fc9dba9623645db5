"""SQLite when its processes and its disk fail: killed and stalled writers, a full disk, missing rights.
Real processes, which end themselves at the very point; what they left is looked at from outside."""

import multiprocessing
import os
import resource
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from berth.errors import BerthError, StoreFailedError, StoreUnavailableError
from berth.stores import sqlite
from berth.stores.sqlite import SqliteStore

SPAWN = multiprocessing.get_context("spawn")
SECONDS = 120
NOBODY = 65534
MANY = {f"{i}": b"x" * 1000 for i in range(1000)}  # a megabyte: more than any limit below


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def intact(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as db:
        return bool(db.execute("PRAGMA integrity_check").fetchall() == [("ok",)])


def said(call: Callable[[], object]) -> str:
    """How the call ended: the error's type and text, or what it returned."""
    try:
        return repr(call())
    except BerthError as error:
        return f"{type(error).__name__}: {error}"


def in_process(work: Callable[..., None], *arguments: Any) -> tuple[list[str], int | None]:
    """What a process of its own sent, and its exit code."""
    mine, its = SPAWN.Pipe(duplex=False)
    worker = SPAWN.Process(target=work, args=(its, *arguments), daemon=True)
    worker.start()
    its.close()
    sent = list[str]()
    with mine:
        while mine.poll(SECONDS):
            try:
                sent.append(mine.recv())
            except EOFError:
                break
    worker.join(SECONDS)
    return sent, worker.exitcode


# Killed


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_in_a_transaction(_: Connection, path: str) -> None:
    """After its writes, before its commit."""
    write = sqlite._store

    def write_and_die(*arguments: Any) -> None:
        write(*arguments)
        die()

    with mock.patch.object(sqlite, "_store", write_and_die):
        SqliteStore(Path(path)).commit(MANY | {"a": b"2"}, {})


def test_a_writer_killed_in_its_transaction_leaves_nothing_and_the_next_one_goes_on(path: Path) -> None:
    store = SqliteStore(path)
    store.commit({"a": b"1"}, {})
    version, cursor = store.read(["a"])["a"].version, store.changes(None).cursor
    assert in_process(killed_in_a_transaction, str(path)) == ([], -signal.SIGKILL)
    assert dict(store.changes(cursor).documents) == {}
    assert store.commit({"a": b"3"}, {"a": version})
    assert dict(store.changes(None).documents) == {"a": b"3"}
    store.close()
    assert intact(path)


def killed_while_it_makes_the_file(_: Connection, path: str, before: str) -> None:
    with mock.patch.object(Path, before, die):
        SqliteStore(Path(path)).commit({"a": b"1"}, {})


@pytest.mark.parametrize("before", ["symlink_to", "rename"])
def test_a_process_killed_while_it_makes_the_file_keeps_nobody_from_making_it(
    path: Path, before: str
) -> None:
    assert in_process(killed_while_it_makes_the_file, str(path), before) == ([], -signal.SIGKILL)
    assert not path.exists()
    store = SqliteStore(path)
    assert store.commit({"a": b"1"}, {"a": None})
    store.close()
    assert sorted(each.suffix.partition("-")[0] for each in path.parent.iterdir()) == [".db", ".life"]
    assert intact(path)


# Stalled


def holds(path: str, ready: Connection, stop: Connection, what: str) -> None:
    """Keeps the file's write lock, or the folder's while it makes the file, until it is told to end."""

    def stall(*_: object) -> None:
        ready.send(what)
        stop.poll(SECONDS)

    place = (sqlite, "_store") if what == "writes" else (Path, "symlink_to")
    with mock.patch.object(*place, side_effect=stall):
        said(lambda: SqliteStore(Path(path)).commit({"a": b"2"}, {}))


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("writes", "another process has kept it locked"),
        ("makes it", "another process has not finished making it"),
    ],
)
def test_a_process_that_stalls_with_the_lock_makes_others_retry_and_its_death_frees_them(
    path: Path, what: str, why: str
) -> None:
    store = SqliteStore(path, busy_seconds=0.02)
    if what == "writes":
        store.commit({"a": b"1"}, {})
    (ready, its_ready), (its_stop, stop) = SPAWN.Pipe(duplex=False), SPAWN.Pipe(duplex=False)
    worker = SPAWN.Process(target=holds, args=(str(path), its_ready, its_stop, what), daemon=True)
    with ready, its_ready, its_stop, stop:
        worker.start()
        assert ready.poll(SECONDS)
        with pytest.raises(StoreUnavailableError) as caught:
            store.commit({"b": b"1"}, {})
        assert str(caught.value) == f"berth's ledger is busy (sqlite:///{path}, {why})"
        worker.kill()
        worker.join(SECONDS)
    assert store.commit({"b": b"1"}, {"b": None})
    store.close()
    assert intact(path)


# A full disk


def with_little_room(results: Connection, path: str, size: int) -> None:
    """No file may grow beyond `size`: what fits of a write is written, the rest fails, as on a full disk."""
    store = SqliteStore(Path(path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    results.send(said(lambda: store.commit(MANY | {"a": b"2"}, {})))
    results.send(said(lambda: sorted(store.changes(None).documents)))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    results.send(said(lambda: store.commit({"b": b"1"}, {"b": None})))
    store.close()


def test_a_disk_without_room_is_a_final_error_that_does_nothing_and_goes_with_new_room(path: Path) -> None:
    other = SqliteStore(path)
    other.commit({"a": b"1"}, {})
    version = other.read(["a"])["a"].version
    (refused, seen, done), code = in_process(with_little_room, str(path), 200_000)
    assert refused == (
        f"StoreFailedError: berth's ledger can't be read or written (sqlite:///{path}, disk I/O error); "
        "see that its disk has free space, within all quotas, and is sound"
    )
    assert (seen, done, code) == ("['a']", "True", 0)
    assert other.commit({"a": b"3"}, {"a": version})
    assert dict(other.changes(None).documents) == {"a": b"3", "b": b"1"}
    other.close()
    assert intact(path)


def test_a_file_that_can_t_be_made_for_want_of_room_is_made_once_there_is_some(path: Path) -> None:
    (refused, _, done), code = in_process(with_little_room, str(path), 0)
    assert refused.startswith("StoreFailedError: berth's ledger can't be read or written")
    assert (done, code) == ("True", 0)
    store = SqliteStore(path)
    assert dict(store.changes(None).documents) == {"b": b"1"}
    store.close()
    assert intact(path)


def test_a_database_that_may_not_grow_says_that_its_disk_is_full(path: Path) -> None:
    """SQLite's own word for a full disk, here for a limit of its own."""
    store = SqliteStore(path)
    store.commit({"a": b"1"}, {})
    store._client._idle[-1].db.execute("PRAGMA max_page_count = 1")
    with pytest.raises(StoreFailedError) as caught:
        store.commit(MANY, {})
    assert str(caught.value) == (
        f"berth's ledger can't be written (sqlite:///{path}, its disk is full); free space there"
    )
    assert dict(store.changes(None).documents) == {"a": b"1"}
    assert store.commit(MANY, {})
    store.close()


# Rights


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that other users can reach, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="berth-test-"))
    folder.chmod(0o755)
    yield folder
    for each in folder.iterdir():
        each.chmod(0o755)  # else only root could take them away
    shutil.rmtree(folder)


def without_rights(results: Connection, *paths: str) -> None:
    """As a user who owns nothing here; root may do everything, whatever a file's mode says."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    for path in paths:
        store = SqliteStore(Path(path))
        results.send(said(lambda: store.commit({"b": b"1"}, {})))  # noqa: B023 - it is called here
        store.close()


def ledger_with_modes(folder: Path, file: int, its_folder: int) -> Path:
    path = folder / f"{file:o}-{its_folder:o}" / "ledger.db"
    store = SqliteStore(path)
    store.commit({"a": b"1"}, {})
    store.close()
    path.chmod(file)
    path.parent.chmod(its_folder)
    return path


def test_a_file_or_folder_without_rights_is_named_with_what_to_do(public: Path) -> None:
    write = "can't be written (sqlite:///{}, no right to write); give the functions' user the right to write"
    unopened = "can't be opened (sqlite:///{}, it is no file, or may not be opened); check the path, and the"
    denied = "can't be opened (sqlite:///{}, Permission denied); check the path, and the rights"
    closed = public / "closed"
    closed.mkdir(mode=0o555)
    cases = [
        (ledger_with_modes(public, 0o444, 0o755), write),
        (ledger_with_modes(public, 0o444, 0o777), write),
        (ledger_with_modes(public, 0o666, 0o555), write),
        (ledger_with_modes(public, 0o000, 0o755), unopened),
        (ledger_with_modes(public, 0o666, 0o000), denied),
        (closed / "ledger.db", denied),
        (closed / "folder" / "ledger.db", denied),
    ]
    answers, code = in_process(without_rights, *(str(path) for path, _ in cases))
    assert code == 0
    for (path, text), answer in zip(cases, answers, strict=True):
        assert answer.startswith(f"StoreFailedError: berth's ledger {text.format(path)}")


# Damage


def test_a_damaged_file_says_so_and_is_whole_again_once_it_was_deleted(path: Path) -> None:
    store = SqliteStore(path)
    store.commit(MANY, {})
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * 200_000)
    for call in (lambda: store.changes(None), lambda: store.commit({"500": b"1"}, {"500": "x"})):
        with pytest.raises(StoreFailedError) as caught:
            call()
        assert str(caught.value) == (
            f"berth's ledger is damaged (sqlite:///{path}, the file's content makes no sense); "
            "delete the file, and reconcile rebuilds it from the pods"
        )
    path.unlink()
    assert store.commit({"a": b"1"}, {"a": None})
    store.close()


def test_nobody_else_on_the_machine_may_read_or_write_the_ledger_whatever_the_umask(tmp_path: Path) -> None:
    """It says which pod holds what, and a write to it gives units away."""
    path = tmp_path / "made" / "ledger.db"
    before = os.umask(0)
    try:
        with closing(SqliteStore(path)) as store:
            assert store.commit({"a": b"1"}, {})
            modes = {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
            assert len(modes) == 4  # the link, the file, its -wal and its -shm
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
