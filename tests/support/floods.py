"""What a stray client does to a function's process: bodies without end, bodies that come a byte at a time.
It says what the process took meanwhile, and how long its health was not to be had."""

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

MIB = 1024 * 1024
_PART = b"x" * MIB
_SECONDS = 60.0


class Told(NamedTuple):
    """The status that came back (0: the connection was cut first), its headers, and the bytes sent."""

    status: int
    headers: Mapping[str, str]
    sent: int


def address(url: str) -> tuple[str, int]:
    """Where a function listens."""
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    return parts.hostname, parts.port


def opened(url: str, headers: Mapping[str, str], method: str = "POST", path: str = "/") -> socket.socket:
    """A connection that has sent its headers, and nothing of a body."""
    connection = socket.create_connection(address(url), timeout=_SECONDS)
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: berth",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    connection.sendall("\r\n".join([*lines, "", ""]).encode())
    return connection


def answer(connection: socket.socket, sent: int = 0) -> Told:
    """What comes back."""
    reply = http.client.HTTPResponse(connection)
    try:
        reply.begin()
        return Told(reply.status, {name.lower(): value for name, value in reply.getheaders()}, sent)
    except (OSError, http.client.HTTPException):
        return Told(0, {}, sent)


def pour(url: str, size: int, headers: Mapping[str, str], part: bytes = _PART) -> Told:
    """Send so many bytes, as long as the function takes them."""
    with opened(url, {"Content-Length": str(size), **headers}) as connection:
        sent = 0
        with contextlib.suppress(OSError):
            while sent < size:
                connection.sendall(part[: size - sent])
                sent += len(part)
        return answer(connection, min(sent, size))


@contextmanager
def trickles(
    url: str, clients: int, headers: Mapping[str, str], size: int = 1000, pause: float = 0.2
) -> Iterator[list[socket.socket]]:
    """So many clients that send a byte of a body now and then, until the block is left."""
    stop = threading.Event()
    with ExitStack() as stack:
        open_ones = [
            stack.enter_context(opened(url, {"Content-Length": str(size), **headers})) for _ in range(clients)
        ]

        def send() -> None:
            live = list(open_ones)
            while live and not stop.wait(pause):
                for connection in list(live):
                    try:
                        connection.send(b"x")
                    except OSError:
                        live.remove(connection)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        try:
            yield open_ones
        finally:
            stop.set()
            sender.join()


class Deaf(threading.Thread):
    """A client that sends one request after the other, takes no answer, and ends when it is cut off."""

    def __init__(self, url: str, request: bytes) -> None:
        super().__init__(daemon=True)
        self._connection, self._request = socket.socket(), request
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._connection.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536
        )  # for small buffers there, too
        self._connection.connect(address(url))
        self.start()

    def run(self) -> None:
        with self._connection, contextlib.suppress(OSError):
            while True:
                self._connection.sendall(self._request)


class Health:
    """How long /healthz took at the longest, asked again and again on a connection of its own each time."""

    def __init__(self, url: str) -> None:
        self.longest, self.asked, self.wrong = 0.0, 0, 0
        self._url, self._stop = url, threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> "Health":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._stop.wait(0.05):
            began = time.monotonic()
            self.wrong += health(self._url) != 200
            self.longest = max(self.longest, time.monotonic() - began)
            self.asked += 1


def health(url: str, seconds: float = _SECONDS) -> int:
    """The status of /healthz, 0 if none came."""
    connection = http.client.HTTPConnection(*address(url), timeout=seconds)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def peak(url: str) -> int:
    """The most memory that a process of the function at this port has had, in MiB (Linux)."""
    return max(int(status["VmHWM"].split()[0]) // 1024 for status in _processes(url).values())


def workers(url: str) -> set[int]:
    """The processes of the function at this port that serve it: those that another one started (Linux)."""
    found = _processes(url)
    return {process for process, status in found.items() if int(status["PPid"]) in found}


def _processes(url: str) -> dict[int, dict[str, str]]:
    """What the system tells of each process of the function at this port."""
    port = str(address(url)[1]).encode()
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if port in (process / "cmdline").read_bytes().split(b"\0"):
                lines = (process / "status").read_text().splitlines()
                found[int(process.name)] = dict(line.split(":", 1) for line in lines if ":" in line)
    return found
