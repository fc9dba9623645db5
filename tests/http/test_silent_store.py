"""A Redis that hangs holds up those who need it, and neither the event loop nor anybody else."""

import asyncio
import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from berth.handlers import filter as filter_verb
from berth.http.connection import Connection
from berth.http.connections import Connections
from berth.http.endpoint import Endpoint
from berth.ledger.ledger import Ledger
from berth.settings import Settings
from berth.stores.redis import RedisStore
from berth.stores.redis.url import parse
from tests.support.builders.ledgers import ledger_on, resize
from tests.support.builders.objects import IP, filter_call, pool
from tests.support.cluster import wait
from tests.support.floods import answer, opened
from tests.support.servers.redisserver import RedisServer

SECONDS = 60.0  # that a call waits for Redis, and longer than anybody here waits for an answer
PATIENCE = 30.0


@contextlib.contextmanager
def served(endpoint: Endpoint) -> Iterator[str]:
    """The endpoint's URL; its event loop runs in a thread."""
    loop, listener = asyncio.new_event_loop(), socket.create_server(("127.0.0.1", 0))
    connections = Connections(endpoint, None, loop)
    making = loop.create_server(lambda: Connection(connections), sock=listener)
    server = loop.run_until_complete(making)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for _ in range(3):  # its connections are told of their end
            loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def asked(url: str, body: bytes, method: str = "POST") -> socket.socket:
    connection = opened(url, {"Content-Length": str(len(body))}, method)
    connection.settimeout(PATIENCE)
    connection.sendall(body)
    return connection


def status(url: str, body: bytes, method: str = "POST") -> int:
    with asked(url, body, method) as connection:
        return answer(connection).status


@pytest.fixture
def store(own_redis: RedisServer) -> Iterator[RedisStore]:
    """With an open ledger; a twentieth of a second is at once."""
    url = parse(own_redis.url)
    with closing(RedisStore(url)) as writer:
        keeper = ledger_on(writer, while_closed=True)
        mark = keeper.begin_rebuild("r")
        keeper.apply_pools({"underlay-ip": pool()})
        resize(keeper, {("underlay-ip", "n1"): 1})
        keeper.open("e", mark)
    with closing(RedisStore(url, seconds=SECONDS, at_once=0.05, reads_only=True)) as reader:
        yield reader


def test_a_redis_that_hangs_holds_up_those_who_need_it_and_nobody_else(
    own_redis: RedisServer, store: RedisStore
) -> None:
    needs, needs_not = filter_call(["n1"], {IP: 1}), filter_call(["n1"])
    endpoint = filter_verb.endpoint(Settings(store=own_redis.url), Ledger(store))
    with served(endpoint) as url, ExitStack() as stack:
        wait(lambda: (status(url, needs), store._is_prompt) == (200, True), PATIENCE, "it asks in the loop")
        own_redis.pause()
        stack.callback(own_redis.resume)
        waiting = [stack.enter_context(asked(url, needs)) for _ in range(6)]
        wait(lambda: not store._is_prompt, PATIENCE, "it asks in a thread")
        for _ in range(3):
            assert (status(url, needs_not), status(url, b"", "GET")) == (200, 405)
        assert select.select(waiting, [], [], 0)[0] == []
        own_redis.resume()
        assert [answer(each).status for each in waiting] == [200] * 6
