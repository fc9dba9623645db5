"""What every store says when it fails: retryable or final, one line, where the ledger is, never a credential.
Each store's own texts are in its tests; here no error may slip through, whatever its driver raises."""

import errno
import inspect
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path

import pytest
import redis.exceptions
import yaml
from redis import RedisError

from berth.errors import (
    BerthError,
    MovedError,
    PausedError,
    RetryableError,
    StoreFailedError,
    StoreUnavailableError,
)
from berth.handlers import filter as filter_verb
from berth.http.endpoint import respond
from berth.local.ports import free_port
from berth.settings import Settings
from berth.stores import open_store
from berth.stores.base import Store
from berth.stores.redis.errors import store_error as redis_error
from berth.stores.redis.url import parse
from berth.stores.sqlite.errors import store_error as sqlite_error
from tests.support.builders.objects import filter_call

SECRET = "s3cr3t"
CALLS: list[Callable[[Store], object]] = [
    lambda store: store.read(["a"]),
    lambda store: store.commit({"a": b"1"}, {}),
    lambda store: store.changes(None),
]


def check(error: BerthError, *where: str) -> None:
    """The sentence for a pod's event; not even what caused it may tell a secret."""
    text = str(error)
    assert isinstance(error, StoreUnavailableError | StoreFailedError)
    assert "\n" not in text
    assert [name for name in where if name not in text] == []
    assert not text.endswith((".", ";", " "))
    seen: BaseException | None = error
    while seen is not None:
        assert SECRET not in str(seen)
        seen = seen.__cause__


# Whatever the drivers raise


ERRORS = [
    kind for kind in vars(redis.exceptions).values() if inspect.isclass(kind) and issubclass(kind, RedisError)
]
RETRYABLE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_INTERRUPT,
}


def test_each_code_of_sqlite_is_retryable_or_final_and_names_the_file() -> None:
    for code in range(1, 1 + sqlite3.SQLITE_NOTADB):
        for detail in (0, 1 << 8, 12 << 8):
            error = sqlite3.OperationalError("what SQLite says")
            error.sqlite_errorcode = code | detail
            found = sqlite_error(error, Path("/a b/{x}/ledger.db"))
            check(found, "/a b/{x}/ledger.db")
            assert str(found).startswith("berth's ledger ")
            assert isinstance(found, RetryableError) == (code in RETRYABLE)


def test_each_error_of_the_file_system_is_final_and_names_the_file() -> None:
    for number in errno.errorcode:
        found = sqlite_error(OSError(number, os.strerror(number)), Path("/ledger.db"))
        check(found, "sqlite:////ledger.db")
        assert isinstance(found, StoreFailedError)
        assert ("free space there" in str(found)) == (number in (errno.ENOSPC, errno.EDQUOT))


def test_each_error_of_redis_is_retryable_or_final_and_names_the_server() -> None:
    location = parse(f"redis://me:{SECRET}@host:7000/3")
    for kind in ERRORS:
        check(redis_error(made(kind), location, 1.0), "berth's ledger", "host:7000/3")


def made(kind: type[RedisError]) -> RedisError:
    """One of these, whatever it is made of; some read a slot and a server out of their text."""
    wants = [each for each in inspect.signature(kind).parameters.values() if each.default is each.empty]
    named = [each for each in wants if each.kind in (each.POSITIONAL_OR_KEYWORD, each.POSITIONAL_ONLY)]
    return kind(*["1 host:7001"] * max(1, len(named)))


# Stores that are not there


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], tuple[str, str]]:
    """A store's URL on a port where nobody listens, with every credential that it can have; and the host."""

    def url_of(kind: str) -> tuple[str, str]:
        host = f"127.0.0.1:{free_port()}"
        config = {
            "clusters": [{"name": "c", "cluster": {"server": f"https://{host}"}}],
            "users": [{"name": "u", "user": {"token": SECRET}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", SECRET)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        urls = {
            "redis": f"redis://me:{SECRET}@{host}/3",
            "redis with TLS": f"rediss://:{SECRET}@{host}",
            "redis sentinel": f"redis://me:{SECRET}@{host}?sentinel=main",
            "configmap": "configmap://default/ledger",
            "dynamodb": f"dynamodb://ledger?region=eu-west-1&endpoint=http://{host}",
        }
        return urls[kind], host if kind != "configmap" else "default/ledger"

    return url_of


KINDS = ("redis", "redis with TLS", "redis sentinel", "configmap", "dynamodb")


@pytest.fixture(params=KINDS)
def away(
    request: pytest.FixtureRequest, nowhere: Callable[[str], tuple[str, str]]
) -> Iterator[tuple[str, str, Store]]:
    url, host = nowhere(request.param)
    with closing(open_store(url)) as store:
        yield url, host, store


def test_a_store_that_can_t_be_reached_is_retryable_and_says_where_and_why(
    away: tuple[str, str, Store],
) -> None:
    _, host, store = away
    texts = set()
    for call in CALLS:
        with pytest.raises(StoreUnavailableError) as caught:
            call(store)
        check(caught.value, "berth's ledger", host)
        texts.add(str(caught.value))
    (text,) = texts
    assert re.fullmatch(
        r"berth's ledger is unreachable \(\w+://[^ ]+, (of its Sentinels: )?connection refused\); "
        r"if this lasts, (check|see to) [^;]+",
        text,
    )


def test_a_pod_s_event_says_that_the_ledger_is_unreachable_and_the_pod_will_be_retried(
    away: tuple[str, str, Store],
) -> None:
    endpoint = filter_verb.endpoint(Settings(store=away[0]))
    body = filter_call(["n1"], {"berth.dev/ip": 1})
    said = json.loads(respond(endpoint, "POST", "/", {}, BytesIO(body)).body)["Error"]
    assert said.startswith("berth's ledger ")
    assert said.endswith("; the pod will be retried")
    assert SECRET not in said


# What the ledger itself says


def test_a_paused_ledger_is_retryable_and_one_that_was_moved_is_not() -> None:
    assert isinstance(PausedError("redis://host"), RetryableError)
    assert not isinstance(MovedError("redis://host"), RetryableError)
