"""Berth on a cluster without Knative, as a person installs it by docs/kind.md.
What is played there, tests/e2e/deployments.py says."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.deployments import FUNCTIONS, RELAYS, Installed
from tests.support.cluster import Cluster, Object, wait, wait_empty
from tests.support.processes import group_peaks
from tests.support.references import ROOT

pytestmark = pytest.mark.long

ENGINES = ["kind create", "docker build", "kind load", "kind delete"]
_SECONDS = 90.0
_GONE = 15.0  # until another relay leads: the Lease's eight seconds, and a busy machine


@pytest.fixture
def installed(plane: ControlPlane, cluster: Cluster, helm: Path, tmp_path: Path) -> Iterator[Installed]:
    made = Installed(plane, cluster, helm, tmp_path)
    yield made
    made.stop()


@pytest.mark.nightly
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
    wait_empty(lambda: left(installed, before), _SECONDS, "what is left", every=0.5)


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
    assert _findings(checked) == []
    assert checked["unchecked"] == []
    images = installed.berth("version")["functions"]["images"]
    assert {each["name"] for each in images} == {*FUNCTIONS}
    assert _findings(installed.berth("check", "--pre")) == [("versions.knative", "warning")]


def _findings(checked: Object) -> list[tuple[str, str]]:
    """Each finding's rule and severity, but for that on a slow store: it tells of the machine's load."""
    found = ((finding["id"], finding["severity"]) for finding in checked["findings"])
    return [(rule, severity) for rule, severity in found if rule != "store.slow"]


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
    others = re.compile(
        r"^(ConfigMap \S+/kube-root-ca.crt|ServiceAccount \S+/default|Lease .*"
        # What kube-apiserver makes within ten seconds after its start.
        r"|Service default/kubernetes|ConfigMap kube-system/kube-apiserver-\S+)$"
    )
    found = {each for each in everything(installed) - before if not others.match(each)}
    return {each for each in found if each.split()[1].partition("/")[0] not in going}
