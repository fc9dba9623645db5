"""The API server by the name that it has in a cluster, for programs with HTTPS_PROXY set to this.

Knative's receivers read the keys of tokens from https://kubernetes.default.svc; the certificate is the API
server's own, which names that.
"""

import socket
import threading
from contextlib import suppress
from socketserver import StreamRequestHandler, ThreadingTCPServer
from urllib.parse import urlsplit


class Tunnel(ThreadingTCPServer):
    """Leads this one name to this URL's host and port, once started."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, name: str, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        parts = urlsplit(url)
        self.name, self.place = name, (parts.hostname, parts.port)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(StreamRequestHandler):
    server: Tunnel

    def handle(self) -> None:
        method, name, _ = self.rfile.readline().decode().split()
        while self.rfile.readline().strip():
            pass  # headers
        if (method, name) != ("CONNECT", self.server.name):
            self.wfile.write(b"HTTP/1.1 502 no such name\r\n\r\n")
            return
        with socket.create_connection(self.server.place) as there:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            threading.Thread(target=_pump, args=(there, self.connection), daemon=True).start()
            _pump(self.connection, there)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65536):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)
