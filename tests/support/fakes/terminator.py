"""Ends TLS before a server on loopback, as Knative's gateway does before a function.
It does not look at what is in the connection: no hosts, no headers."""

import contextlib
import socket
import socketserver
import ssl
import threading
from pathlib import Path
from typing import Self

_CHUNK = 65536


class Terminator:
    """`url` leads to `port` by https, with this certificate."""

    def __init__(self, port: int, certificate: Path, key: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server = _Server(port, context)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.port, self.context = port, context
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Who does not trust the certificate hangs up."""


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        with (
            self.server.context.wrap_socket(self.request, server_side=True) as client,
            socket.create_connection(("127.0.0.1", self.server.port)) as function,
        ):
            back = threading.Thread(target=_pump, args=(function, client), daemon=True)
            back.start()
            _pump(client, function)
            back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Until the source has ended; then the target is told so."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(_CHUNK):
            target.sendall(chunk)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
