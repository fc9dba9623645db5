"""Redis Sentinel: the primary is whom the Sentinels name, asked when it is needed and when it fails.
That a fail-over loses nothing is not promised; that it is noticed, and nothing given twice, is."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from berth.errors import StoreFailedError, StoreUnavailableError
from berth.local.ports import free_port
from berth.stores.base import EPOCH
from berth.stores.redis import RedisStore, topology
from tests.support.builders.failovers import check_nothing_is_given_twice
from tests.support.builders.losses import check_lost, fill, life
from tests.support.servers.redissentinel import NAME, RedisSentinels, Sentinel
from tests.support.servers.redisserver import RedisServer

HASHED = hashlib.sha256(b"s3cr3t").hexdigest()
USERS = ("user default on nopass ~* &* +@all", f"user berth on #{HASHED} ~{{berth}}:* +@all")
SENTINEL_USERS = (
    "user default on >other ~* &* +@all",
    f"user berth on #{HASHED} +sentinel|get-master-addr-by-name",
)

Opener = Callable[[str], RedisStore]


@pytest.fixture(scope="module")
def watched(redis_installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A primary without replicas."""
    assert redis_installed.exists()
    with RedisServer(tmp_path_factory.mktemp("watched"), acl=USERS) as server:
        yield server


@pytest.fixture(scope="module")
def sentinel(watched: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinel]:
    """Alone, so it never elects; it wants no login."""
    with Sentinel(tmp_path_factory.mktemp("sentinel"), watches=watched) as started:
        yield started


@pytest.fixture
def own_sentinel(watched: RedisServer, tmp_path: Path) -> Iterator[Sentinel]:
    """One of this test's own, which wants a login."""
    with Sentinel(tmp_path / "sentinel", watches=watched, acl=SENTINEL_USERS) as started:
        yield started


def at(*sentinels: Sentinel | int, login: str = "berth:s3cr3t@", name: str = NAME) -> str:
    ports = [each if isinstance(each, int) else each.port for each in sentinels]
    return f"redis://{login}{','.join(f'127.0.0.1:{port}' for port in ports)}?sentinel={name}"


def test_the_sentinels_lead_to_the_primary_and_those_that_are_away_are_passed_over(
    watched: RedisServer, sentinel: Sentinel, opened_at: Opener
) -> None:
    watched.flush()
    assert opened_at(at(free_port(), sentinel, free_port())).commit({"a": b"1"}, {"a": None})
    assert watched.command("EXISTS", "{berth}:documents") == b"1"


def test_sentinels_may_want_the_servers_login(
    watched: RedisServer, own_sentinel: Sentinel, opened_at: Opener
) -> None:
    watched.flush()
    assert opened_at(at(own_sentinel)).commit({"a": b"1"}, {"a": None})


def test_sentinels_that_refuse_the_login_are_told(own_sentinel: Sentinel, opened_at: Opener) -> None:
    for login in ("berth:wr0ng@", ""):
        with pytest.raises(StoreFailedError) as caught:
            opened_at(at(own_sentinel, login=login)).read(["a"])
        assert str(caught.value) == (
            f"berth's ledger in Redis 127.0.0.1:{own_sentinel.port}: its Sentinels refused the user or the "
            "password; they should be those in BERTH_STORE, or none"
        )


def test_a_user_that_the_primary_refuses_is_told_of_the_primary(
    watched: RedisServer, sentinel: Sentinel, opened_at: Opener
) -> None:
    with pytest.raises(StoreFailedError, match=rf"127\.0\.0\.1:{watched.port} refused the user or the pass"):
        opened_at(at(sentinel, login="nobody:s3cr3t@")).read(["a"])


def test_a_primary_that_no_sentinel_knows_is_told(sentinel: Sentinel, opened_at: Opener) -> None:
    with pytest.raises(StoreFailedError) as caught:
        opened_at(at(sentinel, name="other")).read(["a"])
    assert str(caught.value) == (
        f"berth's ledger in Redis 127.0.0.1:{sentinel.port}: the Sentinels know no primary named 'other'; "
        "check ?sentinel= in BERTH_STORE"
    )


def test_a_server_in_place_of_a_sentinel_is_told(watched: RedisServer, opened_at: Opener) -> None:
    with pytest.raises(StoreFailedError, match=r"Sentinels refused \(ERR unknown command"):
        opened_at(at(watched.port)).read(["a"])


def test_sentinels_that_are_all_away_are_told_together(opened_at: Opener) -> None:
    first, second = free_port(), free_port()
    with pytest.raises(StoreUnavailableError) as caught:
        opened_at(at(first, second)).read(["a"])
    assert str(caught.value) == (
        f"berth's ledger is unreachable (redis://127.0.0.1:{first},127.0.0.1:{second}?sentinel=berth, of its "
        "Sentinels: connection refused); if this lasts, check them and BERTH_STORE"
    )


def test_a_primary_that_is_known_is_used_on_while_the_sentinels_are_away(
    watched: RedisServer, own_sentinel: Sentinel, opened_at: Opener
) -> None:
    watched.flush()
    store = opened_at(at(own_sentinel))
    assert store.commit({"a": b"1"}, {})
    own_sentinel.stop()
    assert store.commit({"a": b"2"}, {})
    watched.command("CLIENT", "KILL", "TYPE", "normal")
    assert store.read(["a"])["a"].body == b"2"


# Fail-over


@pytest.fixture(scope="module")
def sentinels(redis_installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisSentinels]:
    """Three of them, a primary and a replica, both alive when a test begins."""
    assert redis_installed.exists()
    with RedisSentinels(tmp_path_factory.mktemp("sentinels")) as started:
        yield started


def test_a_primary_that_died_with_the_last_writes_is_a_loss(
    sentinels: RedisSentinels, opened_at: Opener
) -> None:
    sentinels.flush()
    before = opened_at(sentinels.url)
    fill(before)
    sentinels.replica.catch_up(sentinels.primary)
    sentinels.replica.cut_off(sentinels.primary)
    assert before.commit({"a": b"answered for, and lost"}, {})
    died = sentinels.primary

    def die() -> None:
        died.stop()
        with pytest.raises(
            StoreUnavailableError, match=rf"unreachable \(redis://127\.0\.0\.1:{died.port}, con"
        ):
            before.read([EPOCH])
        sentinels.elect()

    check_lost(opened_at(sentinels.url), before, die, "a", "b")
    sentinels.recover()


def test_what_a_fail_over_loses_is_not_given_twice(sentinels: RedisSentinels, opened_at: Opener) -> None:
    sentinels.flush()

    def lag() -> None:
        sentinels.replica.catch_up(sentinels.primary)
        sentinels.replica.cut_off(sentinels.primary)

    def fail_over() -> None:
        sentinels.primary.stop()
        sentinels.elect()

    check_nothing_is_given_twice(lambda: opened_at(sentinels.url), lag, fail_over)
    sentinels.recover()


def test_a_primary_that_was_replaced_is_left_while_it_still_takes_writes_and_when_it_does_no_more(
    sentinels: RedisSentinels, opened_at: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentinels.flush()
    replaced, late = sentinels.primary, opened_at(sentinels.url)
    monkeypatch.setattr(topology, "_CHECK_SECONDS", 1e9)
    assert late.read(["a"]) == {}
    monkeypatch.setattr(topology, "_CHECK_SECONDS", 0.0)
    before = opened_at(sentinels.url)
    fill(before)
    sentinels.replica.catch_up(replaced)
    check_lost(before, before, sentinels.elect, "a", "b")
    replaced.replica_of(sentinels.primary)  # as the Sentinels do, some ten seconds later
    assert life(late) == life(before)
