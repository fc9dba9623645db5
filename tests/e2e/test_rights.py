"""infra's roles are exactly what the functions use: each runs with its own account's token alone, does all it
ever does, and the API server's audit log tells which rights that took. One more or less fails here."""

import json
import queue
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.controller.fencing import condition
from berth.kube.cluster import connect
from berth.kube.event_queue import PodEvent
from berth.kube.event_recorder import EventRecorder
from berth.kube.types import Meta, Pod
from tests.controlplane.plane import ControlPlane
from tests.e2e.harness import Berth, System, pool, settled
from tests.support.builders.accounts import Accounts
from tests.support.builders.manifests import RIGHTS, component, put, rendered, serve_pools, token_of
from tests.support.builders.objects import EVENTS
from tests.support.cluster import Cluster, Object, wait
from tests.support.kubernetes import POD_GROUPS, POD_GROUPS_ON, has

pytestmark = pytest.mark.long

POOLS = "/apis/berth.dev/v1alpha1/pools"
CLAIMS = "/apis/berth.dev/v1alpha1/namespaces/default/poolclaims"
FENCES, LISTS = ("patch", "", "pods/status"), ("list", "", "pods")
UPDATES = ("update", "", "configmaps")
READERS = ("berth-filter", "berth-prioritize", "berth-preempt", "berth-status")
WRITERS = ("berth-bind", "berth-release", "berth-inventory", "berth-reconcile")
LEDGER = "configmap://berth-ledger/ledger"
CALLER, POLLER = "berth/berth-scheduler", "berth/berth-events"  # any account may poll
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts:berth"]}, {"level": "None"}],
}
# A Binding to this node is refused, whoever asks, so that bind has to fence the pod and wake others.
REFUSING = {
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "refusing"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods/binding"],
                }
            ]
        },
        "validations": [{"expression": "object.target.name != 'refusing'", "message": "not there"}],
    },
}
REFUSED = {
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "refusing"},
    "spec": {"policyName": "refusing", "validationActions": ["Deny"]},
}


class Audited:
    """Rights as they were used: (verb, group, resource) by account, and the requests that were forbidden."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def events(self) -> list[Object]:
        whole, _, _ = self._log.read_text().rpartition("\n")  # the API server may be writing the last line
        return [json.loads(line) for line in whole.splitlines()]

    def used(self) -> dict[str, set[tuple[str, str, str]]]:
        found: dict[str, set[tuple[str, str, str]]] = {}
        for event in self.events():
            what = event.get("objectRef", {})
            if what.get("resource"):
                name = "/".join(filter(None, (what["resource"], what.get("subresource"))))
                account = event["user"]["username"].rpartition(":")[2]
                found.setdefault(account, set()).add((event["verb"], what.get("apiGroup", ""), name))
        return found

    def forbidden(self) -> list[str]:
        return [
            f"{event['user']['username']} {event['verb']} {event['requestURI']}"
            for event in self.events()
            if event.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
        ]


def granted() -> dict[str, set[tuple[str, str, str]]]:
    """What the roles that are bound to an account grant, by the account: in the cluster, in the ledger's
    namespace, and by the component for preemption."""
    there = [*rendered("per-verb", *RIGHTS), *component("native", *RIGHTS)]
    roles = {(each["kind"], each["metadata"]["name"]): each for each in there if "Role" in each["kind"]}
    found: dict[str, set[tuple[str, str, str]]] = {}
    for binding in (each for each in there if each["kind"].endswith("RoleBinding")):
        role = roles.get((binding["roleRef"]["kind"], binding["roleRef"]["name"]))  # None: Kubernetes' own
        if role is not None:
            for subject in binding["subjects"]:
                found.setdefault(subject["name"], set()).update(_rights(role))
    return found


def _rights(role: Object) -> set[tuple[str, str, str]]:
    return {
        (verb, group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


@pytest.fixture
def plane(binaries: Path, tmp_path: Path, audit: Path) -> Iterator[ControlPlane]:
    policy = tmp_path / "audit.json"
    policy.write_text(json.dumps(AUDIT))
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={audit}", "--audit-log-mode=blocking"]
    flags += [POD_GROUPS_ON, f"--runtime-config={POD_GROUPS}=true"] if has("1.36") else []
    with ControlPlane(binaries, tmp_path / "plane", apiserver_flags=flags) as started:
        yield started


@pytest.fixture
def system(
    plane: ControlPlane,
    cluster: Cluster,
    haproxy_program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[System]:
    """Two nodes of one unit; every function as its own account, Pools and ledger in the cluster."""
    accounts = Accounts(plane, cluster, tmp_path)
    put(cluster, [REFUSING, REFUSED])
    serve_pools(cluster)
    for name in ("node-1", "node-2"):
        cluster.create_node(name)
    cluster.call("POST", POOLS, pool(units=1))
    cluster.call("POST", POOLS, pool("licence", 4, scope="Cluster"))
    cluster.call("POST", POOLS, pool("k80", 1, preemption="Native"))
    kubeconfig = plane.kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))  # for the test's own looks at the ledger
    berth = Berth(
        tmp_path / "berth",
        kubeconfig,
        None,
        environment={"BERTH_AUTH_ACCOUNTS": CALLER, "BERTH_EXTERNAL_ACCOUNTS": POLLER},
        proxy=True,
        functions=accounts.functions(tmp_path),
        store=LEDGER,
    )
    try:
        berth.start()
        system = System(plane, cluster, berth, accounts)
        with system.beside(haproxy_program):
            system.start_scheduler()
            yield system
    finally:
        berth.stop()


def test_with_its_own_rights_each_function_does_all_it_ever_does_and_needs_each_of_them(
    system: System, audit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, log = system.cluster, Audited(audit)
    for name in ("a", "b"):
        cluster.create_pod(name)
    cluster.wait_bound("a", "b")
    cluster.create_pod("waiter")
    assert "underlay-ip: 0 of 1 free, 1 asked" in system.refusal_of("waiter")
    cluster.delete_pod("a")
    cluster.wait_bound("waiter", seconds=30)  # release, and its wake
    cluster.create_pod("next")
    system.refusal_of("next")
    cluster.create_node("refusing")  # inventory, by a node's event; and its wake
    # kube-scheduler tries it there; bind fences the pod, cancels, and looks whom to wake.
    wait(lambda: {FENCES, LISTS} <= log.used().get("berth-bind", set()), 60, "a Binding that was refused")
    cluster.delete_node("refusing")
    cluster.patch(f"{POOLS}/underlay-ip", {"spec": {"capacity": {"perDomain": 2}}})
    cluster.wait_bound("next", seconds=30)  # inventory, by the Pool's
    calls_as_the_scheduler_s_account(system)
    shows_a_page(system)
    uses_outside(system)
    holds_a_claim_on_a_lost_node(system)
    binds_a_gang(system)
    if has("1.36"):
        binds_a_pod_group(system)
    cluster.create_pod("last")
    cluster.wait_bound("last")
    cluster.create_pod("waits")
    system.refusal_of("waits")
    lose_the_ledger(system)
    settled(system)
    shows_a_page(system)
    asks_whom_to_evict(system)
    for name in ("inventory", "reconcile"):
        wait(lambda name=name: writes_status(system, log, name), 60, f"a Pool's status by {name}")  # type: ignore[misc]
        wait(lambda name=name: mends_a_node(system, log, name), 60, f"a node's status by {name}")  # type: ignore[misc]
    for name in ("bind", "release", "inventory", "reconcile"):
        writes_to_a_pod_that_is_gone(tmp_path / f"kubeconfig-of-{name}", monkeypatch)
        tells_of_a_pod_twice(name)
    assert log.forbidden() == []
    used, may = log.used(), granted()
    for name in WRITERS:  # which of them finds the ledger lost first and makes its ConfigMaps anew is chance
        made = {right for right in may[name] if right[2] == "configmaps"}
        assert used[name] & made >= {("get", "", "configmaps"), ("list", "", "configmaps"), UPDATES}
        used[name] |= made
    if not has("1.36"):  # no pod can name a PodGroup there
        used["berth-bind"].add(("get", "scheduling.k8s.io", "podgroups"))
        used["berth-reconcile"].add(("list", "scheduling.k8s.io", "podgroups"))
    # Who looks as seldom as the page here reads all shards, and need not list which of them have changed.
    used["berth-status"].add(("list", "", "configmaps"))
    assert {name: may[name] for name in (*READERS, *WRITERS)} == {
        name: rights for name, rights in used.items() if name != "berth-scheduler"
    }  # the scheduler has Kubernetes' own role; that it lacks nothing is seen above


def uses_outside(system: System) -> None:
    """A licence poller's call: inventory writes the Pool object, and its status at once."""
    body, headers = {"pool": "licence", "external": 3}, as_account(system, POLLER)
    assert system.berth.post("inventory", body, as_account(system, CALLER), "/external").status == 401
    assert system.berth.post("bind", {}, headers).status == 401
    reply = system.berth.post("inventory", body, headers, "/external")
    assert (reply.status, reply.body) == (200, {**body, "overCommitted": 0})
    assert system.cluster.get(f"{POOLS}/licence")["status"]["free"] == 1


def calls_as_the_scheduler_s_account(system: System) -> None:
    """Each verb asks whose token it is. kube-scheduler's own calls here have the shared one."""
    for name in ("filter", "prioritize", "preempt", "bind"):
        assert system.berth.post(name, {}, as_account(system, CALLER)).status == 400
        assert system.berth.post(name, {}, as_account(system, POLLER)).status == 401


def shows_a_page(system: System) -> None:
    """The status page lists waiting pods and nodes, and asks whose the cluster is."""
    headers = {"Authorization": f"Bearer {system.berth.token}"}
    asked = urllib.request.Request(f"{system.berth.urls['status']}/", headers=headers)
    with urllib.request.urlopen(asked, timeout=30) as reply:
        page = reply.read().decode()
    assert "who waits is not known" not in page
    assert "underlay-ip" in page


def as_account(system: System, account: str) -> dict[str, str]:
    """A caller with the account's token for Berth."""
    namespace, _, name = account.partition("/")
    token = token_of(system.cluster, name, namespace, audience="berth")
    return {"Authorization": f"Bearer {token}"}


def holds_a_claim_on_a_lost_node(system: System) -> None:
    """A PoolClaim's status is written by all; whether a node still uses a unit, release and reconcile ask."""
    cluster = system.cluster
    document = pool("gpu")
    document["spec"] = {"units": {"node-1": ["gpu-0"]}}
    cluster.call("POST", POOLS, document)
    claim = {"apiVersion": "berth.dev/v1alpha1", "kind": "PoolClaim", "metadata": {"name": "mine"}}
    cluster.call("POST", CLAIMS, {**claim, "spec": {"pool": "gpu"}})
    phase(cluster, "Available")
    cluster.create_pod("user", {"berth.dev/gpu": 1}, annotations={"berth.dev/claims": "mine"})
    cluster.wait_bound("user")
    phase(cluster, "Bound")
    ready(cluster, "False")
    cluster.delete_pod("user")
    wait(lambda: [each.state for each in system.berth.ledger().lost("node-1")], 60, "a lost claim")
    cluster.patch(f"{CLAIMS}/mine/status", {"status": {"node": "wrong"}})
    mend(system)
    assert cluster.get(f"{CLAIMS}/mine")["status"]["node"] == "node-1"
    ready(cluster, "True")
    phase(cluster, "Available")
    cluster.create_pod("next-user", {"berth.dev/gpu": 1}, annotations={"berth.dev/claims": "mine"})
    cluster.wait_bound("next-user")
    phase(cluster, "Bound")
    cluster.delete_pod("next-user")
    phase(cluster, "Available")


def binds_a_gang(system: System) -> None:
    """bind asks for nodes where the others of a gang may go."""
    cluster = system.cluster
    cluster.call("POST", POOLS, pool("team", 1))
    names = ("gang-a", "gang-b")
    for name in names:
        noted = {"berth.dev/gang": "both", "berth.dev/gang-size": "2"}
        cluster.create_pod(name, {"berth.dev/team": 1}, annotations=noted)
    cluster.wait_bound(*names, seconds=30)
    for name in names:
        cluster.delete_pod(name)


def binds_a_pod_group(system: System) -> None:
    """bind asks a PodGroup how many pods it wants at once, and reconcile for those of pods that wait."""
    cluster, names = system.cluster, ("group-a", "group-b")
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    body = {"apiVersion": POD_GROUPS, "kind": "PodGroup", "metadata": {"name": "group"}, "spec": policy}
    for name in names:
        spec = {"schedulingGroup": {"podGroupName": "group"}}
        cluster.create_pod(name, {"berth.dev/team": 1}, spec=spec)
    wait(lambda: any("no PodGroup" in text for text in cluster.events_of(names[0])), 60, "it is missed")
    cluster.call("POST", f"/apis/{POD_GROUPS}/namespaces/default/podgroups", body)
    mend(system)
    cluster.wait_bound(*names, seconds=30)
    for name in names:
        cluster.delete_pod(name)


def phase(cluster: Cluster, wanted: str) -> None:
    def now() -> bool:
        return bool(cluster.get(f"{CLAIMS}/mine").get("status", {}).get("phase") == wanted)

    wait(now, 60, f"a PoolClaim that is {wanted}")


def ready(cluster: Cluster, value: str) -> None:
    condition = {"type": "Ready", "status": value, "reason": "Test", "message": "by a test"}
    cluster.patch("/api/v1/nodes/node-1/status", {"status": {"conditions": [condition]}})


def asks_whom_to_evict(system: System) -> None:
    """kube-scheduler's recorded call, twice: the first look reads all, the second asks what is new."""
    for _ in range(2):
        body, headers = (EVENTS / "extender" / "preempt-names.json").read_bytes(), as_account(system, CALLER)
        assert system.berth.post("preempt", body, headers).status == 200


def lose_the_ledger(system: System) -> None:
    """All ConfigMaps deleted while pods wait: reconcile fences them, adopts what runs, opens the ledger."""
    system.cluster.call("DELETE", "/api/v1/namespaces/berth-ledger/configmaps")
    wait(lambda: mend(system)["rebuilt"], 60, "the ledger rebuilt")


def writes_status(system: System, log: Audited, name: str) -> bool:
    """A wrong status is mended by whichever of the two is first: inventory has the Pool's event."""
    system.cluster.patch(f"{POOLS}/underlay-ip/status", {"status": {"used": 99}})
    mend(system)
    return ("patch", "berth.dev", "pools/status") in log.used()[f"berth-{name}"]


def mends_a_node(system: System, log: Audited, name: str) -> bool:
    """Whether a node's status is set right with the function's rights, where preemption is counted."""
    wrong = {"allocatable": {"native.berth.dev/k80": "99"}}
    system.cluster.patch("/api/v1/nodes/node-1/status", {"status": wrong})
    mend(system)
    return ("patch", "", "nodes/status") in log.used()[f"berth-{name}"]


def writes_to_a_pod_that_is_gone(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it comes between a list and a wake or a fence: then the account also looks whether it is there."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    gone = Pod(Meta(name="gone", namespace="default", uid="u"))
    assert connect().set_condition(gone, condition("Woken", "room was made", 0.0)) is None


def tells_of_a_pod_twice(name: str) -> None:
    """By the account that was taken last. The second time is written into the event of the first."""
    outcomes = queue.SimpleQueue[str]()
    recorder = EventRecorder(connect().aside(), name, lambda _, outcome: outcomes.put(outcome))
    event = PodEvent("default", "last", "u", "Adopted", "Adopting", f"told by {name}")
    recorder.record(event)
    assert outcomes.get(timeout=60) == "sent"
    recorder.record(event)
    recorder.close(60)
    assert [outcomes.get(timeout=60) for _ in range(2)] == ["aggregated", "sent"]


def mend(system: System) -> Object:
    """One reconcile by the function, as its own account."""
    reply = system.berth.post("reconcile", {})
    return reply.body if reply.status == 200 else {"problems": [reply.body], "rebuilt": False}
