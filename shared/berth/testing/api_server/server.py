"""The stand-in's HTTP server: it reads a request, lets `calls` answer it, and streams watches."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from berth.local.http_server import HttpHandler, HttpServer
from berth.testing import kubeconfig
from berth.testing.api_server import calls
from berth.testing.api_server.memory import Memory
from berth.testing.api_server.rules import Json, StatusError, bad_request


class StandIn(HttpServer):
    """Listens on a loopback port from the start; `history` is how many changes a watch may lag behind."""

    def __init__(
        self,
        port: int = 0,
        clock: Callable[[], float] = time.time,
        uids: Callable[[], str] = lambda: str(uuid.uuid4()),
        history: int = 10_000,
    ) -> None:
        super().__init__(_Handler, port)
        self.memory = Memory(clock, uids, history)

    def stop(self) -> None:
        """End its watches, too."""
        self.memory.close()
        super().stop()

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig that leads here, without credentials."""
        return kubeconfig.write(path, self.url)


class _Handler(HttpHandler):
    server: StandIn

    def _play(self) -> None:
        memory = self.server.memory
        try:
            body = self._body()
            content_type = self.headers.get("Content-Type", "").partition(";")[0].strip()
            action, call = calls.find(self.command, self.path, content_type, body)
            if call.watches:
                self._stream(calls.watch(memory, call))
            else:
                self._send(*action(memory, call))
        except StatusError as refusal:
            self._send(refusal.code, refusal.status())

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _play  # noqa: N815 (http.server's names)

    def _body(self) -> Any:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            return json.loads(raw) if raw else None
        except ValueError as error:
            raise bad_request(f"the object provided is unrecognized: {error}") from error

    def _send(self, code: int, answer: Json | str) -> None:
        if isinstance(answer, str):
            self.reply(code, answer.encode(), "text/plain; charset=utf-8")
        else:
            self.reply(code, json.dumps(answer).encode(), "application/json")

    def _stream(self, events: Iterator[Json]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for event in events:
            line = json.dumps(event).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
