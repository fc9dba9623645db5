"""`python -m tests.bench.flooded`: what stray clients cost a function's process, as a table.
Each lasts SECONDS, or until its clients are cut off. tests/http/test_floods.py judges, this does not."""

import argparse
import contextlib
import json
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from berth.testing.api_server import StandIn
from tests.bench import report
from tests.support.floods import MIB, Deaf, address, health, opened, peak, pour, trickles
from tests.support.servers.framework import SERVERS, function, send

SECONDS = 8.0
_HEAD = (
    "flood",
    "function",
    "threads",
    "server",
    "memory at rest, MiB",
    "peak, MiB",
    "`/healthz` at most, s",
)
_EVENT = {
    "Content-Type": "application/json",
    "Ce-Specversion": "1.0",
    "Ce-Id": "1",
    "Ce-Source": "stray",
    "Ce-Type": "dev.knative.apiserver.resource.delete",
}
_LISTS = b"[" + b",".join([b"[]"] * (25 * MIB // 3)) + b"]"


class Flood(NamedTuple):
    """What is done to which function; `do` gets its URL, and ends when the flood does."""

    what: str
    function: str
    threads: int
    do: Callable[[str], object]


def floods() -> Sequence[Flood]:
    token = {"Authorization": "Bearer s3cret"}
    return (
        Flood("700 MiB without the token", "filter", 4, lambda url: pour(url, 700 * MIB, {})),
        Flood("700 MiB with the token, limit 1 MB", "bind", 4, lambda url: pour(url, 700 * MIB, token)),
        Flood(
            "4 clients without the token, a byte now and then", "filter", 4, lambda url: _trickle(url, 4, {})
        ),
        Flood(
            "8 clients, a byte of an event now and then", "release", 8, lambda url: _trickle(url, 8, _EVENT)
        ),
        Flood("1 client, a byte now and then", "reconcile", 1, lambda url: _trickle(url, 1, {})),
        Flood("an event of 255 MiB", "release", 8, lambda url: pour(url, 255 * MIB, _EVENT)),
        Flood(
            "an event of 25 MiB, `[],[],…`",
            "release",
            8,
            lambda url: pour(url, len(_LISTS), _EVENT, _LISTS),
        ),
        Flood("32 events of 3 MiB, `[],[],…`, 8 at once", "release", 8, _garbage),
        Flood("40 connections that send nothing", "filter", 4, lambda url: _hold(url, b"")),
        Flood("40 that send half of a header", "filter", 4, lambda url: _hold(url, b"POST / HTTP/1.1\r\nHo")),
        Flood(
            "40 that were answered and stay", "filter", 4, lambda url: _hold(url, b"GET / HTTP/1.0\r\n\r\n")
        ),
        Flood("300 MiB of a first line", "filter", 4, _endless_line),
        Flood("40 calls of /robots.txt whose bodies don't come", "filter", 4, _bodiless),
        Flood("3 clients that ask for /healthz and take no answer", "filter", 4, _deaf),
    )


def _trickle(url: str, clients: int, headers: Mapping[str, str]) -> None:
    with trickles(url, clients, headers, size=100_000):
        time.sleep(SECONDS)


def _garbage(url: str) -> None:
    body = _LISTS[: 3 * MIB - 10] + b"]"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: send(url, "POST", "/", body, _EVENT)[0], range(32)))


def _hold(url: str, sent: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(40):
            connection = stack.enter_context(socket.create_connection(address(url)))
            connection.sendall(sent)
        time.sleep(SECONDS)


def _endless_line(url: str) -> None:
    with socket.create_connection(address(url)) as connection, contextlib.suppress(OSError):
        connection.sendall(b"GET /")
        for _ in range(300):
            connection.sendall(b"x" * MIB)


def _bodiless(url: str) -> None:
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(opened(url, {"Content-Length": "1000"}, path="/robots.txt"))
        time.sleep(SECONDS)


def _deaf(url: str) -> None:
    for each in [Deaf(url, b"GET /healthz HTTP/1.1\r\nHost: berth\r\n\r\n") for _ in range(3)]:
        each.join(2 * SECONDS)


class _Watch:
    """The longest time until /healthz says 200; a wait under way when the flood ends counts till then."""

    def __init__(self, url: str) -> None:
        self.longest = 0.0
        self._url, self._stop, self._began = url, threading.Event(), time.monotonic()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        while not self._stop.wait(0.05):
            self._began = time.monotonic()
            while health(self._url) != 200 and not self._stop.wait(0.05):
                pass
            self.longest = max(self.longest, time.monotonic() - self._began)

    def end(self) -> str:
        self._stop.set()
        self._thread.join(0.5)
        if self._thread.is_alive():
            return f"none for {time.monotonic() - self._began:.0f}"
        return f"{self.longest:.2f}"


def measure(server: str) -> list[tuple[object, ...]]:
    """A line of the table for each flood."""
    lines: list[tuple[object, ...]] = []
    with tempfile.TemporaryDirectory() as folder, StandIn() as api:
        environment = {
            "KUBECONFIG": str(api.kubeconfig(Path(folder) / "kubeconfig")),
            "BERTH_STORE": f"sqlite:///{folder}/ledger.db",
            "BERTH_AUTH_TOKEN": "s3cret",
        }
        for flood in floods():
            limit = {"BERTH_BODY_LIMIT": "1000000"} if "700" in flood.what else {}
            more = {**environment, **limit, "THREADS": str(flood.threads)}
            with function(flood.function, more, server) as url:
                health(url)
                rest = peak(url)
                watch = _Watch(url)
                flood.do(url)
                longest = watch.end()
                lines.append((flood.what, flood.function, flood.threads, server, rest, peak(url), longest))
                print(json.dumps(lines[-1]), flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.flooded", description=__doc__)
    parser.add_argument("--server", choices=list(SERVERS), action="append", help="default: all")
    chosen = parser.parse_args().server or list(SERVERS)
    lines = [line for server in chosen for line in measure(server)]
    print(f"{report.markdown(_HEAD, lines, 4)}\n\n{report.told(report.machine())}")


if __name__ == "__main__":
    main()
