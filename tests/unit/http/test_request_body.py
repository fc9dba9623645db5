"""What a process lets its clients take of it: seconds for a body, bytes over all bodies.
Time is a number here; tests/http/test_floods.py has the processes."""

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from berth.http.endpoint import BodyRefusedError, Endpoint, Reply, Router, respond
from berth.http.request_body import (
    CROWDED_PATIENCE,
    LEAST_IN_HAND,
    PATIENCE,
    RequestBodies,
    RequestBody,
    request_bodies,
)

SECONDS = 30.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Stream:
    """gunicorn's body, as far as it is used here: it reads from the connection, and can be marked."""

    def __init__(self, connection: socket.socket, length: int) -> None:
        self.connection, self.left, self.failed = connection, length, False
        self.began = threading.Event()

    def read(self, size: int) -> bytes:
        self.began.set()
        part = self.connection.recv(min(size, self.left)) if self.left else b""
        self.left -= len(part)
        return part


class Client:
    """A client, and its request at the function."""

    def __init__(self, length: int) -> None:
        self.sends, self.takes = socket.socketpair()
        self.stream = Stream(self.takes, length)
        self.environ: dict[str, Any] = {
            "wsgi.input": self.stream,
            "wsgi.input_terminated": True,
            "gunicorn.socket": self.takes,
            "CONTENT_LENGTH": str(length),
        }


@pytest.fixture
def clock() -> Clock:
    return Clock()


@contextmanager
def clients(*lengths: int) -> Iterator[list[Client]]:
    with ExitStack() as stack:
        made = [Client(length) for length in lengths]
        for each in made:
            stack.enter_context(each.sends)
            stack.enter_context(each.takes)
        yield made


class Reading(threading.Thread):
    """A thread that reads a body to its end, and what became of that."""

    def __init__(self, bodies: RequestBodies, client: Client) -> None:
        super().__init__(daemon=True)
        self._body, self.status, self.taken = bodies.body(client.environ), 0, 0
        self.start()
        assert client.stream.began.wait(SECONDS)

    def run(self) -> None:
        with self._body as body:
            try:
                while part := body.read(1000):
                    self.taken += len(part)
            except BodyRefusedError as refusal:
                self.status = refusal.status
            else:
                self.status = 200

    def end(self) -> int:
        self.join(SECONDS)
        assert not self.is_alive()
        return self.status


def quiet(most: int, threads: int, clock: Clock) -> RequestBodies:
    """One whose own thread does not look: the test does."""
    bodies = RequestBodies(most, threads, clock)
    bodies._watcher = threading.current_thread()
    return bodies


def test_a_body_that_takes_too_long_is_given_up_and_not_before(clock: Clock) -> None:
    bodies = quiet(1000, 8, clock)
    with clients(10) as (client,):
        reading = Reading(bodies, client)
        client.sends.send(b"x")
        clock.now = PATIENCE - 0.01
        bodies.end_slow()
        client.sends.send(b"x")
        assert reading.is_alive()
        clock.now = PATIENCE
        bodies.end_slow()
        assert reading.end() == 408
        assert client.stream.failed


@pytest.mark.parametrize(("threads", "slow"), [(1, 1), (4, 3), (8, 6), (16, 12)])
def test_slow_bodies_make_way_when_three_quarters_of_the_threads_read(
    clock: Clock, threads: int, slow: int
) -> None:
    bodies = quiet(1000, threads, clock)
    with clients(*[10] * slow) as found:
        begun = [Reading(bodies, each) for each in found[:-1]]
        clock.now = CROWDED_PATIENCE
        bodies.end_slow()
        assert all(each.is_alive() for each in begun)
        late = Reading(bodies, found[-1])
        bodies.end_slow()
        assert [each.end() for each in begun] == [503] * (slow - 1)
        clock.now = CROWDED_PATIENCE + PATIENCE
        bodies.end_slow()
        assert late.end() == (408 if slow > 1 else 503)


def test_a_body_that_was_read_is_not_ended_however_long_its_answer_takes(clock: Clock) -> None:
    bodies = quiet(1000, 1, clock)
    with clients(3) as (client,):
        client.sends.send(b"abc")
        with bodies.body(client.environ) as body:
            assert (body.read(100), body.read(100)) == (b"abc", b"")
            clock.now = 1000
            bodies.end_slow()
        client.sends.send(b"next")
        assert client.takes.recv(100) == b"next"
        assert not client.stream.failed


def test_the_bytes_of_all_calls_are_counted_until_they_are_answered(clock: Clock) -> None:
    bodies = quiet(1000, 8, clock)
    with clients(600, 600, 600) as found:
        for each in found:
            each.sends.send(b"x" * 600)
        with bodies.body(found[0].environ) as first:
            assert len(first.read(600)) == 600
            with bodies.body(found[1].environ) as second:
                with pytest.raises(BodyRefusedError) as caught:
                    second.read(600)
                assert (caught.value.status, caught.value.retry_after) == (503, 1)
        with bodies.body(found[2].environ) as third:
            assert len(third.read(600)) == 600
            assert third.read(1) == b""


@pytest.mark.parametrize(
    ("length", "come", "stays"), [(0, 0, True), (5, 5, True), (5, 4, False), (65_536, 65_536, False)]
)
def test_a_body_that_nobody_reads_costs_the_connection_unless_all_of_it_has_come(
    clock: Clock, length: int, come: int, stays: bool
) -> None:
    with clients(length) as (client,):
        client.sends.send(b"x" * come)
        with quiet(1000, 8, clock).body(client.environ):
            pass
        assert client.stream.failed != stays
        assert client.environ["wsgi.input"].read() == b""
        assert client.takes.getblocking()


def test_a_server_that_tells_no_socket_is_served_all_the_same(clock: Clock) -> None:
    bodies = quiet(10, 1, clock)
    environ = {"wsgi.input": io.BytesIO(b"abcdef"), "CONTENT_LENGTH": "3"}
    with bodies.body(environ) as body:
        assert (body.read(10), body.read(10)) == (b"abc", b"")
    with bodies.body({"wsgi.input": io.BytesIO(b"abc"), "CONTENT_LENGTH": "3"}) as body:
        assert isinstance(body, RequestBody)


def test_a_process_may_hold_as_much_as_its_largest_body_and_two_events_at_least() -> None:
    def endpoint(limit: int) -> Endpoint:
        return Endpoint(
            name="x",
            answer=lambda *_: Reply(200, b""),
            failed=lambda *_: Reply(500, b""),
            health=lambda: None,
            body_limit=limit,
        )

    assert request_bodies(endpoint(10))._most == LEAST_IN_HAND
    assert request_bodies(endpoint(LEAST_IN_HAND + 1))._most == LEAST_IN_HAND + 1
    router = Router(name="x", endpoints={"a": endpoint(1)}, health=lambda: None, default=endpoint(7_000_000))
    assert request_bodies(router)._most == 7_000_000


def test_a_body_in_chunks_that_is_larger_than_the_largest_is_told_so_and_not_to_come_again() -> None:
    largest = Endpoint(
        name="x",
        answer=lambda *_: Reply(200, b""),
        failed=lambda *_: Reply(500, b""),
        health=lambda: None,
        body_limit=LEAST_IN_HAND,
    )
    for more, status in ((0, 200), (1, 413)):
        body = io.BytesIO(b"x" * (LEAST_IN_HAND + more))
        environ = {"wsgi.input": body, "wsgi.input_terminated": True}
        with request_bodies(largest).body(environ) as chunks:
            assert respond(largest, "POST", "/", {}, chunks).status == status
