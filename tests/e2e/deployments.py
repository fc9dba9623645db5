"""The chart on a real API server, and what runs of it without Knative: its Deployments as processes, a real
kube-scheduler that calls them through a real HAProxy, relays that tell of events.

Played here is what runs pods (kubelet, the Deployment controller) and what finds them (DNS, kube-proxy): a
process has its container's command, variables and account, and Services are ports that lead to processes.
"""

import base64
import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml

from berth.local.ports import free_port
from tests.controlplane.plane import ControlPlane
from tests.e2e.test_shipped_scheduler import local
from tests.knative.programs import Program
from tests.support.builders.manifests import KUBECTL, token_of
from tests.support.cluster import Cluster, Object
from tests.support.kubectl import Kubectl
from tests.support.references import ROOT
from tests.support.servers.haproxy import HAProxy
from tests.support.servers.service import Service

FUNCTIONS = ("filter", "prioritize", "preempt", "bind", "release", "inventory", "reconcile", "status")
RELAYS = ("one", "other")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/berth/leases/berth-relay"
PYTHON = str(ROOT / ".venv" / "bin" / "python")


class Installed:
    """The chart on one API server, and what runs of it. Raises AssertionError where helm fails."""

    def __init__(self, plane: ControlPlane, cluster: Cluster, helm: Path, folder: Path) -> None:
        self.plane, self.cluster, self.folder = plane, cluster, folder
        self.kubectl = Kubectl(plane, folder)
        self._helm = helm
        self.programs: dict[str, Program] = {}
        self.services: dict[str, Service] = {}
        self._begun = 0

    def command(self, line: str) -> str:
        """What a line of the page says, which helm or kubectl runs in the checkout."""
        program, *words = shlex.split(line)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "KUBECONFIG": str(self.plane.kubeconfig(self.folder / "kubeconfig-of-commands")),
        }
        command: list[str | Path] = [self._helm if program == "helm" else KUBECTL, *words]
        assert program in ("helm", "kubectl"), line
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=300, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        said: str = done.stdout
        return said

    def berth(self, *words: str) -> Object:
        """What an operator's command of Berth says as JSON."""
        environment = {"KUBECONFIG": str(self.plane.kubeconfig(self.folder / "kubeconfig-of-operator"))}
        command = [str(ROOT / ".venv" / "bin" / "berth"), *words, "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        said: Object = json.loads(done.stdout)
        return said

    def object(self, kind: str, name: str) -> Object:
        found: Object = json.loads(self.kubectl("get", kind, name, "--namespace", "berth", "-o", "json"))
        return found

    def start_function(self, name: str, tree: Path = ROOT) -> None:
        """Start the function as its Deployment says, of the image that the tree would make; calls go to it
        once it is ready. One that was there before ends in order."""
        (container,) = self.object("deployment", name)["spec"]["template"]["spec"]["containers"]
        before, port = self.programs.get(name), free_port()
        variables = {each["name"]: self._value(each) for each in container["env"]}
        variables |= {"PORT": str(port), "BERTH_HOSTS": f"127.0.0.1,{name}.berth.svc.cluster.local"}
        source = str(tree / variables["FUNCTION_SOURCE"])
        environment = {**self._settings(), **variables, "FUNCTION_SOURCE": source}
        argv = [PYTHON, "-m", "berth.http.server", "--host", "127.0.0.1"]  # the image's own command
        self._start(name, name, argv, environment, f"http://127.0.0.1:{port}/healthz", tree)
        self.programs[name].wait_ready()
        if name not in self.services:
            self.services[name] = Service()
        self.services[name].lead_to(port)
        if before is not None:
            _end(before)

    def start_relay(self, which: str) -> None:
        (container,) = self.object("deployment", "berth-relay")["spec"]["template"]["spec"]["containers"]
        argv = [self._here(word) for word in container["command"]]
        argv[0] = str(ROOT / ".venv" / "bin" / argv[0])
        self._start(f"relay-{which}", "berth-relay", argv, {**self._settings(), "HOSTNAME": f"relay-{which}"})

    def _here(self, text: str) -> str:
        def url(found: re.Match[str]) -> str:
            return self.services[found[1]].url

        return re.sub(r"http://(\w+)\.berth\.svc\.cluster\.local", url, text)

    def _value(self, variable: Object) -> str:
        if "value" in variable:
            return str(variable["value"])
        key = variable["valueFrom"]["secretKeyRef"]
        return base64.b64decode(self.object("secret", key["name"])["data"][key["key"]]).decode()

    def _settings(self) -> dict[str, str]:
        found: dict[str, str] = self.object("configmap", "berth-settings")["data"]
        return found

    def _start(
        self,
        name: str,
        deployment: str,
        argv: list[str],
        environment: Mapping[str, str],
        health: str = "",
        tree: Path = ROOT,
    ) -> None:
        spec = self.object("deployment", deployment)["spec"]["template"]["spec"]
        token = token_of(self.cluster, spec["serviceAccountName"])
        kubeconfig = self.plane.kubeconfig(self.folder / f"kubeconfig-of-{name}", token)
        environment = {**environment, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(tree / "shared")}
        self._begun += 1
        log = self.folder / f"{name}-{self._begun}.log"
        program = Program(name, argv, log, health, environment=environment)
        self.programs[name] = program
        program.start()

    @contextmanager
    def scheduling(self, haproxy: Path) -> Iterator[None]:
        """A kube-scheduler with its proxy, both on what the chart has for them."""
        spec = self.object("deployment", "berth-scheduler")["spec"]["template"]["spec"]
        names = {each["name"]: each for each in spec["volumes"]}
        shipped = self.object("configmap", names["proxy"]["configMap"]["name"])["data"]
        urls = {name: service.url for name, service in self.services.items()}
        folder = self.folder / "proxy"
        folder.mkdir()
        proxy = HAProxy.shipped(haproxy, folder, shipped, lambda text: local(text, urls, None))
        (source,) = (each["serviceAccountToken"] for each in names["token"]["projected"]["sources"])
        account = spec["serviceAccountName"]
        proxy.token.write_text(token_of(self.cluster, account, audience=source["audience"]))
        kubeconfig = self.plane.kubeconfig(
            self.folder / "kubeconfig-of-scheduler", token_of(self.cluster, account)
        )
        secret = names["configuration"]["secret"]["secretName"]
        encoded = self.object("secret", secret)["data"]["scheduler.yaml"]
        document = yaml.safe_load(base64.b64decode(encoded))
        for extender in document["extenders"]:
            extender["urlPrefix"] = proxy.url
        document["clientConnection"] = {"kubeconfig": str(kubeconfig)}
        config = folder / "scheduler.yaml"
        config.write_text(yaml.safe_dump(document))
        with proxy:
            self.plane.start_scheduler(config, flags=["--v=1"])
            yield
            self.plane.stop_scheduler()  # else it tells pods that its proxy is gone

    def stop(self) -> None:
        for each in self.programs.values():
            each.stop()
        for service in self.services.values():
            service.stop()

    def leader(self) -> str:
        """Which relay leads; empty: none has yet."""
        reply = self.cluster.request("GET", LEASE)
        holder = reply.body["spec"].get("holderIdentity") if reply.status == 200 else None
        return "-".join((holder or "").split("-")[:2])


def _end(program: Program) -> None:
    """End it as the kubelet does: it finishes its calls."""
    assert program.process is not None
    program.process.terminate()
    assert program.process.wait(65) in (0, -signal.SIGTERM), program.tail()
