"""Redis: connections are shared, scripts forgotten, answers lost, threads many, deletions old."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.errors import StoreUnavailableError
from berth.stores import redis as redis_stores
from berth.stores.redis import RedisStore
from berth.stores.redis.url import parse
from tests.support.builders.races import persistently
from tests.support.servers.redisserver import RedisServer

THREADS = 48


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    """The session's server, emptied."""
    redis_server.flush()
    return redis_server


@pytest.fixture
def store(server: RedisServer) -> Iterator[RedisStore]:
    opened = RedisStore(parse(server.url), seconds=30.0)
    yield opened
    opened.close()


@pytest.fixture
def own_store(own_redis: RedisServer) -> Iterator[RedisStore]:
    opened = RedisStore(parse(own_redis.url), seconds=30.0)
    yield opened
    opened.close()


class Relay(socketserver.ThreadingTCPServer):
    """Between a store and its server; loses as many answers as it is told, and the connection with each."""

    daemon_threads = False  # their end is waited for

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Relayed)
        self.port, self.losing = port, 0


class _Relayed(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Relay)
        with socket.create_connection(("127.0.0.1", self.server.port)) as behind:
            while asked := self.request.recv(65536):
                behind.sendall(asked)
                answer = behind.recv(65536)
                if self.server.losing:
                    self.server.losing -= 1
                    return
                self.request.sendall(answer)


@pytest.fixture
def relay(server: RedisServer) -> Iterator[Relay]:
    with Relay(server.port) as between:
        thread = threading.Thread(target=between.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield between
        between.shutdown()
        thread.join()


@pytest.fixture
def relayed(relay: Relay) -> Iterator[RedisStore]:
    opened = RedisStore(parse(f"redis://127.0.0.1:{relay.server_address[1]}"), seconds=30.0)
    yield opened
    opened.close()


def revision(store: RedisStore) -> int:
    return int(store.changes(None).cursor.partition(".")[2])


def connections(server: RedisServer) -> int:
    """How many were ever made."""
    stats = dict(line.split(b":", 1) for line in server.command("INFO", "stats").split() if b":" in line)
    return int(stats[b"total_connections_received"])


def test_calls_one_after_another_share_a_connection(server: RedisServer, store: RedisStore) -> None:
    store.read(["a"])
    before = connections(server)
    for number in range(50):
        store.commit({"a": b"%d" % number}, {})
        store.changes(None)
    assert connections(server) == before + 1  # the one that asked


def test_many_threads_have_a_connection_each_and_keep_it(server: RedisServer, store: RedisStore) -> None:
    before = connections(server)
    start = threading.Barrier(THREADS)

    def count(name: str) -> None:
        start.wait()
        for number in range(20):
            found = store.read([name]).get(name)
            assert store.commit({name: b"%d" % number}, {name: found.version if found else None})

    threads = [threading.Thread(target=count, args=(f"{number}",)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [f"{number}" for number in range(THREADS)]
    assert {found.body for found in store.read(names).values()} == {b"19"}
    assert len(store.read(names)) == THREADS
    assert connections(server) - before <= THREADS + 1


def test_scripts_that_the_server_has_forgotten_are_sent_again(server: RedisServer, store: RedisStore) -> None:
    store.commit({"a": b"1"}, {})
    server.command("SCRIPT", "FLUSH")
    assert store.commit({"a": b"2"}, {})
    server.command("SCRIPT", "FLUSH")
    assert store.read(["a"])["a"].body == b"2"
    server.command("SCRIPT", "FLUSH")
    assert dict(store.changes(None).documents) == {"a": b"2"}


def test_a_restart_between_two_calls_fails_neither(own_redis: RedisServer, own_store: RedisStore) -> None:
    assert own_store.commit({"a": b"1"}, {})
    own_redis.restart()
    assert own_store.commit({"a": b"2"}, {})
    own_redis.restart()
    assert own_store.read(["a"]) == {}


def test_a_primary_that_became_a_replica_is_left_for_the_one_its_name_leads_to_now(
    own_redis: RedisServer, tmp_path: Path, relay: Relay, relayed: RedisStore
) -> None:
    with RedisServer(tmp_path / "next") as following:
        relay.port = own_redis.port
        assert relayed.commit({"a": b"1"}, {})
        own_redis.replica_of(following)
        relay.port = following.port
        assert relayed.commit({"a": b"2"}, {"a": None})


def test_a_silent_server_costs_one_call_its_time_out_and_not_one_for_each_connection(
    own_redis: RedisServer,
) -> None:
    store = RedisStore(parse(own_redis.url), seconds=0.5)
    start = threading.Barrier(THREADS)

    def read() -> None:
        start.wait()
        for _ in range(20):
            persistently(lambda: store.read(["a"]))  # half a second is for the server that is silent

    threads = [threading.Thread(target=read) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store._client._idle
    own_redis.pause()
    with pytest.raises(StoreUnavailableError, match="no answer within"):
        store.read(["a"])
    assert store._client._idle == []
    own_redis.resume()
    assert persistently(lambda: store.read(["a"])) == {}
    store.close()


def test_a_server_that_is_away_is_found_again(own_redis: RedisServer, own_store: RedisStore) -> None:
    own_store.read(["a"])
    own_redis.stop()
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            own_store.commit({"a": b"1"}, {})
        with pytest.raises(StoreUnavailableError):
            own_store.read(["a"])
    own_redis.start()
    assert own_store.commit({"a": b"1"}, {})


def test_a_commit_whose_answer_is_lost_is_not_made_twice(relay: Relay, relayed: RedisStore) -> None:
    assert relayed.commit({"a": b"1"}, {})
    before = revision(relayed)
    relay.losing = 1
    with pytest.raises(StoreUnavailableError, match="the connection was closed"):
        relayed.commit({"a": b"2"}, {})
    assert relayed.read(["a"])["a"].body == b"2"
    assert revision(relayed) == before + 1


def test_a_read_whose_answer_is_lost_is_asked_again(relay: Relay, relayed: RedisStore) -> None:
    relayed.commit({"a": b"1"}, {})
    relay.losing = 1
    assert relayed.read(["a"])["a"].body == b"1"
    cursor = relayed.changes(None).cursor
    relay.losing = 1
    assert dict(relayed.changes(cursor).documents) == {}


def test_a_read_is_not_asked_for_ever(relay: Relay, relayed: RedisStore) -> None:
    relayed.commit({"a": b"1"}, {})
    relay.losing = 100
    with pytest.raises(StoreUnavailableError):
        relayed.read(["a"])
    assert relay.losing == 98


def test_a_store_that_is_closed_while_it_is_used_leaves_no_connection(
    own_redis: RedisServer, own_store: RedisStore
) -> None:
    own_store.read(["a"])
    own_store.close()
    own_store.read(["a"])
    assert own_store._client._idle == []
    assert own_redis.command("CLIENT", "LIST").count(b"\n") == 1


# changes


def test_a_cursor_older_than_the_deletions_that_are_kept_gets_a_snapshot(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_stores, "_KEPT_DELETIONS", 3)
    store.commit({"stays": b"1"}, {})
    cursors = [store.changes(None).cursor]
    for number in range(8):
        store.commit({f"{number}": b"1"}, {})
        store.commit({f"{number}": None}, {})
        cursors.append(store.changes(cursors[-1]).cursor)
    assert store.changes(cursors[0]).snapshot
    assert dict(store.changes(cursors[0]).documents) == {"stays": b"1"}
    recent = store.changes(cursors[-2])
    assert (dict(recent.documents), recent.snapshot) == ({"7": None}, False)


def test_more_deletions_at_once_than_are_kept_give_a_snapshot(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_stores, "_KEPT_DELETIONS", 3)
    many = {f"{number}": b"1" for number in range(20)}
    store.commit({"stays": b"1", **many}, {})
    before = store.changes(None).cursor
    store.commit(dict.fromkeys(many), {})
    found = store.changes(before)
    assert (dict(found.documents), found.snapshot) == ({"stays": b"1"}, True)
    assert not store.changes(found.cursor).snapshot


def test_a_reader_with_any_cursor_ends_up_with_what_there_is(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deltas and snapshots around the bound of kept deletions: neither may miss a deletion."""
    monkeypatch.setattr(redis_stores, "_KEPT_DELETIONS", 4)
    readers: list[tuple[str | None, dict[str, bytes | None]]] = [(None, {})]
    for i in range(40):
        store.commit({f"{i * i % 7}": None if i % 3 else b"%d" % i}, {})
        there = store.changes(None)
        for cursor, known in readers:
            found = store.changes(cursor)
            state = {**({} if found.snapshot else known), **found.documents}
            assert {key: body for key, body in state.items() if body is not None} == there.documents
        readers.append((there.cursor, dict(there.documents)))


@pytest.mark.parametrize("cursor", ["", "x", ".", "x.y", "1.-1", "0123456789abcdef.99999999999999999999"])
def test_a_cursor_that_was_never_given_gets_a_snapshot(store: RedisStore, cursor: str) -> None:
    store.commit({"a": b"1"}, {})
    life = store.changes(None).cursor.partition(".")[0]
    for each in (cursor, f"{life}.99", f"{life}.0", f"{life}."):
        assert store.changes(each).snapshot
