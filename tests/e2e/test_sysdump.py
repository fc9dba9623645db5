"""`berth sysdump` on the real API server: what is in the archive, and that no secret planted anywhere is.

There is no kubelet to ask for logs, so the containers' logs are made here.
"""

import base64
import json
import tarfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from berth.cli import main
from berth.errors import ClusterUnavailableError
from berth.handlers.reconcile import Reconcile
from berth.kube.cluster import Cluster as BerthsCluster
from berth.kube.cluster import connect
from berth.ledger.ledger import Ledger
from berth.settings import Settings
from berth.stores import open_store
from tests.controlplane.plane import ControlPlane
from tests.support.builders.manifests import put, serve_pools, token_of
from tests.support.builders.objects import pool_document
from tests.support.cluster import Cluster, Object, pods_path
from tests.support.servers.redisserver import RedisServer

pytestmark = pytest.mark.long

POOLS = "/apis/berth.dev/v1alpha1/pools"
WORDS = {
    where: f"planted-{where}-word"
    for where in (
        *("setting", "store", "variable", "command", "stranger", "annotation", "node", "secret", "login"),
        *("deployment", "log", "event", "configmap", "pair"),
    )
}
"""A secret for each place where one may stand."""

LOG = [
    "2026-11-25T14:00:00Z filter is ready",
    f"2026-11-25T14:00:01Z GET /filter Authorization: Bearer {WORDS['log']}",
    f"2026-11-25T14:00:02Z retry with password={WORDS['pair']}",
    f"2026-11-25T14:00:03Z redis://berth:{WORDS['login']}@redis:6379/0 is away",
    f"2026-11-25T14:00:04Z the caller sent {WORDS['setting']} and {WORDS['deployment']}",
]


@pytest.fixture
def there(plane: ControlPlane, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster with Berth's functions, a pool, pods of ours and of others, and a secret in each place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig(tmp_path / "kubeconfig")))
    monkeypatch.setenv("BERTH_AUTH_TOKEN", WORDS["setting"])
    monkeypatch.setenv("BERTH_STORE", f"sqlite:///{tmp_path}/ledger.db")
    serve_pools(cluster)
    cluster.create_node("node-1", labels={"zone": "a"}, annotations={"example.com/key": WORDS["node"]})
    cluster.call("POST", POOLS, pool_document("underlay-ip", capacity={"perDomain": 2}))
    _functions(cluster)
    _pods(cluster)
    with closing(open_store(f"sqlite:///{tmp_path}/ledger.db")) as store:
        Reconcile(Ledger(store, while_closed=True), connect(), Settings(store="none")).run()
    monkeypatch.setattr(BerthsCluster, "log", _log)
    return cluster


def _log(_: BerthsCluster, namespace: str, pod: str, query: Mapping[str, str]) -> str:
    assert (namespace, pod, query["sinceSeconds"]) == ("berth", "filter-0", "1800")
    if query["container"] == "proxy":
        raise ClusterUnavailableError("the API server answered 500: there is no kubelet")
    return "\n".join(LOG)


def _functions(cluster: Cluster) -> None:
    """A Deployment, a pod of it, its settings and a Secret, in namespace berth."""
    cluster.create_namespace("berth")
    data = {
        "BERTH_STORE": f"redis://:{WORDS['configmap']}@redis:6379/0",
        "scheduler.yaml": f"kind: KubeSchedulerConfiguration\ntoken: {WORDS['configmap']}\n",
    }
    _post(cluster, "/api/v1/namespaces/berth/configmaps", "ConfigMap", "berth-settings", data=data)
    encoded = base64.b64encode(WORDS["secret"].encode()).decode()
    _post(cluster, "/api/v1/namespaces/berth/secrets", "Secret", "berth-token", data={"token": encoded})
    function = {
        "name": "function",
        "image": "berth",
        "env": [
            {"name": "BERTH_AUTH_TOKEN", "value": WORDS["deployment"]},
            {"name": "BERTH_SCHEDULER_NAMES", "value": "berth"},
            {
                "name": "BERTH_EXTERNAL_TOKEN",
                "valueFrom": {"secretKeyRef": {"name": "berth-token", "key": "token"}},
            },
        ],
        "envFrom": [{"configMapRef": {"name": "berth-settings"}}],
    }
    spec: Object = {"containers": [function, {"name": "proxy", "image": "haproxy"}]}
    _post(cluster, pods_path("berth"), "Pod", "filter-0", spec=spec)
    labels = {"app": "filter"}
    spec = {**spec, "volumes": [{"name": "token", "secret": {"secretName": "berth-token"}}]}
    deployment = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }
    path = "/apis/apps/v1/namespaces/berth/deployments"
    _post(cluster, path, "Deployment", "filter", spec=deployment, api="apps/v1")


def _pods(cluster: Cluster) -> None:
    secrets = {
        "env": [{"name": "PASSWORD", "value": WORDS["variable"]}],
        "command": ["run", WORDS["command"]],
    }
    asked = {"berth.dev/underlay-ip": "1"}
    container = {"name": "main", "image": "x", "resources": {"limits": asked}, **secrets}
    plain = {"containers": [container], "schedulerName": "berth"}
    cluster.create_pod("waits", annotations={"example.com/key": WORDS["annotation"]}, spec=plain)
    cluster.create_pod("runs", spec={**plain, "nodeName": "node-1"})
    cluster.create_pod(
        "other", {}, scheduler="default-scheduler", annotations={"berth.dev/x": WORDS["stranger"]}
    )
    about = {
        "kind": "Pod",
        "namespace": "default",
        "name": "waits",
        "uid": cluster.get_pod("waits")["metadata"]["uid"],
    }
    said = f"no node took it; the webhook was sent token={WORDS['event']}"
    _post(
        cluster,
        *("/api/v1/namespaces/default/events", "Event", "waits.1"),
        involvedObject=about,
        reason="FailedScheduling",
        message=said,
    )


def _post(cluster: Cluster, path: str, kind: str, name: str, api: str = "v1", **fields: Any) -> None:
    document = {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **fields}
    cluster.call("POST", path, document)


def _unpacked(path: Path) -> dict[str, str]:
    """The archive's files, below its one folder."""
    with tarfile.open(path) as archive:
        files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {
            name.removeprefix("berth-sysdump/"): file.read().decode() for name, file in files.items() if file
        }


@pytest.mark.nightly
@pytest.mark.usefixtures("there")
def test_the_archive_has_all_that_a_maintainer_asks_for_and_none_of_the_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "dump.tar.gz"
    assert main(["sysdump", "-o", str(path), "--since", "30m"]) == 0
    written, missing, last = capsys.readouterr().out.splitlines()
    assert written.startswith(f"{path}: 2")
    assert "things could not be read: errors.txt" in missing
    assert last.startswith("read it before you send it")
    assert path.stat().st_mode & 0o777 == 0o600

    files = _unpacked(path)
    everything = "\n".join(f"{name}\n{text}" for name, text in files.items())
    assert {where for where, word in WORDS.items() if word in everything} == set()
    assert base64.b64encode(WORDS["secret"].encode()).decode() not in everything

    assert next(iter(files)) == "summary.txt"
    summary = files["summary.txt"]
    assert f"ledger in sqlite:///{tmp_path}/ledger.db: open\nclaims: 1 bound, 0 reserved, 0 lost\n" in summary
    assert "what is not well:\n  nothing\n" in summary
    assert "pods of ours: 2, 1 of them without a node" in summary
    assert "underlay-ip" in summary
    found: dict[str, Any] = {name: json.loads(text) for name, text in files.items() if name.endswith(".json")}
    assert [pod["metadata"]["name"] for pod in found["pods.json"]] == ["runs", "waits"]
    assert found["settings.json"]["BERTH_AUTH_TOKEN"] == "***"
    assert list(found["ledger.json"]["pools"]) == ["underlay-ip"]
    assert [claim["name"] for claim in found["ledger.json"]["claims"]] == ["runs"]
    assert found["pools.json"][0]["status"]["used"] == 1
    assert found["nodes.json"][0]["metadata"]["labels"]["zone"] == "a"
    assert found["cluster-version.json"]["gitVersion"].startswith("v1.")
    assert [one["metadata"]["name"] for one in found["crds.json"]] == [
        "pools.berth.dev",
        "poolclaims.berth.dev",
    ]
    (deployment,) = found["workloads.json"]["deployments"]
    names = {one["name"]: one.get("value") for one in deployment["spec"]["containers"][0]["env"]}
    assert names == {
        "BERTH_AUTH_TOKEN": "***",
        "BERTH_SCHEDULER_NAMES": "berth",
        "BERTH_EXTERNAL_TOKEN": None,
    }
    (event,) = [one for one in found["events.json"] if one["about"]["name"] == "waits"]
    assert (event["reason"], event["message"]) == (
        "FailedScheduling",
        "no node took it; the webhook was sent token=***",
    )
    assert files["doctor.txt"].startswith("$ berth doctor\n")
    assert files["waiting.txt"].startswith("$ berth waiting\n1 pod waits for 1 pool")
    assert "KubeSchedulerConfiguration" in files["configmaps/berth-settings/scheduler.yaml"]
    assert files["logs/filter-0/function.log"].splitlines()[0] == LOG[0]
    assert files["status.txt"].startswith("$ berth status\n1 pool, ")
    assert "logs/filter-0/proxy.log: the API server answered 500" in files["errors.txt"]
    assert "knative" in files["errors.txt"]
    assert "secrets/berth-token: no Secret is read for a dump" in files["errors.txt"]


def test_a_right_that_is_missing_ends_nothing(
    there: Cluster, plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account may list pods, and nothing else."""
    rights: Object = {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "little"},
        "subjects": [{"kind": "ServiceAccount", "name": "little", "namespace": "berth"}],
    }
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "little"}}
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "little", "namespace": "berth"},
    }
    role = {**rbac, "kind": "ClusterRole", "rules": rules}
    put(there, [account, role, {**rbac, "kind": "ClusterRoleBinding", **rights}])
    kubeconfig = plane.kubeconfig(tmp_path / "little", token_of(there, "little"))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    assert main(["sysdump", "-o", "bare.tar.gz", "--since", "30m"]) == 0
    files = _unpacked(tmp_path / "bare.tar.gz")
    errors = files["errors.txt"]
    assert "pools.json: the API server refused GET /apis/berth.dev/v1alpha1/pools (403)" in errors
    assert "pods.json: " not in errors
    assert json.loads(files["pods.json"])
    assert json.loads(files["ledger.json"])["claims"]
    assert "what is not well:\n  not known: pools.json\n" in files["summary.txt"]


def test_the_password_of_a_redis_store_is_in_no_file(
    there: Cluster,  # noqa: ARG001 - what it has is dumped
    redis_server: RedisServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server takes no password, so each part that needs the ledger fails, with the URL in its words."""
    store = redis_server.url.replace("://", f"://:{WORDS['store']}@")
    monkeypatch.setattr(BerthsCluster, "log", lambda *_: f"{store} refused {WORDS['store']}")
    assert main(["sysdump", "--store", store, "-o", "redis.tar.gz"]) == 0
    files = _unpacked(tmp_path / "redis.tar.gz")
    assert "ledger.json: " in files["errors.txt"]
    assert WORDS["store"] not in "\n".join(files.values())
    assert json.loads(files["pods.json"])
    logs = [text for name, text in files.items() if name.startswith("logs/")]
    assert "refused ***" in logs[0]
