"""One client's connection: its requests are read as they come, and answered one after the other.
What all connections of a process share, and how long one may take, is in connections.py.

A request's way, and what may end it before its answer:

    head ─────────► token ─────► body ─────────► answer ─► the next request
     400, 404, 405,  401          408, 413, 503
     414, 417, 431
"""

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING

import httptools

from berth.http import endpoint
from berth.http.endpoint import Endpoint, LongList, Reply, error_reply
from berth.http.incoming_body import GROWS, IncomingBody

if TYPE_CHECKING:
    from berth.http.connections import Connections

LARGEST_HEAD = 64 * 1024
"""Bytes of a request's first line and headers; kube-scheduler and Knative send some 2,000."""

_LARGEST_PATH, _LARGEST_FIELD, _MOST_FIELDS = 4094, 8190, 100  # gunicorn's own limits
_MOST_AHEAD = 32  # requests that a client may send while one is under way
_ON_THE_WIRE = 8  # more bytes for each of a body in chunks: one in a chunk of its own takes 5
_SKIPPED = 64 * 1024  # bytes of a body that nobody reads which are taken all the same, to keep the connection
_SENT_ON = 8 * 1024 * 1024  # bytes that who was let in may send behind the answer that ends its connection
READ = 256 * 1024
"""Bytes that are read at a time."""
_PIECE = 256 * 1024  # bytes of a large answer that are written at a time
_QUICK = 256 * 1024  # bytes of a body: a larger one is answered by a thread in any case
_NOTHING: Iterator[memoryview] = iter(())
_UNSEEN = Reply(503, b"")  # to who has gone
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class Phase(enum.Enum):
    """What a connection waits for."""

    HEAD = "the next request's head"
    BODY = "the rest of a request's body"
    ANSWER = "an answer that is being made"
    RECEIPT = "its client to take an answer"
    END = "its client to end it"


class _RefusedError(Exception):
    """What came is no request, or has too large a head."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.reply = error_reply(status, message)


class Request:
    """One request, as much of it as has come."""

    def __init__(self) -> None:
        self.url, self.method = b"", ""
        self.headers: dict[str, str] = {}
        self.fields = 0
        self.kept = IncomingBody()
        self.began = 0.0  # when its last byte had come, which was wanted
        self.size = 0  # of the body that has come, kept or not
        self.counted = 0  # of it, among the bytes in hand
        self.has_head = self.is_whole = False
        self.stays = False  # whether its connection is for another request after it
        self.endpoint: Endpoint | None = None
        self.works = False  # whether a thread has it, or is to have it
        self.is_left = False  # whether its client has gone
        self.reply: Reply | None = None
        self.is_answered = False

    @property
    def rest(self) -> int:
        """Return how many bytes of its body are to come: more than anybody skips, where it does not say."""
        if self.is_whole:
            return 0
        if "content-length" not in self.headers:
            return _SKIPPED + 1
        return endpoint.declared(self.headers) - self.size


class Connection(asyncio.BufferedProtocol):
    """See above. All of it happens in the event loop, but for what threads do for a request."""

    def __init__(self, shared: "Connections") -> None:
        self._shared = shared
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[Request] = deque()  # the first is under way
        self._latest = Request()
        self._around = 0  # bytes since the last request, but for bodies and what their chunks take
        self._is_broken = False  # what comes now is no request
        self._is_half = False  # its client has ended its half
        self._is_past = False  # the rest of a long body goes past the parser, straight to where it is kept
        self._is_paused = self._is_blocked = False
        self._pieces, self._unwritten = _NOTHING, 0  # of the answer under way, and their bytes
        self._drained, self._most_drained = 0, _SKIPPED  # bytes behind the answer that ended the connection
        self.transport: asyncio.Transport
        self.phase, self.since, self.unsent_before = Phase.HEAD, shared.now(), 0
        self.answered = self.since  # when it got its last answer
        self.is_known = False  # whether its client has shown that it may call

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=0)  # who has not taken an answer gets no other
        self._shared.add(self)

    def connection_lost(self, _: Exception | None) -> None:
        self.phase, self._pieces, self._unwritten = Phase.END, _NOTHING, 0
        self._shared.remove(self)
        for request in self._requests:
            request.is_left = True
            if not request.works:
                self._shared.forget(request)
        self._requests.clear()

    def get_buffer(self, _: int) -> memoryview:
        self._is_past = self._is_past or self._has_long_rest()
        if not self._is_past:
            return self._shared.received
        request, most = self._latest, min(self._latest.rest, READ)
        is_kept = request.reply is None and self.phase is not Phase.END
        return request.kept.room(most) if is_kept else self._shared.received[:most]

    def buffer_updated(self, size: int) -> None:
        if self._is_past and self.phase is not Phase.END:
            self._go_past(size)
        else:
            self._parse(self._shared.received[:size])

    def _has_long_rest(self) -> bool:
        """Whether what comes next is a part of a body, with more of it behind, and nothing else."""
        request = self._latest
        return (
            GROWS
            and self.phase is Phase.BODY
            and request.endpoint is not None
            and request.reply is None
            and "content-length" in request.headers
            and request.rest > READ
        )

    def _go_past(self, size: int) -> None:
        request = self._latest
        request.size += size
        if request.reply is None:
            request.kept.fill(size)
            self._count(request)
        if request.rest == 0:
            self._is_past, self._parser = False, httptools.HttpRequestParser(self)
            self.on_message_complete()
        self.go_on()

    def _parse(self, data: memoryview) -> None:
        if self.phase is Phase.END or self._is_broken:
            self._drained += len(data)
            if self._drained > self._most_drained:
                self.transport.abort()
            return
        self._around += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # its request is answered as if it had not asked for that
            self._is_broken, latest = True, self._latest
            latest.stays, latest.is_whole = False, not _has_body(latest)  # none is read there
        except httptools.HttpParserError as error:
            ours = error.__context__
            no_request = error_reply(400, "this is no HTTP request")
            self._break(ours.reply if isinstance(ours, _RefusedError) else no_request)
        if self._around > LARGEST_HEAD:
            self.transport.abort()
            return
        self.go_on()

    def eof_received(self) -> bool:
        """Keep the connection only for answers to whole requests: a client may end its own half first."""
        due = self.phase is not Phase.END and any(request.is_whole for request in self._requests)
        if due:
            self._is_broken = self._is_half = True
            self._requests[-1].stays = False
        return due

    def pause_writing(self) -> None:
        self._is_blocked = True

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._write_on()
        if self.phase is Phase.END:
            self._finish()
        self.go_on()

    # What the parser calls

    def on_message_begin(self) -> None:
        self._latest = Request()
        self._requests.append(self._latest)
        if len(self._requests) > _MOST_AHEAD:
            raise _RefusedError(400, "too many requests were sent ahead")

    def on_url(self, url: bytes) -> None:
        self._latest.url += url
        if len(self._latest.url) > _LARGEST_PATH:
            raise _RefusedError(414, f"the path is longer than {_LARGEST_PATH} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        request = self._latest
        if request.has_head:
            return  # behind the last chunk
        request.fields += 1
        if request.fields > _MOST_FIELDS or len(name) + len(value) > _LARGEST_FIELD:
            raise _RefusedError(
                431,
                f"there are more than {_MOST_FIELDS} headers, or one is larger than {_LARGEST_FIELD} bytes",
            )
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").rstrip(" \t")
        request.headers[key] = f"{request.headers[key]},{text}" if key in request.headers else text

    def on_headers_complete(self) -> None:
        request, parser = self._latest, self._parser
        if parser.get_http_version() not in ("1.0", "1.1"):
            raise _RefusedError(400, "this server speaks HTTP/1.1 only")
        if request.headers.get("transfer-encoding", "chunked").lower() != "chunked":
            raise _RefusedError(501, "a body may come in chunks, and in no other transfer encoding")
        if request.headers.get("expect", "100-continue").lower() != "100-continue":
            raise _RefusedError(417, "this server meets no expectation but 100-continue")
        request.method = parser.get_method().decode("latin-1")
        request.stays = parser.should_keep_alive()
        request.has_head = True

    def on_body(self, part: bytes) -> None:
        request = self._latest
        self._around = max(0, self._around - (1 + _ON_THE_WIRE) * len(part))
        request.size += len(part)
        if request.reply is None:
            request.kept.add(part)
            self._count(request)

    def on_message_complete(self) -> None:
        self._latest.is_whole = True
        self._around = 0

    # A request's way

    def go_on(self) -> None:
        """Bring the first request as far as it comes by now, and those after it."""
        while self._requests and not self._is_blocked and self.phase is not Phase.END:
            request = self._requests[0]
            if request.reply is None and not request.works:
                self._advance(request)
            if request.reply is not None and not request.is_answered:
                self._answer(request, request.reply)
            if not (request.is_answered and request.is_whole):
                break
            self._requests.popleft()
        self._wait()

    def end_body(self, reply: Reply) -> None:
        """Answer the request whose body does not come; one that is answered already ends its connection."""
        request = self._requests[0]
        if request.is_answered:
            self.transport.abort()
            return
        request.reply, request.stays = reply, False
        self.go_on()

    def end(self) -> None:
        """End the connection once all is sent, and its client has ended it: one that still sends could miss
        its answer otherwise."""
        self._is_past = False
        self.phase, self.since = Phase.END, self._shared.now()
        self._resume()
        self._finish()

    @property
    def unsent(self) -> int:
        """The bytes of answers that the system has not taken yet."""
        return self.transport.get_write_buffer_size() + self._unwritten

    @property
    def may_go(self) -> bool:
        """Whether its client may have gone, or is not let in (yet), where it waits for an answer of ours."""
        return self._is_half or not self._requests or self._requests[0].endpoint is None

    @property
    def is_answering(self) -> bool:
        """Whether a thread has a call of it, or is to have it; health is none."""
        return any(request.works and request.endpoint is not None for request in self._requests)

    def _write(self, head: bytes, body: bytes | LongList) -> None:
        """Write an answer, a large one by and by: asyncio copies what the system does not take at once."""
        parts = [body] if isinstance(body, bytes) else body
        if len(body) <= _PIECE:
            self.transport.write(b"".join((head, *parts)))
            return
        self.transport.write(head)
        if self.transport.is_closing():
            return
        self._pieces, self._unwritten = _cut(parts), len(body)
        self._write_on()
        if self._unwritten:
            self._shared.bound_unsent()

    def _write_on(self) -> None:
        closing = self.transport.is_closing()  # by its client, which may take the rest; else, it has gone
        while self._unwritten and not self._is_blocked and self.transport.is_closing() == closing:
            piece = next(self._pieces)
            self._unwritten -= len(piece)
            if not self._unwritten:
                self._pieces = _NOTHING  # or it would hold the answer
            self.transport.write(piece)

    def _finish(self) -> None:
        """Tell the client that nothing comes after what it was sent."""
        if self._unwritten:
            return
        if self._is_half:
            self.transport.close()
        elif not self.transport.is_closing():
            with suppress(OSError):  # it has gone, which asyncio tells later
                self.transport.write_eof()

    def _advance(self, request: Request) -> None:
        if not request.has_head:
            return
        if request.endpoint is None:
            self._admit(request)
        if request.endpoint is not None and request.reply is None and not request.works:
            self._take(request, request.endpoint)

    def _admit(self, request: Request) -> None:
        shared = self._shared
        if isinstance(shared.target, Endpoint) and shared.target.reads:
            request.headers |= {endpoint.PATH: _path(request), endpoint.QUERY: _query(request)}
        admitted = endpoint.admit(
            shared.target, request.method, _path(request), request.headers, shared.hosts
        )
        if isinstance(admitted, Endpoint) and admitted.queried:
            request.headers |= {endpoint.PATH: _path(request), endpoint.QUERY: _query(request)}
        if admitted is None:
            self._work(request, shared.health, lambda: endpoint.health(shared.target))
        elif isinstance(admitted, Reply):
            request.reply = admitted
        elif admitted.authenticator is None or admitted.authenticator.knows(_token(request)):
            self._let_in(request, admitted, endpoint.refusal(admitted, request.headers))
        else:
            shared.submit(
                shared.reviews,
                lambda: _UNSEEN if request.is_left else endpoint.refusal(admitted, request.headers),
                lambda refused: self._reviewed(request, admitted, refused),
            )
            request.works = True

    def _reviewed(self, request: Request, admitted: Endpoint, refused: Reply | None) -> None:
        request.works = False
        if request not in self._requests:
            self._shared.forget(request)
            return
        self._let_in(request, admitted, refused)
        self.go_on()

    def _let_in(self, request: Request, admitted: Endpoint, refused: Reply | None) -> None:
        request.endpoint, request.reply = admitted, refused
        self.is_known |= refused is None and admitted.authenticator is not None
        self._count(request)
        if refused is None and admitted.body_limit and not request.is_whole and "expect" in request.headers:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _count(self, request: Request) -> None:
        """Count what is kept of the body among the bytes in hand, where its client was let in."""
        if request.endpoint is not None and request.reply is None:
            self._shared.held += request.size - request.counted
            request.counted = request.size

    def _take(self, request: Request, asked: Endpoint) -> None:
        """Answer the request if its body is there, or is not wanted."""
        if asked.body_limit:
            if request.size > asked.body_limit:
                request.reply = endpoint.too_large(asked)
            elif self._shared.held > self._shared.most:
                request.reply = self._shared.crowded()
            elif self._is_broken and not request.is_whole:
                request.reply = error_reply(400, "the body is cut off, or comes behind an Upgrade")
            if request.reply is not None or not request.is_whole:
                return
        request.began = self._shared.now()
        body = request.kept.whole() if asked.body_limit else b""
        request.kept = IncomingBody()
        if len(body) <= _QUICK:
            request.reply = endpoint.call_at_once(asked, request.headers, body)
        if request.reply is None:
            request.reply = self._shared.busy()
        if request.reply is None:
            self._work(request, self._shared.threads, lambda: endpoint.call(asked, request.headers, body))

    def _work(self, request: Request, pool: Executor, work: Callable[[], Reply]) -> None:
        def unless_left() -> Reply:
            return _UNSEEN if request.is_left else work()

        self._shared.submit(pool, unless_left, lambda reply: self._made(request, reply))
        request.works = True

    def _made(self, request: Request, reply: Reply) -> None:
        request.works, request.reply = False, reply
        if request in self._requests:
            self.go_on()
        else:
            self._shared.forget(request)  # its client has gone

    def _answer(self, request: Request, reply: Reply) -> None:
        request.is_answered = True
        if request.counted:  # a reset, while it still sends, would take its answer away from it
            self._most_drained = _SENT_ON
        self._shared.forget(request)
        self.since = self.answered = self._shared.now()
        stays = request.stays and not self._shared.ends and request.rest <= _SKIPPED
        body = b"" if request.method == "HEAD" else reply.content
        asked = request.endpoint
        # To count first takes the import of a library: nobody waits for that. After it, no death loses a call
        # that was answered.
        counts_first = asked is not None and asked.metrics.ready
        if asked is not None and counts_first:
            self._note(asked, request, reply)
        self._write(self._shared.head(reply, stays), body)
        if asked is not None and not counts_first:
            self._note(asked, request, reply)
        request.reply = Reply(reply.status, b"")  # the connection keeps its last request, not 44 MB with it
        if not stays:
            self.end()

    def _note(self, asked: Endpoint, request: Request, reply: Reply) -> None:
        endpoint.note(asked, reply, self.since - (request.began or self.since))

    def _break(self, reply: Reply) -> None:
        """Answer what is no request, after all that came before it, and read no more."""
        self._is_broken = True
        if not self._requests or self._requests[-1].is_whole:
            self._requests.append(Request())
        broken = self._requests[-1]
        broken.stays = False
        if broken.reply is None and not broken.works:
            broken.reply = reply

    def _wait(self) -> None:
        """Note what the connection waits for, and since when; take nothing more while it is busy."""
        if self.phase is Phase.END:
            return
        phase = self._waits_for()
        if phase is not self.phase:
            self.phase, self.since = phase, self._shared.now()
        if phase in (Phase.ANSWER, Phase.RECEIPT):
            if len(self._requests) > 1 or not all(request.is_whole for request in self._requests):
                self._pause()
        else:
            self._resume()

    def _waits_for(self) -> Phase:
        if self._is_blocked:
            return Phase.RECEIPT
        if not self._requests or not self._requests[0].has_head:
            return Phase.HEAD
        return Phase.ANSWER if self._requests[0].works else Phase.BODY

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()


def _cut(parts: Iterable[bytes]) -> Iterator[memoryview]:
    """Return these bytes in pieces that are written at a time."""
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _PIECE):
            yield view[start : start + _PIECE]


def encoded_head(reply: Reply, stays: bool, date: str) -> bytes:
    """Return the bytes of an answer before its body."""
    lines = [f"HTTP/1.1 {reply.status} {_PHRASES.get(reply.status, '')}", f"Date: {date}"]
    if reply.status != HTTPStatus.NO_CONTENT:
        lines += [f"{name}: {value}" for name, value in reply.headers().items()]
        lines.append(f"Content-Length: {len(reply.content)}")
    lines += [] if stays else ["Connection: close"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def date_now(seconds: float) -> str:
    """Return a time in Unix seconds as a header Date has it."""
    return formatdate(seconds, usegmt=True)


def _path(request: Request) -> str:
    try:
        return (httptools.parse_url(request.url).path or b"").decode("utf-8", "replace")
    except httptools.HttpParserInvalidURLError:
        return request.url.decode("latin-1")


def _query(request: Request) -> str:
    try:
        return (httptools.parse_url(request.url).query or b"").decode("utf-8", "replace")
    except httptools.HttpParserInvalidURLError:
        return ""


def _has_body(request: Request) -> bool:
    return "transfer-encoding" in request.headers or endpoint.declared(request.headers) > 0


def _token(request: Request) -> str:
    return request.headers.get("authorization", "")
