"""A Redis that was restarted, or failed over to another server: the ledger is closed, whatever came along.
The data alone never tells whether the last writes are missing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from berth.errors import RebuildingError, RefusedError, StoreFailedError, StoreUnavailableError
from berth.stores.base import EPOCH
from berth.stores.redis import RedisStore, client
from tests.support.builders.ledgers import claim, ledger_on, resize
from tests.support.builders.losses import check_lost, fill, life
from tests.support.servers.redisserver import RedisServer

Opener = Callable[[RedisServer], RedisStore]


@pytest.fixture(params=["the same store", "a new one"])
def after(request: pytest.FixtureRequest, opened: Opener) -> Callable[[RedisStore, RedisServer], RedisStore]:
    """Who calls after a loss: the store of before, or one that has seen nothing."""
    return lambda before, server: before if request.param == "the same store" else opened(server)


After = Callable[[RedisStore, RedisServer], RedisStore]


def test_a_restart_without_data_is_an_empty_store(
    own_redis: RedisServer, opened: Opener, after: After
) -> None:
    before = opened(own_redis)
    fill(before)
    check_lost(after(before, own_redis), before, own_redis.restart)


def test_a_restart_with_all_data_closes_the_ledger_as_well(
    redis_installed: Path, tmp_path: Path, opened: Opener, after: After
) -> None:
    """With `appendfsync everysec` the last second may be missing, and the data alone does not tell."""
    assert redis_installed.exists()
    with RedisServer(tmp_path, aof=True) as server:
        before = opened(server)
        fill(before)
        check_lost(after(before, server), before, server.restart, "a", "b")


@pytest.fixture
def replica(own_redis: RedisServer, tmp_path: Path) -> Iterator[RedisServer]:
    """The replica of `own_redis`, with what it holds so far."""
    with RedisServer(tmp_path / "replica") as second:
        second.replica_of(own_redis)
        yield second


def test_a_replica_is_not_read_either_though_it_may_have_all(
    own_redis: RedisServer, replica: RedisServer, opened: Opener
) -> None:
    """It may as well lag: only the run id tells, for the data and the replication id are its primary's."""
    fill(opened(own_redis))
    replica.catch_up(own_redis)
    store = opened(replica)
    for call in (lambda: store.read(["a"]), lambda: store.changes(None)):
        with pytest.raises(StoreUnavailableError, match="is a replica, which takes no writes"):
            call()


def test_a_fail_over_to_a_replica_that_is_behind_is_a_loss(
    own_redis: RedisServer, replica: RedisServer, opened: Opener
) -> None:
    before = opened(own_redis)
    fill(before)
    replica.catch_up(own_redis)
    replica.replica_of(None)
    assert before.commit({"a": b"answered for, and lost"}, {})
    check_lost(opened(replica), before, own_redis.stop, "a", "b")


def test_a_primary_that_came_back_by_way_of_an_older_one_is_a_loss(
    own_redis: RedisServer, replica: RedisServer, opened: Opener
) -> None:
    """The server's run id is the same, and nobody wrote elsewhere: only the replication id tells."""
    before = opened(own_redis)
    fill(before)
    replica.catch_up(own_redis)
    replica.replica_of(None)
    assert before.commit({"a": b"answered for, and lost"}, {})

    def go_round() -> None:
        own_redis.replica_of(replica)
        own_redis.replica_of(None)

    check_lost(opened(own_redis), before, go_round, "a", "b")


# ?wait=


def test_a_commit_is_answered_for_once_as_many_replicas_have_it_as_the_url_says(
    own_redis: RedisServer,
    replica: RedisServer,
    opened_at: Callable[[str], RedisStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "_WAIT_MS", 20_000)
    store = opened_at(f"{own_redis.url}?wait=1")
    for number in range(1, 20):
        assert store.commit({"a": b"%d" % number}, {})
        assert replica.commits() == own_redis.commits()


def test_a_primary_that_no_replica_follows_any_more_answers_for_no_commit(
    own_redis: RedisServer,
    replica: RedisServer,
    opened_at: Callable[[str], RedisStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a network that is split: the other side has elected another."""
    monkeypatch.setattr(client, "_WAIT_MS", 20_000)
    store = opened_at(f"{own_redis.url}?wait=1")
    fill(store)
    monkeypatch.setattr(client, "_WAIT_MS", 100)
    version = store.read(["a"])["a"].version
    replica.replica_of(None)
    with pytest.raises(StoreUnavailableError) as caught:
        store.commit({"a": b"3"}, {"a": version})
    assert str(caught.value) == (
        f"berth's ledger in Redis 127.0.0.1:{own_redis.port} was written, but 0 of 1 replicas have it, and a "
        "fail-over may lose it; if this lasts, check its replicas, or ?wait= in BERTH_STORE"
    )
    assert store.read(["a"])["a"].body == b"3"  # its outcome is unknown to who asked
    assert not store.commit({"a": b"4"}, {"a": version})
    assert store.commit({}, {})


def test_to_wait_for_replicas_wants_a_right_more(
    own_redis: RedisServer, opened_at: Callable[[str], RedisStore]
) -> None:
    own_redis.command("ACL", "SETUSER", "berth", "on", ">s3cr3t", "~*", "+@all", "-wait")
    url = f"redis://berth:s3cr3t@127.0.0.1:{own_redis.port}"
    assert opened_at(url).commit({"a": b"1"}, {})
    with pytest.raises(StoreFailedError, match=r"its user lacks rights \(.*'wait'"):
        opened_at(f"{url}?wait=1").commit({"a": b"1"}, {})


def test_what_is_no_loss_closes_nothing(own_redis: RedisServer, opened: Opener) -> None:
    store = opened(own_redis)
    fill(store)
    now, cursor = life(store), store.changes(None).cursor
    for words in ("SCRIPT FLUSH", "CLIENT KILL TYPE normal", "SAVE", "CONFIG SET maxmemory 100mb", "SET x 1"):
        own_redis.command(*words.split())
        assert EPOCH in store.read([EPOCH])
        assert life(opened(own_redis)) == now
    assert not store.changes(cursor).snapshot
    own_redis.pause()
    own_redis.resume()
    assert store.commit({"a": b"3"}, {EPOCH: store.read([EPOCH])[EPOCH].version})


def test_a_ledger_is_closed_by_a_restart_and_rebuilt_on_what_is_left(
    redis_installed: Path, tmp_path: Path, opened: Opener
) -> None:
    assert redis_installed.exists()

    def rebuild() -> None:
        keeper = ledger_on(store, while_closed=True)
        mark = keeper.begin_rebuild("r")
        resize(keeper, {("ip", "n1"): 1})
        keeper.open("e", mark)

    with RedisServer(tmp_path, aof=True) as server:
        store = opened(server)
        rebuild()
        ledger = ledger_on(store)
        ledger.reserve(claim("a"))
        server.restart()
        for call in (ledger.view, lambda: ledger.reserve(claim("b")), lambda: ledger.release("a")):
            with pytest.raises(RebuildingError):
                call()
        rebuild()
        with pytest.raises(RefusedError, match=r"^ip: 0 of 1 free, 1 asked$"):
            ledger.reserve(claim("b"))
        ledger.confirm(claim("a"))
