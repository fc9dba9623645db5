"""One URL for several processes: whose turn it is, who is skipped, and that nothing is ever sent twice.
The processes are played by small servers on threads; tests/e2e has the real ones behind `berth up`."""

import json
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack

import pytest

from berth.errors import SettingsError
from berth.local.load_balancer import LoadBalancer
from tests.support.fakes.replicas import SECONDS, Balanced, Client, Handler

Make = Callable[[int], Balanced]


@pytest.fixture
def scene_of() -> Iterator[Callable[[int], Balanced]]:
    with ExitStack() as stack:
        yield lambda replicas: Balanced(stack, replicas)


def test_each_request_of_one_connection_goes_to_the_next_replica(scene_of: Make) -> None:
    scene = scene_of(3)
    assert scene.answering(7) == [1, 2, 3, 1, 2, 3, 1]


def test_all_of_a_request_gets_there_but_what_was_meant_for_one_connection(scene_of: Make) -> None:
    scene = scene_of(2)
    headers = {
        "Authorization": "Basic YmVydGg6c2VjcmV0",
        "Content-Type": "application/json",
        "Connection": "keep-alive, X-Only-Here",
        "Keep-Alive": "timeout=5",
        "X-Only-Here": "1",
        "TE": "trailers",
        "Ce-Id": "7",
    }
    reply = scene.client(b'{"a": 1}', path="/priorities?x=%20y", headers=headers)
    (got,) = scene.replicas[1].got
    assert (got.method, got.path, got.body) == ("POST", "/priorities?x=%20y", b'{"a": 1}')
    assert got.headers["Authorization"] == headers["Authorization"]
    assert got.headers["Content-Type"] == "application/json"
    assert got.headers["Ce-Id"] == "7"
    assert got.headers["Host"] == f"127.0.0.1:{scene.port}"
    assert got.headers["Content-Length"] == "8"
    assert not {"connection", "keep-alive", "x-only-here", "te"} & {name.lower() for name in got.headers}
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/plain"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_probe_without_a_body_gets_its_answer(scene_of: Make, method: str) -> None:
    scene = scene_of(1)
    for _ in range(2):  # the second on the same connection: the first was read to its end
        reply = scene.client(b"", method=method, path="/healthz")
        assert reply.status == 200
        assert int(reply.headers["Content-Length"]) == len(str(scene.ports[0]))
        assert reply.body == (b"" if method == "HEAD" else str(scene.ports[0]).encode())
    assert {(got.method, got.path, got.body) for got in scene.replicas[1].got} == {(method, "/healthz", b"")}


def test_a_chunked_answer_is_passed_on_with_its_length(scene_of: Make) -> None:
    scene = scene_of(1)

    def chunked(handler: Handler) -> bool:
        handler.send_response(503, "Not Now")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n")
        return False

    scene.replicas[1].act = chunked
    reply = scene.client()
    assert (reply.status, reply.body, reply.headers["Content-Length"]) == (503, b"abcdefg", "7")
    assert "Transfer-Encoding" not in reply.headers


def test_bodies_of_50_megabytes_pass_both_ways(scene_of: Make) -> None:
    scene = scene_of(2)
    body = b"0123456789abcdef" * (50 * 1024 * 1024 // 16)

    def echo(handler: Handler) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        return False

    scene.replicas[1].act = echo
    assert scene.client(body).body == body
    assert scene.replicas[1].got[0].body == body
    assert scene.client(b"small").body == str(scene.ports[1]).encode()


def test_a_replica_that_is_away_is_skipped_and_taken_again_when_it_is_back(scene_of: Make) -> None:
    scene = scene_of(3)
    assert scene.answering(3) == [1, 2, 3]
    scene.stop(2)
    assert scene.answering(6) == [1, 3, 3, 1, 3, 3]
    scene.start(2)
    assert scene.answering(3) == [1, 2, 3]


def test_a_connection_that_its_replica_ended_at_rest_costs_no_call(scene_of: Make) -> None:
    scene = scene_of(1)
    scene.answering(2)
    (connection,) = scene.replicas[1].connections  # both calls went through one
    connection.shutdown(socket.SHUT_RDWR)
    scene.wait_ended(1)
    assert scene.answering(2) == [1, 1]
    assert len(scene.replicas[1].connections) == 2


def test_with_no_replica_there_calls_get_503_and_one_line_that_says_so(scene_of: Make) -> None:
    scene = scene_of(2)
    for number in scene.replicas:
        scene.stop(number)
    reply = scene.client()
    assert reply.status == 503
    assert json.loads(reply.body) == {"error": "filter: none of its 2 processes answers"}
    assert b"\n" not in reply.body
    scene.start(2)
    assert scene.answering(1) == [2]  # on the same connection


def _hang_up(handler: Handler) -> bool:
    handler.close_connection = True
    return False


def _half_an_answer(handler: Handler) -> bool:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    return _hang_up(handler)


def _no_http(handler: Handler) -> bool:
    handler.wfile.write(b"what?\r\n\r\n")
    return _hang_up(handler)


@pytest.mark.parametrize("end", [_hang_up, _half_an_answer, _no_http])
@pytest.mark.parametrize("rested", [False, True], ids=["a new connection", "one that rested"])
def test_a_call_that_a_replica_took_and_did_not_answer_gets_502_and_is_sent_to_nobody_else(
    scene_of: Make, end: Callable[[Handler], bool], rested: bool
) -> None:
    scene = scene_of(2)
    before = 1 if rested else 0
    if rested:
        assert scene.answering(2) == [1, 2]
    for replica in scene.replicas.values():
        replica.act = end
    reply = scene.client()
    assert reply.status == 502
    assert json.loads(reply.body)["error"].startswith("filter: ")
    assert scene.counts() == {1: before + 1, 2: before}
    for replica in scene.replicas.values():
        replica.act = lambda _: True
    assert scene.answering(2) == [2, 1]


def test_an_answer_that_comes_before_the_body_was_read_is_passed_on(scene_of: Make) -> None:
    scene = scene_of(1)
    scene.replicas[1].reads = False

    def refused(handler: Handler) -> bool:
        handler.wfile.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
        return _hang_up(handler)

    scene.replicas[1].act = refused
    reply = scene.client(b"x" * 30_000_000)  # more than fits between the two
    assert (reply.status, reply.body) == (401, b"no")


def test_a_replica_that_hangs_costs_its_own_calls_alone(scene_of: Make) -> None:
    scene = scene_of(2)
    held, go = threading.Semaphore(0), threading.Event()

    def hang(_: Handler) -> bool:
        held.release()
        return go.wait(SECONDS)

    scene.replicas[1].act = hang
    with ThreadPoolExecutor(4) as threads:
        calls = {threads.submit(client) for client in [scene.new_client() for _ in range(4)]}
        try:
            assert held.acquire(timeout=SECONDS)
            assert held.acquire(timeout=SECONDS)
            first, others = wait(calls, SECONDS, FIRST_COMPLETED)
            if len(first) == 1:
                more, others = wait(others, SECONDS, FIRST_COMPLETED)
                first |= more
            assert {call.result().body for call in first} == {str(scene.ports[1]).encode()}
            assert len(others) == 2
        finally:
            go.set()
        assert {call.result().body for call in others} == {str(scene.ports[0]).encode()}
    assert scene.counts() == {1: 2, 2: 2}


def test_many_connections_at_once_share_the_replicas_evenly(scene_of: Make) -> None:
    scene = scene_of(3)

    def calls(client: Client) -> set[int]:
        return {client().status for _ in range(30)}

    with ThreadPoolExecutor(8) as threads:
        clients = [scene.new_client() for _ in range(8)]
        assert set().union(*threads.map(calls, clients)) == {200}
    assert scene.counts() == {1: 80, 2: 80, 3: 80}


def test_a_client_that_gives_up_waiting_sets_its_connection_to_the_replica_free(scene_of: Make) -> None:
    scene = scene_of(1)
    arrived, gone = threading.Event(), queue.SimpleQueue[bytes]()

    def until_the_balancer_hangs_up(handler: Handler) -> bool:
        arrived.set()
        gone.put(handler.connection.recv(1))
        return _hang_up(handler)

    scene.replicas[1].act = until_the_balancer_hangs_up
    with scene.raw() as client:
        client.sendall(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        assert arrived.wait(SECONDS)
    assert gone.get(timeout=SECONDS) == b""


def test_a_request_that_was_not_sent_to_its_end_reaches_nobody(scene_of: Make) -> None:
    scene = scene_of(1)
    with scene.raw() as client:
        client.sendall(b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1000) == b""
    assert scene.counts() == {1: 0}


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"GET /\x01 HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
    ],
)
def test_what_cannot_be_forwarded_is_answered_with_one_line_of_json(
    scene_of: Make, request_: bytes, status: int
) -> None:
    scene = scene_of(1)
    with scene.raw() as client, client.makefile("rb") as answer:
        client.sendall(request_)
        head, _, body = answer.read().partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert set(json.loads(body)) == {"error"}
    assert scene.counts() == {1: 0}


def test_a_client_that_asks_first_is_told_to_go_on(scene_of: Make) -> None:
    scene = scene_of(1)
    with scene.raw() as client:
        client.sendall(
            b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
        )
        assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"{}")
        with client.makefile("rb") as answer:
            assert answer.read().endswith(str(scene.ports[0]).encode())
    (got,) = scene.replicas[1].got
    assert "Expect" not in got.headers


def test_after_its_end_it_listens_no_more_and_holds_no_connection(scene_of: Make) -> None:
    scene = scene_of(1)
    with scene.raw() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        scene.balancer.stop()
        assert client.recv(1000) == b""
    with pytest.raises(ConnectionRefusedError):
        scene.raw()


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"port {port} \(for bind\) is in use: .* --port"):
            LoadBalancer("bind", port, [1]).start()
