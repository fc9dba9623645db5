"""`berth check` on a real API server: it finds nothing where all is right, and each misconfiguration that is
planted by its own id and nothing else; before anything is installed (--pre), and after infra was applied.
Knative itself is not there, only its kinds: nothing of what is installed runs."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.checks import admission, inputs, rights
from berth.cli.arguments import main
from berth.kube.configuration import Right
from tests.controlplane.plane import ControlPlane
from tests.e2e.harness import pool
from tests.support.builders.manifests import (
    ADMISSION,
    INFRA,
    OVERLAYS,
    component,
    definition,
    put,
    rendered,
)
from tests.support.cluster import UNDERLAY_IP, Cluster, Object, pod_document, pod_path, pods_path, wait
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import ASKED, OVERLAY, has, version
from tests.support.servers.redisserver import RedisServer

pytestmark = pytest.mark.long

WITHOUT = "without-knative"
LEDGER = "configmap://berth-ledger/ledger"
DEPLOYMENTS = "/apis/apps/v1/namespaces/kube-system/deployments"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
POOLS = "/apis/berth.dev/v1alpha1/pools"
SERVICES = "/apis/serving.knative.dev/v1/namespaces/berth/services"
SECRETS = "/api/v1/namespaces/berth/secrets"
URLS = [f"--{name}=http://127.0.0.1:{8080 + number}" for number, name in enumerate(("filter", "prioritize"))]
URLS += ["--preempt=http://127.0.0.1:8082", "--bind=http://127.0.0.1:8083"]
READS = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
ESCALATES = [
    {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["escalate"]}
]
MAKES = [
    {
        "apiGroups": [group],
        "resources": ["*"] if group else ["namespaces", "serviceaccounts", "secrets", "resourcequotas"],
        "verbs": ["create", "patch"],
    }
    for group in (
        *("", "apiextensions.k8s.io", "apps", "policy", "networking.k8s.io", "admissionregistration.k8s.io"),
        *("serving.knative.dev", "sources.knative.dev", "eventing.knative.dev"),
    )
]
MAKES_ROLES = [
    {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "clusterroles", "rolebindings", "clusterrolebindings"],
        "verbs": ["create", "patch"],
    },
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]},
]
USERS = {"installer": [*READS, *ESCALATES], "maker": [*READS, *MAKES, *MAKES_ROLES], "nobody": []}


class Stage:
    """One cluster with Knative's kinds and two nodes, files that are right, and who looks at it."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        self.cluster = Cluster(plane.url, plane.admin_token, plane.ca_file)
        self.kubectl = Kubectl(plane, folder)
        self.kubeconfig = plane.kubeconfig(folder / "kubeconfig")
        self.scheduler_file = folder / "scheduler.yaml"
        self.pools_file = folder / "pools.yaml"
        self.store = f"sqlite:///{folder / 'ledger.db'}"
        self.pools_file.write_text(yaml.safe_dump(pool()))
        assert (
            main(["scheduler-config", *URLS, "--lease", "berth/scheduler", "-o", str(self.scheduler_file)])
            == 0
        )

    def of_user(self, name: str) -> Path:
        return self.plane.kubeconfig(self.folder / f"kubeconfig-of-{name}", f"token-of-{name}")


Checked = Callable[..., Object]
Plant = Callable[[Stage], AbstractContextManager[Mapping[str, object] | None]]
"""What makes one thing wrong, and right again; it yields options of the command that differ from usual."""


@pytest.fixture(scope="module")
def stage(binaries: Path, knative: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("check")
    users = {f"token-of-{name}": (name, ()) for name in USERS}
    with ControlPlane(binaries, folder / "plane", users) as plane:
        made = Stage(plane, folder)
        made.kubectl("apply", "--server-side", "-f", knative)
        made.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
        for name, rules in USERS.items():
            made.cluster.call("POST", ROLES, {"metadata": {"name": name}, "rules": rules})
            made.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", f"--user={name}")
        for name in ("node-1", "node-2"):
            made.cluster.create_node(name)
        yield made
        made.cluster.close()


@pytest.fixture(scope="module")
def installed(stage: Stage) -> Stage:
    """With what infra applies, a Pool, and the ledger opened by one reconcile."""
    stage.kubectl("apply", "-k", INFRA / "overlays" / OVERLAY)
    stage.kubectl("wait", "--for=condition=Established", "crd", "pools.berth.dev", "--timeout=60s")
    if ASKED != "newest":  # the overlay names the newest scheduler: docs/install.md#steps
        image = f"kube-scheduler=registry.k8s.io/kube-scheduler:{version()}"
        stage.kubectl("-n", "berth", "set", "image", "deployment/berth-scheduler", image)
    stage.cluster.call("POST", POOLS, pool())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(stage.kubeconfig))
        patch.setenv("BERTH_STORE", LEDGER)
        patch.delenv("BERTH_POOLS", raising=False)
        assert main(["reconcile", "--store", LEDGER]) == 0
    return stage


@pytest.fixture
def checked(stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Checked:
    """Run the command; its report without what says how quick this machine is, and the exit code."""

    def check(**options: object) -> Object:
        monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 53, 0))  # whichever this machine has
        monkeypatch.setenv("KUBECONFIG", str(options.pop("kubeconfig", stage.kubeconfig)))
        for name in ("BERTH_STORE", "BERTH_POOLS", "BERTH_SCHEDULER_NAMES"):
            monkeypatch.setenv(name, "")  # the command sets them
            monkeypatch.delenv(name)
        given = {
            f"--{name.replace('_', '-')}": str(value) for name, value in options.items() if value is not None
        }
        words = [word for option in given.items() for word in option if word != "True"]
        capsys.readouterr()
        code = main(["check", "-o", "json", *words])
        report: Object = json.loads(capsys.readouterr().out)
        assert code == (1 if report["errors"] else 0)
        report["ids"] = [each["id"] for each in report["findings"] if each["id"] != "store.slow"]
        return report

    return check


def before(stage: Stage, **options: object) -> dict[str, object]:
    """The options of a look before the installation, with files that are right."""
    usual = {"scheduler_config": stage.scheduler_file, "pools": stage.pools_file, "store": stage.store}
    return {"pre": True, **usual, **options}


@contextmanager
def created(stage: Stage, collection: str, document: Object) -> Iterator[None]:
    stage.cluster.call("POST", collection, document)
    try:
        yield
    finally:
        stage.cluster.call(
            "DELETE", f"{collection}/{document['metadata']['name']}", {"gracePeriodSeconds": 0}
        )


@contextmanager
def patched(stage: Stage, path: str, change: Object, back: Object, how: str = "merge") -> Iterator[None]:
    stage.cluster.patch(path, change, how)
    try:
        yield
    finally:
        stage.cluster.patch(path, back, how)


def deployment(name: str, image: str) -> Object:
    labels = {"app": name}
    spec = {"containers": [{"name": "main", "image": image}]}
    return {
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


@contextmanager
def file_of(stage: Stage, change: Callable[[Any], None]) -> Iterator[dict[str, object]]:
    """The scheduler's configuration, changed."""
    document = yaml.safe_load(stage.scheduler_file.read_text())
    change(document)
    path = stage.folder / "changed.yaml"
    path.write_text(yaml.safe_dump(document))
    yield {"scheduler_config": path}


def as_user(name: str) -> Plant:
    @contextmanager
    def plant(stage: Stage) -> Iterator[dict[str, object]]:
        yield {"kubeconfig": stage.of_user(name)}

    return plant


@contextmanager
def a_kind_of_knative_is_missing(stage: Stage) -> Iterator[None]:
    path = "/spec/versions/0/served"
    change, back = ([{"op": "replace", "path": path, "value": value}] for value in (False, True))
    with patched(stage, f"{CRDS}/triggers.eventing.knative.dev", change, back, "json"):  # type: ignore[arg-type]
        yield


@contextmanager
def pools_of_another_version(stage: Stage) -> Iterator[None]:
    document = definition("Pool")
    document["spec"]["versions"][0]["served"] = False
    put(stage.cluster, [document])
    try:
        yield
    finally:
        path = "/spec/versions/0/served"
        stage.cluster.patch(
            f"{CRDS}/pools.berth.dev", [{"op": "replace", "path": path, "value": True}], "json"
        )


@contextmanager
def a_node_shows_the_resource(stage: Stage) -> Iterator[None]:
    amounts, none = {UNDERLAY_IP: "4"}, {UNDERLAY_IP: None}
    path = "/api/v1/nodes/node-2/status"
    with patched(stage, path, {"status": {"capacity": amounts}}, {"status": {"capacity": none}}):
        yield


@contextmanager
def an_autoscaler(stage: Stage) -> Iterator[None]:
    with created(stage, DEPLOYMENTS, deployment("cluster-autoscaler", "autoscaler:1")):
        yield


@contextmanager
def another_extender(stage: Stage) -> Iterator[None]:
    with created(stage, DEPLOYMENTS, deployment("gpus", "projecthami/hami-scheduler:2")):
        yield


@contextmanager
def a_pod(
    stage: Stage, name: str, resources: Mapping[str, int] = {UNDERLAY_IP: 1}, **more: Any
) -> Iterator[None]:
    stage.cluster.create_pod(name, resources, **more)
    try:
        yield
    finally:
        stage.cluster.call("DELETE", f"{pod_path(name)}?gracePeriodSeconds=0")


@contextmanager
def a_share_of_the_nodes(stage: Stage) -> Iterator[dict[str, object]]:
    with file_of(
        stage, lambda document: document["profiles"][0].update(percentageOfNodesToScore=50)
    ) as given:
        yield given


@contextmanager
def a_login(stage: Stage) -> Iterator[dict[str, object]]:
    url = "http://berth:s3cr3t@127.0.0.1:8080"
    with file_of(stage, lambda document: document["extenders"][0].update(urlPrefix=url)) as given:
        yield given


@contextmanager
def no_time_for_bind(stage: Stage) -> Iterator[dict[str, object]]:
    with file_of(stage, lambda document: document["extenders"][3].update(httpTimeout="500ms")) as given:
        yield given


@contextmanager
def a_redis_that_evicts(stage: Stage) -> Iterator[dict[str, object]]:
    settings = ("maxmemory-policy allkeys-lru",)
    with RedisServer(stage.folder / "redis", aof=True, settings=settings) as server:
        yield {"store": f"{server.url}/0"}


@contextmanager
def a_pool_on_no_node(stage: Stage) -> Iterator[dict[str, object]]:
    path = stage.folder / "nowhere.yaml"
    path.write_text(yaml.safe_dump(pool(nodeSelector={"matchLabels": {"network": "underlay"}})))
    yield {"pools": path}


PRE: dict[str, Plant] = {
    "rights.install": as_user("installer"),
    "rights.escalate": as_user("maker"),
    "versions.knative": a_kind_of_knative_is_missing,
    "versions.kinds": pools_of_another_version,
    "nodes.resource": a_node_shows_the_resource,
    "nodes.autoscaler": an_autoscaler,
    "scheduler.other": another_extender,
    "pods.scheduler": lambda stage: a_pod(stage, "lost", scheduler="default-scheduler"),
    "scheduler.sampling": a_share_of_the_nodes,
    "scheduler.credentials": a_login,
    "scheduler.timeout": no_time_for_bind,
    "store.eviction": a_redis_that_evicts,
    "pools.selector": a_pool_on_no_node,
}
OLD = [] if has("1.36") else ["versions.overlay"]  # which is right: that cluster needs another overlay


def test_before_the_installation_nothing_is_found_on_a_right_cluster(stage: Stage, checked: Checked) -> None:
    report = checked(**before(stage))
    assert report["ids"] == OLD, report["findings"]
    assert report["unchecked"] == []
    assert {*PRE} - {"store.eviction"} <= {*report["passed"]}  # the ledger is a file


@pytest.mark.parametrize("rule", PRE)
def test_before_the_installation_each_plant_is_found_and_nothing_else(
    stage: Stage, checked: Checked, rule: str, request: pytest.FixtureRequest
) -> None:
    if rule.startswith("store."):
        request.getfixturevalue("redis_installed")
    with PRE[rule](stage) as options:
        report = checked(**before(stage, **(options or {})))
    others = [] if rule == "versions.knative" else OLD  # without Knative any overlay for it is wrong
    assert sorted(report["ids"]) == sorted([rule, *others]), report["findings"]
    assert "guess" not in json.dumps(report)


@contextmanager
def a_right_is_missing(stage: Stage) -> Iterator[None]:
    path = f"{ROLES}/berth-bind"
    rules = stage.cluster.get(path)["rules"]
    fewer = [rule for rule in rules if "pods/binding" not in rule["resources"]]
    with patched(stage, path, {"rules": fewer}, {"rules": rules}):
        yield


@contextmanager
def a_policy_is_not_bound(stage: Stage) -> Iterator[None]:
    binding = stage.cluster.get(f"{BINDINGS}/pods.berth.dev")
    stage.cluster.call("DELETE", f"{BINDINGS}/pods.berth.dev")
    try:
        yield
    finally:
        made = {"metadata": {"name": "pods.berth.dev"}, "spec": binding["spec"]}
        stage.cluster.call("POST", BINDINGS, made)


@contextmanager
def a_policy_only_warns(stage: Stage) -> Iterator[None]:
    change, back = ({"spec": {"validationActions": [action]}} for action in ("Warn", "Deny"))
    with patched(stage, f"{BINDINGS}/pod-status.berth.dev", change, back):
        yield


@contextmanager
def a_policy_of_other_schedulers(stage: Stage) -> Iterator[None]:
    path = f"{POLICIES}/pods.berth.dev"
    right = stage.cluster.get(path)["spec"]["variables"]
    wrong = json.loads(json.dumps(right).replace("'berth'.replace", "'another'.replace"))
    # The API server takes a policy into force a moment after it took it in; the next test makes pods.
    with patched(stage, path, {"spec": {"variables": wrong}}, {"spec": {"variables": right}}):
        wait(lambda: not takes_pods_of_ours(stage), 60, "the other schedulers in force")
        yield
    wait(lambda: takes_pods_of_ours(stage), 60, "our scheduler in force again")


def takes_pods_of_ours(stage: Stage) -> bool:
    path = f"{pods_path('default')}?dryRun=All"
    return stage.cluster.request("POST", path, pod_document("ours", {UNDERLAY_IP: 1})).status == 201


def scheduler_secret(change: Callable[[Any], None]) -> Plant:
    """The installed scheduler's configuration, changed."""

    @contextmanager
    def plant(stage: Stage) -> Iterator[None]:
        where = "/apis/apps/v1/namespaces/berth/deployments/berth-scheduler"
        volumes = stage.cluster.get(where)["spec"]["template"]["spec"]["volumes"]
        name = next(each["secret"]["secretName"] for each in volumes if each["name"] == "configuration")
        data = stage.cluster.get(f"{SECRETS}/{name}")["data"]
        stage.kubectl("-n", "berth", "get", "secret", name)
        (key,) = data
        text = stage.kubectl(
            "-n",
            "berth",
            "get",
            "secret",
            name,
            "-o",
            f'go-template={{{{index .data "{key}" | base64decode}}}}',
        )
        document = yaml.safe_load(text)
        change(document)
        with patched(
            stage, f"{SECRETS}/{name}", {"stringData": {key: yaml.safe_dump(document)}}, {"data": data}
        ):
            yield

    return plant


@contextmanager
def a_file_for_knative(stage: Stage) -> Iterator[dict[str, object]]:
    yield {"store": f"sqlite:///{stage.folder / 'ledger.db'}"}


@contextmanager
def a_ledger_that_is_not_there(_: Stage) -> Iterator[dict[str, object]]:
    yield {"store": "configmap://berth-ledger/other"}


@contextmanager
def a_late_volume(stage: Stage) -> Iterator[None]:
    storage = {
        "metadata": {"name": "late"},
        "provisioner": "none",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": "late",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    stage.cluster.call("POST", "/apis/storage.k8s.io/v1/storageclasses", storage)
    stage.cluster.call("POST", claims, claim)
    try:
        with a_pod(stage, "with-a-volume", spec={"volumes": volumes}):
            yield
    finally:
        stage.cluster.call("DELETE", f"{claims}/data")
        stage.cluster.patch(f"{claims}/data", {"metadata": {"finalizers": None}})
        stage.cluster.call("DELETE", "/apis/storage.k8s.io/v1/storageclasses/late")


@contextmanager
def racks_that_no_node_is_in(stage: Stage) -> Iterator[None]:
    racks = pool("rack", scope="Topology", topologyKey="example.com/rack")
    with created(stage, POOLS, racks):
        yield


def service(change: Object, back: Object) -> Plant:
    @contextmanager
    def plant(stage: Stage) -> Iterator[None]:
        with patched(stage, f"{SERVICES}/release", change, back, "json"):
            yield

    return plant


def _of_template(op: str, path: str, value: object = None) -> Any:
    return [{"op": op, "path": f"/spec/template/spec/{path}", **({} if value is None else {"value": value})}]


AFTER: dict[str, Plant] = {
    "rights.account": a_right_is_missing,
    "admission.missing": a_policy_is_not_bound,
    "admission.changed": a_policy_only_warns,
    "admission.names": a_policy_of_other_schedulers,
    "scheduler.counted": scheduler_secret(lambda document: document["profiles"][0].pop("pluginConfig")),
    "scheduler.election": scheduler_secret(
        lambda document: document["leaderElection"].update(leaderElect=False)
    ),
    "scheduler.names": scheduler_secret(lambda document: document["profiles"][0].update(schedulerName="b")),
    "store.local": a_file_for_knative,
    "store.absent": a_ledger_that_is_not_there,
    "pods.pool": lambda stage: a_pod(stage, "typo", {"berth.dev/underlay-pi": 1}),
    "pods.volumes": a_late_volume,
    "pods.functions": service(
        _of_template("add", "schedulerName", "berth"), _of_template("remove", "schedulerName")
    ),
    "pools.label": racks_that_no_node_is_in,
    "versions.image": service(
        _of_template("replace", "containers/0/image", "berth:9.9.9"),
        _of_template("replace", "containers/0/image", "berth:0.1.0"),
    ),
}


def test_nothing_is_found_where_infra_was_applied(installed: Stage, checked: Checked) -> None:
    report = checked()
    assert report["ids"] == [], report["findings"]
    assert report["unchecked"] == []
    assert report["store"] == LEDGER
    assert {*AFTER} <= {*report["passed"]}
    assert installed.cluster.get(f"{POOLS}/underlay-ip")


@pytest.mark.parametrize("rule", AFTER)
def test_each_plant_is_found_and_nothing_else(installed: Stage, checked: Checked, rule: str) -> None:
    with AFTER[rule](installed) as options:
        report = checked(**(options or {}))
    assert report["ids"] == [rule], report["findings"]


def test_what_this_user_may_not_look_at_is_told_and_the_rest_is_looked_at(
    installed: Stage, checked: Checked
) -> None:
    report = checked(kubeconfig=installed.of_user("nobody"), scheduler_config=installed.scheduler_file)
    assert {*report["ids"]} == {"check.unseen", "rights.user"}
    said = [each["message"] for each in report["findings"] if each["id"] == "check.unseen"]
    assert any(
        "the nodes' resources: the API server refused GET /api/v1/nodes (403)" in each for each in said
    )
    assert "scheduler.timeout" in report["passed"]


def test_a_person_reads_what_was_found_and_what_to_do(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(stage.kubeconfig))
    with a_share_of_the_nodes(stage) as given:
        assert main(["check", "--pre", "-v", "--scheduler-config", str(given["scheduler_config"])]) == 1
    said = capsys.readouterr()
    name = "changed.yaml: profile berth: percentageOfNodesToScore is 50"
    lines = said.out.splitlines()
    assert lines[0].startswith("error    scheduler.sampling: ")
    assert lines[0].endswith(name)
    assert lines[1:3] == [
        "         do: Set percentageOfNodesToScore: 100 in the profile.",
        "         see: docs/reference/checks.md#schedulersampling",
    ]
    assert "ok       scheduler.timeout" in lines
    assert lines[-1].startswith("1 error, ")


RBAC = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")


@pytest.mark.usefixtures("binaries")
def test_the_rights_that_are_looked_for_are_those_that_infra_gives() -> None:
    there = [*rendered("per-verb", *RBAC), *rendered("single", *RBAC)]
    mine = {name: {_right(one) for one in wanted} for name, wanted in rights.FUNCTIONS.items()}
    for name, verbs in rights.LEDGER.items():
        mine[name] |= {(verb, "", "configmaps", "") for verb in verbs}
    assert mine == {name.removeprefix("berth-"): given for name, given in _given(there).items()}
    native = _given(component("native", *RBAC))
    assert {name: {_right(one) for one in wanted} for name, wanted in rights.NATIVE.items()} == {
        name.removeprefix("berth-"): given for name, given in native.items()
    }


@pytest.mark.usefixtures("binaries")
def test_the_rights_of_the_relay_are_those_that_infra_gives_where_there_is_no_knative() -> None:
    events = _given(rendered(WITHOUT, *RBAC))["berth-events"]
    assert events == {_right(one) for one in (*rights.FUNCTIONS["events"], *rights.RELAY)}


def _right(one: Right) -> tuple[str, str, str, str]:
    return (one.verb, one.group, one.resource, one.name)


def _given(there: list[Object]) -> dict[str, set[tuple[str, str, str, str]]]:
    """What infra's roles give each account; the scheduler has Kubernetes' own."""
    roles = {(each["kind"], each["metadata"]["name"]): each["rules"] for each in there if "rules" in each}
    given: dict[str, set[tuple[str, str, str, str]]] = {}
    for binding in (each for each in there if "roleRef" in each):
        rules = roles.get((binding["roleRef"]["kind"], binding["roleRef"]["name"]), [])
        for subject in binding["subjects"]:
            if subject["name"] != "berth-scheduler":
                given.setdefault(subject["name"], set()).update(
                    (verb, group, resource, name)
                    for rule in rules
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                    for name in rule.get("resourceNames", [""])
                )
    return given


@pytest.mark.usefixtures("binaries")
def test_the_kinds_that_an_overlay_has_are_those_that_the_rights_to_install_name() -> None:
    there = {
        (each["apiVersion"].rpartition("/")[0], _plural(each["kind"]))
        for overlay in OVERLAYS
        for each in rendered(overlay)
    }
    knatives = {(group, resource) for resource, _, group in (name.partition(".") for name in inputs.KNATIVE)}
    assert there == {*rights.INSTALLED, *knatives, *rights.WITHOUT_KNATIVE}
    without = {(each["apiVersion"].rpartition("/")[0], _plural(each["kind"])) for each in rendered(WITHOUT)}
    assert {*rights.WITHOUT_KNATIVE} <= without <= {*rights.INSTALLED, *rights.WITHOUT_KNATIVE}


def _plural(kind: str) -> str:
    return f"{kind.lower()[:-1]}ies" if kind.endswith("y") else f"{kind.lower()}s"


@pytest.mark.usefixtures("binaries")
def test_the_policies_that_are_looked_for_are_those_that_infra_has() -> None:
    there = [
        *rendered("per-verb", *ADMISSION),
        *rendered("single", *ADMISSION),
        *component("native", *ADMISSION),
    ]
    policies = {each["metadata"]["name"]: each for each in there if each["kind"].endswith("Policy")}
    wanted = {**admission.EXPECTED, **admission.OVERHEAD, **admission.NODE_STATUS, **admission.SCHEDULED}
    assert policies.keys() == wanted.keys()
    for name, policy in policies.items():
        spec = policy["spec"]
        rules = spec.get("mutations") or spec["validations"]
        expected = wanted[name]
        assert (len(rules), spec["failurePolicy"]) == (expected.rules, expected.failure_policy)
        assert ("mutations" in spec) == expected.mutates


@pytest.mark.usefixtures("binaries")
def test_the_kinds_of_knative_that_are_looked_for_are_those_that_infra_uses() -> None:
    there = {
        (f"{_plural(each['kind'])}.{group}", api_version)
        for each in rendered("per-verb")
        for group, _, api_version in (each["apiVersion"].partition("/"),)
        if group.endswith("knative.dev")
    }
    assert there == set(inputs.KNATIVE.items())
