"""Small servers that play a function's processes behind a balancer, and clients that keep their connection.
They know nothing of functions-framework; tests/e2e has the real processes."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from urllib3.util import wait_for_read

from berth.local.load_balancer import LoadBalancer
from berth.local.ports import free_ports
from tests.support.cluster import wait

SECONDS = 30.0


class Got(NamedTuple):
    """A request as a replica got it."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Reply(NamedTuple):
    """An answer as the client got it."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Replica:
    """A process that answers with its own port; `act` is called with each request before the answer."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.got: list[Got] = []
        self.connections: list[socket.socket] = []
        self.act: Callable[[Handler], bool] = lambda _: True
        self.reads = True  # a request's body
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """As a killed process: nothing listens any more, all its connections are ended."""
        self._server.shutdown()
        self._server.server_close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # a full queue looks like a process that is away

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        super().__init__(("127.0.0.1", replica.port), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections end as tests like it."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.replica.connections.append(self.connection)

    def log_message(self, *_: object) -> None:
        """Silence."""

    def _serve(self) -> None:
        replica = self.server.replica
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)) if replica.reads else 0)
        replica.got.append(Got(self.command, self.path, dict(self.headers.items()), body))
        if not replica.act(self):
            return
        answer = str(replica.port).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)


class Client:
    """One kept-alive connection, as each of kube-scheduler's."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)

    def __call__(
        self,
        body: bytes = b"{}",
        method: str = "POST",
        path: str = "/filter",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        self.connection.request(method, path, body or None, dict(headers or {}))
        reply = self.connection.getresponse()
        return Reply(reply.status, dict(reply.headers.items()), reply.read())

    def close(self) -> None:
        self.connection.close()


class Balanced:
    """A balancer and its replicas by number, the first is 1."""

    def __init__(self, stack: ExitStack, replicas: int) -> None:
        self._stack = stack
        self.port, *self.ports = free_ports(replicas + 1)
        self.replicas: dict[int, Replica] = {}
        self.balancer = LoadBalancer("filter", self.port, self.ports)
        for number in range(1, replicas + 1):
            self.start(number)
        self.balancer.start()
        stack.callback(self.balancer.stop)
        self.client = self.new_client()

    def start(self, number: int) -> None:
        self.replicas[number] = Replica(self.ports[number - 1])
        self._stack.callback(self.replicas[number].stop)

    def new_client(self) -> Client:
        return self._stack.enter_context(closing(Client(self.port)))

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), SECONDS)

    def answering(self, calls: int) -> list[int]:
        """The numbers of the replicas that answered so many calls."""
        numbers = {str(port).encode(): number for number, port in enumerate(self.ports, 1)}
        return [numbers[self.client().body] for _ in range(calls)]

    def stop(self, number: int) -> None:
        self.replicas[number].stop()
        self.wait_ended(number)

    def wait_ended(self, number: int) -> None:
        """Until the kernel has told the balancer's side of the connections that were ended; a call in between
        rightly gets 502."""
        assert self.balancer._server is not None
        resting = self.balancer._server.replicas[number - 1]._resting

        def ended() -> bool:
            return all(wait_for_read(connection.sock, timeout=0) for _, connection in resting)

        wait(ended, SECONDS, "the connections' end")

    def counts(self) -> dict[int, int]:
        return {number: len(replica.got) for number, replica in self.replicas.items()}
