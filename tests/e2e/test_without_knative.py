"""Berth on a cluster without Knative, as a person installs it by docs/kind.md: helm puts the chart on a real
API server, its Deployments become processes, a real kube-scheduler calls them through a real HAProxy, relays
tell of events.

Played here is what runs pods (kubelet, the Deployment controller) and what finds them (DNS, kube-proxy): a
process has its container's command, variables and account, and local addresses in place of Services' names.
"""

import base64
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from berth.local.ports import free_port
from tests.controlplane.plane import ControlPlane
from tests.e2e.test_shipped_scheduler import local
from tests.knative.programs import Program
from tests.support.builders.manifests import KUBECTL, token_of
from tests.support.cluster import Cluster, Object, wait
from tests.support.kubectl import Kubectl
from tests.support.processes import group_peaks
from tests.support.references import ROOT
from tests.support.servers.haproxy import HAProxy

pytestmark = pytest.mark.long

PYTHON = str(ROOT / ".venv" / "bin" / "python")
FUNCTIONS = ("filter", "prioritize", "preempt", "bind", "release", "inventory", "reconcile", "status")
RELAYS = ("one", "other")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/berth/leases/berth-relay"
ENGINES = ["kind create", "docker build", "kind load", "kind delete"]
_SECONDS = 90.0
_GONE = 15.0  # until another relay leads: the Lease's eight seconds, and a busy machine


class Installed:
    """The chart on one API server, and what runs of it. Raises AssertionError where helm fails."""

    def __init__(self, plane: ControlPlane, cluster: Cluster, helm: Path, folder: Path) -> None:
        self.plane, self.cluster, self.folder = plane, cluster, folder
        self.kubectl = Kubectl(plane, folder)
        self._helm = helm
        self.programs: dict[str, Program] = {}
        self.ports: dict[str, int] = {}

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

    def start_function(self, name: str) -> None:
        (container,) = self.object("deployment", name)["spec"]["template"]["spec"]["containers"]
        self.ports[name] = port = free_port()
        variables = {each["name"]: each["value"] for each in container["env"]}
        variables |= {"PORT": str(port), "BERTH_HOSTS": f"127.0.0.1,{name}.berth.svc.cluster.local"}
        source = str(ROOT / variables["FUNCTION_SOURCE"])
        environment = {**self._settings(), **variables, "FUNCTION_SOURCE": source}
        argv = [PYTHON, "-m", "berth.http.server", "--host", "127.0.0.1"]  # the image's own command
        self._start(name, name, argv, environment, f"http://127.0.0.1:{port}/healthz")

    def start_relay(self, which: str) -> None:
        (container,) = self.object("deployment", "berth-relay")["spec"]["template"]["spec"]["containers"]
        argv = [self._here(word) for word in container["command"]]
        argv[0] = str(ROOT / ".venv" / "bin" / argv[0])
        self._start(
            f"relay-{which}", "berth-relay", argv, {**self._settings(), "HOSTNAME": f"relay-{which}"}, ""
        )

    def _here(self, text: str) -> str:
        def url(found: re.Match[str]) -> str:
            return f"http://127.0.0.1:{self.ports[found[1]]}"

        return re.sub(r"http://(\w+)\.berth\.svc\.cluster\.local", url, text)

    def _settings(self) -> dict[str, str]:
        found: dict[str, str] = self.object("configmap", "berth-settings")["data"]
        return found

    def _start(
        self, name: str, deployment: str, argv: list[str], environment: Mapping[str, str], health: str
    ) -> None:
        spec = self.object("deployment", deployment)["spec"]["template"]["spec"]
        token = token_of(self.cluster, spec["serviceAccountName"])
        kubeconfig = self.plane.kubeconfig(self.folder / f"kubeconfig-of-{name}", token)
        environment = {**environment, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT / "shared")}
        program = Program(name, argv, self.folder / f"{name}.log", health, environment=environment)
        self.programs[name] = program
        program.start()

    @contextmanager
    def scheduling(self, haproxy: Path) -> Iterator[None]:
        """A kube-scheduler with its proxy, both on what the chart has for them."""
        spec = self.object("deployment", "berth-scheduler")["spec"]["template"]["spec"]
        names = {each["name"]: each for each in spec["volumes"]}
        shipped = self.object("configmap", names["proxy"]["configMap"]["name"])["data"]
        urls = {name: f"http://127.0.0.1:{port}" for name, port in self.ports.items()}
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

    def stop(self) -> None:
        for each in self.programs.values():
            each.stop()

    def leader(self) -> str:
        """Which relay leads; empty: none has yet."""
        reply = self.cluster.request("GET", LEASE)
        holder = reply.body["spec"].get("holderIdentity") if reply.status == 200 else None
        return "-".join((holder or "").split("-")[:2])


@pytest.fixture
def installed(plane: ControlPlane, cluster: Cluster, helm: Path, tmp_path: Path) -> Iterator[Installed]:
    made = Installed(plane, cluster, helm, tmp_path)
    yield made
    made.stop()


def test_by_the_page_all_is_installed_a_pod_waits_for_anothers_unit_and_uninstall_leaves_nothing(
    installed: Installed, haproxy_program: Path
) -> None:
    cluster, steps = installed.cluster, Steps(installed)
    before = everything(installed)
    for name in ("node-1", "node-2"):
        cluster.create_node(name)
    assert "Functions run by Deployments." in steps.run("helm install", "--set crds.keep=false")
    for name in FUNCTIONS:
        installed.start_function(name)
    for which in RELAYS:
        installed.start_relay(which)
    with installed.scheduling(haproxy_program):
        assert "Phase:          Succeeded" in played(installed, steps)
        a_pod_waits(installed, steps)
        nothing_is_found(installed)
        a_relay_dies(installed)
        deleted(installed, steps, "kubectl delete -f infra/kind/pods.yaml", "app-2")
        steps.run("kubectl delete -f infra/kind/pool.yaml")
    assert {name: peak for name, (peak, limit) in memory(installed).items() if peak > limit} == {}
    installed.stop()
    for pod in cluster.list_pods(None):
        cluster.delete_pod(pod["metadata"]["name"], pod["metadata"]["namespace"])
    steps.run("helm uninstall")
    assert steps.left == []
    wait(lambda: not left(installed, before), _SECONDS, "nothing is left", every=0.5)


def memory(installed: Installed) -> dict[str, tuple[int, int]]:
    """What each program has had at most, and what its container may have, in MiB."""
    found = {}
    for name, program in installed.programs.items():
        if program.process is None or program.process.poll() is not None:
            continue  # the relay that was killed
        deployment = "berth-relay" if name.startswith("relay-") else name
        (container,) = installed.object("deployment", deployment)["spec"]["template"]["spec"]["containers"]
        limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi"))
        found[name] = (group_peaks(program.process.pid), limit)
    assert len(found) == 9, found
    return found


class Steps:
    """The page's commands in their order, but for those that need a container engine."""

    def __init__(self, installed: Installed) -> None:
        self._installed = installed
        blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / "kind.md").read_text(), re.M | re.S)
        lines = "".join(blocks).splitlines()
        engines = [line for line in lines if line.split()[0] in ("docker", "kind")]
        assert [" ".join(line.split()[:2]) for line in engines] == ENGINES
        self.left = [line for line in lines if line not in engines]

    def run(self, begins: str, more: str = "") -> str:
        """What the next command of the page printed, which begins so."""
        line = self.left.pop(0)
        assert line.startswith(begins), line
        return self._installed.command(f"{line} {more}")

    def peek(self, begins: str) -> str:
        """What the next command prints, which stays the next."""
        line = self.left[0]
        assert line.startswith(begins), line
        return self._installed.command(line)


def played(installed: Installed, steps: Steps) -> str:
    """What `helm test` says; its pod ends well once it is placed, as the kubelet would have it."""
    with ThreadPoolExecutor(1) as thread:
        said = thread.submit(steps.run, "helm test")
        wait(
            lambda: said.done() or "berth-helm-test" in installed.cluster.bound("berth"),
            _SECONDS,
            "helm's pod is bound",
        )
        if not said.done():
            installed.cluster.finish_pod("berth-helm-test", "berth")
        return said.result(_SECONDS)


def deleted(installed: Installed, steps: Steps, line: str, name: str) -> None:
    """Run the step, and have the pod end as the kubelet would."""
    with ThreadPoolExecutor(1) as thread:
        said = thread.submit(steps.run, line)
        wait(
            lambda: said.done() or "deletionTimestamp" in installed.cluster.get_pod(name)["metadata"],
            _SECONDS,
            f"{name} is to end",
        )
        if not said.done():
            installed.cluster.delete_pod(name)
        said.result(_SECONDS)


def a_pod_waits(installed: Installed, steps: Steps) -> None:
    cluster = installed.cluster
    steps.run("kubectl apply -f infra/kind/pool.yaml")
    steps.run("kubectl wait")
    steps.run("kubectl apply -f infra/kind/pods.yaml")
    steps.run("kubectl wait")
    steps.run("kubectl apply -f infra/kind/waiter.yaml")
    wait(lambda: cluster.events_of("waiter"), _SECONDS, "the third is told why")
    rows = {words[0]: words for words in map(str.split, steps.run("kubectl get pods").splitlines()[1:])}
    assert set(rows) == {"app-1", "app-2", "waiter"}
    assert {rows["app-1"][6], rows["app-2"][6]} == {"node-1", "node-2"}
    assert rows["waiter"][6] == "<none>"
    assert "underlay-ip: 0 of 1 free, 1 asked" in steps.run("kubectl get events")
    deleted(installed, steps, "kubectl delete pod app-1", "app-1")
    wait(lambda: "waiter" in cluster.bound(), 5, "the waiter has the unit at once", every=0.02)
    assert cluster.bound()["waiter"] == rows["app-1"][6]
    assert len(steps.run("kubectl get pods").splitlines()) == 1 + 2
    row = ["underlay-ip", "2", "2", "0"]  # capacity, used, free: as inventory or reconcile saw them last
    wait(lambda: all(word in steps.peek("kubectl get pools") for word in row), _SECONDS, "the Pool's columns")
    steps.run("kubectl get pools")


def nothing_is_found(installed: Installed) -> None:
    """`berth check` has nothing to say of it, and `berth version` names each function's image."""
    checked = installed.berth("check")
    assert [each for each in checked["findings"] if each["id"] != "store.slow"] == []
    assert checked["unchecked"] == []
    images = installed.berth("version")["functions"]["images"]
    assert {each["name"] for each in images} == {*FUNCTIONS}
    (before,) = installed.berth("check", "--pre")["findings"]
    assert (before["id"], before["severity"]) == ("versions.knative", "warning")


def a_relay_dies(installed: Installed) -> None:
    """The other one leads soon, and what was lost meanwhile is mended."""
    cluster = installed.cluster
    leader = wait(installed.leader, _SECONDS, "a relay leads")
    installed.programs[leader].stop()
    cluster.create_pod("late")
    cluster.delete_pod("waiter")  # nobody relays that
    wait(lambda: installed.leader() not in ("", leader), _GONE, "the other relay leads", every=0.1)
    wait(lambda: "late" in cluster.bound(), _SECONDS, "what was lost meanwhile is mended", every=0.05)


def everything(installed: Installed) -> set[str]:
    """All objects of kinds that the chart has, by kind and name."""
    kinds = (
        "crds,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,"
        "mutatingadmissionpolicies,mutatingadmissionpolicybindings,serviceaccounts,roles,rolebindings,"
        "configmaps,secrets,services,deployments,hpa,pdb,networkpolicies,resourcequotas,leases"
    )
    listed = json.loads(installed.kubectl("get", kinds, "--all-namespaces", "-o", "json"))["items"]
    return {
        f"{each['kind']} {each['metadata'].get('namespace', '')}/{each['metadata']['name']}"
        for each in listed
    }


def left(installed: Installed, before: set[str]) -> set[str]:
    """What is there more than before, but for what others make and remove: Kubernetes' own in each namespace,
    Leases of those that led, and what is in a namespace that is to go, which a controller empties."""
    namespaces = installed.cluster.get("/api/v1/namespaces")["items"]
    going = {each["metadata"]["name"] for each in namespaces if "deletionTimestamp" in each["metadata"]}
    others = re.compile(r"^(ConfigMap \S+/kube-root-ca.crt|ServiceAccount \S+/default|Lease .*)$")
    found = {each for each in everything(installed) - before if not others.match(each)}
    return {each for each in found if each.split()[1].partition("/")[0] not in going}
