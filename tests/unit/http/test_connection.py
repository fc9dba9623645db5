"""One client's connection in memory: what is sent for what came, and when. Time is a number here, and threads
work when they are told to; tests/http/test_server.py has real ones."""

import asyncio
import itertools
import random
import re
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.errors import StoreUnavailableError
from berth.http.connection import LARGEST_HEAD, Connection, Phase
from berth.http.connections import ANSWER_SECONDS, HEADER_SECONDS, Connections
from berth.http.endpoint import Content, Endpoint, LongList, Reply, Router, error_reply
from berth.http.request_body import LEAST_IN_HAND, PATIENCE
from tests.support.selection import examples

SKIPPED = 64 * 1024
QUICK = 256 * 1024  # bytes of a body
ANSWERED = 512  # calls whose answers are being made
ROOM = ANSWERED + 64  # connections
DATE = b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"


class Loop:
    """The event loop, as far as it is used: what is called later, is called by `Stage.pass_time`."""

    def __init__(self) -> None:
        self.now, self.later = 0.0, list[Callable[[], object]]()

    def time(self) -> float:
        return self.now

    def call_later(self, _: float, call: Callable[[], object]) -> object:
        self.later.append(call)
        return call

    def call_soon_threadsafe(self, call: Callable[..., object], *arguments: object) -> None:
        call(*arguments)


class Threads(Executor):
    """Threads that do their work when the test says so."""

    def __init__(self) -> None:
        self.works = list[tuple[Callable[[], Any], Future[Any]]]()

    def submit(self, work: Callable[..., Any], /, *_: Any, **__: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.works.append((work, future))
        return future

    def work(self) -> None:
        work, future = self.works.pop(0)
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - as a pool's threads do
            future.set_exception(error)


LARGE = b"0123456789" * 100_000
ITEMS = tuple(msgspec.Raw(b'"%d"' % number * 2000) for number in range(200))
LISTED = b"[" + b",".join(ITEMS) + b"]"


class Transport(asyncio.Transport):
    """Keeps what is sent; the client takes all at once, unless it is `deaf`."""

    def __init__(self) -> None:
        super().__init__()
        self.unread, self.sent, self.unsent = b"", b"", b""
        self.deaf = self.aborted = self.closed = self.ended = self.paused = False
        self.protocol: Connection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.ended
        if self.deaf:
            self.unsent += bytes(data)
            self.protocol.pause_writing()
        else:
            self.sent += bytes(data)

    def take(self) -> None:
        self.deaf, self.sent, self.unsent = False, self.sent + self.unsent, b""
        self.protocol.resume_writing()

    def receive(self, data: bytes) -> None:
        """As asyncio reads what the client sends."""
        self.unread += data
        while self.unread and not self.paused and not self.aborted:
            room = self.protocol.get_buffer(-1)
            read = self.unread[: len(room)]
            assert read
            room[: len(read)], self.unread = read, self.unread[len(read) :]
            self.protocol.buffer_updated(len(read))

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (0, None)

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        if not self.aborted:
            self.aborted = True
            self.protocol.connection_lost(None)

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Lingering(Transport):
    """Tells of its end later than the test ends."""

    def abort(self) -> None:
        self.aborted = True


class Lost(Lingering):
    """Finds out with the `last` of its writes that its client has gone; asyncio warns of some that follow."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.last, self.writes = last, 0

    def write(self, _: bytes | bytearray | memoryview) -> None:
        self.writes += 1
        if self.writes == self.last:
            self.abort()


class Breaking(Lingering):
    """Breaks in the middle of a large answer."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.aborted
        super().write(data)
        if len(self.sent) > 300_000:
            self.abort()


class Keeper:
    """An authenticator that knows the token `known`, and asks about `asked`."""

    def refusal(self, authorization: str) -> str:
        if authorization == "broken":
            raise RecursionError
        return "" if authorization in ("known", "asked") else "needs a token"

    def knows(self, authorization: str) -> bool:
        return authorization not in ("asked", "broken")


class Stage:
    """A process's connections, and what its endpoint was given."""

    def __init__(self, *, waits: bool = False, limit: int = 1000, closed: bool = False) -> None:
        self.got = list[bytes]()
        self.loop, self.threads, self.health, self.reviews = Loop(), Threads(), Threads(), Threads()
        loop: Any = self.loop
        endpoint = Endpoint(
            name="filter",
            answer=self._answer,
            failed=lambda message, _: error_reply(503, message),
            health=lambda: None,
            body_limit=limit,
            authenticator=Keeper() if closed else None,
            at_once=None if waits else self._at_once,
        )
        router = Router(
            name="filter", endpoints={"filter": endpoint}, health=endpoint.health, default=endpoint
        )
        self.shared = Connections(router, None, loop, clock=lambda: 0.0)
        self.shared.threads, self.shared.health, self.shared.reviews = self.threads, self.health, self.reviews

    def _answer(self, _: Mapping[str, str], content: Content) -> Reply:
        self.got.append(body := bytes(content))
        if body == b"away":
            raise StoreUnavailableError("the store is away")
        if body == b"large":
            return Reply(200, LARGE)
        if body == b"listed":
            return Reply(200, LongList(b"[", ITEMS, b"]"))
        return Reply(204, b"") if body == b"event" else Reply(200, b'"%d"' % len(self.got))

    def _at_once(self, headers: Mapping[str, str], body: Content) -> Reply | None:
        return None if body == b"waits" else self._answer(headers, body)

    def connect(self, transport: Transport | None = None) -> Transport:
        transport = transport or Transport()
        transport.protocol = Connection(self.shared)
        transport.protocol.connection_made(transport)
        return transport

    def pass_time(self, seconds: float) -> None:
        self.loop.now += seconds
        for call in [self.loop.later.pop(0) for _ in list(self.loop.later)]:
            call()


def post(body: bytes = b"", *headers: bytes, length: int | None = None, path: bytes = b"/filter") -> bytes:
    size = len(body) if length is None else length
    lines = [b"POST %s HTTP/1.1" % path, b"Host: berth", b"Content-Length: %d" % size, *headers, b"", body]
    return b"\r\n".join(lines)


def ok(body: bytes, *more: bytes) -> bytes:
    length = b"Content-Length: %d\r\n" % len(body)
    said = b"Content-Type: application/json\r\n" + length + b"".join(line + b"\r\n" for line in more)
    return b"HTTP/1.1 200 OK\r\n" + DATE + said + b"\r\n" + body


def statuses(transport: Transport) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", transport.sent)]


def test_a_request_is_answered_however_it_is_cut() -> None:
    stage = Stage()
    request = post(b"hello")
    for step in (1, 2, 7, len(request)):
        transport = stage.connect()
        for at in range(0, len(request), step):
            assert transport.sent == b""
            transport.receive(request[at : at + step])
        assert transport.sent == ok(b'"%d"' % len(stage.got))
        assert transport.protocol.phase is Phase.HEAD
    assert set(stage.got) == {b"hello"}
    assert stage.shared.held == 0


READ = 256 * 1024
LONG = random.Random(1).randbytes(1024 * 1024 + 77)


@settings(max_examples=examples(40, 400))
@given(
    st.lists(
        st.sampled_from([0, 1, 2 * READ, len(LONG)]) | st.integers(0, len(LONG)), min_size=1, max_size=4
    ),
    st.lists(st.integers(0, 1000) | st.integers(0, 4 * len(LONG)), max_size=12).map(sorted),
    st.booleans(),
)
def test_requests_are_read_alike_however_their_bytes_come(
    sizes: list[int], cuts: list[int], waits: bool
) -> None:
    """Long bodies come past the parser, and what follows them does not."""
    stage = Stage(waits=waits, limit=len(LONG))
    transport, due = stage.connect(), [LONG[:size] for size in sizes]
    sent = b"".join(map(post, due))
    for start, stop in itertools.pairwise([0, *cuts, len(sent)]):
        transport.receive(sent[start:stop])
        while stage.threads.works:
            stage.threads.work()
            transport.receive(b"")
    assert stage.got == due
    assert (statuses(transport), stage.shared.held) == ([200] * len(due), 0)
    assert (transport.protocol.phase, transport.aborted) == (Phase.HEAD, False)


def test_a_body_in_chunks_is_read_and_what_follows_it_is_no_header() -> None:
    stage = Stage()
    transport = stage.connect()
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    transport.receive(head + b"5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nA: b\r\n\r\n")
    assert stage.got == [b"hello!"]
    assert statuses(transport) == [200]


def test_requests_that_are_sent_ahead_are_answered_in_order_by_threads_too() -> None:
    stage = Stage(waits=True)
    transport = stage.connect()
    transport.receive(post(b"a") + b"GET /healthz HTTP/1.1\r\n\r\n" + post(b"b"))
    assert (len(stage.threads.works), len(stage.health.works), transport.paused) == (1, 0, True)
    stage.threads.work()
    assert (len(stage.threads.works), len(stage.health.works), statuses(transport)) == (0, 1, [200])
    stage.health.work()
    stage.threads.work()
    assert statuses(transport) == [200, 200, 200]
    assert (stage.got, transport.paused) == ([b"a", b"b"], False)


def test_a_call_that_can_not_be_answered_at_once_is_answered_by_a_thread_and_holds_up_nobody() -> None:
    stage = Stage()
    waiting, other = stage.connect(), stage.connect()
    waiting.receive(post(b"waits") + post(b"behind it"))
    other.receive(post(b"a"))
    assert (len(stage.threads.works), waiting.sent, statuses(other)) == (1, b"", [200])
    stage.threads.work()
    assert (statuses(waiting), stage.threads.works) == ([200, 200], [])
    assert (stage.got, stage.shared.held) == ([b"a", b"waits", b"behind it"], 0)


@pytest.mark.parametrize("more", [0, 1])
def test_a_large_body_is_for_a_thread_in_any_case(more: int) -> None:
    stage = Stage(limit=2 * QUICK)
    transport = stage.connect()
    transport.receive(post(b"x" * (QUICK + more)))
    assert (len(stage.threads.works), len(stage.got)) == (more, 1 - more)


def test_who_sends_too_many_ahead_is_cut_off_behind_those_that_were_whole() -> None:
    stage = Stage(waits=True)
    transport = stage.connect()
    transport.receive(post(b"a") * 40)
    for _ in range(32):
        stage.threads.work()
    assert statuses(transport) == [*[200] * 32, 400]
    assert transport.ended


def test_an_event_s_answer_has_no_body_and_a_head_s_neither() -> None:
    stage = Stage()
    transport = stage.connect()
    transport.receive(post(b"event"))
    assert transport.sent == b"HTTP/1.1 204 No Content\r\n" + DATE + b"\r\n"
    transport.sent = b""
    transport.receive(b"HEAD /healthz HTTP/1.1\r\n\r\n")
    stage.health.work()
    assert transport.sent.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 35\r\n" in transport.sent
    assert transport.sent.endswith(b"\r\n\r\n")


def test_an_error_of_the_endpoint_is_its_reply() -> None:
    stage = Stage()
    transport = stage.connect()
    transport.receive(post(b"away"))
    assert statuses(transport) == [503]
    assert b"the store is away" in transport.sent


@pytest.mark.parametrize(
    ("request_", "stays"),
    [
        (b"POST / HTTP/1.0\r\nContent-Length: 0\r\n\r\n", False),
        (b"POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", True),
        (post(b"", b"Connection: close"), False),
        (post(b""), True),
    ],
)
def test_a_connection_ends_with_its_answer_where_its_client_wants_that(request_: bytes, stays: bool) -> None:
    transport = Stage().connect()
    transport.receive(request_)
    assert (b"Connection: close\r\n" in transport.sent, transport.ended) == (not stays, not stays)


def test_a_token_that_is_not_known_is_reviewed_before_the_body_is_read_on() -> None:
    stage = Stage(closed=True)
    transport = stage.connect()
    transport.receive(post(b"hel", b"Authorization: asked", length=5))
    assert (len(stage.reviews.works), transport.paused, stage.got) == (1, True, [])
    stage.reviews.work()
    assert not transport.paused
    transport.receive(b"lo")
    assert (statuses(transport), stage.got) == ([200], [b"hello"])


@pytest.mark.parametrize("rest", [SKIPPED, SKIPPED + 1])
def test_a_refused_request_costs_its_connection_only_if_much_of_it_is_to_come(rest: int) -> None:
    stage = Stage(closed=True)
    transport = stage.connect()
    transport.receive(post(b"", length=rest))
    assert statuses(transport) == [401]
    assert transport.ended == (rest > SKIPPED)
    if not transport.ended:
        transport.receive(b"x" * rest + post(b"a", b"Authorization: known"))
        assert statuses(transport) == [401, 200]
    assert stage.shared.held == 0


def test_space_behind_a_length_is_no_part_of_it() -> None:
    """A body that nobody reads would be taken to its end, where its length could not be told."""
    stage = Stage(closed=True)
    transport = stage.connect()
    transport.receive(b"POST / HTTP/1.1\r\nContent-Length: 700000000 \t\r\n\r\n")
    assert (statuses(transport), transport.ended) == ([401], True)


def test_a_body_over_the_limit_is_refused_as_soon_as_that_is_clear() -> None:
    stage = Stage(limit=10)
    said, chunked = stage.connect(), stage.connect()
    said.receive(post(b"", length=11))
    chunked.receive(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n" + b"x" * 11)
    assert statuses(said) == statuses(chunked) == [413]
    assert (said.ended, chunked.ended, stage.shared.held, stage.got) == (False, True, 0, [])


def long_request(*headers: bytes) -> bytes:
    """A request whose body comes past the parser, but for its last byte."""
    return post(LONG[:-1], *headers, length=len(LONG))


def test_a_long_body_is_counted_as_it_comes_and_nothing_of_it_stays() -> None:
    stage = Stage(waits=True, limit=len(LONG))
    gone, late = stage.connect(), stage.connect()
    for client in (gone, late):
        client.receive(long_request())
    assert stage.shared.held == 2 * (len(LONG) - 1)
    gone.abort()
    assert stage.shared.held == len(LONG) - 1
    stage.pass_time(PATIENCE + 0.1)
    assert (statuses(late), late.ended, stage.shared.held, stage.got) == ([408], True, 0, [])
    late.receive(LONG)  # what still comes is dropped
    assert not late.aborted


def test_a_long_body_over_the_bound_is_refused_in_its_middle() -> None:
    stage = Stage(waits=True, limit=LEAST_IN_HAND)
    big, other, third = stage.connect(), stage.connect(), stage.connect()
    big.receive(post(b"x" * (LEAST_IN_HAND - len(LONG)), length=LEAST_IN_HAND))
    other.receive(post(LONG[: 3 * READ], length=len(LONG)))
    third.receive(post(LONG[: 2 * READ], length=len(LONG)))
    assert (statuses(big), statuses(other), statuses(third)) == ([], [], [503])
    assert third.ended
    other.receive(LONG[3 * READ :])
    stage.threads.work()
    assert (statuses(other), stage.got) == ([200], [LONG])


def test_the_rest_of_a_long_body_that_is_refused_near_its_end_is_skipped() -> None:
    stage = Stage(waits=True, limit=LEAST_IN_HAND)
    big, other = stage.connect(), stage.connect()
    big.receive(post(b"x" * (LEAST_IN_HAND - len(LONG) + 100), length=LEAST_IN_HAND))
    other.receive(post(LONG[:-99], length=len(LONG)))
    assert (statuses(other), other.ended) == ([503], False)
    big.abort()
    other.receive(LONG[-99:] + post(b"a"))
    stage.threads.work()
    assert (statuses(other), stage.got, stage.shared.held) == ([503, 200], [b"a"], 0)


def test_a_client_that_ends_in_the_middle_of_a_long_body_leaves_nothing() -> None:
    stage = Stage(limit=len(LONG))
    half = stage.connect()
    half.receive(long_request())
    assert not half.protocol.eof_received()
    half.protocol.connection_lost(None)
    assert (half.sent, stage.shared.held) == (b"", 0)


def test_a_long_body_is_read_once_its_sender_s_token_is_known() -> None:
    stage = Stage(closed=True, waits=True, limit=len(LONG))
    transport, stranger = stage.connect(), stage.connect()
    transport.receive(long_request(b"Authorization: asked") + LONG[-1:])
    stranger.receive(long_request(b"Authorization: nobody") + LONG[-1:])
    assert (stage.shared.held, statuses(stranger)) == (0, [401])
    stage.reviews.work()
    transport.receive(b"")
    stage.threads.work()
    assert (statuses(transport), stage.got, stage.shared.held) == ([200], [LONG], 0)


def test_a_body_that_may_not_be_read_is_left_and_answered_at_once() -> None:
    stage = Stage(limit=0)
    transport = stage.connect()
    transport.receive(post(b"abc", length=5))
    assert (stage.got, statuses(transport), stage.shared.held) == ([b""], [200], 0)
    transport.receive(b"de" + post(b"f"))
    assert statuses(transport) == [200, 200]


def test_all_bodies_in_hand_are_bounded_until_they_are_answered() -> None:
    stage = Stage(waits=True, limit=LEAST_IN_HAND)
    big = stage.connect()
    big.receive(post(b"x" * LEAST_IN_HAND))
    other = stage.connect()
    other.receive(post(b"x"))
    assert statuses(other) == [503]
    assert b"Retry-After: 1\r\n" in other.sent
    stage.threads.work()
    assert stage.shared.held == 0
    other.receive(post(b"x"))
    stage.threads.work()
    assert statuses(other) == [503, 200]


@pytest.mark.parametrize("token", [b"", b"Authorization: asked"])
def test_bodies_of_those_who_were_not_let_in_are_none_of_them(token: bytes) -> None:
    """Or strangers could fill the bound with what they send behind a request whose answer they do not take,
    or with tokens that are asked for."""
    stage = Stage(closed=True, limit=1000)
    for _ in range(50):
        stranger = stage.connect()
        stranger.deaf = True
        stranger.receive(b"" if token else b"GET / HTTP/1.1\r\n\r\n")
        stranger.receive(post(b"x" * 200_000, token))
    other = stage.connect()
    other.receive(post(b"a", b"Authorization: known"))
    assert (statuses(other), stage.shared.held) == ([200], 0)


def test_who_was_let_in_may_send_on_for_a_while_behind_the_answer_that_ends_its_connection() -> None:
    """Or the answer, which it has not read, would go with the connection."""
    client = Stage(limit=1000).connect()
    client.receive(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n" + b"x" * 2000)
    assert (statuses(client), client.ended) == ([413], True)
    for _ in range(8):
        client.receive(b"x" * 1024 * 1024)
    assert not client.aborted
    client.receive(b"x")
    assert client.aborted


def test_who_was_not_let_in_may_send_little_behind_its_refusal() -> None:
    client = Stage(closed=True).connect()
    client.receive(post(b"", length=100_000_000))
    assert (statuses(client), client.ended) == ([401], True)
    client.receive(b"x" * 64 * 1024)
    assert not client.aborted
    client.receive(b"x")
    assert client.aborted


def test_a_body_that_is_asked_for_comes_after_its_head() -> None:
    transport = Stage().connect()
    transport.receive(post(b"", b"Expect: 100-continue", length=2))
    assert transport.sent == b"HTTP/1.1 100 Continue\r\n\r\n"
    transport.receive(b"{}")
    assert statuses(transport) == [100, 200]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 8200 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nExpect: much\r\n\r\n", 417),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"\x16\x03\x01", 400),
    ],
)
def test_what_is_no_request_is_told_so_after_all_answers_and_ends_the_connection(
    request_: bytes, status: int
) -> None:
    stage = Stage(waits=True)
    transport = stage.connect()
    transport.receive(post(b"a") + request_)
    assert statuses(transport) == []
    stage.threads.work()
    assert (statuses(transport), transport.ended) == ([200, status], True)
    assert transport.sent.count(b"\n") == transport.sent.count(b"\r\n")


def test_who_wants_another_protocol_is_answered_in_this_one() -> None:
    transport = Stage().connect()
    transport.receive(b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nabc")
    assert (statuses(transport), transport.ended) == ([405], True)


@pytest.mark.parametrize(
    "sent", [b"Content-Length: 2\r\n\r\n{}", b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"]
)
def test_a_body_behind_a_wish_for_another_protocol_is_not_taken_for_none(sent: bytes) -> None:
    """The parser does not read on there: the endpoint would answer to an empty body."""
    stage = Stage()
    transport = stage.connect()
    transport.receive(b"POST / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n" + sent)
    assert (stage.got, statuses(transport), transport.ended) == ([], [400], True)


def test_a_head_or_chunks_without_end_are_cut_off() -> None:
    stage = Stage()
    head, chunks = stage.connect(), stage.connect()
    head.receive(b"\r\n" * LARGEST_HEAD)
    chunks.receive(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;")
    for _ in range(2):
        chunks.receive(b"x" * LARGEST_HEAD)
    assert (head.aborted, chunks.aborted) == (True, True)
    assert len(stage.shared) == 0


def test_what_follows_the_last_chunk_is_cut_off_as_a_head_is_however_large_the_body_was() -> None:
    """The parser keeps it, and nothing counts that."""
    transport = Stage(limit=1_000_000).connect()
    body = b"%x\r\n" % 100_000 + b"x" * 100_000 + b"\r\n"
    transport.receive(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
    transport.receive(b"0\r\nA: " + b"x" * (LARGEST_HEAD - 6))
    assert not transport.aborted
    transport.receive(b"x")
    assert transport.aborted


@pytest.mark.parametrize("at_once", [1, 1000])
def test_a_body_may_come_byte_by_byte_in_chunks(at_once: int) -> None:
    stage = Stage(limit=100_000)
    transport = stage.connect()
    transport.receive(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(100_000 // at_once):
        transport.receive(b"1\r\nx\r\n" * at_once)
    transport.receive(b"0\r\n\r\n")
    assert (statuses(transport), stage.got) == ([200], [b"x" * 100_000])


def test_time_runs_out_for_heads_bodies_and_those_who_take_no_answer() -> None:
    stage = Stage()
    silent, slow, deaf = stage.connect(), stage.connect(), stage.connect()
    slow.receive(post(b"a", length=5))
    deaf.deaf = True
    deaf.receive(post(b"a") * 2)
    stage.pass_time(HEADER_SECONDS + 0.1)
    assert (silent.aborted, slow.aborted, deaf.aborted) == (True, False, False)
    stage.pass_time(PATIENCE - HEADER_SECONDS)
    assert (statuses(slow), slow.ended, deaf.aborted) == ([408], True, False)
    stage.pass_time(ANSWER_SECONDS)
    assert (deaf.aborted, len(stage.got)) == (True, 1)


def test_what_goes_wrong_at_one_deadline_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    slow, silent = stage.connect(), stage.connect()
    slow.receive(post(b"a", length=5))
    stage.pass_time(HEADER_SECONDS + 0.1)
    later = stage.connect()

    def wrong(_: object) -> None:
        raise OSError("wrong")

    monkeypatch.setattr(slow, "write", wrong)
    with pytest.raises(OSError, match="wrong"):
        stage.pass_time(PATIENCE - HEADER_SECONDS)
    stage.pass_time(PATIENCE + 0.1)
    assert (silent.aborted, slow.aborted, later.aborted) == (True, True, True)


def test_who_takes_an_answer_late_gets_the_next_one() -> None:
    stage = Stage()
    transport = stage.connect()
    transport.deaf = True
    transport.receive(post(b"a") * 2)
    assert len(stage.got) == 1
    transport.take()
    assert statuses(transport) == [200, 200]


@pytest.mark.parametrize(("asked", "body"), [(b"large", LARGE), (b"listed", LISTED)])
def test_a_large_answer_is_written_as_its_client_takes_it(asked: bytes, body: bytes) -> None:
    """asyncio copies what the system does not take at once: 44 MB of full nodes three times."""
    transport = Stage().connect()
    transport.deaf = True
    transport.receive(post(asked) + post(b"a"))
    whole = ok(body)
    assert (len(transport.unsent) < 300_000, transport.protocol.unsent) == (True, len(whole))
    transport.take()
    assert transport.sent == whole + ok(b'"2"')
    assert transport.protocol.unsent == 0


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_answers_that_are_not_taken_hold_no_more_than_bodies_may(apart: float) -> None:
    """Or slow clients could fill the memory with them: who takes a byte now and then has as long as it likes.
    Who was answered a moment ago is none of those."""
    stage, clients = Stage(), list[Transport]()
    for _ in range(20):
        stage.loop.now += apart
        clients.append(stage.connect())
        clients[-1].deaf = True
        clients[-1].receive(post(b"large"))
    stay = LEAST_IN_HAND // len(ok(LARGE)) if apart else 20
    assert [client.aborted for client in clients] == [True] * (20 - stay) + [False] * stay
    clients[-1].take()
    assert clients[-1].sent == ok(LARGE)


@pytest.mark.parametrize("last", [1, 2])
def test_a_large_answer_is_not_written_on_for_a_client_that_has_gone(last: int) -> None:
    client = Lost(last)
    Stage().connect(client).receive(post(b"large"))
    assert client.writes == last


def test_a_connection_that_was_lost_in_the_moment_of_its_end_is_no_error() -> None:
    class Reset(Transport):
        def write_eof(self) -> None:
            raise OSError("Transport endpoint is not connected")

    client = Stage().connect(Reset())
    client.receive(post(b"a", b"Connection: close"))
    assert (statuses(client), client.protocol.phase) == ([200], Phase.END)


@pytest.mark.parametrize("asked", [b"large", b"listed"])
def test_an_answer_that_is_cut_off_is_not_written_on_nor_kept(asked: bytes) -> None:
    transport = Stage().connect(Breaking())
    before = sys.getrefcount(LARGE), sys.getrefcount(ITEMS)
    transport.receive(post(asked))
    assert (len(transport.sent) < 600_000, transport.aborted) == (True, True)
    transport.protocol.connection_lost(None)
    assert (sys.getrefcount(LARGE), sys.getrefcount(ITEMS)) == before


def test_a_connection_that_is_to_end_does_so_after_its_large_answer() -> None:
    transport = Stage().connect()
    transport.deaf = True
    transport.receive(post(b"large", b"Connection: close"))
    assert not transport.ended
    transport.take()
    assert (transport.sent, transport.ended) == (ok(LARGE, b"Connection: close"), True)


def test_a_connection_keeps_no_answer_that_was_sent() -> None:
    transport, before = Stage().connect(), sys.getrefcount(LARGE)
    transport.receive(post(b"large"))
    assert (statuses(transport), transport.aborted) == ([200], False)
    assert sys.getrefcount(LARGE) == before


def test_a_connection_that_is_lost_keeps_nothing_of_its_answer() -> None:
    """It stands in a circle with its parser, so it stays until Python looks for those."""
    transport, before = Stage().connect(), sys.getrefcount(LARGE)
    transport.deaf = True
    transport.receive(post(b"large"))
    assert sys.getrefcount(LARGE) > before
    transport.abort()
    assert sys.getrefcount(LARGE) == before


SLOW = post(b"", length=10)


@pytest.mark.parametrize(
    ("sent", "deaf"), [(b"", False), (SLOW, False), (SLOW + b"x" * 10, True)], ids=["head", "body", "deaf"]
)
@pytest.mark.parametrize("closed", [False, True])
def test_who_lets_us_wait_for_longest_makes_room_for_who_comes(sent: bytes, deaf: bool, closed: bool) -> None:
    stage = Stage(closed=closed)
    clients = list[Transport]()
    for at in range(ROOM):
        stage.loop.now = at / 1000
        clients.append(stage.connect())
        clients[-1].deaf = deaf
        clients[-1].receive(sent)
    stage.loop.now = 1.0
    newest = stage.connect()
    newest.receive(b"GET /healthz HTTP/1.1\r\n\r\n")
    stage.health.work()
    assert statuses(newest) == [200]
    assert [client.aborted for client in clients] == [True] + [False] * (ROOM - 1)


def test_each_of_many_that_come_at_once_makes_room_of_another() -> None:
    """asyncio tells of a connection's end only after all that came with it."""
    stage = Stage()
    clients = [stage.connect(Lingering()) for _ in range(ROOM + 100)]
    assert [client.aborted for client in clients] == [True] * 100 + [False] * ROOM
    assert len(stage.shared) == ROOM


def test_an_answer_that_is_being_made_makes_no_room() -> None:
    stage = Stage(waits=True)
    clients = [stage.connect() for _ in range(ANSWERED)]
    for client in clients:
        client.receive(post(b"a"))
    others = [stage.connect() for _ in range(ROOM - ANSWERED + 1)]
    assert [other.aborted for other in others] == [True] + [False] * (ROOM - ANSWERED)
    assert not any(client.aborted for client in clients)


def test_health_is_told_however_many_answers_are_being_made() -> None:
    """Or whoever asks for it, kubelet or `berth up`, ends a process that is busy with a burst of binds."""
    stage = Stage(waits=True)
    for _ in range(ANSWERED):
        stage.connect().receive(post(b"a"))
    asking = stage.connect()
    others = [stage.connect() for _ in range(ROOM - ANSWERED - 1)]
    for other in others:
        other.receive(post(b"b"))
    asking.receive(b"GET /healthz HTTP/1.1\r\n\r\n")
    stage.health.work()
    assert statuses(asking) == [200]
    assert [statuses(other) for other in others] == [[503]] * len(others)
    assert b"512 calls are being answered already; try again" in others[0].sent
    assert b"Retry-After: 1\r\n" in others[0].sent
    stage.threads.work()
    others[0].receive(post(b"c"))
    while stage.threads.works:
        stage.threads.work()
    assert statuses(others[0]) == [503, 200]


def test_clients_that_may_have_gone_make_room_last_of_all() -> None:
    """kube-scheduler ends a connection whose answer takes too long: it looks as if it ended its half."""
    stage = Stage(waits=True)
    clients = [stage.connect() for _ in range(ANSWERED)]
    for client in clients:
        client.receive(post(b"a"))
    for client in clients[8:10]:
        assert client.protocol.eof_received()
    for _ in range(3):
        clients.append(stage.connect())
        clients[-1].receive(post(b"a"))
    assert [client.aborted for client in clients] == [False] * 8 + [True] * 2 + [False] * (ANSWERED - 7)
    assert [statuses(client) for client in clients[-3:]] == [[], [], [503]]


@pytest.mark.parametrize("sent", [post(b"a", b"Authorization: asked"), b"GET /healthz HTTP/1.1\r\n\r\n"])
def test_strangers_make_room_also_while_they_wait_for_us(sent: bytes) -> None:
    """Reviews of tokens wait for the API server, and health waits for the store; there are few threads for
    them."""
    stage = Stage(closed=True)
    strangers = [stage.connect() for _ in range(ROOM)]
    for stranger in strangers:
        stranger.receive(sent)
    newest = stage.connect()
    newest.receive(post(b"b", b"Authorization: known"))
    assert (statuses(newest), [stranger.aborted for stranger in strangers]) == (
        [200],
        [True] + [False] * (ROOM - 1),
    )


@pytest.mark.parametrize("sent", [b"", post(b"a", b"Authorization: no", length=5)], ids=["silent", "refused"])
def test_who_has_shown_a_token_makes_room_after_all_who_have_not(sent: bytes) -> None:
    """Or a flood of strangers ended kube-scheduler's connection between two of its calls."""
    stage = Stage(closed=True)
    known = stage.connect()
    known.receive(post(b"a", b"Authorization: known"))
    stage.loop.now = 1.0
    strangers = [stage.connect() for _ in range(ROOM - 1)]
    for stranger in strangers:
        stranger.receive(sent)
    stage.connect()
    assert (known.aborted, strangers[0].aborted) == (False, True)


def test_where_anyone_may_call_who_has_called_makes_room_as_all_others() -> None:
    stage = Stage()
    before = stage.connect()
    before.receive(post(b"a"))
    stage.loop.now = 1.0
    others = [stage.connect() for _ in range(ROOM)]
    assert (before.aborted, any(other.aborted for other in others)) == (True, False)


def test_no_token_of_a_client_that_has_gone_is_reviewed(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(closed=True)
    client = stage.connect()
    client.receive(post(b"a", b"Authorization: broken"))
    client.abort()
    stage.reviews.work()
    assert caplog.text == ""  # the review of this one fails


def test_who_takes_its_last_answer_makes_room_after_those_who_ask_for_nothing() -> None:
    stage = Stage()
    taking = stage.connect()
    taking.deaf = True
    taking.receive(post(b"large", b"Connection: close"))
    stage.loop.now = 1.0
    silent = [stage.connect() for _ in range(ROOM - 1)]
    stage.connect()
    assert (taking.aborted, silent[0].aborted) == (False, True)
    taking.take()
    assert taking.sent == ok(LARGE, b"Connection: close")


def test_a_client_that_has_gone_leaves_nothing_behind_and_nothing_to_do() -> None:
    """Or those who gave up would be served before those who have not, whose turn comes too late then."""
    stage = Stage(waits=True)
    transport = stage.connect()
    transport.receive(post(b"abc") + post(b"def"))
    transport.abort()
    stage.threads.work()
    assert (transport.sent, stage.shared.held, len(stage.shared), stage.got) == (b"", 0, 0, [])


def test_what_a_thread_could_not_do_is_answered_too(caplog: pytest.LogCaptureFixture) -> None:
    """Such a connection would never end, and its body would be in hand for ever."""
    stage = Stage(closed=True)
    transport = stage.connect()
    transport.receive(post(b"a", b"Authorization: broken"))
    stage.reviews.work()
    assert (statuses(transport), stage.shared.held) == ([503], 0)
    assert b"internal error (RecursionError)" in transport.sent
    assert "RecursionError" in caplog.text


class NoThreads(Threads):
    def submit(self, _: Callable[..., Any], /, *__: Any, **___: Any) -> Future[Any]:
        raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("token", [b"known", b"asked"])
def test_where_no_thread_can_be_started_the_client_is_told_so(token: bytes) -> None:
    """Who was let in by a review would wait for ever: no deadline is for an answer that is being made."""
    stage = Stage(waits=True, closed=True)
    stage.shared.threads = NoThreads()
    transport = stage.connect()
    transport.receive(post(b"a", b"Authorization: " + token))
    if token == b"asked":
        stage.reviews.work()
    stage.pass_time(0.0)
    assert (statuses(transport), stage.shared.held) == ([503], 0)
    assert b"internal error (RuntimeError)" in transport.sent


def test_a_client_that_ends_its_half_gets_the_answers_that_are_due() -> None:
    stage = Stage(waits=True)
    due, half = stage.connect(), stage.connect()
    due.receive(post(b"a"))
    half.receive(post(b"a", length=2))
    assert (due.protocol.eof_received(), half.protocol.eof_received()) == (True, False)
    stage.threads.work()
    assert (statuses(due), due.closed) == ([200], True)


def test_who_ends_its_half_within_a_body_is_told_so_behind_the_answers_that_are_due() -> None:
    stage = Stage(waits=True)
    client = stage.connect()
    client.receive(post(b"a") + post(b"b", length=2))
    assert client.protocol.eof_received()
    stage.threads.work()
    assert (statuses(client), client.closed, stage.got) == ([200, 400], True, [b"a"])


def test_the_end_of_the_process_lets_begun_requests_come_to_their_answers() -> None:
    stage = Stage(waits=True)
    fresh, begun, working = stage.connect(), stage.connect(), stage.connect()
    begun.receive(post(b"a")[:20])
    working.receive(post(b"a"))
    stage.shared.end()
    begun.receive(post(b"a")[20:])
    for transport in (working, begun):
        stage.threads.work()
        assert (statuses(transport), transport.ended) == ([200], True)
    assert not fresh.aborted  # its next request may be on its way
    stage.pass_time(1.1)
    assert fresh.aborted
