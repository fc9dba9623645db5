"""A small HTTP server on a loopback port, for what the demonstration puts between its parts.
One thread a connection, whole bodies only: it streams nothing and checks nobody."""

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self


class Request(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Reply(NamedTuple):
    """A status and a body with its type; status 0: the connection is cut instead."""

    status: int
    body: bytes = b"{}"
    kind: str = "application/json"


Answer = Callable[[Request], Reply]

CUT = Reply(0)


class Server(ThreadingHTTPServer):
    """Knows its connections, so that their end can be its own."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that went away is nobody's error: they are killed here on purpose. The rest is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def hang_up(self) -> None:
        """Cut all connections, as a server's death does."""
        with self._guard:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class Served:
    """A server on a thread of its own, from `start` to `stop`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{server.server_port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends its connections too, as a server's death does."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.hang_up()
        self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Handler(BaseHTTPRequestHandler):
    """Connections are kept, and head and body leave in one packet."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_: object) -> None:
        """The demonstration's terminal is for the demonstration."""


class Loopback(Served):
    """Serves `answer` at `url`, a free port of its own."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(_Server(answer))


class _Server(Server):
    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer


class _Handler(Handler):
    def _serve(self) -> None:
        assert isinstance(self.server, _Server)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        reply = self.server.answer(Request(self.command, self.path, dict(self.headers.items()), body))
        if not reply.status:
            self.close_connection = True
            return
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _serve  # noqa: N815 (http.server's names)
