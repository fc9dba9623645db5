"""What is Redis's own: users, TLS, silence, replicas, memory, connections; and what is said of each.
What every store promises is in test_contract.py; a Redis that lost what it held in test_redis_lost.py."""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from redis.exceptions import BusyLoadingError, ClusterDownError, RedisError, ResponseError, TryAgainError

from berth.errors import BerthError, StoreFailedError, StoreUnavailableError
from berth.local.ports import free_port
from berth.stores.base import Store
from berth.stores.redis import RedisStore, open_store
from berth.stores.redis.errors import store_error
from berth.stores.redis.url import parse
from tests.support.builders.certificates import self_signed
from tests.support.servers.redisserver import RedisServer

PASSWORD = "p@ss/w:rd #%ü"
RIGHTS = (
    "+evalsha +eval +info +hget +hset +hdel +hgetall +zadd +zrem +zscore +zcard +zrangebyscore +zpopmin +del"
)
USERS = (
    "user default off",
    f"user berth on #{hashlib.sha256(PASSWORD.encode()).hexdigest()} ~{{berth}}:* {RIGHTS}",
    "user narrow on >s3cr3t ~{berth}:* +@all -info",
    "user elsewhere on >s3cr3t ~other:* +@all",
    "user unscripted on >s3cr3t ~* +@all -@scripting",
)

Opener = Callable[..., RedisStore]


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Opens stores and closes them in the end."""
    stores: list[RedisStore] = []

    def opener(url: str, seconds: float = 5.0) -> RedisStore:
        stores.append(RedisStore(parse(url), seconds=seconds))
        return stores[-1]

    yield opener
    for each in stores:
        each.close()


@pytest.fixture
def shared(redis_server: RedisServer) -> RedisServer:
    """The session's server, emptied."""
    redis_server.flush()
    return redis_server


def said(kind: type[BerthError], call: Callable[..., object], *arguments: object) -> str:
    """What a call that must fail says; never more than a line, never a password."""
    with pytest.raises(BerthError) as caught:
        call(*arguments)
    assert type(caught.value) is kind, caught.value
    text = str(caught.value)
    assert re.match(r"berth's ledger (in Redis |is unreachable \(rediss?://)127\.0\.0\.1:", text)
    assert not {"\n", "s3cr3t", PASSWORD} & {part for part in ("\n", "s3cr3t", PASSWORD) if part in text}
    return text


def used(store: Store) -> bool:
    """Through every call once."""
    cursor = store.changes(None).cursor
    done = store.commit({"a": b"1", "b": b"1"}, {}) and store.commit({"a": None}, {})
    return done and set(store.read(["a", "b"])) == {"b"} and store.changes(cursor).documents["b"] == b"1"


# Users


@pytest.fixture(scope="module")
def guarded(redis_installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    assert redis_installed.exists()
    with RedisServer(tmp_path_factory.mktemp("guarded"), acl=USERS) as started:
        yield started


def as_user(server: RedisServer, user: str, password: str) -> str:
    return f"redis://{user}:{quote(password, safe='')}@127.0.0.1:{server.port}"


def test_a_user_with_the_rights_in_the_manual_is_enough(guarded: RedisServer, opened: Opener) -> None:
    assert used(opened(as_user(guarded, "berth", PASSWORD)))
    manual = Path(__file__).parents[2] / "docs" / "stores" / "redis.md"
    assert f"~{{berth}}:* {RIGHTS}" in " ".join(manual.read_text().split())


def test_what_that_user_may_not_ask_of_the_server_is_named_and_the_rest_is_told(
    guarded: RedisServer,
) -> None:
    with closing(open_store(as_user(guarded, "berth", PASSWORD))) as store:
        facts = store.facts()
    assert facts.version
    assert (facts.eviction, facts.persistent, facts.clock) == ("noeviction", None, None)
    assert [sentence.rpartition("use ")[2] for sentence in facts.unknown] == ["TIME", "CONFIG GET save"]


@pytest.mark.parametrize("user", ["berth", "nobody", "default"])
def test_a_wrong_user_or_password_is_said_and_not_shown(
    guarded: RedisServer, opened: Opener, user: str
) -> None:
    text = said(StoreFailedError, opened(as_user(guarded, user, "s3cr3t")).read, ["a"])
    assert text.endswith("refused the user or the password; check those in BERTH_STORE")


def test_a_server_that_wants_a_password_and_got_none_says_so(guarded: RedisServer, opened: Opener) -> None:
    assert "refused the user or the password" in said(StoreFailedError, opened(guarded.url).read, ["a"])


def test_a_password_for_a_server_that_has_none_is_said(shared: RedisServer, opened: Opener) -> None:
    store = opened(f"redis://:s3cr3t@127.0.0.1:{shared.port}")
    assert "refused the user or the password" in said(StoreFailedError, store.read, ["a"])


@pytest.mark.parametrize("user", ["narrow", "elsewhere", "unscripted"])
def test_a_right_that_is_missing_is_said_before_anything_is_written(
    guarded: RedisServer, opened: Opener, user: str
) -> None:
    cursor = opened(as_user(guarded, "berth", PASSWORD)).changes(None).cursor
    text = said(StoreFailedError, opened(as_user(guarded, user, "s3cr3t")).commit, {"a": b"1"}, {})
    assert "its user lacks rights" in text
    assert text.endswith("docs/stores/redis.md lists those that berth needs")
    assert opened(as_user(guarded, "berth", PASSWORD)).changes(None).cursor == cursor


# TLS


@pytest.fixture(scope="module")
def secure(redis_installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    assert redis_installed.exists()
    folder = tmp_path_factory.mktemp("secure")
    with RedisServer(folder / "redis", tls=self_signed(folder, address=(127, 0, 0, 1))) as started:
        yield started


def trusting(server: RedisServer, certificate: Path) -> str:
    return f"{server.url}?ssl_ca_certs={certificate}"


def test_tls_is_used_with_the_authority_that_the_url_names(secure: RedisServer, opened: Opener) -> None:
    assert secure.tls is not None
    assert used(opened(trusting(secure, secure.tls[0])))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for another host, and its key."""
    return self_signed(tmp_path_factory.mktemp("foreign"), host="elsewhere.example")


def test_a_certificate_of_no_known_authority_is_refused(
    secure: RedisServer, opened: Opener, foreign: tuple[Path, Path]
) -> None:
    for url in (secure.url, trusting(secure, foreign[0])):
        text = said(StoreFailedError, opened(url).read, ["a"])
        assert "its certificate is not trusted" in text
        assert "?ssl_ca_certs=/PATH" in text


def test_a_certificate_for_another_host_is_refused(
    redis_installed: Path, opened: Opener, tmp_path: Path, foreign: tuple[Path, Path]
) -> None:
    assert redis_installed.exists()
    with RedisServer(tmp_path, tls=foreign) as server:
        text = said(StoreFailedError, opened(trusting(server, foreign[0])).read, ["a"])
    assert "its certificate is not trusted (IP address mismatch" in text


def test_a_port_that_speaks_tls_is_not_spoken_to_in_plain(secure: RedisServer, opened: Opener) -> None:
    text = said(StoreUnavailableError, opened(f"redis://127.0.0.1:{secure.port}").read, ["a"])
    assert text.endswith("(redis://, or rediss:// for a port that speaks TLS)")


def test_a_port_that_speaks_no_tls_is_told(shared: RedisServer, opened: Opener) -> None:
    text = said(StoreUnavailableError, opened(f"rediss://127.0.0.1:{shared.port}", 0.3).read, ["a"])
    assert "check the port (does it speak TLS?)" in text


# Away, silent, or not the one to ask


def test_a_server_that_is_not_there_is_a_matter_of_time(opened: Opener) -> None:
    text = said(StoreUnavailableError, opened(f"redis://127.0.0.1:{free_port()}").read, ["a"])
    assert "connection refused); if this lasts, check the server" in text


def test_a_host_that_nobody_knows_is_named(opened: Opener) -> None:
    with pytest.raises(
        StoreUnavailableError, match=r"unreachable \(redis://no\.such\.host\.invalid:6379, \w+"
    ):
        opened("redis://me:s3cr3t@no.such.host.invalid").read(["a"])


def test_a_silent_server_is_waited_for_only_so_long(own_redis: RedisServer, opened: Opener) -> None:
    store, fresh = opened(own_redis.url, 0.5), opened(own_redis.url, 0.5)
    assert used(store)
    own_redis.pause()
    for call in (lambda: store.read(["a"]), lambda: fresh.commit({"a": b"2"}, {})):
        assert "no answer within 0.5 s); if this lasts" in said(StoreUnavailableError, call)
    own_redis.resume()
    assert used(opened(own_redis.url))


def test_a_replica_is_refused_until_it_is_the_primary(
    own_redis: RedisServer, tmp_path: Path, opened: Opener
) -> None:
    assert used(opened(own_redis.url))
    with RedisServer(tmp_path / "replica") as replica:
        replica.replica_of(own_redis)
        store = opened(replica.url)
        for call in (lambda: store.read(["b"]), lambda: store.changes(None), lambda: store.commit({}, {})):
            assert "is a replica, which takes no writes" in said(StoreUnavailableError, call)
        replica.replica_of(None)
        assert used(store)


def test_a_replica_that_lost_its_primary_is_a_matter_of_time(own_redis: RedisServer, opened: Opener) -> None:
    own_redis.command("CONFIG", "SET", "replica-serve-stale-data", "no")
    own_redis.command("REPLICAOF", "127.0.0.1", str(free_port()))
    text = said(StoreUnavailableError, opened(own_redis.url).read, ["a"])
    assert "can't be used now (MASTERDOWN Link with MASTER is down" in text


def test_too_few_replicas_stop_commits_and_not_reads(own_redis: RedisServer, opened: Opener) -> None:
    store = opened(own_redis.url)
    assert used(store)
    own_redis.command("CONFIG", "SET", "min-replicas-to-write", "1")
    text = said(StoreUnavailableError, store.commit, {"b": b"2"}, {})
    assert "can't be used now (NOREPLICAS" in text
    assert store.read(["b"])["b"].body == b"1"


def test_a_full_server_refuses_commits_whole_and_serves_readers(
    own_redis: RedisServer, opened: Opener
) -> None:
    store = opened(own_redis.url)
    assert used(store)
    cursor = store.changes(None).cursor
    own_redis.command("CONFIG", "SET", "maxmemory", "1")
    text = said(StoreFailedError, store.commit, {"b": None, "c": b"1"}, {})
    assert text.endswith("is full; give it more memory (maxmemory) or drop other data")
    assert store.read(["b"])["b"].body == b"1"
    found = store.changes(cursor)
    assert (dict(found.documents), found.cursor, found.snapshot) == ({}, cursor, False)
    own_redis.command("CONFIG", "SET", "maxmemory", "0")
    assert used(store)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (BusyLoadingError("Redis is loading the dataset in memory"), StoreUnavailableError, "is loading"),
        (ClusterDownError("Hash slot not served"), StoreUnavailableError, "can't be used now (Hash slot"),
        (ResponseError("BUSY Redis is busy running a script"), StoreUnavailableError, "now (BUSY Redis"),
        (TryAgainError("Multiple keys"), StoreUnavailableError, "are being moved to another node (Multiple"),
        (ResponseError("MISCONF Redis is unable\nto save"), StoreFailedError, "refused: MISCONF Redis is un"),
        (ResponseError("unknown command 'EVALSHA'"), StoreFailedError, "refused: unknown command 'EVALSHA';"),
        (ResponseError("BERTHSERVER"), StoreFailedError, "berth needs Redis 7 or Valkey"),
    ],
)
def test_what_a_server_may_answer_is_passing_or_for_a_person(
    error: RedisError, kind: type[BerthError], text: str
) -> None:
    def fail() -> None:
        raise store_error(error, parse("redis://127.0.0.1"), 1.0)

    assert text in said(kind, fail)


# Keys


@pytest.mark.parametrize("name", ["documents", "written", "deleted"])
def test_keys_of_another_program_are_left_alone(shared: RedisServer, opened: Opener, name: str) -> None:
    used(opened(shared.url))
    shared.command("SET", f"{{berth}}:{name}", "mine")
    text = said(StoreFailedError, opened(shared.url).read, ["a"])
    assert "not a ledger that this berth knows" in text
    assert "?prefix=NAME" in text
    assert shared.command("GET", f"{{berth}}:{name}") == b"mine"


def test_a_ledger_of_another_format_is_left_alone(shared: RedisServer, opened: Opener) -> None:
    shared.command("HSET", "{berth}:documents", b"\xff", "2 of a later berth")
    text = said(StoreFailedError, opened(shared.url).commit, {"a": b"1"}, {})
    assert "run one version of berth" in text
    assert shared.command("HGET", "{berth}:documents", b"\xff") == b"2 of a later berth"


def test_prefixes_and_databases_are_ledgers_apart(shared: RedisServer, opened: Opener) -> None:
    stores = [opened(f"{shared.url}{more}") for more in ("", "?prefix=blue", "/1", "/1?prefix=blue")]
    for number, store in enumerate(stores):
        assert store.commit({"a": b"%d" % number}, {"a": None})
    assert [store.read(["a"])["a"].body for store in stores] == [b"0", b"1", b"2", b"3"]
    assert (
        shared.command("EXISTS", *(f"{{blue}}:{name}" for name in ("documents", "written", "deleted")))
        == b"3"
    )
