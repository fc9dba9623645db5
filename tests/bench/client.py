"""kube-scheduler's side of an extender call: one kept-alive HTTP/1.1 connection, one call at a time.
It sends what Go's client sends and reads the answer whole; it takes no answer in chunks."""

import socket
import time
from collections.abc import Mapping
from typing import NamedTuple, Self

_HEAD = (
    "POST /{verb} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: {size}\r\n"
    "{more}Accept-Encoding: gzip\r\n\r\n"
)
_JSON = {"Content-Type": "application/json"}
_PATIENCE_SECONDS = 120.0
_CHUNK = 1024 * 1024


class CallError(Exception):
    """The answer was not one that kube-scheduler would take."""


class Answer(NamedTuple):
    """Its body, and how long it took from the first byte sent to the last byte read."""

    body: bytes
    seconds: float


class Client:
    """A connection to one extender, kept for all calls."""

    def __init__(self, port: int) -> None:
        self._host = f"127.0.0.1:{port}"
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, verb: str, body: bytes, headers: Mapping[str, str] = _JSON, status: int = 200) -> Answer:
        """One call. Raises CallError for another status or an unknown length, OSError as sockets do."""
        more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = _HEAD.format(verb=verb, host=self._host, size=len(body), more=more).encode()
        began = time.perf_counter()
        self._socket.sendall(head + body if len(body) < _CHUNK else head)
        if len(body) >= _CHUNK:
            self._socket.sendall(body)
        found = self._read(verb, status)
        return Answer(found, time.perf_counter() - began)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, verb: str, status: int) -> bytes:
        received = bytearray()
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._some()
        size = _length(verb, bytes(received[:end]), status)
        parts, missing = [bytes(received[end + 4 :])], size - (len(received) - end - 4)
        while missing > 0:
            part = self._some()
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _some(self) -> bytes:
        part = self._socket.recv(_CHUNK)
        if not part:
            raise CallError(
                f"{self._host} closed the connection: kube-scheduler would need a new one per call"
            )
        return part


def _length(verb: str, head: bytes, expected: int) -> int:
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if status.split()[1] != str(expected) or headers.get("connection", "").lower() == "close":
        raise CallError(f"{verb} was answered by {status!r}, connection: {headers.get('connection', 'kept')}")
    if expected == 204:
        return 0
    if "content-length" not in headers:
        raise CallError(f"{verb} was answered without a Content-Length: kube-scheduler would reconnect")
    return int(headers["content-length"])
