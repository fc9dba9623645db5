"""`python -m tests.bench reconcile`: what reconcile takes of a large cluster, in a new process.
The API server's lists are prepared (listed.py), as large as real ones; its own time is in here.

A healthy ledger must come out as it was; claims that were taken out, and claims of pods that vanished, are
mended, each once. What was done is looked for in the ledger, too.
"""

import random
import statistics
import sys
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from berth.ledger.keys import domain_key
from berth.ledger.model import Claim, Domain, Holding, encode
from berth.stores import open_store
from berth.stores.base import Store
from berth.testing import kubeconfig
from tests.bench import report
from tests.bench.client import Client
from tests.bench.contender_processes import BenchError, Server, server
from tests.bench.contenders import OWN, Tree
from tests.bench.contents import CAPACITY, POOL, node_names
from tests.bench.keeper import fill, patiently
from tests.bench.listed import node_of, pod_name, pod_uid
from tests.bench.store_costs import place
from tests.bench.witness import held

HEALTHY, AGAIN, MISSING, GONE = "first", "again", "missing", "gone"
_WORDS = {
    HEALTHY: "healthy, the process has just started",
    AGAIN: "healthy, once more",
    MISSING: "{} claims are missing",
    GONE: "{} pods are gone",
}
_HEAD = ("reconcile", "ledger", "s", "CPU s", "peak MB", "requests", "MB read")
_NOTHING = {"rebuilt": False, "released": 0, "settled": 0, "adopted": 0, "capacities": 0, "woken": 0}


class Size(NamedTuple):
    """Nodes, pods, how many of them are ours, and how many of these are broken in two of the cases."""

    nodes: int
    pods: int
    ours: int
    broken: int


MARKED = Size(5000, 50_000, 20_000, 20)
"""The cluster for which there are marks."""


class Run(NamedTuple):
    """What one took: seconds, seconds of the processor, and bytes of the process at its largest; and what the
    API server was asked for it, in requests and bytes."""

    seconds: float
    cpu: float
    peak: int
    calls: Mapping[str, int]
    read: int


@dataclass
class Cell:
    contender: str
    case: str
    runs: list[Run] = field(default_factory=list)

    def row(self, size: Size) -> dict[str, Any]:
        return {
            "reconcile": self.contender,
            "case": self.case,
            "ledger": _WORDS[self.case].format(size.broken),
            "seconds": statistics.median(run.seconds for run in self.runs),
            "cpu": statistics.median(run.cpu for run in self.runs),
            "peak": max(run.peak for run in self.runs),
            "calls": statistics.median(sum(run.calls.values()) for run in self.runs),
            "read": statistics.median(run.read for run in self.runs),
            "asked": dict(self.runs[-1].calls),
        }


def measure(stores: Sequence[str], trees: Sequence[Tree], rounds: int, size: Size) -> list[dict[str, Any]]:
    """Run each case in each round, in a new process a round."""
    with ExitStack() as stack:
        api = stack.enter_context(_api(size))
        ledgers = [
            (tree, kind, stack.enter_context(_ledger(kind, size)))
            for kind in stores
            for tree in trees or [OWN]
        ]
        cells = {
            (tree.label, kind, case): Cell("·".join(filter(None, (tree.label, kind))), case)
            for tree, kind, _ in ledgers
            for case in _WORDS
        }
        for number in range(rounds):
            print(f"bench: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            for tree, kind, ledger in ledgers:
                with _reconcile(tree, ledger, api) as function:
                    for case in _WORDS:
                        run = _run(function, api, ledger.store, case, size)
                        cells[tree.label, kind, case].runs.append(run)
    return [cell.row(size) for cell in cells.values()]


def _run(function: Server, api: Server, store: Store, case: str, size: Size) -> Run:
    """One call of reconcile, of which is checked what it did. Raises BenchError."""
    chance = random.Random(case)
    if case == MISSING:
        _put(store, size, set(chance.sample(range(size.ours), size.broken)), set())
    elif case == GONE:
        _put(store, size, set(), {size.pods + number for number in range(size.broken)})
    asked(api)
    cpu = function.cpu_seconds() or 0.0
    with Client(function.port) as client:
        answer = client.call("", b"", {})
    done = msgspec.json.decode(answer.body)
    cpu = (function.cpu_seconds() or 0.0) - cpu
    told = asked(api)
    mended = {MISSING: {"adopted": size.broken}, GONE: {"released": size.broken}}.get(case, {})
    check(done, {**_NOTHING, **mended}, store, size)
    return Run(answer.seconds, cpu, function.peak_bytes(), told["calls"], told["bytes"])


def check(done: Mapping[str, Any], expected: Mapping[str, Any], store: Store, size: Size) -> None:
    """Raises BenchError unless reconcile says that it did this, and each of our pods has its claim."""
    told = {name: done.get(name) for name in expected}
    if told != expected or done.get("problems"):
        raise BenchError(f"reconcile should have done {dict(expected)}, and says: {dict(done)}")
    nodes = node_names(size.nodes)
    should = Counter(domain_key(POOL, node_of(number, nodes)) for number in range(size.ours))
    if (found := held(store, [domain_key(POOL, node) for node in nodes])) != should:
        raise BenchError(
            f"{(should - found).total()} claims are missing, {(found - should).total()} too many"
        )


def _put(store: Store, size: Size, missing: set[int], more: set[int]) -> None:
    """Make the ledger one without the claims of these pods of ours, and with those of others."""
    nodes, by_node = node_names(size.nodes), dict[str, list[Claim]]()
    for number in [*(set(range(size.ours)) - missing), *more]:
        node = node_of(number, nodes)
        by_node.setdefault(node, []).append(_claim(number, node))
    bodies = {
        domain_key(POOL, node): encode(
            Domain(CAPACITY, {claim.uid: claim for claim in by_node.get(node, ())})
        )
        for node in nodes
    }
    for keys in store.batches([*bodies]):
        patiently(partial(store.commit, {key: bodies[key] for key in keys}, {}))


def _claim(number: int, node: str) -> Claim:
    return Claim(
        uid=pod_uid(number),
        namespace="default",
        name=pod_name(number),
        node=node,
        holdings=(Holding(POOL, node, 1),),
        state="bound",
        attempt=f"{number:012x}",
        since=1.7e9 + number,
    )


@dataclass(frozen=True)
class _Ledger:
    url: str
    environment: Mapping[str, str]
    folder: Path
    store: Store


@contextmanager
def _ledger(kind: str, size: Size) -> Iterator[_Ledger]:
    print(f"bench: a ledger in {kind}", file=sys.stderr, flush=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        home = stack.enter_context(place(kind, folder))
        store = stack.enter_context(closing(open_store(home.url)))
        fill(store, node_names(size.nodes))
        _put(store, size, set(), set())
        yield _Ledger(home.url, home.environment, folder, store)


@contextmanager
def _api(size: Size) -> Iterator[Server]:
    print(f"bench: {size.pods:,} pods are prepared", file=sys.stderr, flush=True)
    sizes = {"--nodes": size.nodes, "--pods": size.pods, "--ours": size.ours}
    words = [word for name, count in sizes.items() for word in (name, str(count))]
    with server([sys.executable, "-m", "tests.bench.listed", "--port", "PORT", *words], {}) as up:
        yield up


@contextmanager
def _reconcile(tree: Tree, ledger: _Ledger, api: Server) -> Iterator[Server]:
    config = kubeconfig.write(ledger.folder / "kubeconfig", f"http://127.0.0.1:{api.port}")
    environment = {
        **tree.environment(),
        **ledger.environment,
        "KUBECONFIG": str(config),
        "BERTH_STORE": ledger.url,
    }
    source = ["--source", str(tree.functions / "reconcile" / "main.py"), "--target", "reconcile"]
    command = [sys.executable, "-m", "berth.http.server", *source, "--host", "127.0.0.1", "--port", "PORT"]
    with server(command, environment) as up:
        yield up


def asked(api: Server) -> Any:
    """Return what the API server was asked since the last time, and how many bytes it answered."""
    with urllib.request.urlopen(f"http://127.0.0.1:{api.port}/asked", timeout=30) as answer:
        return msgspec.json.decode(answer.read())


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """As Markdown."""
    body = [
        (
            row["reconcile"],
            row["ledger"],
            f"{row['seconds']:.2f}",
            f"{row['cpu']:.2f}",
            f"{row['peak'] / 1e6:,.0f}",
            f"{row['calls']:,.0f}",
            f"{row['read'] / 1e6:,.0f}",
        )
        for row in rows
    ]
    return report.markdown(_HEAD, body, 2)
