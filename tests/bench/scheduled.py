"""`python -m tests.bench scheduled`: pods a second that a real kube-scheduler binds with no extender, with
one in Go that counts in memory (tests/controlplane/counter), and with Berth; and what of the processor's time
a pod's whole life takes."""

import random
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import yaml

from berth.scheduler_config.kube_scheduler import Calls, configuration
from tests.bench import go_programs, report
from tests.bench.contender_processes import BenchError, Server, server
from tests.bench.contenders import Tree
from tests.bench.store_costs import place
from tests.controlplane.plane import ControlPlane
from tests.e2e.harness import Berth, pool
from tests.support.builders.accounts import Accounts
from tests.support.cluster import Cluster, wait
from tests.support.kubernetes import BINARIES

NONE, GO = "no extender", "Go, in memory"
_UNITS = 10  # of a node
_PATIENCE = 600.0
_VERBS = ("filter", "prioritize", "bind")
_RELAY = "berth up"
_NOBODY = "http://127.0.0.1:1"


@dataclass
class Cell:
    """What a contender did: pods a second of each round, and seconds of CPU for a pod by process."""

    name: str
    open: Callable[["Stage", str], AbstractContextManager["Up"]]
    rates: list[float] = field(default_factory=list)
    cpu: list[dict[str, float]] = field(default_factory=list)


class Up(NamedTuple):
    """A contender at work: the URL of each verb, its processes, and how many claims it holds."""

    urls: Mapping[str, str]
    pids: Callable[[], Mapping[str, int]]
    claims: Callable[[], int | None]


class Stage(NamedTuple):
    """A control plane with its nodes, and how many pods come in a round."""

    plane: ControlPlane
    cluster: Cluster
    accounts: Accounts
    folder: Path
    pods: int

    def round(self, cell: Cell, number: int) -> None:
        """All pods are there before the scheduler starts; then nothing is left of them."""
        scheduler = f"{_word(cell.name)}-{number}"
        pods = [f"{scheduler}-{pod:04}" for pod in range(self.pods)]
        with cell.open(self, scheduler) as up, self.cluster.watch_pods() as seen:
            before = _cpu(up.pids())
            self.cluster.create_pods(*pods, scheduler=scheduler)
            self.plane.start_scheduler(self._config(up.urls, scheduler), scheduler)
            wait(lambda: len(seen.bound_at) == len(pods), _PATIENCE, f"all pods of {scheduler} are bound")
            moments = seen.bound_at.values()
            cell.rates.append((len(pods) - 1) / (max(moments) - min(moments)))
            self.plane.stop_scheduler(scheduler)
            if (held := up.claims()) not in (None, len(pods)):
                raise BenchError(f"{cell.name}: {len(pods)} pods are bound, and {held} are counted")
            if over := {node: peak for node, peak in seen.peak.items() if peak > _UNITS and held is not None}:
                raise BenchError(f"{cell.name}: more than {_UNITS} units given of {sorted(over)[:3]}")
            for name in pods:
                self.cluster.delete_pod(name)
            wait(lambda: not up.claims(), _PATIENCE, f"{cell.name}: no claims without pods", every=0.5)
            after = _cpu(up.pids())
            cell.cpu.append({name: (after[name] - before[name]) / len(pods) for name in before})

    def _config(self, urls: Mapping[str, str], scheduler: str) -> Path:
        """What Berth would write, with the extenders that there are. kube-scheduler's own 50 requests a
        second would be all that shows of it without an extender, so they are no limit here."""
        kubeconfig = str(self.accounts.kubeconfig("scheduler"))
        calls = Calls({verb: urls.get(verb, _NOBODY) for verb in (*_VERBS, "preempt")})
        document = configuration(calls, kubeconfig=kubeconfig, schedulers=[scheduler])
        document["clientConnection"] |= {"qps": 10_000, "burst": 10_000}
        document["extenders"] = [each for each in document["extenders"] if each["urlPrefix"] != _NOBODY]
        path = self.folder / f"{scheduler}.yaml"
        path.write_text(yaml.safe_dump(document))
        return path


def measure(
    stores: Sequence[str], trees: Sequence[Tree], rounds: int, pods: int, nodes: int
) -> list[dict[str, object]]:
    """Each contender in each round, in an order by chance, and alone: only its processes run."""
    order, cells = random.Random("scheduled"), [Cell(NONE, _nobody), Cell(GO, _counter)]
    cells += [
        Cell(" ".join(filter(None, (tree.label, store))), _berth(store, tree))
        for store in stores
        for tree in trees
    ]
    with (
        tempfile.TemporaryDirectory(prefix="berth-bench-") as folder,
        _stage(Path(folder), pods, nodes) as stage,
    ):
        for number in range(rounds):
            for cell in order.sample(cells, len(cells)):
                stage.round(cell, number)
                print(f"bench: {cell.name}: {cell.rates[-1]:.1f} pods/s", file=sys.stderr, flush=True)
    return [_row(cell, cells[1]) for cell in cells]


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """The rates and what a pod's life costs, as Markdown."""
    rates = [(row["contender"], f"{row['rate']:.1f}", f"{row['ratio']:.2f}") for row in rows]
    ours = [row for row in rows if row["cpu"]]
    names = sorted({name for row in ours for name in _costs(row)})
    costs = [
        (name, *(report.ms(_costs(row)[name]) if name in _costs(row) else "" for row in ours))
        for name in names
    ]
    costs.append(("together", *(report.ms(sum(_costs(row).values())) for row in ours)))
    heads = [str(row["contender"]) for row in ours]
    return "\n\n".join(
        (
            report.markdown(("extender", "pods/s", "× Go's"), rates, 1),
            report.markdown(("CPU ms a pod", *heads), costs, 1),
        )
    )


def _costs(row: Mapping[str, object]) -> dict[str, float]:
    costs = row["cpu"]
    assert isinstance(costs, dict)
    return costs


def _row(cell: Cell, go: Cell) -> dict[str, object]:
    ratios = [mine / its for mine, its in zip(cell.rates, go.rates, strict=True)]
    return {
        "contender": cell.name,
        "rate": statistics.median(cell.rates),
        "ratio": statistics.median(ratios),
        "rates": cell.rates,
        "cpu": {name: statistics.median(cost[name] for cost in cell.cpu) for name in cell.cpu[0]},
    }


@contextmanager
def _stage(folder: Path, pods: int, nodes: int) -> Iterator[Stage]:
    if pods > nodes * _UNITS:
        raise BenchError(f"{nodes} nodes have units for {nodes * _UNITS} pods: ask for no more")
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(BINARIES["newest"], folder / "plane"))
        cluster = stack.enter_context(closing(Cluster(plane.url, plane.admin_token, plane.ca_file)))
        for number in range(nodes):
            cluster.create_node(f"node-{number}")
        yield Stage(plane, cluster, Accounts(plane, cluster, folder), folder, pods)


@contextmanager
def _nobody(*_: object) -> Iterator[Up]:
    yield Up({}, dict, lambda: None)


@contextmanager
def _counter(stage: Stage, _: str) -> Iterator[Up]:
    kubeconfig = str(stage.plane.kubeconfig(stage.folder / "kubeconfig"))
    command = [str(go_programs.binary("counter")), "-listen", "127.0.0.1:PORT", "-kubeconfig", kubeconfig]
    with server([*command, "-units", str(_UNITS)], {}) as up:
        url = f"http://127.0.0.1:{up.port}"

        def held() -> int:
            with urllib.request.urlopen(f"{url}/held", timeout=30) as answer:
                return int(answer.read())

        yield Up(dict.fromkeys(_VERBS, url), lambda: {"extender": up.pid}, held)


def _berth(store: str, tree: Tree) -> Callable[[Stage, str], AbstractContextManager[Up]]:
    @contextmanager
    def opened(stage: Stage, scheduler: str) -> Iterator[Up]:
        folder = stage.folder / scheduler
        folder.mkdir()
        with place(store, folder) as home:
            environment = {**tree.environment(), **home.environment, "BERTH_SCHEDULER_NAMES": scheduler}
            kubeconfig = stage.plane.kubeconfig(folder / "kubeconfig")
            functions = stage.accounts.functions(folder, tree.functions)
            pools = [pool(units=_UNITS)]
            berth = Berth(folder, kubeconfig, pools, environment, functions, store=home.url)
            berth.launch_alone()
            try:
                yield Up(berth.urls, lambda: _processes(berth), lambda: len(berth.ledger().claims()))
            finally:
                berth.stop()

    return opened


def _processes(berth: Berth) -> Mapping[str, int]:
    assert berth.process is not None
    return {_RELAY: berth.process.pid, **berth.pids}


def _cpu(pids: Mapping[str, int]) -> dict[str, float]:
    return {name: Server(0, pid).cpu_seconds() or 0.0 for name, pid in pids.items()}


def _word(name: str) -> str:
    return "".join(letter for letter in name.lower().replace(" ", "-") if letter.isalnum() or letter == "-")
