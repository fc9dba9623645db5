"""`berth up` as a process, and the whole system around it: a control plane, Berth, a kube-scheduler.

It uses Berth as a user would, by its command line and HTTP; only `ledger` looks inside.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3
import yaml

from berth.ledger.ledger import Ledger
from berth.ledger.view import View
from berth.local.prctl import when_parent_dies
from berth.stores import open_store
from tests.controlplane.plane import ControlPlane
from tests.e2e.invariant import difference, more_than_there_is
from tests.support.builders.accounts import FUNCTIONS, Accounts
from tests.support.cluster import Cluster, Object, Reply, wait
from tests.support.references import ROOT
from tests.support.servers.haproxy import HAProxy

BERTH = str(Path(sys.executable).with_name("berth"))
CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}
MENDED = ("released", "settled", "adopted", "capacities", "pools", "problems")
_http = urllib3.PoolManager(maxsize=8, retries=False)


def pool(name: str = "underlay-ip", units: int | Object = 10, **spec: Any) -> Object:
    """A Pool document; a number of units is capacity.perDomain, else they are the whole capacity."""
    capacity = {"perDomain": units} if isinstance(units, int) else units
    return {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "Pool",
        "metadata": {"name": name},
        "spec": {"capacity": capacity, **spec},
    }


def faulty_functions(folder: Path, **sources: str | Path) -> Path:
    """A folder for `functions=`: Berth's own functions, but for those named here, whose main.py is given as
    its path or as its text."""
    made = folder / "functions"
    made.mkdir()
    for real in sorted(FUNCTIONS.iterdir()):
        if real.name not in sources and (real / "main.py").is_file():
            (made / real.name).symlink_to(real)
    for name, source in sources.items():
        (made / name).mkdir()
        (made / name / "main.py").write_text(source if isinstance(source, str) else source.read_text())
    return made


@dataclass
class Berth:
    """`pools` None: Pools come from the cluster. It may be started and stopped again and again."""

    folder: Path
    kubeconfig: Path
    pools: Sequence[Object] | None = field(default_factory=lambda: [pool()])
    environment: Mapping[str, str] = field(default_factory=dict)
    functions: Path | None = None
    port: int = 0
    store: str = ""
    single: bool = False
    replicas: int = 1
    proxy: bool = False
    proxy_tls: Path | None = None
    writes: bool = True
    command: Sequence[str] = (BERTH,)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ledger_file = self.folder / "ledger.db"
        self.store = self.store or f"sqlite:///{self.ledger_file}"
        self.pools_file = self.folder / "pools.yaml"
        self.scheduler_config = self.folder / "scheduler.yaml"
        self.proxy_config = self.folder / "haproxy.cfg"
        self.log = self.folder / "berth.log"
        self.lines: list[Object] = []
        self.urls: dict[str, str] = {}
        self.replica_pids: dict[tuple[str, int], int] = {}
        self.process: subprocess.Popen[str] | None = None
        if self.pools is not None:
            self.write_pools(self.pools)

    @property
    def token_file(self) -> Path:
        """That of the token which `berth up --proxy` made."""
        return Path(f"{self.proxy_config}.token")

    @property
    def token(self) -> str:
        return self.token_file.read_text().strip()

    @property
    def proxy_url(self) -> str:
        """Where kube-scheduler calls the proxy."""
        return str(self.wait_line(proxy=str(self.proxy_config))["url"])

    @property
    def pids(self) -> dict[str, int]:
        """By function, of its first replica."""
        return {name: pid for (name, replica), pid in dict(self.replica_pids).items() if replica == 1}

    def write_pools(self, documents: Sequence[Object]) -> None:
        fresh = self.pools_file.with_suffix(".new")
        fresh.write_text(yaml.safe_dump_all(documents, sort_keys=False))
        fresh.rename(self.pools_file)

    def start(self, seconds: float = 120) -> None:
        """Returns when all functions answer and the first reconcile is through."""
        self.launch()
        self.wait_line(state="ready", function=None, since=self._begun, seconds=seconds)

    def launch_alone(self) -> None:
        """As `start`, but no scheduler's configuration is written: that comes from elsewhere."""
        self.writes = False
        self.start()

    def launch(self) -> None:
        """Starts `berth up` and waits for nothing."""
        self._begun = len(self.lines)
        arguments = ["--json", "--port", str(self.port)]
        arguments += ["--scheduler-config", str(self.scheduler_config)] if self.writes else []
        arguments += ["--proxy", str(self.proxy_config)] if self.proxy else []
        arguments += ["--proxy-tls", str(self.proxy_tls)] if self.proxy_tls else []
        arguments += ["--functions", str(self.functions)] if self.functions else []
        arguments += ["--single"] if self.single else []
        arguments += ["--replicas", str(self.replicas)] if self.replicas > 1 else []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, "up", *self._common(), *arguments],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                preexec_fn=when_parent_dies(signal.SIGTERM),
            )
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()

    def stop(self, how: signal.Signals = signal.SIGTERM, seconds: float = 60) -> int | None:
        """The exit code, None if it was not running."""
        process, self.process = self.process, None
        if process is None:
            return None
        process.send_signal(how)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def end(self) -> None:
        """Kill it and its functions, where no test looks on: an orderly end takes seconds."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)  # it would start them again
            for pid in set(self.replica_pids.values()):
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        self.stop(signal.SIGKILL)

    def kill(self, function: str, replica: int = 1) -> int:
        """kill -9 of one of the function's processes and its workers; the pid it had."""
        pid = self.replica_pids[function, replica]
        os.killpg(pid, signal.SIGKILL)
        return pid

    def wait_line(self, since: int = 0, seconds: float = 60, **fields: object) -> Object:
        """The first line with these fields (None: absent) among those from number `since` on."""

        def found() -> Object | None:
            lines = (each for each in self.lines[since:] if {key: each.get(key) for key in fields} == fields)
            return next(lines, None)

        def found_or_ended() -> Object | None:
            ended = self.process is not None and self.process.poll() is not None
            line = found()
            assert line or not ended, f"berth up has ended; it said {self.said()}"
            return line

        line = wait(found_or_ended, seconds, f"a line {fields} of berth up")
        assert line is not None
        return line

    def said(self, lines: int = 60) -> str:
        """The end of what berth and its functions wrote to standard error."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def run(self, *arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Another `berth` command in the same folder and environment."""
        return subprocess.run(
            [BERTH, *arguments],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def reconcile(self) -> Object:
        """What was mended: by the function, as by the clock's tick, since a command takes a second of a core
        to start; by `berth reconcile -o json` where no function runs or it asks for a token."""
        if self.process is not None and "reconcile" in self.urls:
            reply = self.post("reconcile", {}, seconds=120)
            if reply.status != 401:
                assert reply.status == 200, reply
                told: Object = reply.body
                return told
        done = self.run("reconcile", *self._common(), "-o", "json")
        assert done.stdout, f"berth reconcile ended with {done.returncode}: {done.stderr}"
        report: Object = json.loads(done.stdout)
        assert done.returncode == bool(report["problems"]), done.stderr
        return report

    def ledger(self) -> View:
        """All that the ledger holds at this moment."""
        with closing(open_store(self.store)) as store:
            return Ledger(store, while_closed=True).view()

    def claims(self, name: str = "") -> list[tuple[str, str, int]]:
        """(pod, pool, units) of all claims, or of those on one node."""
        claims = [claim for claim in self.ledger().claims() if claim.node == name or not name]
        return sorted((claim.name, each.pool, each.count) for claim in claims for each in claim.holdings)

    def post(
        self,
        function: str,
        body: Any,
        headers: Mapping[str, str] | None = None,
        path: str = "",
        seconds: float = 30,
    ) -> Reply:
        """Any call, whatever the answer; a body that is no bytes is sent as JSON."""
        url = self.urls.get(function) or f"{self.urls['extender']}/{function}"
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        answer = _http.request("POST", f"{url}{path}", body=data, headers=sent, timeout=seconds)
        kind = answer.headers.get("Content-Type", "")
        is_json = answer.data and kind.startswith("application/json")  # a CloudEvent is answered with nothing
        return Reply(answer.status, answer.json() if is_json else answer.data.decode())

    def _common(self) -> list[str]:
        pools = [] if self.pools is None else ["-f", str(self.pools_file)]
        return ["--kubeconfig", str(self.kubeconfig), "--store", self.store, *pools]

    def _environment(self) -> dict[str, str]:
        own = {key: value for key, value in os.environ.items() if not key.startswith(("BERTH_", "KUBE"))}
        faulty = {} if self.functions is None else {"PYTHONPATH": str(ROOT)}  # they may import from tests
        return {**own, **faulty, "KUBECONFIG": str(self.kubeconfig), **self.environment}

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in map(json.loads, lines):
                if "function" in line:
                    self.urls[line["function"]] = line["url"]
                if "pid" in line:
                    self.replica_pids[line["function"], line.get("replica", 1)] = line["pid"]
                self.lines.append(line)


@dataclass
class System:
    """A control plane, Berth and, once started, a kube-scheduler on the configuration that Berth wrote, as
    the account that infra gives it."""

    plane: ControlPlane
    cluster: Cluster
    berth: Berth
    accounts: Accounts

    def start_scheduler(self) -> None:
        self.plane.start_scheduler(self.scheduler_config("berth"))

    def beside(self, binary: Path) -> HAProxy:
        """The HAProxy that stands beside it, with what Berth wrote; to be entered."""
        return HAProxy.written(binary, self.berth.proxy_config, self.berth.proxy_url)

    def scheduler_config(self, name: str, **changes: Any) -> Path:
        """Berth's, with the account's kubeconfig and these fields."""
        path = self.berth.folder / f"scheduler-{name}.yaml"
        document = yaml.safe_load(self.berth.scheduler_config.read_text())
        document["clientConnection"] = {"kubeconfig": str(self.accounts.kubeconfig("scheduler"))}
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump({**document, **changes}))
        return path

    def refusal_of(self, pod: str, seconds: float = 60) -> str:
        """The last event that says why the pod was not scheduled; it is waited for."""
        return wait(lambda: self.cluster.events_of(pod), seconds, f"an event of {pod}")[-1]


def settled(system: System, seconds: float = 60, overcommitted: bool = False) -> Object:
    """The invariant: one reconcile later claims are exactly the bound, unfinished pods, no domain gives more
    than it has, and nothing is left to mend. What that reconcile mended."""
    first = system.berth.reconcile()
    wait(lambda: not _difference(system), seconds, f"claims as the pods: {_difference(system)}")
    again = system.berth.reconcile()
    assert not any(again[key] for key in MENDED), f"there was more to mend: {again}"
    over = [] if overcommitted else more_than_there_is(system.berth.ledger())
    assert not over, f"more given than there is: {over}"
    return first


def _difference(system: System) -> Object:
    """What claims and pods say of the UIDs on which they differ."""
    found = difference(system.berth.ledger(), system.cluster.list_pods(None))
    if any(claim is not None and claim[1] == "reserved" for claim, _ in found.values()):
        # Only a reservation younger than bind's deadline may wait for the next look.
        system.berth.reconcile()
    return found


def event(change: str, item: Object) -> dict[str, str]:
    """Headers of a CloudEvent (add, update, delete) as Knative's ApiServerSource sends it, mode Resource."""
    return {
        "Ce-Specversion": "1.0",
        "Ce-Id": f"of-{item['metadata']['name']}",
        "Ce-Source": "https://10.96.0.1:443",
        "Ce-Type": f"dev.knative.apiserver.resource.{change}",
        "Ce-Kind": item.get("kind", "Pod"),
        "Ce-Name": item["metadata"]["name"],
    }
