"""The file of a ledger: made whole under the name of its generation, then linked to by the ledger's path.
It does not notice a file that was replaced: client.py compares inodes (docs/decisions/0003)."""

import fcntl
import glob
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from berth.deadline import Deadline
from berth.retry import retry
from berth.stores.sqlite.errors import busy, not_ours, of_another_version

# Times a lock's seconds, for a file that another process makes: it is several files, then on disk.
_MAKING = 10
_APPLICATION, _VERSION = 0x42455254, 1
_SCHEMA = f"""
CREATE TABLE docs (key TEXT PRIMARY KEY, rev INTEGER NOT NULL, body BLOB) WITHOUT ROWID;
CREATE INDEX docs_rev ON docs (rev);
CREATE TABLE meta (life TEXT NOT NULL, rev INTEGER NOT NULL, floor INTEGER NOT NULL);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
"""


def make(path: Path, new_generation: Callable[[], str], busy_seconds: float) -> None:
    """Make the file whole, then link the path to it, unless it is there; one thread may do it at a time."""
    folder, name = path.parent, path.name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(path, _MAKING * busy_seconds):
        if path.exists():
            return
        for leftover in folder.glob(f"{glob.escape(name)}.life-*"):
            leftover.unlink(missing_ok=True)
        generation = new_generation()
        fresh = folder / f"{name}.life-{generation}"
        # Whatever the umask: it says who holds what. SQLite gives -wal and -shm the file's own mode.
        os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(fresh)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(_SCHEMA)
            db.execute("INSERT INTO meta VALUES (?, 0, 0)", (generation,))
            db.commit()
        link = folder / f"{name}.life-link"
        link.symlink_to(fresh.name)
        link.rename(path)


def generation_of(db: sqlite3.Connection, path: Path) -> str:
    """Return the generation of the ledger in this file. Raises StoreFailedError if it is not ours to use."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION:
        raise not_ours(path)
    if version != _VERSION:
        raise of_another_version(path, version, _VERSION)
    generation: str = db.execute("SELECT life FROM meta").fetchone()[0]
    return generation


@contextmanager
def _locked(path: Path, seconds: float) -> Iterator[None]:
    # The folder itself: a lock file would be deleted together with the ledger, and a second one locked.
    folder = os.open(path.parent, os.O_RDONLY)
    # Not waited for in the system: whoever makes the file may be stopped, and would stop all the others.
    lock = partial(fcntl.flock, folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        try:
            retry(lock, BlockingIOError, deadline=Deadline.after(seconds), pauses=(0.01, 0.01))
        except BlockingIOError as error:
            raise busy(path, "another process has not finished making it") from error
        yield
    finally:
        os.close(folder)
