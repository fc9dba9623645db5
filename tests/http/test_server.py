"""Berth's own server: clients that come slowly hold nobody up, and all others are served as by gunicorn."""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from berth.http.connection import Connection
from berth.http.connections import Connections
from berth.http.endpoint import Endpoint, Reply
from berth.http.server import end
from tests.support.cluster import wait
from tests.support.floods import (
    MIB,
    Deaf,
    Health,
    address,
    answer,
    health,
    opened,
    peak,
    trickles,
    workers,
)
from tests.support.servers.framework import ROOT, function, send

pytestmark = pytest.mark.group("floods")  # as test_floods.py

SOON = 1.0
ROOM = 512 + 64  # connections
_HEAD = b"POST /filter HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer s3cret\r\n"
NO_REQUESTS = (
    *(
        _HEAD + b"Content-Length: %s\r\n\r\n{}" % length
        for length in (b"-1", b"1, 1", b"+1", b"0x1", b"\xb2", b"")
    ),
    _HEAD + b"Content-Length: %s\r\n\r\n{}" % (b"9" * 5000),
    _HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    _HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    *(
        _HEAD + b"Transfer-Encoding: %s\r\n\r\n0\r\n\r\n" % how
        for how in (b"gzip", b"chunked, chunked", b"x")
    ),
    *(
        _HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk
        for chunk in (b"-1\r\n", b"2\r\n{}0\r\n\r\n", b"x" * 9000)
    ),
    _HEAD + b"Expect: the unexpected\r\n\r\n",
    _HEAD + b"Name : value\r\n\r\n",
    _HEAD + b"Name: \x00\r\n\r\n",
    _HEAD + b"A: b\r\n" * 101 + b"\r\n",
    _HEAD + b"A: " + b"b" * 9000 + b"\r\n\r\n",
    b"POST /" + b"x" * 5000 + b" HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET /\r\n\r\n",
    b"\r\n\r\n",
    b"",
)
"""Bytes of which no function should see anything."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """filter with four threads."""
    folder = tmp_path_factory.mktemp("webserver")
    environment = {
        "BERTH_STORE": f"sqlite:///{folder}/ledger.db",
        "BERTH_AUTH_TOKEN": "s3cret",
        "THREADS": "4",
    }
    with function("filter", environment, "webserver") as found:
        yield found


def silent(url: str) -> socket.socket:
    return socket.create_connection(address(url), timeout=60)


def half_a_head(url: str) -> socket.socket:
    connection = silent(url)
    connection.sendall(b"POST /filter HTTP/1.1\r\nHost: be")
    return connection


def empty_lines(url: str) -> socket.socket:
    connection = silent(url)
    connection.sendall(b"\r\n\r\nPOST /filter HTTP/1.1\r\nHost: be")
    return connection


def next_half_a_head(url: str) -> socket.socket:
    """A whole request, and with it the first half of the next one."""
    connection = silent(url)
    connection.sendall(b"GET / HTTP/1.1\r\nHost: berth\r\n\r\nPOST /filter HTTP/1.1\r\nHost: be")
    assert answer(connection).status == 405
    return connection


def never_ended(url: str) -> socket.socket:
    """A client that was answered, and leaves its half of the connection open."""
    connection = silent(url)
    connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
    assert answer(connection).status == 405
    return connection


@pytest.mark.parametrize("client", [silent, half_a_head, empty_lines, next_half_a_head, never_ended])
@pytest.mark.long
def test_connections_that_ask_for_nothing_hold_nobody_up(
    url: str, client: Callable[[str], socket.socket]
) -> None:
    with ExitStack() as stack, Health(url) as asked:
        clients = [stack.enter_context(client(url)) for _ in range(40)]
        began = time.monotonic()
        assert send(url, "POST", "/filter", b"{}", {})[0] == 401
        assert time.monotonic() - began < SOON
        for each in clients:  # and they are ended
            with contextlib.suppress(ConnectionResetError):
                while each.recv(1000):
                    pass
        assert time.monotonic() - began < 10
    assert (asked.longest < SOON, asked.wrong) == (True, 0)


def answered(url: str) -> socket.socket:
    """A client that may send its next request on the connection."""
    connection = silent(url)
    connection.sendall(b"GET / HTTP/1.1\r\nHost: berth\r\n\r\n")
    return connection


@pytest.mark.parametrize("client", [silent, answered])
def test_more_clients_than_there_is_room_for_leave_room_for_health(
    url: str, client: Callable[[str], socket.socket]
) -> None:
    with ExitStack() as stack, Health(url) as asked:
        for _ in range(600):
            stack.enter_context(client(url))
        assert health(url) == 200
    assert (asked.longest < SOON, asked.wrong) == (True, 0)


def test_memory_is_taken_for_what_has_come_of_bodies_and_not_for_what_was_announced(tmp_path: Path) -> None:
    """A large page of 2 MiB for each would be 200."""
    with function("filter", {"BERTH_STORE": f"sqlite:///{tmp_path}/ledger.db"}, "webserver") as found:
        before, announced = peak(found), {"Content-Length": str(120 * MIB)}
        with ExitStack() as stack, Health(found) as asked:
            clients = [stack.enter_context(opened(found, announced)) for _ in range(100)]
            for client in clients:
                client.sendall(b"x" * 300_000)
            for client in clients:
                client.shutdown(socket.SHUT_WR)
                assert client.recv(1) == b""  # and so it has read all that came before
            assert peak(found) - before < 60
    assert (asked.longest < SOON, asked.wrong) == (True, 0)


@pytest.mark.parametrize("line", [b"POST /", b"POST / HTTP/1.1\r\nHost: "])
def test_headers_without_an_end_are_not_read_on(url: str, line: bytes) -> None:
    before = peak(url)
    with silent(url) as connection:
        connection.sendall(line)
        with pytest.raises(OSError, match=r"reset|Broken"):
            connection.sendall(b"x" * 100 * MIB)
    assert peak(url) - before < 10


@pytest.mark.long
def test_bodies_that_come_slowly_hold_threads_and_health_has_its_own(url: str) -> None:
    with trickles(url, 8, {"Authorization": "Bearer s3cret"}) as clients, Health(url) as asked:
        assert {answer(each).status for each in clients} <= {408, 503}
    assert (asked.longest < SOON, asked.wrong) == (True, 0)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/robots.txt", {}, 401),
        ("/filter", {}, 401),
        ("/filter", {"Connection": "Upgrade", "Upgrade": "websocket"}, 401),
    ],
)
def test_what_is_refused_waits_for_no_body(url: str, path: str, headers: dict[str, str], status: int) -> None:
    with ExitStack() as stack, Health(url) as asked:
        body = {"Content-Length": "1000", **headers}
        clients = [stack.enter_context(opened(url, body, path=path)) for _ in range(12)]
        began = time.monotonic()
        assert send(url, "POST", "/filter", b"{}", {})[0] == 401
        assert time.monotonic() - began < SOON
        assert {answer(each).status for each in clients} == {status}
    assert (asked.longest < SOON, asked.wrong) == (True, 0)


@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/filter", 405)])
def test_clients_that_take_no_answers_are_cut_off(url: str, path: str, status: int) -> None:
    with Health(url) as asked:
        clients = [Deaf(url, f"GET {path} HTTP/1.1\r\nHost: berth\r\n\r\n".encode()) for _ in range(3)]
        for each in clients:
            each.join(60)
        assert not any(each.is_alive() for each in clients)
        assert send(url, "GET", path, b"", {})[0] == status
    assert (asked.longest < SOON, asked.wrong) == (True, 0)


@pytest.mark.long
def test_a_client_that_does_not_take_a_large_answer_holds_no_thread_for_long(url: str) -> None:
    sample = json.loads((ROOT / "events/extender/filter-full.json").read_bytes())
    (node, *_) = sample["Nodes"]["items"]
    sample["Pod"] = {"metadata": {"name": "a", "uid": "a"}}  # it asks for no unit: all nodes are sent back
    sample["Nodes"]["items"] = [{**node, "filling": "x" * MIB}]
    body = json.dumps(sample).encode()
    head = (
        f"POST /filter HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer s3cret\r\nContent-Length: {len(body)}"
    )
    assert len(send(url, "POST", "/filter", body, {"Authorization": "Bearer s3cret"})[2]) > MIB
    clients = [Deaf(url, f"{head}\r\n\r\n".encode() + body) for _ in range(4)]
    for each in clients:
        each.join(60)
    assert not any(each.is_alive() for each in clients)
    began = time.monotonic()
    assert send(url, "POST", "/filter", b"{}", {})[0] == 401
    assert time.monotonic() - began < SOON


def test_room_is_made_of_connections_that_come_alive_in_the_same_moment(url: str) -> None:
    """They are not touched again, which would end the process and all calls under way."""
    (worker,) = serving = workers(url)
    with ExitStack() as stack:
        clients = [stack.enter_context(silent(url)) for _ in range(ROOM + 10)]
        assert clients[9].recv(1) == b""  # it is full now, and makes room for each that comes
        os.kill(worker, signal.SIGSTOP)
        try:
            stack.enter_context(silent(url))
            for each in clients[10:]:
                each.sendall(b"P")
        finally:
            os.kill(worker, signal.SIGCONT)
        assert health(url) == 200
        assert workers(url) == serving


def test_what_is_no_request_ends_nothing_but_its_connection(url: str) -> None:
    serving = workers(url)
    with Health(url) as asked:
        for sent in NO_REQUESTS:
            with silent(url) as connection:
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
                told = answer(connection).status
                assert told in (0, 400, 414, 417, 431, 501), sent[:100]
    assert (asked.longest < SOON, asked.wrong) == (True, 0)
    assert workers(url) == serving


def test_a_connection_stays_for_the_next_request(url: str) -> None:
    connection = http.client.HTTPConnection(*address(url), timeout=10)
    with contextlib.closing(connection):
        connection.connect()
        first = connection.sock
        for status, method, token in ((400, "POST", "s3cret"), (401, "POST", ""), (405, "GET", "")):
            body = b"{}" if token else None
            connection.request(method, "/filter", body, {"Authorization": f"Bearer {token}"})
            reply = connection.getresponse()
            assert (reply.status, reply.read() != b"", reply.will_close) == (status, True, False)
        assert connection.sock is first


def test_a_client_is_told_when_its_connection_ends_for_a_body_that_was_not_read(url: str) -> None:
    connection = http.client.HTTPConnection(*address(url), timeout=10)
    with contextlib.closing(connection):
        for size in (2, 70_000, 2, 200_000):
            connection.putrequest("POST", "/filter")
            connection.putheader("Content-Length", str(size))
            connection.endheaders()
            reply = connection.getresponse()  # before its body is sent, or it might have been read by then
            assert (reply.status, reply.read() != b"", reply.will_close) == (401, True, size >= 70_000)
            if not reply.will_close:
                connection.send(b"x" * size)


def test_requests_that_are_sent_ahead_are_answered_in_order(url: str) -> None:
    one = b"GET %s HTTP/1.1\r\nHost: berth\r\n\r\n"
    with silent(url) as connection:
        connection.sendall(one % b"/healthz" + one % b"/a" + one % b"/healthz")
        with connection.makefile("rb") as stream:
            found = []
            for _ in range(3):
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += stream.readline()
                length = next(
                    line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
                )
                stream.read(int(length.partition(b":")[2]))
                found.append(int(head.split()[1]))
    assert found == [200, 405, 200]


def test_a_body_in_chunks_that_waits_to_be_asked_for_is_read(url: str) -> None:
    headers = {"Transfer-Encoding": "chunked", "Expect": "100-continue", "Authorization": "Bearer s3cret"}
    with opened(url, headers) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue")
        connection.sendall(b"2\r\n{}\r\n0\r\n\r\n")
        assert answer(connection).status == 400


def test_it_ends_at_once_with_clients_that_say_nothing(tmp_path: Path) -> None:
    environment = {"BERTH_STORE": f"sqlite:///{tmp_path}/ledger.db"}
    with ExitStack() as stack:
        with function("filter", environment, "webserver") as found:
            for client in (silent, half_a_head, never_ended):
                stack.enter_context(client(found))
            assert health(found) == 200
            began = time.monotonic()
        assert time.monotonic() - began < 10


def test_requests_that_have_begun_are_answered_when_it_ends(tmp_path: Path) -> None:
    environment = {"BERTH_STORE": f"sqlite:///{tmp_path}/ledger.db"}
    with function("filter", environment, "webserver") as found, ExitStack() as stack:
        begun = stack.enter_context(half_a_head(found))
        reading = stack.enter_context(opened(found, {"Content-Length": "2"}))
        other = stack.enter_context(contextlib.closing(http.client.HTTPConnection(*address(found))))
        wait(lambda: len(workers(found)) == 1, 30, "one worker serves")  # of a busy machine, none or two
        (worker,), told = workers(found), False
        while not told:  # that the connection ends, as a worker does that stops
            other.request("GET", "/healthz")
            reply = other.getresponse()
            reply.read()
            told = reply.will_close
            os.kill(worker, signal.SIGTERM)
        begun.sendall(b"rth\r\nContent-Length: 2\r\n\r\n{}")
        reading.sendall(b"{}")
        assert (answer(reading).status, answer(begun).status) == (400, 400)


@pytest.mark.parametrize("turns", range(1, 5))
def test_a_connection_that_comes_while_it_ends_is_answered(turns: int) -> None:
    """So many turns of the loop before the end: asyncio takes some to accept it, and to tell of it."""
    endpoint = Endpoint(
        name="filter",
        answer=lambda _, body: Reply(200, bytes(body)),
        failed=lambda message, _: Reply(503, message.encode()),
        health=lambda: None,
        body_limit=1000,
    )

    async def answered() -> bytes:
        loop = asyncio.get_running_loop()
        listener = socket.create_server(("127.0.0.1", 0))
        with (
            listener,
            listener.dup() as shared,
            silent(f"http://127.0.0.1:{shared.getsockname()[1]}") as client,
        ):
            connections = Connections(endpoint, None, loop)
            serving = await loop.create_server(lambda: Connection(connections), sock=listener)
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            for _ in range(turns):
                await asyncio.sleep(0)
            await end([listener], [serving], connections, 0.1)
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                return client.recv(1000)
            return b""

    assert asyncio.run(answered())[:12] == b"HTTP/1.1 405"


def test_who_ends_its_half_while_a_large_answer_comes_gets_all_of_it() -> None:
    """asyncio is told to close the connection then, and still sends what it gets meanwhile."""
    large = b"0123456789" * MIB
    endpoint = Endpoint(
        name="filter",
        answer=lambda *_: Reply(200, large),
        failed=lambda message, _: Reply(503, message.encode()),
        health=lambda: None,
        body_limit=1000,
    )

    def received(port: int) -> bytes:
        with silent(f"http://127.0.0.1:{port}") as client, client.makefile("rb") as stream:
            client.sendall(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
            first = stream.read(1000)
            client.shutdown(socket.SHUT_WR)
            return first + stream.read()

    async def answered() -> bytes:
        loop = asyncio.get_running_loop()
        connections = Connections(endpoint, None, loop)
        async with await loop.create_server(lambda: Connection(connections), "127.0.0.1") as serving:
            return await asyncio.to_thread(received, serving.sockets[0].getsockname()[1])

    assert asyncio.run(answered()).endswith(b"\r\n\r\n" + large)


def test_it_opens_no_socket_in_the_users_home(tmp_path: Path) -> None:
    """gunicorn would, for its own control: one for all servers of a user, which can stop them."""
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        "BERTH_STORE": f"sqlite:///{tmp_path}/ledger.db",
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(home),
    }
    with function("filter", environment, "webserver") as url:
        wait(lambda: health(url) == 200, 30, "it answers")
        assert list(home.rglob("*")) == []


def test_a_worker_does_at_its_end_what_was_registered_for_it(tmp_path: Path) -> None:
    """Such as sending the events that wait (kube/event_recorder)."""
    source, ended = tmp_path / "main.py", tmp_path / "ended"
    source.write_text(
        "import atexit, os, pathlib\n"
        "from berth.handlers import filter as verb\n"
        "from berth.http.function import serve\n"
        "filter = serve(verb.endpoint)\n"
        f"atexit.register(lambda: pathlib.Path({str(ended)!r}).open('a').write(f'{{os.getpid()}} '))\n"
    )
    environment = {**os.environ, "BERTH_STORE": f"sqlite:///{tmp_path}/ledger.db"}
    command = [sys.executable, "-m", "berth.http.server", "--source", str(source), "--target", "filter"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([*command, "--host", "127.0.0.1", "--port", str(port)], env=environment)
    try:
        url = f"http://127.0.0.1:{port}"
        wait(lambda: healthy(url), 60, "it answers")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    pids = {int(pid) for pid in ended.read_text().split()}
    assert pids - {process.pid}  # a worker's, besides its parent's


def healthy(url: str) -> bool:
    with contextlib.suppress(OSError):
        return health(url) in (200, 503)
    return False
