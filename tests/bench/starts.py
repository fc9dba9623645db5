"""`python -m tests.bench start`: how long filter's process takes to its first answer, and what memory it has.
The process is as shipped. Each answer must let pass what the bench's own account of the ledger says."""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.bench import report
from tests.bench.answers import Asked, check
from tests.bench.bodies import Calls
from tests.bench.client import CallError, Client
from tests.bench.contender_processes import BenchError, Server, helper, server
from tests.bench.contenders import OWN
from tests.bench.contents import Stock, node_names
from tests.bench.store_costs import place

FEW, MANY = 100, 5000
"""Domains of the ledgers for which there are marks."""

_NAMED, _FULL, _CALLERS = 20, 10, 8
_HEAD = (
    *("ledger", "domains", "first answer ms", "MB at rest", "after names", "after full nodes"),
    *(f"after {_CALLERS} at once", "refused"),
)


def measure(stores: Sequence[str], starts: int, domains: Sequence[int]) -> list[dict[str, object]]:
    """So many starts on each ledger; memory is that of the last one, in bytes, of its largest process."""
    rows = []
    for store in stores:
        for nodes in domains:
            print(f"bench: {starts} starts, {nodes:,} domains in {store}", file=sys.stderr, flush=True)
            with _ledger(store, nodes) as environment:
                seconds = [_start(environment, nodes) for _ in range(starts)]
                memory = _memory(environment, nodes)
            rows.append({"ledger": store, "domains": nodes, "seconds": statistics.median(seconds), **memory})
    return rows


@contextmanager
def _ledger(store: str, nodes: int) -> Iterator[Mapping[str, str]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        home = stack.enter_context(place(store, folder))
        environment = {**OWN.environment(), **home.environment, "BERTH_STORE": home.url}
        stack.enter_context(helper("keeper", home.url, nodes, environment, folder=OWN.keeper))
        yield environment


@contextmanager
def _filter(environment: Mapping[str, str]) -> Iterator[Server]:
    source = ["--source", str(OWN.functions / "filter" / "main.py"), "--target", "filter"]
    command = [sys.executable, "-m", "berth.http.server", *source, "--host", "127.0.0.1", "--port", "PORT"]
    with server(command, environment) as up:
        yield up


def _start(environment: Mapping[str, str], nodes: int) -> float:
    asked = _Asking(nodes, full=False)
    began = time.perf_counter()
    with _filter(environment) as up, Client(up.port) as client:
        asked.ask(client)
        return time.perf_counter() - began


def _memory(environment: Mapping[str, str], nodes: int) -> dict[str, object]:
    by_name, full = _Asking(nodes, full=False), _Asking(nodes, full=True)
    with _filter(environment) as up:
        figures: dict[str, object] = {"idle": up.peak_bytes()}
        with Client(up.port) as client:
            for asking, calls, name in ((by_name, _NAMED, "named"), (full, _FULL, "full")):
                for _ in range(calls):
                    asking.ask(client)
                figures[name] = up.peak_bytes()
        bodies = [next(full.calls) for _ in range(_CALLERS)]
        with ThreadPoolExecutor(_CALLERS) as callers:
            refused = sum(callers.map(lambda body: _is_refused(up.port, body, full), bodies))
        if refused == _CALLERS:
            raise BenchError("filter refused all of the calls that came at once")
        return {**figures, "at_once": up.peak_bytes(), "refused": refused}


def _is_refused(port: int, body: bytes, asking: "_Asking") -> bool:
    """Make a call on a connection of its own. Return whether it was one body too many in hand."""
    try:
        with Client(port) as client:
            asking.check(client.call("filter", body).body)
    except (CallError, OSError):  # it still sends when it is refused
        return True
    return False


class _Asking:
    """Calls about all nodes of a ledger, by name or in full."""

    def __init__(self, nodes: int, *, full: bool) -> None:
        names = node_names(nodes)
        self.calls = Calls(names, full=full)
        self._asked = Asked("filter", names, self.calls.full)
        self._expected = Stock(names).now

    def ask(self, client: Client) -> None:
        self.check(client.call("filter", next(self.calls)).body)

    def check(self, body: bytes) -> None:
        check(self._asked, self._expected, body)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """As Markdown, memory in MB."""
    return report.markdown(_HEAD, [_line(row) for row in rows], 1)


def _line(row: Mapping[str, Any]) -> Sequence[object]:
    memory = (f"{row[name] / 1e6:.0f}" for name in ("idle", "named", "full", "at_once"))
    return row["ledger"], f"{row['domains']:,}", f"{1000 * row['seconds']:.0f}", *memory, row["refused"]
