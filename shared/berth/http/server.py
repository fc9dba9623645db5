"""Serves one function as functions-framework does, by gunicorn's threads, and no slow client can block them.
A request gets a thread once all its headers have come, and /healthz has threads of its own. It knows no TLS.

    python -m berth.http.server --source functions/filter/main.py --target filter --port 8080

Plain functions-framework gives each connection a thread for 5 s before it has sent anything, and from its
first byte on for as long as its headers take. It reads a request's first line without a limit. It waits 2 s
for each client to end its connection, in the thread that accepts all connections. None of that can be set.
Bodies have limits of their own (request_body.py).
"""

import argparse
import contextlib
import os
import select
import selectors
import socket
import struct
import time
from collections import deque
from concurrent import futures
from functools import partial
from typing import Any

import functions_framework
from gunicorn.app.base import BaseApplication
from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER, TConn, ThreadWorker

from berth.http.request_body import END_CONNECTION, threads

HEADER_SECONDS = 5.0
LARGEST_HEAD = 64 * 1024
"""Bytes of a request's first line and headers; kube-scheduler and Knative send some 2,000."""

ANSWER_SECONDS = 10
"""Seconds that an answer waits for a client to receive a part of it."""

_CONNECTIONS = 512
_HEALTH_THREADS = 2
_LINGER_SECONDS = 2.0
_LINGERING = 128  # connections at most whose clients still send after their answer
_LINGER_BYTES = 64 * 1024
_RECEIVED = 64 * 1024  # bytes at a time
_END = b"\r\n\r\n"
_HEALTH = (b"GET /healthz", b"HEAD /healthz")


class Connection(TConn):  # type: ignore[misc]
    """A client's connection, with the part of the next request's headers that has come."""

    def __init__(self, worker: "Worker", client: socket.socket, address: Any, server: Any) -> None:
        super().__init__(worker.cfg, client, address, server)
        # The system's own limit: with one of Python's, each part of an answer would wait until a third of the
        # system's buffer is free.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", ANSWER_SECONDS, 0))
        self._worker = worker
        self.head = bytearray()
        self.drained = 0

    @property
    def head_is_there(self) -> bool:
        return _END in self.head

    @property
    def takes_answers(self) -> bool:
        """Whether there is room for an answer, since the client has received those before."""
        poll = select.poll()  # which knows no highest number of a file, as select does
        poll.register(self.sock, select.POLLOUT)
        return bool(poll.poll(0))

    def receive(self) -> bool:
        """Take what has come, without waiting, and return whether more may come."""
        part = self._part()
        if part is None:
            return True
        self.take(part)
        return bool(part) and (self.head_is_there or len(self.head) <= LARGEST_HEAD)

    def take(self, part: bytes) -> None:
        """Add what has come. Empty lines before a request are no end of its headers."""
        self.head = (self.head + part).lstrip(b"\r\n")

    def drain(self) -> bool:
        """Throw away what has come after the answer, and return whether more may come."""
        part = self._part()
        if part is None:
            return True
        self.drained += len(part)
        return bool(part) and self.drained < _LINGER_BYTES

    def _part(self) -> bytes | None:
        """Return what has come, empty at the end; None: nothing yet."""
        try:
            part: bytes = self.sock.recv(_RECEIVED)
        except BlockingIOError:
            return None
        except OSError:
            return b""
        return part

    def hand_over(self) -> None:
        """Give the parser what has come, so that it need not wait for any of the headers."""
        self.init()
        self.parser.unreader.unread(bytes(self.head))
        self.head.clear()

    def close(self, graceful: bool = False) -> None:
        if graceful:
            self._worker.linger(self)
        else:
            super().close()


class Worker(ThreadWorker):  # type: ignore[misc]
    """gunicorn's gthread worker, whose main loop waits for headers, and for clients to end connections."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._health: futures.ThreadPoolExecutor | None = None
        self._lingering: deque[Connection] = deque()

    def init_process(self) -> None:
        self._health = futures.ThreadPoolExecutor(_HEALTH_THREADS, "health")
        super().init_process()

    def accept(self, listener: socket.socket) -> None:
        try:
            client, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        self.nr_conns += 1
        self.enqueue_req(Connection(self, client, address, listener.getsockname()))

    def _make_room(self) -> None:
        """Close the connections that have been without a request for longest, but not the newest, which has
        had no time to send one. Those that wait for a thread stay."""
        while self.nr_conns >= self.worker_connections:
            if len(self.pending_conns) > 1:
                self._drop(self.pending_conns[0], self.pending_conns)
            elif self.keepalived_conns:
                self._drop(self.keepalived_conns[0], self.keepalived_conns)
            else:
                return

    def enqueue_req(self, conn: Connection) -> None:
        """Serve its next request, once the headers have come."""
        if conn.parser is not None:
            conn.take(conn.parser.unreader.take_buffered())  # a client may send requests ahead
        if conn.head_is_there:
            self._serve(conn)
            return
        conn.sock.setblocking(False)
        conn.timeout = time.monotonic() + HEADER_SECONDS
        self.pending_conns.append(conn)
        self._watch(conn, self.on_pending_socket_readable)
        self.on_pending_socket_readable(conn, conn.sock)

    def on_pending_socket_readable(self, conn: Connection, client: socket.socket) -> None:
        if not conn.receive():
            self._drop(conn, self.pending_conns)
        elif conn.head_is_there:
            self.poller.unregister(client)
            self.pending_conns.remove(conn)
            self._serve(conn)

    def handle_request(self, req: Any, conn: Connection) -> Any:
        setattr(req.body, END_CONNECTION, req.force_close)
        try:
            return super().handle_request(req, conn)
        except BlockingIOError:  # after ANSWER_SECONDS
            return False

    def murder_pending(self) -> None:
        """Close connections that have sent no whole request in time, and those for which there is no room.

        gunicorn calls it when a turn's events are all handled: one of them may be of a connection that is
        closed here. A worker that stops waits for requests as long as gunicorn does.
        """
        now = time.monotonic()
        late = now if self.alive else now + HEADER_SECONDS - STOP_KEEPALIVE_LINGER
        while self.pending_conns and self.pending_conns[0].timeout <= late:
            self._drop(self.pending_conns[0], self.pending_conns)
        self._make_room()
        while self._lingering and (self._lingering[0].timeout <= now or len(self._lingering) > _LINGERING):
            self._end(self._lingering[0])

    def linger(self, conn: Connection) -> None:
        """End a connection that was answered once its client has ended it: a client that still sends could
        miss the answer otherwise."""
        try:
            conn.sock.shutdown(socket.SHUT_WR)
            conn.sock.setblocking(False)
        except OSError:
            conn.close()
            return
        conn.timeout = time.monotonic() + _LINGER_SECONDS
        self._lingering.append(conn)
        self._watch(conn, self._on_lingering_readable)

    def _on_lingering_readable(self, conn: Connection, _: socket.socket) -> None:
        if not conn.drain():
            self._end(conn)

    def _serve(self, conn: Connection) -> None:
        if not conn.takes_answers:
            self.nr_conns -= 1
            conn.close()
            return
        assert self._health is not None
        pool = self._health if conn.head.startswith(_HEALTH) else self.tpool
        conn.hand_over()
        pool.submit(self.handle, conn).add_done_callback(
            lambda done: self.method_queue.defer(self.finish_request, conn, done)
        )

    def _watch(self, conn: Connection, then: Any) -> None:
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(then, conn))

    def _drop(self, conn: Connection, among: deque[Connection]) -> None:
        among.remove(conn)
        self._forget(conn)
        self.nr_conns -= 1
        conn.close()

    def _end(self, conn: Connection) -> None:
        self._lingering.remove(conn)
        self._forget(conn)
        conn.close()

    def _forget(self, conn: Connection) -> None:
        with contextlib.suppress(OSError, KeyError, ValueError):
            self.poller.unregister(conn.sock)


class Server(BaseApplication):  # type: ignore[misc]
    """The framework's application, with its variables WORKERS, THREADS and GUNICORN_LOG_LEVEL."""

    def __init__(self, application: Any, bind: str) -> None:
        self._application, self._bind = application, bind
        super().__init__()

    def load_config(self) -> None:
        settings = {
            "bind": self._bind,
            "workers": int(os.environ.get("WORKERS") or 1),
            "threads": threads(),
            "worker_class": Worker,
            "worker_connections": _CONNECTIONS,
            "timeout": 0,
            "control_socket_disable": True,  # its socket is one for all servers of a user
            "loglevel": os.environ.get("GUNICORN_LOG_LEVEL", "error"),
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        return self._application


def main() -> None:
    """Serve the function that the framework's options, or its variables, name."""
    parser = argparse.ArgumentParser(prog="python -m berth.http.server")
    for name, default in (("target", None), ("source", None), ("host", "0.0.0.0"), ("port", "8080")):
        variable = name.upper() if default else f"FUNCTION_{name.upper()}"
        value = os.environ.get(variable, default)
        parser.add_argument(f"--{name}", default=value, required=value is None)
    options = parser.parse_args()
    application = functions_framework.create_app(options.target, options.source, "http")  # type: ignore[no-untyped-call]
    Server(application, f"{options.host}:{options.port}").run()


if __name__ == "__main__":
    main()
