"""SQLite's and the file system's errors as the store's: retryable or final, the reason, what to do about it.
It decides by codes alone, never by texts, and quotes nothing of what a ledger holds."""

import errno
import sqlite3
from pathlib import Path

from berth.errors import BerthError, StoreFailedError, StoreUnavailableError

_NO_ROOM = "can't be written ({url}, its disk is full); free space there"
_RIGHTS = "check the path, and the rights to read and write the file and its folder"

_RETRYABLE = {
    sqlite3.SQLITE_BUSY: "another process has kept it locked",
    sqlite3.SQLITE_LOCKED: "another writer has kept it locked",
    sqlite3.SQLITE_PROTOCOL: "too many processes open it at once",
    sqlite3.SQLITE_INTERRUPT: "the call was interrupted",
}
_FINAL = {
    sqlite3.SQLITE_FULL: _NO_ROOM,
    # A quota, or a disk that fills up while a file grows, is an I/O error to SQLite.
    sqlite3.SQLITE_IOERR: "can't be read or written ({url}, disk I/O error); "
    "see that its disk has free space, within all quotas, and is sound",
    sqlite3.SQLITE_READONLY: "can't be written ({url}, no right to write); "
    "give the functions' user the right to write the file and its folder",
    sqlite3.SQLITE_CANTOPEN: f"can't be opened ({{url}}, it is no file, or may not be opened); {_RIGHTS}",
    sqlite3.SQLITE_PERM: f"can't be opened ({{url}}, no right to); {_RIGHTS}",
    sqlite3.SQLITE_CORRUPT: "is damaged ({url}, the file's content makes no sense); "
    "delete the file, and reconcile rebuilds it from the pods",
}


def busy(path: Path, why: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"berth's ledger is busy ({_url(path)}, {why})")


def not_ours(path: Path) -> StoreFailedError:
    return _final(path, "can't be used ({url}, it is not a berth ledger); point BERTH_STORE at another file")


def of_another_version(path: Path, schema: int, known: int) -> StoreFailedError:
    return _final(
        path,
        f"can't be used ({{url}}, it has schema {schema}, and this berth knows {known}); run one version of "
        "berth, or delete the file and let reconcile rebuild it",
    )


def store_error(error: sqlite3.Error | OSError, path: Path) -> BerthError:
    """Return the StoreUnavailableError or StoreFailedError that tells of this error."""
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return _final(path, _NO_ROOM if full else f"can't be opened ({{url}}, {error.strerror}); {_RIGHTS}")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the higher bits are details that no text needs
    if code in _RETRYABLE:
        return busy(path, _RETRYABLE[code])
    if code == sqlite3.SQLITE_NOTADB:
        return not_ours(path)
    other = f"can't be used ({{url}}, {error}); check the file: if it is damaged, delete it, and reconcile "
    return _final(path, _FINAL.get(code, f"{other}rebuilds it from the pods"))


def _final(path: Path, text: str) -> StoreFailedError:
    return StoreFailedError(f"berth's ledger {text.replace('{url}', _url(path))}")


def _url(path: Path) -> str:
    """Return the URL by which BERTH_STORE would name it."""
    return f"sqlite:///{path}"
