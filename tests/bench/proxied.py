"""`python -m tests.bench proxy`: pods a second on a real kube-scheduler that calls the functions itself with
the token in its URLs (as it was, and as nobody should have it), and by way of the proxy that adds it."""

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import yaml

from berth.scheduler_config.kube_scheduler import Calls, configuration
from tests.bench import report
from tests.bench.contender_processes import BenchError
from tests.bench.contenders import TOKEN
from tests.controlplane.plane import ControlPlane
from tests.e2e.harness import Berth, System, pool
from tests.support.builders.accounts import Accounts
from tests.support.cluster import Cluster, wait
from tests.support.kubernetes import BINARIES
from tests.support.servers.haproxy import MISSING, HAProxy, haproxy_binary

WAYS = ("direct", "proxied")
_PATIENCE = 300.0
_UNITS = 10  # of a node


@dataclass
class Way:
    """How kube-scheduler calls; pods a second, for each round."""

    name: str
    rates: list[float] = field(default_factory=list)


class _Stage(NamedTuple):
    system: System
    names: Sequence[str]

    def round(self, way: Way, number: int) -> None:
        """All pods created at once, until the last is bound; then nothing is left of them."""
        cluster, pods = self.system.cluster, [f"{way.name}-{number}-{name}" for name in self.names]
        with cluster.watch_pods() as seen:
            began = time.monotonic()
            cluster.create_pods(*pods, scheduler=way.name)
            wait(lambda: len(seen.bound_at) == len(pods), _PATIENCE, "all pods are bound", every=0.02)
            way.rates.append(len(pods) / (max(seen.bound_at.values()) - began))
        if len(held := self.system.berth.ledger().claims()) != len(pods):
            raise BenchError(f"{way.name}: {len(pods)} pods are bound, and the ledger has {len(held)} claims")
        for name in pods:
            cluster.delete_pod(name)
        wait(lambda: not self.system.berth.ledger().claims(), _PATIENCE, "no claims without pods")


def measure(rounds: int, pods: int) -> list[dict[str, object]]:
    """Both ways in each round, in an order by chance; two kube-schedulers, of which one has nothing to do."""
    order, ways = random.Random("proxy"), [Way(name) for name in WAYS]
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as folder, _stage(Path(folder), pods) as stage:
        for number in range(rounds + 1):
            for way in order.sample(ways, len(ways)):
                stage.round(way, number)
                print(f"bench: {way.name}: {way.rates[-1]:.1f} pods/s", file=sys.stderr, flush=True)
            if number == 0:  # what fresh processes pay once
                for way in ways:
                    way.rates.clear()
    direct, proxied = ways
    ratios = [mine / its for mine, its in zip(proxied.rates, direct.rates, strict=True)]
    return [
        {"way": way.name, "rate": statistics.median(way.rates), "ratio": ratio}
        for way, ratio in ((direct, 1.0), (proxied, statistics.median(ratios)))
    ]


def table(rows: Sequence[dict[str, object]]) -> str:
    """As Markdown."""
    lines = [(row["way"], f"{row['rate']:.1f}", f"{row['ratio']:.2f}") for row in rows]
    return report.markdown(("kube-scheduler calls", "pods/s", "× direct"), lines, 1)


@contextmanager
def _stage(folder: Path, pods: int) -> Iterator[_Stage]:
    if (binary := haproxy_binary()) is None:
        raise BenchError(MISSING)
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(BINARIES["newest"], folder / "plane"))
        cluster = stack.enter_context(closing(Cluster(plane.url, plane.admin_token, plane.ca_file)))
        # Where units are short, a round lasts as long as backoffs.
        for number in range(1 + 2 * pods // _UNITS):
            cluster.create_node(f"node-{number}")
        accounts = Accounts(plane, cluster, folder)
        environment = {"BERTH_AUTH_TOKEN": TOKEN, "BERTH_SCHEDULER_NAMES": " ".join(WAYS)}
        kubeconfig, pools = plane.kubeconfig(folder / "kubeconfig"), [pool(units=_UNITS)]
        berth = Berth(folder / "berth", kubeconfig, pools, environment, accounts.functions(folder))
        stack.callback(berth.stop)
        berth.launch_alone()
        proxy = HAProxy(binary, folder, berth.urls)
        proxy.token.write_text(TOKEN)
        system = System(plane, cluster, berth, accounts)
        stack.enter_context(proxy)
        for way in WAYS:
            plane.start_scheduler(_config(system, way, proxy), way)
        yield _Stage(system, [f"{number:04}" for number in range(pods)])


def _config(system: System, way: str, proxy: HAProxy) -> Path:
    kubeconfig = str(system.accounts.kubeconfig("scheduler"))
    document = configuration(Calls(system.berth.urls), kubeconfig=kubeconfig, schedulers=[way])
    for extender in document["extenders"]:
        direct = extender["urlPrefix"].replace("//", f"//berth:{TOKEN}@")
        extender["urlPrefix"] = direct if way == "direct" else proxy.url
    path = system.berth.folder / f"scheduler-{way}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path
