"""Redis, asked by who must not wait: what is told at once, what is not, and that nothing is lost by it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from berth.errors import StoreUnavailableError
from berth.stores.redis import RedisStore
from berth.stores.redis.url import parse
from tests.support.builders.certificates import self_signed
from tests.support.servers.rediscluster import RedisCluster
from tests.support.servers.redissentinel import NAME, Sentinel
from tests.support.servers.redisserver import RedisServer

LONG, SHORT = 30.0, 0.02  # that every answer comes in, and that none that is kept back does


def opened(url: str, *, reads_only: bool = False) -> RedisStore:
    return RedisStore(parse(url), seconds=LONG, at_once=LONG, reads_only=reads_only)


@pytest.fixture(params=[False, True], ids=["writes", "reads"])
def reader(request: pytest.FixtureRequest, own_redis: RedisServer) -> Iterator[RedisStore]:
    with (
        closing(opened(own_redis.url)) as writer,
        closing(opened(own_redis.url, reads_only=request.param)) as store,
    ):
        assert writer.commit({"a": b"1"}, {})
        yield store


def told(store: RedisStore, cursor: str) -> bool:
    """Whether something is told at once; it is what is told else."""
    there = store.changes_at_once(cursor)
    assert there in (None, store.changes(cursor))
    return there is not None


def test_what_is_told_at_once_is_what_is_told_else(own_redis: RedisServer, reader: RedisStore) -> None:
    with closing(opened(own_redis.url)) as writer:
        cursors = ["", reader.changes(None).cursor]
        for change in ({"a": b"2"}, {"b": b"1", "a": None}, {"b": None}, {"c": b"\xff\r\n"}):
            assert writer.commit(change, {})
            assert all(told(reader, cursor) for cursor in cursors)
            cursors.append(reader.changes(cursors[-1]).cursor)
            assert told(reader, cursors[-1])
        own_redis.flush()
        assert all(told(reader, cursor) for cursor in cursors)
        assert writer.commit({"d": b"1"}, {})
        assert all(told(reader, cursor) for cursor in cursors)


def test_a_server_is_asked_at_once_after_it_has_been_quick(reader: RedisStore) -> None:
    assert reader.changes_at_once("") is None  # it has not been asked for changes
    cursor = reader.changes(None).cursor
    assert told(reader, cursor)
    reader._at_once = 0.0
    reader.changes(cursor)
    reader._at_once = LONG
    assert reader.changes_at_once(cursor) is None
    assert told(reader, reader.changes(cursor).cursor)


def make_connections(store: RedisStore, count: int) -> None:
    """Have so many of the store's connections idle."""
    made = []
    for _ in range(count):
        store.read(["a"])
        made.append(store._client._idle.pop())
    assert store._client._idle == []
    store._client._idle += made


def test_a_server_that_hangs_is_waited_for_once(own_redis: RedisServer, reader: RedisStore) -> None:
    cursor = reader.changes(None).cursor
    make_connections(reader, 3)
    assert told(reader, cursor)
    own_redis.pause()
    reader._at_once = SHORT
    assert [reader.changes_at_once(cursor) for _ in range(3)] == [None] * 3
    own_redis.resume()
    assert len(reader._client._idle) == 2  # what comes late is not taken for another answer
    reader._at_once = LONG
    assert reader.changes_at_once(cursor) is None
    assert told(reader, reader.changes(cursor).cursor)


def test_the_rest_of_an_answer_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        store = opened(f"redis://127.0.0.1:{listener.getsockname()[1]}", reads_only=True)
        answers = [b"*2\r\n$1\r\na\r\n:1\r\n"] * 2 + [b"*2\r\n$1\r\na\r\n"]

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                while connection.recv(65536) and answers:
                    connection.sendall(answers.pop(0))

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        cursor = store.changes("a.1").cursor
        assert store.changes_at_once(cursor) == (({}, cursor, False))
        store._at_once = SHORT
        assert store.changes_at_once(cursor) is None
        assert (answers, store._client._idle) == ([], [])
        server.join(LONG)  # its connection was closed
        assert not server.is_alive()


def test_scripts_that_the_server_has_forgotten_are_for_a_call_that_may_wait(
    own_redis: RedisServer, reader: RedisStore
) -> None:
    cursor = reader.changes(None).cursor
    own_redis.command("SCRIPT", "FLUSH")
    assert reader.changes_at_once(cursor) is None
    assert told(reader, reader.changes(cursor).cursor)


def test_a_server_that_came_back_is_found_by_a_call_that_may_wait(
    own_redis: RedisServer, reader: RedisStore
) -> None:
    cursor = reader.changes(None).cursor
    own_redis.stop()
    assert reader.changes_at_once(cursor) is None
    with pytest.raises(StoreUnavailableError):
        reader.changes(cursor)
    own_redis.start()
    assert reader.changes_at_once(cursor) is None
    assert told(reader, reader.changes(cursor).cursor)


def test_a_right_that_is_taken_away_meanwhile_is_done_without(
    own_redis: RedisServer, reader: RedisStore
) -> None:
    cursor = reader.changes(None).cursor
    assert told(reader, cursor)
    own_redis.command("ACL", "SETUSER", "default", "-evalsha_ro")
    reader.changes_at_once(cursor)
    assert told(reader, reader.changes(cursor).cursor)


def test_a_replica_tells_nothing_at_once(own_redis: RedisServer, reader: RedisStore, tmp_path: Path) -> None:
    cursor = reader.changes(None).cursor
    with RedisServer(tmp_path / "next") as following:
        own_redis.replica_of(following)
        assert reader.changes_at_once(cursor) is None


def test_the_node_of_a_cluster_that_has_the_ledger_is_asked_at_once(redis_cluster: RedisCluster) -> None:
    redis_cluster.flush()
    with closing(opened(redis_cluster.url)) as store:
        assert store.commit({"a": b"1"}, {})
        assert told(store, store.changes(None).cursor)


def test_a_store_that_is_closed_meanwhile_keeps_no_connection(reader: RedisStore) -> None:
    cursor = reader.changes(None).cursor
    idle = reader._client._idle
    reader._client._closed = True
    assert reader.changes_at_once(cursor) is not None
    assert idle == []


def test_a_server_that_speaks_tls_is_not_asked_at_once(redis_installed: Path, tmp_path: Path) -> None:
    assert redis_installed.exists()
    certificate, key = self_signed(tmp_path, address=(127, 0, 0, 1))
    with (
        RedisServer(tmp_path / "redis", tls=(certificate, key)) as server,
        closing(opened(f"{server.url}?ssl_ca_certs={certificate}")) as store,
    ):
        assert store.changes_at_once(store.changes(None).cursor) is None


def test_when_the_sentinels_are_to_be_asked_again_nothing_is_told_at_once(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    with (
        Sentinel(tmp_path / "sentinel", watches=own_redis) as sentinel,
        closing(opened(f"redis://127.0.0.1:{sentinel.port}?sentinel={NAME}")) as store,
    ):
        cursor = store.changes(store.changes(None).cursor).cursor
        store._client._topology._check_at += LONG
        assert told(store, cursor)
        store._client._topology._check_at = 0.0
        assert store.changes_at_once(cursor) is None
        assert told(store, store.changes(cursor).cursor)
