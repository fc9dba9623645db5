"""One URL for several processes of a function: each request goes to the next of them in turn.
It checks nobody's health, and repeats no call that a process may have taken: such a call gets 502."""

import contextlib
import http.client
import itertools
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from urllib3.util import wait_for_read

from berth.errors import SettingsError
from berth.http.endpoint import error_reply
from berth.local.http_server import HttpHandler, HttpServer

_CONNECT_SECONDS = 1.0
_ANSWER_SECONDS = 600.0  # reconcile rebuilds a large ledger in one call
_REST_SECONDS = 1.0  # functions-framework's server ends a connection that rested for 2
_LARGEST_BODY = 1 << 30  # the functions have their own, smaller limit (BERTH_BODY_LIMIT)
_HOP_BY_HOP = {
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}

Headers = list[tuple[str, str]]


class _Answer(NamedTuple):
    status: int
    reason: str
    headers: Headers
    body: bytes
    length: str  # not the body's for HEAD


class LoadBalancer:
    """Listens on 127.0.0.1:`port` from `start` to `stop`, for the processes on the ports `replicas`."""

    def __init__(self, name: str, port: int, replicas: Sequence[int]) -> None:
        self._name, self._port, self._replicas = name, port, replicas
        self._server: _Server | None = None

    def start(self) -> None:
        """Raise SettingsError where the port is taken."""
        try:
            self._server = _Server(self._name, self._port, self._replicas)
        except OSError as error:
            raise port_taken(self._name, self._port) from error
        self._server.start()

    def stop(self) -> None:
        """Take no more calls, and end those that are under way."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()


def port_taken(name: str, port: int) -> SettingsError:
    return SettingsError(f"port {port} (for {name}) is in use: choose another first port with --port")


class _Replica:
    """Connections to one process; one that was used a moment ago is used again."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._resting: deque[tuple[float, http.client.HTTPConnection]] = deque()
        self._lock = threading.Lock()

    def connection(self) -> http.client.HTTPConnection:
        """Raises OSError where the process does not take connections."""
        while (rested := self._take()) is not None:
            # From one at rest nothing can be read, unless its server has ended it.
            if not wait_for_read(rested.sock, timeout=0):
                return rested
            rested.close()
        fresh = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_CONNECT_SECONDS)
        fresh.connect()
        fresh.sock.settimeout(_ANSWER_SECONDS)
        return fresh

    def keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._resting.append((time.monotonic(), connection))
            self._drop_stale()

    def close(self) -> None:
        with self._lock:
            while self._resting:
                self._resting.pop()[1].close()

    def _take(self) -> http.client.HTTPConnection | None:
        with self._lock:
            self._drop_stale()
            return self._resting.pop()[1] if self._resting else None

    def _drop_stale(self) -> None:
        # Its server may end it at the very moment that a call is sent, which then could not be repeated.
        while self._resting and time.monotonic() - self._resting[0][0] > _REST_SECONDS:
            self._resting.popleft()[1].close()


class _Server(HttpServer):
    def __init__(self, name: str, port: int, replicas: Sequence[int]) -> None:
        super().__init__(_Handler, port)
        self.name, self.replicas = name, [_Replica(replica) for replica in replicas]
        self._turn = itertools.count()

    def in_turn(self) -> Iterator[_Replica]:
        """Yield all replicas, beginning with the one whose turn it is."""
        first = next(self._turn)
        return (self.replicas[(first + more) % len(self.replicas)] for more in range(len(self.replicas)))

    def stop(self) -> None:
        super().stop()
        for replica in self.replicas:
            replica.close()


class _Handler(HttpHandler):
    wbufsize = 0  # `100 Continue` has to leave before the body is read
    timeout = _ANSWER_SECONDS
    server: _Server

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no request that could be forwarded; what follows on this connection is unknown."""
        self.close_connection = True
        self._answer(_error(code, message or explain or "not a request that can be forwarded"))

    def _forward(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal():
            return self.send_error(411, f"{self.server.name} needs a Content-Length")
        if int(length) > _LARGEST_BODY:
            return self.send_error(413, f"the body is larger than {_LARGEST_BODY} bytes")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True  # the client went away
            return None
        return self._answer(self._ask(body))

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Forward any method (the base class calls do_<method>): the functions judge it."""
        if name.startswith("do_"):
            return self._forward
        raise AttributeError(name)

    def _ask(self, body: bytes) -> _Answer:
        for replica in self.server.in_turn():
            try:
                connection = replica.connection()
            except OSError:
                continue  # nothing was sent
            return self._exchange(replica, connection, body)
        return _error(503, f"{self.server.name}: none of its {len(self.server.replicas)} processes answers")

    def _exchange(self, replica: _Replica, connection: http.client.HTTPConnection, body: bytes) -> _Answer:
        """Forward the request once; from here on the replica may have taken it."""
        done = False
        try:
            self._head(connection, len(body))
            # One that answers before it has read all is heard as well.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.endheaders(body or None)
            if not self._answered(connection.sock):
                raise TimeoutError
            reply = connection.getresponse()
            answer = _received(self.command, reply)
            done = not reply.will_close
        except ValueError:
            return _error(400, "not a request that can be forwarded: its path or a header is no HTTP")
        except (OSError, http.client.HTTPException):
            return _error(
                502, f"{self.server.name}: its process ended, or was silent, with the call in its hands"
            )
        finally:
            if done:
                replica.keep(connection)
            else:
                connection.close()
        return answer

    def _head(self, connection: http.client.HTTPConnection, length: int) -> None:
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        except http.client.InvalidURL as error:
            raise ValueError from error
        for name, value in _end_to_end(self.headers.items()):
            connection.putheader(name, value)
        if length or "Content-Length" in self.headers:
            connection.putheader("Content-Length", str(length))

    def _answered(self, upstream: socket.socket) -> bool:
        """Wait until the answer begins; False if it does not in time, or its client has gone."""
        poller = select.poll()
        poller.register(upstream, select.POLLIN)
        poller.register(self.connection, getattr(select, "POLLRDHUP", 0))
        return any(descriptor == upstream.fileno() for descriptor, _ in poller.poll(_ANSWER_SECONDS * 1000))

    def _answer(self, answer: _Answer) -> None:
        lines = [f"HTTP/1.1 {answer.status} {answer.reason}"]
        lines += [f"{name}: {value}" for name, value in answer.headers]
        lines += [f"Content-Length: {answer.length}"] if answer.length else []
        lines += ["Connection: close"] if self.close_connection else []
        head = "".join(f"{line}\r\n" for line in lines) + "\r\n"
        # In one packet: a second small one would wait for the first one's receipt.
        self.wfile.write(head.encode("latin-1") + (b"" if self.command == "HEAD" else answer.body))


def _received(method: str, reply: http.client.HTTPResponse) -> _Answer:
    """Read the whole answer, to tell its length wherever HTTP allows it.

    A chunked answer costs kube-scheduler a connection (docs/kubernetes.md#answers-with-a-length)."""
    body, length = reply.read(), reply.headers.get("Content-Length", "")
    if method != "HEAD":
        length = "" if reply.status in (204, 304) else str(len(body))
    return _Answer(reply.status, reply.reason, _end_to_end(reply.getheaders()), body, length)


def _error(status: int, message: str) -> _Answer:
    body = error_reply(status, message).body
    headers = [("Content-Type", "application/json")]
    return _Answer(status, http.client.responses[status], headers, body, str(len(body)))


def _end_to_end(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return the headers that are meant for the other end, not for one connection on the way to it."""
    given = list(headers)
    listed = {value for name, value in given if name.lower() == "connection"}
    dropped = _HOP_BY_HOP | {name.strip().lower() for value in listed for name in value.split(",")}
    return [(name, value) for name, value in given if name.lower() not in dropped]
