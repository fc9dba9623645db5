"""PoolClaims on a real API server: what the CRD takes and refuses and in which words, what kubectl shows, how
Berth reads them and writes their status, and `berth apply`. Who holds one is tested with the ledger."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.api.poolclaim import PoolClaim, PoolClaimStatus, parse
from berth.cli import main
from berth.errors import BadInputError, ClusterRefusedError
from berth.kube.cluster import Cluster, connect
from berth.testing.api_server import StandIn
from tests.support import cluster as raw
from tests.support.builders.manifests import definition, serve_pools
from tests.support.builders.objects import pool_document
from tests.support.cluster import Object
from tests.support.servers.configmaps import ConfigMapServer


@pytest.fixture
def admin(configmap_server: ConfigMapServer) -> raw.Cluster:
    serve_pools(configmap_server.admin)
    return configmap_server.admin


@pytest.fixture
def namespace(configmap_server: ConfigMapServer, admin: raw.Cluster) -> str:
    """One of this test's own."""
    name = configmap_server.new_name()
    admin.create_namespace(name)
    return name


@pytest.fixture
def cluster(configmap_server: ConfigMapServer, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The API server as Berth sees it."""
    monkeypatch.setenv("KUBECONFIG", str(configmap_server.kubeconfig))
    return connect()


def document(spec: Mapping[str, Any], name: str = "k80-erc", namespace: str = "default") -> Object:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "berth.dev/v1alpha1", "kind": "PoolClaim", "metadata": meta, "spec": spec}


def within(namespace: str) -> str:
    return f"/apis/berth.dev/v1alpha1/namespaces/{namespace}/poolclaims"


def said(admin: raw.Cluster, spec: Mapping[str, Any]) -> str:
    """The API server's refusal of such a PoolClaim, empty if it takes it."""
    reply = admin.request("POST", f"{within('default')}?dryRun=All&fieldValidation=Strict", document(spec))
    return "" if reply.status == 201 else str(reply.body["message"])


@pytest.mark.parametrize(
    "spec",
    [
        {"pool": "k80"},
        {"pool": "k80", "count": 2**31 - 1},
        {"pool": "k80", "units": ["k80-0", "K80_1"]},
        {"pool": "ip", "count": 2, "units": ["10.0.3.17", "fd00::5"]},
    ],
    ids=str,
)
def test_a_right_poolclaim_is_taken_by_the_crd_and_by_berth(admin: raw.Cluster, spec: dict[str, Any]) -> None:
    assert said(admin, spec) == ""
    assert parse(document(spec)).pool == spec["pool"]
    (version,) = definition("PoolClaim")["spec"]["versions"]
    assert set(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]) >= set(spec)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, "spec.pool: Required value"),
        ({"pool": "K80"}, "spec.pool in body should match"),
        ({"pool": "k" * 64}, "spec.pool: Too long"),
        ({"pool": "k80", "unit": "a"}, 'unknown field "spec.unit"'),
        ({"pool": "k80", "count": 0}, "spec.count in body should be greater than or equal to 1"),
        ({"pool": "k80", "count": 2**31}, "spec.count in body should be less than or equal to 2147483647"),
        ({"pool": "k80", "units": []}, "spec.units in body should have at least 1 items"),
        ({"pool": "k80", "units": ["a", "a"]}, "spec.units[1]: Duplicate value"),
        (
            {"pool": "k80", "units": [f"seat-{n}" for n in range(129)]},
            "spec.units: Too many: 129: must have at most 128",
        ),
        ({"pool": "ip", "units": ["10.0.3.0/28"]}, "spec.units[0] in body should match"),
        (
            {"pool": "k80", "count": 1, "units": ["a", "b"]},
            "spec.count should be the number of spec.units, or be left out",
        ),
    ],
    ids=str,
)
def test_a_wrong_poolclaim_is_refused_by_the_crd_and_by_berth(
    admin: raw.Cluster, spec: dict[str, Any], why: str
) -> None:
    assert why in said(admin, spec)
    with pytest.raises(BadInputError, match=r"^PoolClaim default/k80-erc: "):
        parse(document(spec))


def test_berth_reads_poolclaims_and_its_status_replaces_the_one_before(
    admin: raw.Cluster, namespace: str, cluster: Cluster
) -> None:
    assert cluster.pool_claim(namespace, "k80-erc") is None
    made = admin.call("POST", within(namespace), document({"pool": "k80"}, namespace=namespace))
    (listed,) = [each for each in cluster.poolclaims() or () if each["metadata"]["namespace"] == namespace]
    found = cluster.pool_claim(namespace, "k80-erc")
    assert found is not None
    meta = made["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation")
    assert (found, listed) == (made, {**made, "metadata": {key: meta[key] for key in kept}})
    assert parse(found) == PoolClaim(
        namespace, "k80-erc", meta["uid"], "k80", created=meta["creationTimestamp"]
    )

    bound = PoolClaimStatus("Bound", "n1", "rack-1", ["k80-0", "k80-1"], "web-0", "u1").document()
    cluster.set_pool_claim_status(found, bound)
    assert row(admin, namespace) == {
        "Name": "k80-erc",
        "Phase": "Bound",
        "Pool": "k80",
        "Units": '["k80-0","k80-1"]',
        "Node": "n1",
        "Pod": "web-0",
        "Ready": None,
    }
    with pytest.raises(ClusterRefusedError) as caught:
        cluster.set_pool_claim_status(found, PoolClaimStatus("Available").document())
    assert caught.value.status == 409  # it was written since it was read

    found = cluster.pool_claim(namespace, "k80-erc")
    assert found is not None
    assert found["status"] == bound
    free = PoolClaimStatus("Available", units=["k80-0", "k80-1"]).document()
    cluster.set_pool_claim_status(found, free)
    assert (cluster.pool_claim(namespace, "k80-erc") or {})["status"] == free
    assert parse(found).count == 1  # and the status is nothing that it asks for
    found = cluster.pool_claim(namespace, "k80-erc")
    assert found is not None
    refused = PoolClaimStatus("Refused", message="it names units that the Pool does not list").document()
    cluster.set_pool_claim_status(found, refused)
    assert (cluster.pool_claim(namespace, "k80-erc") or {})["status"] == refused


def test_a_cluster_that_serves_no_poolclaims_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StandIn() as api:
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
        assert connect().poolclaims() is None
        assert connect().pool_claim("default", "k80-erc") is None


def test_apply_writes_poolclaims_to_the_cluster_also_where_the_pools_are_in_a_file(
    namespace: str,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    active, new = tmp_path / "active.yaml", tmp_path / "new.yaml"
    active.write_text(yaml.safe_dump(pool_document("ip")))
    monkeypatch.setenv("BERTH_POOLS", str(active))
    claims = [document({"pool": "k80"}, name, namespace) for name in ("k80-erc", "other")]

    def applied(*documents: Object) -> int:
        new.write_text(yaml.safe_dump_all(documents))
        return main(["apply", "-f", str(new)])

    assert applied(claims[0], pool_document("k80"), claims[1]) == 0
    told = f"applied to {active}: k80\napplied to the cluster: {namespace}/k80-erc, {namespace}/other\n"
    assert capsys.readouterr().out == told
    pools = [each["metadata"]["name"] for each in yaml.safe_load_all(active.read_text())]
    assert pools == ["ip", "k80"]
    assert all(cluster.pool_claim(namespace, name) for name in ("k80-erc", "other"))

    two = document({"pool": "k80", "count": 2}, namespace=namespace)
    assert applied(two) == 0
    assert parse(cluster.pool_claim(namespace, "k80-erc")).count == 2

    # All of a file or nothing.
    capsys.readouterr()
    assert applied(pool_document("seat"), two, two) == 1
    assert re.fullmatch(
        rf"berth: {new}:\d+: PoolClaim {namespace}/k80-erc is there twice\n", capsys.readouterr().err
    )
    assert applied(pool_document("seat"), document({"pool": "k80", "count": 0}, namespace=namespace)) == 1
    assert f": PoolClaim {namespace}/k80-erc: spec.count 0 should be" in capsys.readouterr().err
    assert [each["metadata"]["name"] for each in yaml.safe_load_all(active.read_text())] == pools
    assert parse(cluster.pool_claim(namespace, "k80-erc")).count == 2


def row(admin: raw.Cluster, namespace: str) -> Object:
    """The one line of `kubectl get poolclaims`, by column, but for its age."""
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = admin.request("GET", within(namespace), accept=accept).body
    (found,) = table["rows"]
    cells = zip(table["columnDefinitions"], found["cells"], strict=True)
    shown = {column["name"]: cell for column, cell in cells if column["priority"] == 0}
    del shown["Age"]
    return shown
