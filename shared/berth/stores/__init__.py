"""Stores by URL. A store's driver is imported only when its URL asks for it (cold start, optional extras).
Nothing is opened here: a wrong URL is refused at once, a store that is down is noticed by its first call."""

from importlib import import_module
from pathlib import Path

from berth.errors import SettingsError, did_you_mean
from berth.redaction import redacted as redacted  # who prints a store's URL looks for it here
from berth.stores.base import Store
from berth.stores.traced import traced

_FILE = "sqlite:///"

_BACKENDS = {
    "sqlite": "sqlite",
    "redis": "redis",
    "rediss": "redis",
    "configmap": "configmap",
    "dynamodb": "dynamodb",
}
"""Packages of berth.stores by the URL's scheme. Each has `open_store(url, reads_only=...)`, which raises
SettingsError."""
_DRIVERS = {"redis": "redis", "dynamodb": "boto3"}
"""The optional package that a backend needs."""


def open_store(url: str, *, reads_only: bool = False) -> Store:
    """Return the store that BERTH_STORE names; with `reads_only` opened for reading, as in Store. A SQLite
    file is opened for both: a reader must write its -shm. Raises SettingsError for a URL that names none."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in _BACKENDS:
        raise SettingsError(
            f"BERTH_STORE {redacted(url)!r} should be a store's URL: sqlite:///PATH, redis://HOST, "
            f"configmap://NAMESPACE/NAME or dynamodb://TABLE?region=REGION{_nearest(scheme, separator)}"
        )
    name = _BACKENDS[scheme]
    driver = _DRIVERS.get(name)
    try:
        backend = import_module(f"berth.stores.{name}")
    except ModuleNotFoundError as error:
        if driver is None or error.name not in (driver, "botocore"):
            raise
        raise SettingsError(
            f"BERTH_STORE: {redacted(url)} needs the package {driver}: pip install 'berth-scheduler[{name}]'"
        ) from error
    store: Store = backend.open_store(url, reads_only=reads_only)
    return traced(store, name)


def caution(url: str) -> str:
    """Return what an operator should know of the library behind this store; empty: nothing."""
    if not url.startswith(_FILE):
        return ""
    from berth.stores import sqlite

    return sqlite.caution()


def _nearest(scheme: str, separator: str) -> str:
    """Return a guess at what was meant by something that is no store's URL."""
    if separator:
        return did_you_mean(scheme, _BACKENDS)
    return f": did you mean {_FILE}{scheme}?" if scheme.endswith(".db") else ""


def absolute(url: str) -> str:
    """Return the URL of a ledger's file with its full path, and other URLs as they are."""
    path = url.removeprefix(_FILE)
    if path in ("", url):
        return url
    full = f"{_FILE}{Path(path).absolute()}"
    return url if set("?#") & set(full) else full
