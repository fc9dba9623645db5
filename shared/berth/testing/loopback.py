"""An HTTP server whose answers a function gives, for what the demo and tests put between two parts.
It takes whole bodies only, and streams nothing."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from berth.local.http_server import HttpHandler, HttpServer


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


CUT = Reply(0)


class Loopback(HttpServer):
    """Serves `answer` at `url`, on a free port."""

    def __init__(self, answer: Callable[[Request], Reply]) -> None:
        super().__init__(_Handler)
        self.answer = answer


class _Handler(HttpHandler):
    server: Loopback

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = self.server.answer(Request(self.command, self.path, dict(self.headers.items()), body))
        if answer.status:
            self.reply(*answer)
        else:
            self.close_connection = True

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _serve  # noqa: N815 (http.server's names)
