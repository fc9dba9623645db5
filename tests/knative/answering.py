"""A function of the tests' own, that answers as it is told and when it may: Berth's functions do neither."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answering(ThreadingHTTPServer):
    """A function that answers each POST with this body, and only while it may; GET it answers at once."""

    request_queue_size = 256

    def __init__(self, body: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.body = body
        self.events: list[str] = []
        self.go = threading.Event()
        self.go.set()

    def told(self, pod: str) -> int:
        """How many times it was sent an event of this pod."""
        return sum(each.endswith(f"/{pod}") for each in list(self.events))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Answering

    def do_GET(self) -> None:
        self._answer(b"{}")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.events.append(self.headers.get("Ce-Subject", ""))
        self.server.go.wait(60)
        self._answer(self.server.body)

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silence."""


@contextmanager
def answering(body: bytes) -> Iterator[Answering]:
    with Answering(body) as function:
        threading.Thread(target=function.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield function
        finally:
            function.go.set()
            function.shutdown()
