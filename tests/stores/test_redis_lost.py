"""A Redis that lost what it held, or holds it older or in part: it has no epoch, whatever else is left.
Each loss is seen by who has used the store before, and by who comes new to it."""

import threading
from collections.abc import Callable

import pytest

from berth.errors import StoreFailedError
from berth.stores.base import EPOCH
from berth.stores.redis import RedisStore
from berth.stores.redis.url import parse
from tests.support.builders.losses import check_lost, fill, life
from tests.support.servers.redisserver import RedisServer, RedisServerError

KEYS = ("{berth}:documents", "{berth}:written", "{berth}:deleted")

Opener = Callable[[RedisServer], RedisStore]


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    """The session's server, emptied."""
    redis_server.flush()
    return redis_server


def dump(server: RedisServer) -> dict[str, bytes]:
    return {key: server.command("DUMP", key) for key in KEYS}


def put_back(server: RedisServer, dumped: dict[str, bytes]) -> None:
    for key, value in dumped.items():
        server.command("RESTORE", key, "0", value, "REPLACE")


# All of it, or some


@pytest.fixture(params=["the same store", "a new one"])
def after(request: pytest.FixtureRequest, opened: Opener) -> Callable[[RedisStore, RedisServer], RedisStore]:
    """Who calls after a loss: the store of before, or one that has seen nothing."""
    return lambda before, server: before if request.param == "the same store" else opened(server)


After = Callable[[RedisStore, RedisServer], RedisStore]


def test_a_flushed_server_is_an_empty_store(server: RedisServer, opened: Opener, after: After) -> None:
    before = opened(server)
    fill(before)
    check_lost(after(before, server), before, server.flush)


@pytest.mark.parametrize("key", KEYS)
def test_a_single_key_that_is_gone_is_a_loss(
    server: RedisServer, opened: Opener, after: After, key: str
) -> None:
    before = opened(server)
    fill(before)
    kept = () if key == "{berth}:documents" else ("a", "b")
    check_lost(after(before, server), before, lambda: server.command("DEL", key), *kept)


@pytest.mark.parametrize("key", KEYS)
def test_a_single_key_that_is_older_is_a_loss(
    server: RedisServer, opened: Opener, after: After, key: str
) -> None:
    before = opened(server)
    fill(before)
    older = dump(server)
    assert before.commit({"a": b"3"}, {})
    check_lost(after(before, server), before, lambda: put_back(server, {key: older[key]}), "a", "b")


def test_a_hash_without_its_revision_is_an_empty_store(
    server: RedisServer, opened: Opener, after: After
) -> None:
    before = opened(server)
    fill(before)
    check_lost(after(before, server), before, lambda: server.command("HDEL", KEYS[0], b"\xff"))


def test_what_is_left_of_a_newer_index_says_nothing_of_older_documents(
    server: RedisServer, opened: Opener
) -> None:
    store = opened(server)
    fill(store)
    older = dump(server)
    for _ in range(9):
        assert store.commit({"b": None}, {})
        assert store.commit({"b": b"2"}, {})
    assert store.commit({"b": None}, {})
    put_back(server, {KEYS[0]: older[KEYS[0]]})
    cursor = store.changes(None).cursor
    assert store.commit({"a": b"3"}, {})
    assert dict(store.changes(cursor).documents) == {"a": b"3"}
    assert dict(store.changes(None).documents) == {"a": b"3", "b": b"1"}


def test_evicted_keys_are_a_loss(own_redis: RedisServer, opened: Opener, after: After) -> None:
    before = opened(own_redis)
    fill(before)

    def evict() -> None:
        own_redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-random", "maxmemory", "1")
        with pytest.raises(RedisServerError, match="OOM"):
            own_redis.command("SET", "more", "than fits")
        own_redis.command("CONFIG", "SET", "maxmemory", "0")
        assert own_redis.command("EXISTS", *KEYS) == b"0"

    check_lost(after(before, own_redis), before, evict)


def test_databases_that_were_swapped_are_a_loss_and_back_again_one_more(
    server: RedisServer, opened: Opener
) -> None:
    store = opened(server)
    fill(store)
    check_lost(store, store, lambda: server.command("SWAPDB", "0", "9"))
    store.commit({"a": b"1", "b": b"1"}, {})
    check_lost(store, store, lambda: server.command("SWAPDB", "0", "9"), "a", "b")


# All of it, but older


def test_older_keys_put_back_are_a_loss_to_who_has_seen_more(server: RedisServer, opened: Opener) -> None:
    store = opened(server)
    fill(store)
    older = dump(server)
    assert store.commit({"a": b"3"}, {})
    check_lost(store, store, lambda: put_back(server, older), "a", "b")


def test_keys_of_a_life_that_is_over_put_back_are_a_loss(server: RedisServer, opened: Opener) -> None:
    store = opened(server)
    fill(store)
    older = dump(server)
    server.flush()
    store.commit({EPOCH: b"e", "a": b"1", "b": b"1"}, {})
    check_lost(store, store, lambda: put_back(server, older), "a", "b")


def test_a_commit_that_stopped_half_way_is_a_loss_and_not_half_a_commit(
    own_redis: RedisServer, opened: Opener, after: After
) -> None:
    before = opened(own_redis)
    fill(before)
    own_redis.command("ACL", "SETUSER", "lame", "on", ">lame", "~*", "+@all", "-zadd")
    lame = RedisStore(parse(f"redis://lame:lame@127.0.0.1:{own_redis.port}"), seconds=30.0)

    def stop_half_way() -> None:
        with pytest.raises(StoreFailedError, match="its user lacks rights"):
            lame.commit({"a": b"9"}, {})

    check_lost(after(before, own_redis), before, stop_half_way, "a", "b")
    lame.close()


# Over many


def test_no_version_and_no_cursor_comes_twice_over_many_losses(
    own_redis: RedisServer, opened: Opener
) -> None:
    store, versions, cursors = opened(own_redis), list[str](), list[str]()
    assert store.commit({"a": b"same"}, {})
    older = dump(own_redis)
    losses: list[Callable[[], object]] = [
        own_redis.flush,
        own_redis.restart,
        lambda: own_redis.command("DEL", KEYS[1]),
        lambda: put_back(own_redis, older),
    ]
    for lose in losses * 3:
        cursors.append(store.changes(None).cursor)
        versions += [found.version for found in store.read(["a"]).values()]
        for _ in range(3):
            assert store.commit({"a": b"same"}, {})
            versions.append(store.read(["a"])["a"].version)
            cursors.append(store.changes(None).cursor)
        lose()
    assert len(set(versions)) == len(versions) > 36
    assert len(set(cursors)) == len(cursors)


def test_a_loss_under_many_threads_is_one_loss(server: RedisServer, opened: Opener) -> None:
    """Answers that come late, from before a loss, must not be taken for another."""
    stores, lives, stop = [opened(server), opened(server)], set[str](), threading.Event()
    turns = [0] * 8

    def use(number: int) -> None:
        store = stores[number % 2]
        while not stop.is_set():
            store.commit({f"{number}": b"1"}, {})
            lives.add(store.changes(None).cursor.partition(".")[0])
            turns[number] += 1

    threads = [threading.Thread(target=use, args=(number,)) for number in range(len(turns))]
    for thread in threads:
        thread.start()
    for _ in range(5):
        goal = [turn + 3 for turn in turns]
        while any(turn < wanted for turn, wanted in zip(turns, goal, strict=True)):
            assert all(thread.is_alive() for thread in threads)
            stop.wait(0.001)
        server.flush()
    stop.set()
    for thread in threads:
        thread.join()
    lives.add(life(stores[0]))
    assert len(lives) == 6
