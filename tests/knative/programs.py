"""Knative's programs as processes on this machine, started as their Deployments say.

What a cluster adds is played here, and nothing else of it: Deployments become processes and are marked
available (kubelet, Deployment controller), Services get endpoints (endpoint controller), names lead to ports
(DNS, kube-proxy; tests/controlplane/knative/names).
"""

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3

from berth.local.ports import free_ports
from berth.testing.control_plane import Component
from tests.controlplane.plane import ControlPlane
from tests.support.builders.manifests import token_of
from tests.support.cluster import Cluster, Object, wait

IMAGE = "ko://knative.dev/"
DOMAIN = "svc.cluster.local"
# Each program's ports by the variables that set them; HEALTH_PORT, HTTP_PORT and HTTPS_PORT are the build's.
PORTS = (
    "HEALTH_PORT",
    "HTTP_PORT",
    "HTTPS_PORT",
    "PROFILING_PORT",
    "WEBHOOK_PORT",
    "INGRESS_PORT",
    "INGRESS_PORT_HTTPS",
    "FILTER_PORT",
    "FILTER_PORT_HTTPS",
)
_SECONDS = 90.0
_http = urllib3.PoolManager(retries=False)


@dataclass
class Program(Component):
    """A process with an environment of its own, to which PATH and HOME are added."""

    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = {"PATH": os.environ["PATH"], "HOME": str(self.log.parent)}
        self.environment = {**given, **self.environment}

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """With all processes that it has started."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, how)
        super().stop(how)

    @property
    def port(self) -> Mapping[str, int]:
        return {name: int(self.environment[name]) for name in PORTS}


@dataclass(frozen=True)
class Call:
    """A request that went by name: to whom, about which event, how it was answered."""

    name: str
    path: str
    event: str
    type: str
    subject: str
    status: int
    seconds: float

    @property
    def change(self) -> str:
        return self.type.rpartition(".")[2]


class Names:
    """The proxy that leads names to ports; every request through it is told by `calls`."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._table = folder / "names.json"
        self._log = folder / "calls.jsonl"
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        argv = [str(binaries / "names"), "-listen", f"127.0.0.1:{port}", "-table", str(self._table)]
        self._program = Program("names", argv, self._log, f"{self.url}/healthz")
        self._places: dict[str, str] = {}
        self._calls: list[Call] = []
        self._at = 0

    def start(self) -> None:
        self._write()
        self._program.start()
        self._program.wait_ready()

    def stop(self) -> None:
        self._program.stop()

    def lead(self, service: str, namespace: str, port: int | None) -> None:
        """The Service is at this port; None: nowhere, as one without endpoints."""
        name = f"{service}.{namespace}.{DOMAIN}"
        if port is None:
            self._places.pop(name, None)
        else:
            self._places[name] = f"127.0.0.1:{port}"
        self._write()

    def calls(self, to: str = "", since: int = 0) -> list[Call]:
        """Those to this host, or all, from number `since` of all on."""
        self._read()
        return [each for each in self._calls[since:] if each.name == to or not to]

    def count(self) -> int:
        self._read()
        return len(self._calls)

    def _read(self) -> None:
        """What the log has more than it had."""
        if self._log.exists():
            with self._log.open("rb") as log:
                log.seek(self._at)
                whole, newline, _ = log.read().rpartition(b"\n")
            self._at += len(whole + newline)
            for line in whole.splitlines():
                found = json.loads(line)
                self._calls.append(Call(**{key: found[key] for key in Call.__annotations__}))

    def _write(self) -> None:
        fresh = self._table.with_suffix(".new")
        fresh.write_text(json.dumps(self._places))
        fresh.rename(self._table)


class Pods:
    """Runs what Deployments describe; `programs` are all that run, by the Deployment's name."""

    def __init__(
        self, plane: ControlPlane, cluster: Cluster, binaries: Path, folder: Path, names: Names
    ) -> None:
        self._plane, self._cluster, self._binaries, self._folder = plane, cluster, binaries, folder
        self._names = names
        self.https_proxy = ""
        self.programs: dict[str, Program] = {}

    def run(self, deployment: Object) -> Program:
        """Start the Deployment's container as its account; the Deployment is not marked available."""
        meta, spec = deployment["metadata"], deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        token = token_of(self._cluster, spec["serviceAccountName"], meta["namespace"])
        kubeconfig = self._plane.kubeconfig(self._folder / f"kubeconfig-of-{meta['name']}", token)
        program = container["image"].removeprefix(IMAGE).replace("/cmd/", "/").replace("/", "-")
        ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        environment = {
            **dict(_variables(container.get("env", []), meta)),
            **ports,
            "KUBECONFIG": str(kubeconfig),
            "HTTP_PROXY": self._names.url,
            **({"HTTPS_PROXY": self.https_proxy} if self.https_proxy else {}),
            "CLUSTER_DOMAIN": DOMAIN.removeprefix("svc."),
            "KUBERNETES_MIN_VERSION": "v1.30.0",
        }
        name = meta["name"]
        log = self._folder / f"{name}.log"
        started = Program(name, [str(self._binaries / program)], log, "", environment=environment)
        started.start()
        self.programs[name] = started
        return started

    def mark_available(self, deployment: Object) -> None:
        meta = deployment["metadata"]
        path = f"/apis/apps/v1/namespaces/{meta['namespace']}/deployments/{meta['name']}/status"
        conditions = [{"type": kind, "status": "True"} for kind in ("Available", "Progressing")]
        numbers = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas", "updatedReplicas"), 1)
        self._cluster.patch(path, {"status": {**numbers, "conditions": conditions}})

    def give_endpoint(self, service: str, namespace: str, port: int) -> None:
        """The Service has an endpoint, and its name leads to the port. The address in it is one that is kept
        for documents (RFC 5737): the API server takes no loopback there, and nobody connects to it."""
        body = {
            "metadata": {"name": service, "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": True}}],
            "ports": [{"name": "http", "port": port}],
        }
        self._cluster.call("POST", f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", body)
        self._names.lead(service, namespace, port)

    def stop(self) -> None:
        for program in self.programs.values():
            program.stop()

    def logs(self, lines: int = 15) -> Iterator[tuple[str, str]]:
        for name, program in self.programs.items():
            if program.log.exists():
                yield f"end of {name}'s log", program.tail(lines)


def _variables(listed: Sequence[Object], meta: Object) -> Iterator[tuple[str, str]]:
    fields = {"metadata.namespace": meta["namespace"], "metadata.name": meta["name"]}
    for each in listed:
        source = each.get("valueFrom", {})
        if "fieldRef" in source:
            yield each["name"], fields[source["fieldRef"]["fieldPath"]]
        else:
            # Images of sources that nobody uses here come from ConfigMaps.
            yield each["name"], "none" if "configMapKeyRef" in source else each.get("value", "")


def is_ready(item: Object) -> bool:
    """Whether Knative's controllers call it ready, of the spec that it has now."""
    status: dict[str, Any] = item.get("status", {})
    current = status.get("observedGeneration") == item["metadata"].get("generation")
    ready = {each["type"]: each["status"] for each in status.get("conditions", [])}
    return current and ready.get("Ready") == "True"


def wait_port(program: Program, variable: str, path: str) -> None:
    """Until the program answers there, as kubelet asks it. Any answer will do: a dispatcher is ready once
    it has channels."""
    url = f"http://127.0.0.1:{program.port[variable]}{path}"
    wait(lambda: _answers(url) or _ended(program), _SECONDS, f"{program.name} answers")


def _answers(url: str) -> bool:
    try:
        _http.request("GET", url, headers={"User-Agent": "kube-probe/1.36"}, timeout=2)
    except urllib3.exceptions.HTTPError:
        return False
    return True


def _ended(program: Program) -> bool:
    assert program.process is None or program.process.poll() is None, f"{program.name}: {program.tail()}"
    return False
