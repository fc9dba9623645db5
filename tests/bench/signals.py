"""`python -m tests.bench signals`: what metrics, lines of the log and spans add to a filter call.
All contenders are one process's paths: two processes of one program differ by a tenth, by their memory."""

import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from berth.stores import open_store
from tests.bench import report
from tests.bench.bodies import ROOT
from tests.bench.client import Client
from tests.bench.contender_processes import BenchError, server
from tests.bench.contents import CAPACITY, POOL, node_names, units_held
from tests.bench.keeper import fill

CONTENDERS = {
    "nothing": "nothing",
    "metrics": "metrics",
    "usual": "metrics, and what log and traces take while neither has anything to tell",
    "lines": "that, and a line of JSON for each call (`DEBUG`)",
    "spans": "that, and spans of each call and of its store's",
}
"""What is told of calls, by the path at which they are made."""

SIZES = (500, 5000)
_WARM = 50
_TOGETHER = (["nothing", "metrics", "usual"], ["usual", "lines"], ["usual", "spans"])
"""Spans are sent in the background: who has none is not measured beside them."""

_HEADERS = {"Content-Type": "application/json", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
_HEAD = ("names", "what is told of a filter call", "p50 us", "× nothing")
_SOURCE = ROOT / "tests" / "bench" / "told_filter.py"


def measure(calls: int) -> list[dict[str, object]]:
    """Return the rows: each contender answers so many calls, and each answer is checked."""
    rows: list[dict[str, object]] = []
    for size in SIZES:
        print(f"bench: filter, {size:,} names", file=sys.stderr)
        rows += _rows(size, _measured(node_names(size), calls))
    return rows


def _measured(names: list[str], calls: int) -> list[dict[str, list[float]]]:
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as folder:
        url = f"sqlite:///{folder}/ledger.db"
        with closing(open_store(url)) as store:
            fill(store, names)
        fitting = sum(units_held(name) < CAPACITY for name in names)
        where = ["--host", "127.0.0.1", "--port", "PORT", "--source", str(_SOURCE), "--target", "filter"]
        with (
            server([sys.executable, "-m", "berth.http.server", *where], {"BERTH_STORE": url}) as there,
            closing(Client(there.port)) as client,
        ):
            return _timed(client, _body(names), fitting, calls)


def _timed(client: Client, body: bytes, fitting: int, calls: int) -> list[dict[str, list[float]]]:
    """Return the seconds of each contender's calls, by who is measured together."""
    return [_together(client, paths, body, fitting, calls) for paths in _TOGETHER]


def _together(
    client: Client, paths: list[str], body: bytes, fitting: int, calls: int
) -> dict[str, list[float]]:
    """One calls after the other, so that all have the same machine."""
    times: dict[str, list[float]] = {path: [] for path in paths}
    for number in range(_WARM + calls):
        for path in paths[number % len(paths) :] + paths[: number % len(paths)]:
            taken = _call(client, path, body, fitting)
            if number >= _WARM:
                times[path].append(taken)
    return times


def _call(client: Client, path: str, body: bytes, fitting: int) -> float:
    answer = client.call(path, body, _HEADERS)
    if len(json.loads(answer.body)["NodeNames"] or ()) != fitting:
        raise BenchError(f"a wrong answer: {fitting} nodes were to pass, and it was {answer.body[:200]!r}")
    return answer.seconds


def _body(names: Sequence[str]) -> bytes:
    asked = {f"berth.dev/{POOL}": "1"}
    container = {"name": "c", "resources": {"requests": asked, "limits": asked}}
    metadata = {"name": "a", "namespace": "default", "uid": "u"}
    pod = {"metadata": metadata, "spec": {"containers": [container]}}
    return json.dumps({"Pod": pod, "NodeNames": list(names)}).encode()


def _rows(size: int, together: Sequence[Mapping[str, Sequence[float]]]) -> list[dict[str, object]]:
    ratios: dict[str, float] = {}
    rows: list[dict[str, object]] = []
    for times in together:
        medians = {path: statistics.median(taken) for path, taken in times.items()}
        first = next(iter(medians))
        floor = medians[first] / ratios.get(first, 1.0)
        for path in medians.keys() - ratios.keys():
            ratios[path] = medians[path] / floor
        rows += [
            {"names": size, "told": CONTENDERS[path], "p50": medians[path], "ratio": ratios[path]}
            for path in medians
            if path != first or first == "nothing"
        ]
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as Markdown."""
    body = [
        (f"{row['names']:,}", row["told"], f"{row['p50'] * 1e6:,.0f}", f"{row['ratio']:.3f}") for row in rows
    ]
    return report.markdown(_HEAD, body, 2)
