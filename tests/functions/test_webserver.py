"""Berth's own server: clients that come slowly hold nobody up, and all others are served as by gunicorn."""

import contextlib
import http.client
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.floods import MIB, Health, address, answer, health, opened, peak, trickles
from tests.support.framework import function, send

SOON = 1.0


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


@pytest.mark.parametrize("line", [b"POST /", b"POST / HTTP/1.1\r\nHost: "])
def test_headers_without_an_end_are_not_read_on(url: str, line: bytes) -> None:
    before = peak(url)
    with silent(url) as connection:
        connection.sendall(line)
        with pytest.raises(OSError, match=r"reset|Broken"):
            connection.sendall(b"x" * 100 * MIB)
    assert peak(url) - before < 10


def test_bodies_that_come_slowly_hold_threads_and_health_has_its_own(url: str) -> None:
    with trickles(url, 8, {"Authorization": "Bearer s3cret"}) as clients, Health(url) as asked:
        assert {answer(each).status for each in clients} <= {408, 503}
    assert (asked.longest < SOON, asked.wrong) == (True, 0)


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
            connection.request("POST", "/filter", b"x" * size)
            reply = connection.getresponse()
            assert (reply.status, reply.read() != b"") == (401, True)
            assert reply.will_close or size < 70_000


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
