"""Stores by URL. A store's driver is imported only when its URL asks for it (cold start, optional extras).
Nothing is opened here: a wrong URL is told at once, a store that is down only by its first call."""

import re
from pathlib import Path

from berth.errors import SettingsError
from berth.stores.base import Store

_FILE = "sqlite:///"
_LOGIN = re.compile(r"^([^:/@]*:/+)?([^:@/]*:)?.*@", re.DOTALL)


def open_store(url: str, *, reads_only: bool = False) -> Store:
    """The store that BERTH_STORE names; with `reads_only` opened for reading, as in Store. A SQLite file is
    opened for both: who reads one must write its -shm. Raises SettingsError for a URL that names none."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "sqlite":
        return _sqlite(url, rest)
    if separator and scheme in ("redis", "rediss"):
        return _redis(url, reads_only)
    if separator and scheme == "configmap":
        return _configmap(url, reads_only)
    if separator and scheme == "dynamodb":
        return _dynamodb(url, reads_only)
    raise SettingsError(
        "BERTH_STORE should be a store's URL: sqlite:///PATH, redis://HOST, configmap://NAMESPACE/NAME or "
        "dynamodb://TABLE?region=REGION"
    )


def shown(url: str) -> str:
    """The URL as it may be printed: without its password."""
    if url.startswith("sqlite:"):
        return url
    return _LOGIN.sub(lambda found: f"{found[1] or ''}{found[2] or ''}***@", url)


def absolute(url: str) -> str:
    """A ledger's file by its full path, so that what is said of it can be found; other stores as they are."""
    path = url.removeprefix(_FILE)
    if path in ("", url):
        return url
    full = f"{_FILE}{Path(path).absolute()}"
    return url if set("?#") & set(full) else full


def _sqlite(url: str, rest: str) -> Store:
    # Three slashes and a relative path, four and an absolute one: the way SQLAlchemy made common.
    if not rest.startswith("/") or len(rest) < 2 or "?" in rest or "#" in rest:
        raise SettingsError(
            f"BERTH_STORE: {url!r} should be sqlite:///relative/path or sqlite:////absolute/path"
        )
    from berth.stores.sqlite import SqliteStore

    return SqliteStore(Path(rest[1:]))


def _redis(url: str, reads_only: bool) -> Store:
    try:
        from berth.stores.redis import RedisStore
    except ModuleNotFoundError as error:
        if error.name != "redis":
            raise
        raise SettingsError(
            f"BERTH_STORE: {shown(url)} needs the package redis: pip install 'berth-scheduler[redis]'"
        ) from error
    from berth.stores.redis.url import parse

    return RedisStore(parse(url), reads_only=reads_only)


def _configmap(url: str, reads_only: bool) -> Store:
    from berth.kube.client import connect
    from berth.stores.configmap import ConfigMapStore
    from berth.stores.configmap.url import parse

    return ConfigMapStore(parse(url), connect(), reads_only=reads_only)


def _dynamodb(url: str, reads_only: bool) -> Store:
    try:
        from berth.stores.dynamodb import DynamoStore
    except ModuleNotFoundError as error:
        if error.name not in ("boto3", "botocore"):
            raise
        raise SettingsError(
            f"BERTH_STORE: {shown(url)} needs the package boto3: pip install 'berth-scheduler[dynamodb]'"
        ) from error
    from berth.stores.dynamodb.url import parse

    return DynamoStore(parse(url), reads_only=reads_only)
