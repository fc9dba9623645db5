"""What a function's account can write into status on the real API server: a pod's condition
berth.dev/Waiting, a node's resources of native.berth.dev, a Pool's spec.external, and nothing besides,
whatever its rights cover. Each attack succeeded before the policies were there."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from berth.controller.fencing import condition
from berth.kube.cluster import Cluster as BerthsCluster
from berth.kube.cluster import connect
from berth.kube.types import Meta, Pod
from berth.kube.woken import CONDITION
from tests.controlplane.lent import Planes
from tests.controlplane.plane import ControlPlane
from tests.e2e.harness import pool
from tests.support.builders.accounts import Accounts
from tests.support.builders.manifests import component, put, rendered, serve_pools, status_policies
from tests.support.cluster import PATCH_TYPES, Cluster, Object, pod_document, pod_path, wait
from tests.support.kubernetes import OVERLAY, has

pytestmark = pytest.mark.long

POOLS = "/apis/berth.dev/v1alpha1/pools"
WRITERS = ("bind", "extender", "release", "inventory", "reconcile")
COUNTERS = ("inventory", "reconcile")
POD, NODE = f"{pod_path('dns', 'kube-system')}/status", "/api/v1/nodes/node-1/status"
K80 = "native.berth.dev/k80"
OTHERS = {"type": "Ready", "status": "True", "reason": "Test", "message": "by its kubelet"}
RUNNING = {
    "phase": "Running",
    "podIP": "10.0.0.7",
    "podIPs": [{"ip": "10.0.0.7"}],
    "conditions": [OTHERS, {**OTHERS, "type": "Initialized"}],
}
SHOWN = {
    "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    "allocatable": {"memory": "200Gi"},  # a kubelet keeps some of the capacity for itself
}


class Stage:
    """A pod of kube-system's that runs on a node, and the accounts with their rights."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.cluster = Cluster(plane.url, plane.admin_token, plane.ca_file)
        self.accounts = Accounts(plane, self.cluster, folder)
        self.cluster.create_node("node-1")
        self.cluster.create_pod("dns", {}, "kube-system", node_name="node-1", labels={"app": "dns"})
        self.cluster.patch(POD, {"status": RUNNING})
        self.cluster.patch(NODE, {"status": SHOWN})
        wait(self._in_force, 60, "the policies in force", every=0.1)

    def said(self, account: str, path: str, body: Any, how: str = "merge", dry: bool = True) -> str:
        """The API server's refusal, empty if it took the patch."""
        target, token = f"{path}?dryRun=All" if dry else path, self.accounts.token(account)
        reply = self.cluster.request("PATCH", target, body, token, PATCH_TYPES[how])
        return "" if reply.status < 300 else str(reply.body["message"])

    def _in_force(self) -> bool:
        attacks = ((POD, {"status": {"phase": "Failed"}}), (NODE, {"status": {"phase": "Pending"}}))
        return all("ValidatingAdmissionPolicy" in self.said("inventory", *each) for each in attacks)


@pytest.fixture(scope="module")
def stage(planes: Planes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("status")
    with planes.lent() as plane:
        made = Stage(plane, folder)
        yield made
        made.cluster.close()


@pytest.fixture(scope="module")
def licence(stage: Stage) -> Stage:
    """The stage with a Pool whose use outside the cluster is told to inventory."""
    serve_pools(stage.cluster)
    stage.cluster.call("POST", POOLS, pool("licence", {"domains": {"*": 4}}, scope="Cluster"))
    attack = {"metadata": {"labels": {"a": "b"}}}
    wait(lambda: stage.said("inventory", f"{POOLS}/licence", attack), 60, "the policy in force", every=0.1)
    return stage


@pytest.fixture
def acting_as(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Berth's own client, as the bearer of an account's token."""

    def connected(account: str) -> BerthsCluster:
        monkeypatch.setenv("KUBECONFIG", str(stage.accounts.kubeconfig(account)))
        return connect()

    return connected


@pytest.mark.parametrize("account", WRITERS)
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"status": {"podIP": "10.0.0.66", "podIPs": [{"ip": "10.0.0.66"}]}}, "nothing else of its status"),
        ({"status": {"phase": "Failed"}}, "nothing else of its status"),
        ({"status": {"reason": "Evicted"}}, "nothing else of its status"),
        ({"status": {"startTime": "2020-01-01T00:00:00Z"}}, "nothing else of its status"),
        ({"status": {"podIP": None, "podIPs": None}}, "nothing else of its status"),
        ({"status": {"conditions": [{**OTHERS, "status": "False"}]}}, "none of its other conditions"),
        ({"status": {"conditions": None}}, "none of its other conditions"),
        ({"metadata": {"labels": {"app": "mine"}}}, "none of its labels"),
        ({"metadata": {"labels": {"app": None}}}, "none of its labels"),
        ({"metadata": {"labels": {"more": "x"}}}, "none of its labels"),
        ({"metadata": {"annotations": {"example.com/a": "b"}}}, "nothing of its metadata"),
        ({"metadata": {"finalizers": ["example.com/stuck"]}}, "nothing of its metadata"),
    ],
)
def test_no_account_of_a_function_changes_more_of_a_pod_than_its_condition(
    stage: Stage, account: str, change: Mapping[str, Any], why: str
) -> None:
    assert why in stage.said(account, POD, change)


@pytest.mark.parametrize("account", WRITERS)
def test_each_function_writes_its_condition_first_and_again_beside_those_of_others(
    stage: Stage, account: str, acting_as: Any
) -> None:
    uid = stage.cluster.get_pod("dns", "kube-system")["metadata"]["uid"]
    pod = Pod(Meta(name="dns", namespace="kube-system", uid=uid))
    for text in ("once", "again"):
        assert acting_as(account).set_condition(pod, condition("Woken", text, 0.0)) is not None
        after = stage.cluster.get_pod("dns", "kube-system")["status"]
        said = {each["type"]: each["message"] for each in after["conditions"]}
        assert said.pop(CONDITION).startswith(text)
        assert said == {"Ready": "by its kubelet", "Initialized": "by its kubelet"}
        assert after["podIP"] == RUNNING["podIP"]


def seconds(write: Callable[[], object]) -> float:
    began = time.monotonic()
    write()
    return time.monotonic() - began


def test_a_tenant_can_t_make_a_pod_that_no_function_may_write_to(stage: Stage, acting_as: Any) -> None:
    """With tens of thousands of labels the policy looked at each of them, for ten times as long as the API
    server takes for the write itself.
    After a loss of the ledger what such a pod asks for is held back from all, for it can't be fenced."""
    many = {f"l{number}": "" for number in range(60_000)}
    document = pod_document("many", {}, labels=many)
    # Without managedFields, which would name each label once more, more of them fit.
    document["metadata"] |= {"finalizers": ["example.com/stays"], "managedFields": [{}]}
    stage.cluster.call("POST", "/api/v1/namespaces/default/pods", document)
    meta = stage.cluster.get_pod("many")["metadata"]
    pod = Pod(Meta(name="many", namespace="default", uid=meta["uid"]))
    plain = seconds(lambda: stage.cluster.patch(f"{pod_path('many')}/status", {"status": {"reason": "x"}}))
    longest = 5 * plain
    assert acting_as("bind").set_condition(pod, condition("Fenced", "x", 0.0), longest) is not None
    stage.cluster.delete_pod("many")
    assert stage.cluster.get_pod("many")["metadata"]["deletionTimestamp"]
    assert acting_as("bind").set_condition(pod, condition("Fenced", "again", 0.0), longest) is not None
    stage.cluster.patch(pod_path("many"), {"metadata": {"finalizers": None}})


@pytest.mark.skipif(not has("1.36"), reason="the label is a MutatingAdmissionPolicy's")
def test_the_label_that_the_api_server_adds_in_the_same_write_is_no_change_by_the_account(
    stage: Stage, acting_as: Any
) -> None:
    """A pod that was there before Berth was installed gets the label by the first patch of its status."""
    stage.cluster.create_pod("early", {})
    meta = stage.cluster.get_pod("early")["metadata"]
    put(stage.cluster, rendered(OVERLAY, "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"))

    def labels() -> Object:
        pod = Pod(Meta(name="early", namespace="default", uid=meta["uid"]))
        assert acting_as("release").set_condition(pod, condition("Woken", "x", 0.0)) is not None
        found: Object = stage.cluster.get_pod("early")["metadata"].get("labels", {})
        return found

    assert wait(labels, 60, "the label", every=0.1) == {"berth.dev/scheduled": "true"}


@pytest.mark.parametrize("account", COUNTERS)
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.66"}]}}, "nothing else there"),
        ({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}, "nothing else there"),
        ({"status": {"conditions": None}}, "nothing else there"),
        ({"status": {"images": [{"names": ["x"]}]}}, "nothing else there"),
        ({"status": {"capacity": {"cpu": "9999"}}}, "no other resource"),
        ({"status": {"allocatable": {"memory": None}}}, "no other resource"),
        ({"status": {"allocatable": None}}, "no other resource"),
        ({"status": {"capacity": {"example.com/gpu": "8"}}}, "no other resource"),
        ({"metadata": {"labels": {"zone": "mine"}}}, "nothing of its metadata"),
        ({"metadata": {"annotations": {"example.com/a": "b"}}}, "nothing of its metadata"),
        ({"metadata": {"finalizers": ["example.com/stuck"]}}, "nothing of its metadata"),
    ],
)
def test_no_account_of_a_function_changes_more_of_a_node_than_the_resources_of_preemption(
    stage: Stage, account: str, change: Mapping[str, Any], why: str
) -> None:
    assert why in stage.said(account, NODE, change)


@pytest.mark.parametrize("account", COUNTERS)
def test_what_preemption_counts_is_written_changed_and_taken_away(
    stage: Stage, account: str, acting_as: Any
) -> None:
    for amount in ("4", "2", None):
        wanted = {K80: amount}
        acting_as(account).set_node_status("node-1", {"capacity": wanted, "allocatable": wanted})
        status = stage.cluster.get("/api/v1/nodes/node-1")["status"]
        assert [status[field].get(K80) for field in ("capacity", "allocatable")] == [amount] * 2
        assert status["addresses"] == SHOWN["addresses"]


@pytest.mark.usefixtures("binaries")
def test_without_the_component_for_preemption_nobody_may_write_to_nodes() -> None:
    rights = [each for name in ("per-verb", "single") for each in rendered(name, "ClusterRole")]
    resources = {one for role in rights for rule in role["rules"] for one in rule["resources"]}
    assert "pods/status" in resources
    assert "nodes/status" not in resources
    (role,) = component("native", "ClusterRole")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"spec": {"capacity": {"domains": {"*": 999}}}}, "no other field"),
        ({"spec": {"suspended": True}}, "no other field"),
        ({"spec": {"limits": {"team-a": 4}}}, "no other field"),
        ({"metadata": {"labels": {"a": "b"}}}, "nothing of its metadata"),
        ({"metadata": {"finalizers": ["example.com/stuck"]}}, "nothing of its metadata"),
    ],
)
def test_inventory_changes_no_more_of_a_pool_than_what_is_in_use_elsewhere(
    licence: Stage, change: Mapping[str, Any], why: str
) -> None:
    assert why in licence.said("inventory", f"{POOLS}/licence", change)
    assert licence.said("inventory", f"{POOLS}/licence", {"spec": {"external": 2}}, dry=False) == ""
    assert licence.said("inventory", f"{POOLS}/licence", {"spec": {"external": None}}) == ""
    assert licence.cluster.get(f"{POOLS}/licence")["spec"]["external"] == 2


def test_others_write_status_as_before(stage: Stage) -> None:
    """A kubelet, which the policies do not name."""
    stage.cluster.patch(POD, {"status": {"message": "fine"}})
    stage.cluster.patch(NODE, {"status": {"capacity": {"example.com/gpu": "8"}}})
    assert stage.cluster.get(POD)["status"]["message"] == "fine"


@pytest.mark.usefixtures("binaries")
@pytest.mark.parametrize("resource", ["pods/status", "nodes/status", "events"])
def test_the_policies_name_each_account_that_has_the_right(resource: str) -> None:
    """One more role with the right, and no word of it in the policy, would be a door."""
    there = [*rendered("per-verb"), *rendered("single"), *component("native")]
    roles = [each for each in there if each["kind"] == "ClusterRole"]
    bindings = [each for each in there if each["kind"] == "ClusterRoleBinding"]
    writing = {
        each["metadata"]["name"]
        for each in roles
        if any(resource in rule["resources"] for rule in each["rules"])
    }
    bound = {
        f"system:serviceaccount:{one['namespace']}:{one['name']}"
        for each in bindings
        if each["roleRef"]["name"] in writing
        for one in each["subjects"]
    }
    said = {
        each["spec"]["matchConditions"][0]["expression"]
        for each in status_policies()
        if each["kind"] == "ValidatingAdmissionPolicy"
        and each["spec"]["matchConstraints"]["resourceRules"][0]["resources"] == [resource]
    }
    (names,) = said
    assert {one for one in names.split("'") if one.startswith("system:")} == bound
