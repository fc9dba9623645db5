"""What the connections of one process share: room, bytes in hand, threads, and how long each may take.
It answers nothing itself; connection.py does."""

import asyncio
import time
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from berth.http.connection import READ, Connection, Phase, Request, date_now, encoded_head
from berth.http.endpoint import Endpoint, Reply, Router, error_reply, log
from berth.http.incoming_body import IncomingBody
from berth.http.request_body import LEAST_IN_HAND, PATIENCE, RETRY_AFTER, threads

T = TypeVar("T", bound=Reply | None)

HEADER_SECONDS = 5.0
"""Seconds until a connection has brought a whole head, the first one or the next."""

ANSWER_SECONDS = 10.0
"""Seconds that an answer waits for a client to receive a part of it."""

_MOST_ANSWERED = 512  # calls whose answers are being made
# Connections. Where so many wait for answers, health is asked for on a new one, and has to be told.
_MOST = _MOST_ANSWERED + 64
_LINGER_SECONDS = 2.0
_TAKEN_SECONDS = 1.0  # within which an answer of any size is taken by who wants it
_ENDING_SECONDS = 1.0  # for a head that is on its way when the process is to end
_SWEEP_SECONDS = 0.25
_URGENCY = {Phase.HEAD: 0, Phase.END: 0, Phase.BODY: 1, Phase.RECEIPT: 1, Phase.ANSWER: 2}
_HEALTH_THREADS = _REVIEW_THREADS = 2


class Connections:
    """The connections of a process that serves `target`, in one event loop."""

    def __init__(
        self,
        target: Endpoint | Router,
        hosts: Collection[str] | None,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.target, self.hosts = target, hosts
        self.most, self.held = max(LEAST_IN_HAND, target.body_limit), 0  # bytes of bodies in hand
        self.received = memoryview(bytearray(READ))  # what the parser takes next, of any connection
        self.ends = False  # whether the process ends with the requests under way
        self.threads: Executor = ThreadPoolExecutor(threads(), "calls")
        self.health: Executor = ThreadPoolExecutor(_HEALTH_THREADS, "health")
        self.reviews: Executor = ThreadPoolExecutor(_REVIEW_THREADS, "reviews")
        self._loop, self._clock = loop, clock
        self._open: dict[Connection, None] = {}  # the oldest first
        self._date = (-1, "")  # a second, and its text
        self.now = loop.time
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> None:
        """Take a new connection, and make room for it."""
        self._open[connection] = None
        if len(self._open) > _MOST:
            self._make_room(connection)
        if self._sweeping is None:
            self._sweep()

    def remove(self, connection: Connection) -> None:
        self._open.pop(connection, None)

    def submit(self, pool: Executor, work: Callable[[], T], then: Callable[[T | Reply], None]) -> None:
        """Have a thread do the work, and go on with its result in the event loop, or with a reply that says
        that it failed."""

        def done(future: "Future[T]") -> None:
            error = future.exception()
            reply = future.result() if error is None else _failed(self.target.name, error)
            with suppress(RuntimeError):  # the loop has ended, and nobody waits for this
                self._loop.call_soon_threadsafe(then, reply)

        try:
            future = pool.submit(work)
        except RuntimeError as error:  # no thread can be started
            reply = _failed(self.target.name, error)
            self._loop.call_later(0, lambda: then(reply))
        else:
            future.add_done_callback(done)

    def forget(self, request: Request) -> None:
        """Count a request's body no more."""
        self.held -= request.counted
        request.counted = 0
        request.kept = IncomingBody()

    def crowded(self) -> Reply:
        """Return the reply to a request whose body is one too many."""
        return error_reply(
            503, f"calls under way hold as many bytes as they may ({self.most}); try again", RETRY_AFTER
        )

    def busy(self) -> Reply | None:
        """Return the reply to a call that is one too many; None: it may be answered, also in place of one
        whose client may have gone."""
        if len(self._open) <= _MOST_ANSWERED:
            return None
        answering = [connection for connection in self._open if connection.is_answering]
        if len(answering) < _MOST_ANSWERED:
            return None
        if gone := [connection for connection in answering if connection.may_go]:
            self._close(min(gone, key=lambda connection: connection.since))
            return None
        return error_reply(503, f"{len(answering)} calls are being answered already; try again", RETRY_AFTER)

    def head(self, reply: Reply, stays: bool) -> bytes:
        """Return the bytes of an answer before its body."""
        second = int(self._clock())
        if self._date[0] != second:
            self._date = second, date_now(second)
        return encoded_head(reply, stays, self._date[1])

    def end(self) -> None:
        """Let requests come to their answers, also those on their way, and end each connection then."""
        self.ends = True
        for connection in self._open:
            if connection.phase is Phase.HEAD:
                connection.since = min(connection.since, self.now() + _ENDING_SECONDS - HEADER_SECONDS)

    def _make_room(self, newest: Connection) -> None:
        """Close the connection whose client has let us wait for longest, but not the newest, which has had no
        time to send anything.

        One whose request has begun goes later, and one that waits for an answer of ours last, and only if its
        client may have gone or is not let in. Those that have shown a token go after all that have not.
        """
        first = min(
            (
                connection
                for connection in self._open
                if (connection.phase is not Phase.ANSWER or connection.may_go) and connection is not newest
            ),
            key=lambda connection: (
                connection.is_known,
                max(_URGENCY[connection.phase], connection.unsent > 0),
                connection.since,
            ),
            default=newest,
        )
        self._close(first)

    def _close(self, connection: Connection) -> None:
        self.remove(connection)  # it is told of its end only after others that come now
        connection.transport.abort()

    def bound_unsent(self) -> None:
        """Close connections while what their clients have not taken of answers is more than bodies may be:
        those first that were answered first, and none that was answered a moment ago."""
        unsent = {connection: size for connection in self._open if (size := connection.unsent)}
        for connection in sorted(unsent, key=lambda connection: connection.answered):
            if sum(unsent.values()) <= self.most or self.now() - connection.answered < _TAKEN_SECONDS:
                return
            del unsent[connection]
            self._close(connection)

    def _sweep(self) -> None:
        # First the next time, which an error must not take from all others.
        self._sweeping = self._loop.call_later(_SWEEP_SECONDS, self._sweep) if self._open else None
        now = self.now()
        for connection in list(self._open):
            self._hurry(connection, now)

    def _hurry(self, connection: Connection, now: float) -> None:
        """End a connection, or a request's body, that has taken too long."""
        phase, waited = connection.phase, now - connection.since
        unsent = connection.unsent
        if unsent != connection.unsent_before:
            connection.unsent_before, connection.since = unsent, now
        elif phase is Phase.RECEIPT or (phase is Phase.END and unsent):
            if waited > ANSWER_SECONDS:
                connection.transport.abort()
        elif phase is Phase.BODY:
            if waited > PATIENCE:
                connection.end_body(error_reply(408, f"the body did not come within {PATIENCE:g} s"))
        elif (phase is Phase.HEAD and waited > HEADER_SECONDS) or (
            phase is Phase.END and waited > _LINGER_SECONDS
        ):
            connection.transport.abort()


def _failed(name: str, error: BaseException) -> Reply:
    log.error("%s failed", name, exc_info=error)
    return error_reply(503, f"internal error ({type(error).__name__}); see the log of {name}")
