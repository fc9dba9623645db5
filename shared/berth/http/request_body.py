"""Limits for request bodies under plain functions-framework: seconds for one body, bytes for all bodies of a
process. It does not see a client before its headers have come; Berth's own server does (connection.py).

Without it gunicorn reads the headers, and the part of the body that came with them. The function reads the
rest. functions-framework then reads all that the function left, into memory. gunicorn reads for 5 s what is
left after that. None of them has a limit for a body that comes slowly.
"""

import contextlib
import io
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING, Self

from werkzeug.wsgi import get_input_stream

from berth.http.endpoint import BodyRefusedError, Endpoint, Router

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PATIENCE = 10.0
"""Seconds that a body may take. kube-scheduler gives up a call after 5 s, and Knative's source after 10."""
CROWDED_PATIENCE = 1.0
"""Seconds while most threads wait for bodies: slow bodies are ended, so that others are let in."""
RETRY_AFTER = 1
LEAST_IN_HAND = 6 * 1024 * 1024
"""Bytes that the bodies of all calls under way may take, unless one may be larger: two of the largest events.
What is decoded from JSON may take 30 times as much."""

_BODY = "berth.body"
_CHECK_SECONDS = 0.25
_SKIPPED = 64 * 1024  # bytes of a body that nobody reads which are read all the same, if they are there
_PART = 16 * 1024


class RequestBodies:
    """The bodies that the threads of a process read.

    All together take at most `most` bytes, from when they come until the request is answered. A thread looks
    for bodies that come too slowly, and ends the reading half of their connections; a thread that reads there
    is at the end at once.
    """

    def __init__(self, most: int, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._crowd = most, max(1, threads * 3 // 4)
        self._clock = clock
        self._lock = threading.Lock()
        self._held = 0
        self._reading: dict[RequestBody, float] = {}  # since when, the oldest first
        self._any = threading.Event()
        self._watcher: threading.Thread | None = None

    def wrap(self, application: "WSGIApplication") -> "WSGIApplication":
        """Return the application with limits for the requests, too, that it answers by itself."""

        def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
            with self.body(environ):
                return application(environ, start_response)

        return answer

    def body(self, environ: "WSGIEnvironment") -> "RequestBody":
        """Return the body of one request, a context manager for the time until the request is answered. A
        second call returns the same body, which ends with its first user."""
        body = environ.get(_BODY)
        if not isinstance(body, RequestBody):
            environ[_BODY] = body = RequestBody(self, environ)
        return body

    def end_slow(self) -> None:
        """End the bodies that have taken too long."""
        now = self._clock()
        with self._lock:
            crowded = len(self._reading) >= self._crowd
            patience = CROWDED_PATIENCE if crowded else PATIENCE
            for body, since in self._reading.items():
                if now - since < patience:
                    break
                body.end(_crowded() if crowded else _slow())
            if not self._reading:
                self._any.clear()

    def begin(self, body: "RequestBody") -> None:
        with self._lock:
            self._reading[body] = self._clock()
            self._any.set()
            if self._watcher is None:  # not before: a server may fork after it has loaded the function
                self._watcher = threading.Thread(target=self._watch, name="bodies", daemon=True)
                self._watcher.start()

    def finish(self, body: "RequestBody") -> None:
        with self._lock:
            self._reading.pop(body, None)

    def take(self, size: int) -> None:
        """Count bytes that came. Raises BodyRefusedError where all bodies take too many."""
        with self._lock:
            if self._held + size > self._most + 1:  # one more tells that the largest body is too large
                raise BodyRefusedError(
                    503,
                    f"calls under way hold as many bytes as they may ({self._most}); try again",
                    RETRY_AFTER,
                )
            self._held += size

    def give_back(self, size: int) -> None:
        with self._lock:
            self._held -= size

    def _watch(self) -> None:
        while True:
            self._any.wait()
            time.sleep(_CHECK_SECONDS)
            self.end_slow()


class RequestBody:
    """One request's body: counted while it comes, and not read if nobody asks for it."""

    def __init__(self, bodies: RequestBodies, environ: "WSGIEnvironment") -> None:
        self._bodies = bodies
        self._stream: IO[bytes] = get_input_stream(environ)
        # functions-framework would read all that is left, into memory.
        environ |= {"wsgi.input": io.BytesIO(), "wsgi.input_terminated": True}
        self._socket: socket.socket | None = environ.get("gunicorn.socket")
        self._held = 0
        self._reading = self._at_end = self._left = False
        self._ended: BodyRefusedError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._left:
            return
        self._left = True
        self._stop_reading()
        self._bodies.give_back(self._held)
        if not self._at_end:
            self._leave()

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes, and none at the end. Raises BodyRefusedError, and the server's
        errors."""
        if not self._reading:
            self._reading = True
            self._bodies.begin(self)
        part = self._read(size)
        if self._ended is not None:
            raise self._ended
        if not part:
            self._at_end = True
            self._stop_reading()
        self._bodies.take(len(part))
        self._held += len(part)
        return part

    def end(self, why: BodyRefusedError) -> None:
        """End the body for the thread that reads it; its `read` raises `why`."""
        if self._ended is None and self._socket is not None:
            self._ended = why
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except Exception:
            if self._ended is not None:
                return b""
            raise

    def _stop_reading(self) -> None:
        if self._reading:
            self._bodies.finish(self)
            self._reading = False

    def _leave(self) -> None:
        """Read what has come, if that is little, so that a small body does not cost the connection. Else the
        connection ends with the answer: what follows on it is no request."""
        if self._socket is None or self._skip(self._socket):
            return
        with contextlib.suppress(AttributeError):
            # gunicorn's own mark for a body that was not read to its end: it ends the connection.
            self._stream.failed = True  # type: ignore[attr-defined]
        with contextlib.suppress(OSError):
            # Else gunicorn waits 2 s for the client to end it, in the thread that accepts all connections.
            self._socket.shutdown(socket.SHUT_RD)

    def _skip(self, connection: socket.socket) -> bool:
        """Read without waiting, and return whether the body is at its end now."""
        if self._ended is not None:
            return False
        skipped, timeout = 0, connection.gettimeout()
        connection.setblocking(False)
        try:
            while skipped < _SKIPPED and (part := self._stream.read(_PART)):
                skipped += len(part)
        except Exception:  # noqa: BLE001 - it has not come yet, or it is broken
            return False
        finally:
            connection.settimeout(timeout)
        return skipped < _SKIPPED


def request_bodies(target: Endpoint | Router) -> RequestBodies:
    """Return the limits of a process that serves this."""
    return RequestBodies(max(LEAST_IN_HAND, target.body_limit), threads())


def threads() -> int:
    """Return how many threads a process has: THREADS is functions-framework's variable, with its default."""
    return int(os.environ.get("THREADS") or 4 * (os.cpu_count() or 1))


def _slow() -> BodyRefusedError:
    return BodyRefusedError(408, f"the body did not come within {PATIENCE:g} s")


def _crowded() -> BodyRefusedError:
    return BodyRefusedError(503, "too many bodies come slowly at once; try again", RETRY_AFTER)
