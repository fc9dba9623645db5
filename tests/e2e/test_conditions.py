"""Conditions of Pools and PoolClaims on the real API server, for the real kubectl: `kubectl wait` ends when
Berth has done what it waits for, and `kubectl get` shows what is not well."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from berth.handlers.inventory import Inventory
from berth.handlers.reconcile import Reconcile, Report
from berth.kube.cluster import connect
from berth.ledger.ledger import Ledger
from berth.settings import Settings
from berth.stores import open_store
from tests.controlplane.plane import ControlPlane
from tests.support.builders.ledgers import Time
from tests.support.builders.manifests import serve_pools
from tests.support.builders.objects import pool_document
from tests.support.cluster import Cluster, Object
from tests.support.kubectl import Kubectl

pytestmark = pytest.mark.long

POOLS = "/apis/berth.dev/v1alpha1/pools"
CLAIMS = "/apis/berth.dev/v1alpha1/namespaces/default/poolclaims"
TWICE = {"units": {"node-1": ["a"], "node-2": ["a"]}}
UNIT_TWICE = "Pool k80: spec.units: unit a is in domains node-1 and node-2"


class Stage:
    """Reconcile and inventory in this process on a real API server with two nodes, and kubectl."""

    def __init__(self, plane: ControlPlane, admin: Cluster, ledger: Ledger, folder: Path) -> None:
        self.admin, self.kubectl, self.time = admin, Kubectl(plane, folder), Time()
        self._cluster, self._ledger, self._settings = connect(), ledger, Settings(store="none")
        self._workers = ThreadPoolExecutor()

    def reconcile(self) -> Report:
        return Reconcile(self._ledger, self._cluster, self._settings, clock=self.time).run()

    def inventory(self) -> None:
        """Let it take over the Pools, and PoolClaims with them if they changed."""
        Inventory(self._ledger, self._cluster, self._settings, self.time).take_pools()

    def waiting(self, condition: str, what: str) -> Future[str]:
        """`kubectl wait` in the background: it began when the watch of kubectl may or may not be there."""
        arguments = ("wait", f"--for=condition={condition}", what, "--timeout=60s")
        return self._workers.submit(self.kubectl, *arguments)

    def pool(self, name: str, **spec: Any) -> None:
        self.admin.call("POST", POOLS, pool_document(name) | {"spec": spec})

    def conditions(self, path: str) -> dict[str, Object]:
        found = self.admin.get(path)["status"]["conditions"]
        return {one["type"]: one for one in found}

    def columns(self, *words: str) -> list[list[str]]:
        """What `kubectl get` shows, without ages."""
        return [line.split()[:-1] for line in self.kubectl("get", *words).splitlines()]


@pytest.fixture
def stage(
    plane: ControlPlane, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig(tmp_path / "kubeconfig")))
    serve_pools(cluster)
    for name in ("node-1", "node-2"):
        cluster.create_node(name)
    with closing(open_store(f"sqlite:///{tmp_path}/ledger.db")) as store:
        yield Stage(plane, cluster, Ledger(store, while_closed=True), tmp_path)


def test_kubectl_wait_ends_when_the_ledger_counts_a_pool_as_its_spec_says(stage: Stage) -> None:
    stage.reconcile()  # which opens the ledger
    stage.pool("ip", capacity={"perDomain": 2})
    waiting = stage.waiting("Ready", "pool/ip")
    stage.inventory()
    assert waiting.result() == "pool.berth.dev/ip condition met\n"
    header = ["NAME", "CAPACITY", "USED", "FREE", "WAITING", "READY"]
    assert stage.columns("pools") == [header, ["ip", "4", "0", "4", "0", "True"]]

    stage.time.advance(60)
    stage.admin.patch(f"{POOLS}/ip", {"spec": {"suspended": ["node-1"]}})
    waiting = stage.waiting("Suspended", "pool/ip")
    stage.inventory()
    assert waiting.result() == "pool.berth.dev/ip condition met\n"
    suspended = stage.conditions(f"{POOLS}/ip")["Suspended"]
    assert (suspended["reason"], suspended["observedGeneration"]) == ("SomeDomains", 2)

    # The status stays True, so its time stays; and what is right is not written again.
    stage.time.advance(60)
    stage.admin.patch(f"{POOLS}/ip", {"spec": {"suspended": True}})
    stage.inventory()
    after = stage.conditions(f"{POOLS}/ip")["Suspended"]
    assert (after["reason"], after["lastTransitionTime"]) == ("WholePool", suspended["lastTransitionTime"])
    version = stage.admin.get(f"{POOLS}/ip")["metadata"]["resourceVersion"]
    stage.time.advance(60)
    assert stage.reconcile().problems == []
    assert stage.admin.get(f"{POOLS}/ip")["metadata"]["resourceVersion"] == version
    assert stage.columns("pools", "-o", "wide")[1][5:8] == ["True", "0", "True"]


def test_a_wrong_pool_says_what_is_wrong_with_it_while_the_others_go_on(stage: Stage) -> None:
    stage.pool("k80", **TWICE)  # the CRD can't see that
    stage.pool("ip", capacity={"perDomain": 2})
    assert stage.reconcile().problems == [f"the cluster: {UNIT_TWICE}"]
    assert stage.waiting("Ready=False", "pool/k80").result() == "pool.berth.dev/k80 condition met\n"
    ready = stage.conditions(f"{POOLS}/k80")["Ready"]
    assert (ready["reason"], ready["message"]) == ("Invalid", UNIT_TWICE)
    assert [line[0] + line[-1] for line in stage.columns("pools")[1:]] == ["ipTrue", "k80False"]

    stage.admin.patch(f"{POOLS}/k80", {"spec": {"units": {"node-2": ["b"]}}})
    stage.inventory()
    assert stage.conditions(f"{POOLS}/k80")["Ready"]["status"] == "True"

    # What was right stays as it was when it becomes wrong, and the others are still taken over.
    stage.admin.patch(f"{POOLS}/k80", {"spec": TWICE})
    stage.admin.patch(f"{POOLS}/ip", {"spec": {"capacity": {"perDomain": 3}}})
    stage.inventory()
    status = stage.admin.get(f"{POOLS}/k80")["status"]
    assert (status["capacity"], status["observedGeneration"]) == (2, 2)
    ready = stage.conditions(f"{POOLS}/k80")["Ready"]
    assert ready["message"] == f"{UNIT_TWICE}; until it is put right the Pool stays as it was"
    assert stage.admin.get(f"{POOLS}/ip")["status"]["capacity"] == 6


def test_a_wrong_poolclaim_says_what_is_wrong_with_it_also_where_there_is_no_other(stage: Stage) -> None:
    claim = {"apiVersion": "berth.dev/v1alpha1", "kind": "PoolClaim", "metadata": {"name": "range"}}
    stage.admin.call("POST", CLAIMS, claim | {"spec": {"pool": "ip", "units": ["10.0.3.4-10.0.3.9"]}})
    (problem,) = stage.reconcile().problems
    assert stage.waiting("Ready=False", "poolclaim/range").result().endswith("condition met\n")
    ready = stage.conditions(f"{CLAIMS}/range")["Ready"]
    assert (ready["reason"], ready["message"]) == ("Invalid", problem)
    assert stage.admin.get(f"{CLAIMS}/range")["status"]["phase"] == "Refused"


def test_kubectl_wait_ends_when_a_pod_can_get_a_poolclaim(stage: Stage) -> None:
    claim = {"apiVersion": "berth.dev/v1alpha1", "kind": "PoolClaim", "metadata": {"name": "erc"}}
    stage.admin.call("POST", CLAIMS, claim | {"spec": {"pool": "k80"}})
    stage.reconcile()
    ready = stage.conditions(f"{CLAIMS}/erc")["Ready"]
    text = "the ledger has no Pool k80; it may come later"
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "NoPool", text)
    waiting = stage.waiting("Ready", "poolclaim/erc")
    stage.pool("k80", units={"node-1": ["a", "b"]})
    stage.inventory()
    assert waiting.result() == "poolclaim.berth.dev/erc condition met\n"
    assert stage.columns("poolclaims") == [
        ["NAME", "PHASE", "POOL", "UNITS", "NODE", "POD", "READY"],
        ["erc", "Available", "k80", "True"],
    ]
    version = stage.admin.get(f"{CLAIMS}/erc")["metadata"]["resourceVersion"]
    stage.time.advance(60)
    assert stage.reconcile().problems == []
    assert stage.admin.get(f"{CLAIMS}/erc")["metadata"]["resourceVersion"] == version

    stage.admin.patch(f"{POOLS}/k80", {"spec": {"claimableBy": {"team-a": ["a"]}}})
    stage.admin.patch(f"{CLAIMS}/erc", {"spec": {"units": ["a"]}})
    stage.reconcile()
    assert stage.conditions(f"{CLAIMS}/erc")["Ready"]["reason"] == "Forbidden"
    assert "the Pool's claimableBy lets its namespace" in stage.kubectl("get", "poolclaims", "-o", "wide")
