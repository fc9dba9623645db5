"""`python -m tests.bench binds`: bind as shipped, from its call to its answer, on an API server that answers
at once (at_once.py). No network lies between any two of them; what a bind asks of the store is counted."""

import itertools
import random
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from berth.api import pool
from berth.api.names import API_VERSION
from berth.controller.capacity_sync import sync_all
from berth.kube.types import Meta, Node
from berth.ledger.keys import DOMAIN
from berth.ledger.ledger import Ledger
from berth.ledger.model import decode_domain, encode
from berth.stores import open_store
from berth.stores.base import Store
from berth.testing import kubeconfig
from tests.bench import report
from tests.bench.at_once import pod_name
from tests.bench.bodies import ROOT
from tests.bench.client import CallError, Client
from tests.bench.contender_processes import BenchError, Server, server
from tests.bench.contenders import OWN, Tree
from tests.bench.contents import node_names
from tests.bench.counted_bind import COUNTS
from tests.bench.keeper import patiently
from tests.bench.store_costs import place

CALLERS = (1, 8, 64)
NODES, SPARE, LAST = "nodes", "spare", "last"
_UNITS = {NODES: "each node's own", SPARE: "a pool with units to spare", LAST: "a pool's last"}
_NODES = 100
_FEWER = 4  # times fewer pods for one caller alone
_THREADS = "48"  # as `berth up` and the manifests have it
_HEAD = (
    *("bind", "units", "callers", "p50 ms", "p99", "binds/s", "CPU ms", "API ms"),
    *("reads", "commits", "looks", "lost", "given up", "left"),
)


class Pod(NamedTuple):
    """A pod of the bench: its pool, its UID and the node that it is bound to."""

    pool: str
    uid: str
    node: str

    @property
    def name(self) -> str:
        return pod_name(self.pool, self.uid)

    def call(self) -> bytes:
        """Return kube-scheduler's call."""
        words = {"PodName": self.name, "PodNamespace": "default", "PodUID": self.uid, "Node": self.node}
        return msgspec.json.encode(words)


class Round(NamedTuple):
    """What so many binds took, in seconds, and how often each of the store's calls was made for them.

    `given_up` are binds that were answered with an error, `unconfirmed` those whose claim waits for
    reconcile.
    """

    times: list[float]
    spent: float
    cpu: float
    api_cpu: float
    counts: Sequence[int]
    given_up: int
    unconfirmed: int


@dataclass
class Cell:
    """So many callers who want units of one kind, of one contender."""

    contender: str
    kind: str
    callers: int
    rounds: list[Round] = field(default_factory=list)

    def row(self) -> dict[str, object]:
        times = sorted(seconds for one in self.rounds for seconds in one.times)
        binds = len(times)
        reads, commits, conflicts, looks = (
            sum(one.counts[number] for one in self.rounds) / binds for number in range(4)
        )
        return {
            "bind": self.contender,
            "units": _UNITS[self.kind],
            "callers": self.callers,
            "p50": statistics.median(statistics.median(one.times) for one in self.rounds),
            "p99": times[min(binds - 1, binds * 99 // 100)],
            "rate": binds / sum(one.spent for one in self.rounds),
            "cpu": sum(one.cpu for one in self.rounds) / binds,
            "api": sum(one.api_cpu for one in self.rounds) / binds,
            "reads": reads,
            "commits": commits,
            "looks": looks,
            "conflicts": conflicts,
            "given_up": sum(one.given_up for one in self.rounds),
            "unconfirmed": sum(one.unconfirmed for one in self.rounds),
        }


@dataclass(frozen=True)
class Contender:
    """A tree's bind on a store of its own, and the API server that both it and the bench ask."""

    name: str
    store: Store
    function: Server
    api: Server
    counts: Path

    def round(self, pods: Sequence[Pod], callers: int) -> Round:
        """Bind these pods, by so many callers at once. Raises BenchError unless each that was answered
        without an error has one claim and was bound once, and nobody else has or was."""
        before, cpu, api = self._counts(), _cpu(self.function), _cpu(self.api)
        began = time.perf_counter()
        answers = _called(self.function.port, pods, callers)
        spent = time.perf_counter() - began
        counts = [now - then for now, then in zip(self._counts(), before, strict=True)]
        cpu, api = _cpu(self.function) - cpu, _cpu(self.api) - api
        done = {pod: seconds for pod, (error, seconds) in answers.items() if not error}
        unconfirmed = self.check(done)
        return Round([*done.values()], spent, cpu, api, counts, len(pods) - len(done), unconfirmed)

    def refuses(self, pod: Pod) -> None:
        """Raise BenchError unless there is no unit left for this pod."""
        ((error, _),) = _called(self.function.port, [pod], 1).values()
        if "0 of" not in error:
            raise BenchError(
                f"{self.name}: one pod more should find no unit, and was told: {error or 'bound'}"
            )

    def empty(self) -> None:
        """Take all claims away."""
        bodies = {
            key: encode(replace(decode_domain(body), claims={}, closed=False))
            for key, body in self.store.changes(None).documents.items()
            if key.startswith(DOMAIN)
        }
        for keys in self.store.batches([*bodies]):
            patiently(partial(self.store.commit, {key: bodies[key] for key in keys}, {}))

    def check(self, pods: Collection[Pod]) -> int:
        """Return how many of these pods' claims are not confirmed. Raises BenchError unless each has one and
        was bound once, and nobody else has or was."""
        expected = {pod.name: [pod.node] for pod in pods}
        with urllib.request.urlopen(f"http://127.0.0.1:{self.api.port}/bound", timeout=30) as answer:
            bound = msgspec.json.decode(answer.read())
        if bound != expected:
            wrong = sorted(set(bound) ^ set(expected)) or "some more than once, or elsewhere"
            raise BenchError(f"{self.name}: {len(expected)} pods should be bound once each, and not: {wrong}")
        claims = [
            (claim.name, claim.node, claim.state)
            for key, body in self.store.changes(None).documents.items()
            if key.startswith(DOMAIN)
            for claim in decode_domain(body).claims.values()
        ]
        if sorted(claim[:2] for claim in claims) != sorted((pod.name, pod.node) for pod in pods):
            raise BenchError(
                f"{self.name}: each of {len(pods)} binds should have one claim, and it is not so"
            )
        return sum(state != "bound" for *_, state in claims)

    def _counts(self) -> Sequence[int]:
        return COUNTS.unpack(self.counts.read_bytes())


def measure(stores: Sequence[str], trees: Sequence[Tree], rounds: int, pods: int) -> list[dict[str, object]]:
    """Binds of so many pods in each cell; the pool's last units are as many, and all are given out."""
    order = random.Random("binds")
    with ExitStack() as stack:
        contenders = [
            stack.enter_context(_contender(tree, store, pods)) for store in stores for tree in trees or [OWN]
        ]
        cells = [
            (contender, Cell(contender.name, kind, callers))
            for contender in contenders
            for kind, callers in [*itertools.product((NODES, SPARE), CALLERS), (LAST, max(CALLERS))]
        ]
        for number in range(rounds + 1):
            print(f"bench: round {number} of {rounds}", file=sys.stderr, flush=True)
            for contender, cell in order.sample(cells, len(cells)):
                wanted = new_pods(order, cell.kind, pods if cell.callers > 1 else max(1, pods // _FEWER))
                done = contender.round(wanted, cell.callers)
                if number:  # in the first one, fresh processes pay what they pay once
                    cell.rounds.append(done)
                if cell.kind == LAST and not done.given_up:
                    contender.refuses(*new_pods(order, LAST, 1))
                contender.empty()
    return [cell.row() for _, cell in cells]


def new_pods(chance: random.Random, kind: str, count: int, nodes: int = _NODES) -> list[Pod]:
    """Pods that nobody has seen, over all nodes."""
    names = node_names(nodes)
    uids = (str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(count))
    return [Pod(kind, uid, names[number % nodes]) for number, uid in enumerate(uids)]


def _called(port: int, pods: Sequence[Pod], callers: int) -> dict[Pod, tuple[str, float]]:
    """Return each pod's answer, an error or none, and how long it took."""
    waiting, answers = iter(pods), dict[Pod, tuple[str, float]]()
    guard, failed = threading.Lock(), list[Exception]()

    def call() -> None:
        try:
            with Client(port) as client:
                while True:
                    with guard:
                        pod = next(waiting, None)
                    if pod is None:
                        return
                    answer = client.call("bind", pod.call())
                    answers[pod] = msgspec.json.decode(answer.body)["Error"], answer.seconds
        except (CallError, OSError) as error:
            failed.append(error)

    threads = [threading.Thread(target=call) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return answers


@contextmanager
def _contender(tree: Tree, store: str, pods: int) -> Iterator[Contender]:
    print(f"bench: a ledger in {store} {tree.label}", file=sys.stderr, flush=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        home = stack.enter_context(place(store, folder))
        opened = stack.enter_context(closing(open_store(home.url)))
        fill(opened, pods)
        command = [sys.executable, str(ROOT / "tests" / "bench" / "at_once.py"), "--port", "PORT"]
        api = stack.enter_context(server(command, {}))
        counts = folder / "counts"
        environment = {
            **tree.environment(),
            "KUBECONFIG": str(kubeconfig.write(folder / "kubeconfig", f"http://127.0.0.1:{api.port}")),
            **home.environment,
            "BERTH_STORE": home.url,
            "BENCH_COUNTS": str(counts),
            "THREADS": _THREADS,
        }
        source = ["--source", str(ROOT / "tests" / "bench" / "counted_bind.py"), "--target", "bind"]
        command = [
            sys.executable,
            "-m",
            "berth.http.server",
            *source,
            "--host",
            "127.0.0.1",
            "--port",
            "PORT",
        ]
        function = stack.enter_context(server(command, environment))
        yield Contender("·".join(filter(None, (tree.label, store))), opened, function, api, counts)


def fill(store: Store, pods: int, nodes: int = _NODES) -> None:
    """An open ledger of three pools in which nothing is held."""
    pools = pool.parse(
        [
            _pool(NODES, "Node", -(-pods // nodes)),
            _pool(SPARE, "Cluster", 10 * pods),
            _pool(LAST, "Cluster", pods),
        ],
        "bench",
    )

    ledger = Ledger(store, while_closed=True)
    mark = ledger.begin_rebuild("bench")
    ledger.apply_pools(pools)
    sync_all(ledger, pools, lambda: [Node(Meta(name=name)) for name in node_names(nodes)])
    ledger.open("bench", mark)


def _pool(name: str, scope: str, units: int) -> Mapping[str, object]:
    spec = {"scope": scope, "capacity": {"perDomain": units}}
    return {"apiVersion": API_VERSION, "kind": "Pool", "metadata": {"name": name}, "spec": spec}


def _cpu(process: Server) -> float:
    """Return what a process has computed so far; 0 where the system does not tell."""
    return process.cpu_seconds() or 0.0


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """As Markdown."""
    return report.markdown(_HEAD, [_line(row) for row in rows], 3)


def _line(row: Mapping[str, object]) -> Sequence[object]:
    words = (row[key] for key in ("bind", "units", "callers"))
    times = (report.ms(row["p50"]), report.ms(row["p99"]), f"{row['rate']:,.0f}")
    costs = (report.ms(row["cpu"]), report.ms(row["api"]))
    counts = (f"{row[key]:.3f}" for key in ("reads", "commits", "looks", "conflicts"))
    return (*words, *times, *costs, *counts, row["given_up"], row["unconfirmed"])
