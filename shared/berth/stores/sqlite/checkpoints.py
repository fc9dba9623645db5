"""Checkpoints of a ledger's write-ahead log, each made while nobody can commit.
In SQLite before 3.51.3 a checkpoint beside a commit that resets the log can damage the file, rarely
(https://www.sqlite.org/wal.html#walresetbug). SQLite makes checkpoints of its own only where a connection is
the file's last one: then nobody else has it open."""

import sqlite3
from pathlib import Path

LIMIT = 4 * 1024 * 1024
"""Bytes of the log above which a commit is followed by a checkpoint: SQLite's own 1,000 pages."""

LOOK = LIMIT // 8
"""Bytes that a process commits between two looks at the log: a look takes a quarter of a commit's time."""

PAGES = 3 * 4096
"""Bytes that a document adds to the log, besides its own: pages of the table, of its index and of `meta`."""

_FIXED = (3, 51, 3)
_FIXED_EARLIER = {
    (3, 44): 6,
    (3, 50): 7,
}  # by older minor version: its first patch release with the correction


def has_defect(version: tuple[int, int, int]) -> bool:
    """Return whether a checkpoint can damage the file in this version of SQLite."""
    patch = _FIXED_EARLIER.get(version[:2])
    return version < _FIXED and (patch is None or version[2] < patch)


def prepare(db: sqlite3.Connection) -> None:
    """Let a new connection make no checkpoint by itself, and cut the log to its limit when it begins anew."""
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute(f"PRAGMA journal_size_limit = {LIMIT}")


def is_due(log: str) -> bool:
    """Return whether the log, the file of this path, has grown above its limit."""
    try:
        return Path(log).stat().st_size > LIMIT
    except OSError:
        return False


def checkpoint(locking: sqlite3.Connection, copying: sqlite3.Connection) -> None:
    """Copy the log into the file by one of two connections, while the other keeps everybody from committing.

    What a reader still needs stays in the log. Raises sqlite3.Error; SQLITE_BUSY where another one commits.
    """
    locking.execute("BEGIN IMMEDIATE")
    try:
        copying.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    finally:
        locking.rollback()
