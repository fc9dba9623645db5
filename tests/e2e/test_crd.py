"""infra's Pool CRD on the real API server: what it takes, what it refuses and with which words, what kubectl
shows, and the status that reconcile and inventory write."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from berth.api.pool import PoolSpec, parse
from tests.controlplane.lent import Planes
from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool, settled
from tests.support.builders.manifests import definition, serve_pools
from tests.support.builders.pool_specs import RIGHT_SPECS, WRONG_SPECS
from tests.support.cluster import Cluster, Object, Reply, wait

POOLS = "/apis/berth.dev/v1alpha1/pools"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pools.berth.dev"
RIGHT = {"capacity": {"perDomain": 3}}


@pytest.fixture(scope="module")
def served(planes: Planes) -> Iterator[Cluster]:
    """One control plane for what only asks, by dry runs."""
    with planes.lent() as plane:
        cluster = Cluster(plane.url, plane.admin_token, plane.ca_file)
        serve_pools(cluster)
        yield cluster
        cluster.close()


def said(cluster: Cluster, spec: Mapping[str, Any], name: str = "ip") -> str:
    """The API server's refusal of such a Pool, empty if it takes it."""
    reply = posted(cluster, spec, name)
    return "" if reply.status == 201 else str(reply.body["message"])


def posted(cluster: Cluster, spec: Mapping[str, Any], name: str) -> Reply:
    document = {"apiVersion": "berth.dev/v1alpha1", "kind": "Pool", "metadata": {"name": name}, "spec": spec}
    return cluster.request("POST", f"{POOLS}?dryRun=All&fieldValidation=Strict", document)


@pytest.mark.long
def test_the_api_server_takes_and_refuses_the_pools_that_berth_does(served: Cluster) -> None:
    """Berth's own half, with the same list, is in tests/unit/api/test_pool_rules.py."""
    for spec in RIGHT_SPECS:
        assert said(served, spec) == "", spec
    for spec, _, words in WRONG_SPECS:
        assert words in said(served, spec), spec


def test_every_field_of_the_schema_is_one_that_berth_reads() -> None:
    (version,) = definition("Pool")["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert set(schema) == {field.encode_name for field in msgspec.structs.fields(PoolSpec)}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, "spec needs capacity or units"),
        ({"capacity": {}}, "spec.capacity needs perDomain, domains or nodeAnnotation"),
        ({"capacity": {"perDomain": -1}}, "greater than or equal to 0"),
        ({"capacity": {"domains": {"n1": 2**31}}}, "less than or equal to 2147483647"),
        ({**RIGHT, "resource": "cpu"}, "should match"),
        ({**RIGHT, "resource": "a..b/x"}, "should match"),
        ({**RIGHT, "resource": "node.kubernetes.io/x"}, "kubernetes.io is Kubernetes' own"),
        ({**RIGHT, "resource": "requests.berth.dev/x"}, "requests. is for quotas"),
        ({**RIGHT, "scope": "Rack"}, "spec.scope should be Node, Topology or Cluster"),
        ({**RIGHT, "score": "Most"}, "spec.score should be Spread, Pack, Names or None"),
        ({**RIGHT, "suspend": True}, 'unknown field "spec.suspend"'),
        (
            {**RIGHT, "nodeSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "operators In and NotIn need values",
        ),
    ],
)
def test_a_wrong_pool_is_refused_in_words_that_say_what_is_right(
    served: Cluster, spec: Mapping[str, Any], why: str
) -> None:
    assert why in said(served, spec)
    document = {"apiVersion": "berth.dev/v1alpha1", "kind": "Pool", "metadata": {"name": "ip"}, "spec": spec}
    with pytest.raises(Exception, match="here: Pool ip: "):  # and Berth itself refuses it in a file
        parse([document], "here")


def test_a_name_that_is_too_long_for_a_pool_is_refused(served: Cluster) -> None:
    assert said(served, RIGHT, "x" * 63) == ""
    assert "63 characters at most" in said(served, RIGHT, "x" * 64)


@pytest.mark.long
def test_the_status_is_what_the_ledger_has_and_kubectl_shows_it(system_of: Systems, cluster: Cluster) -> None:
    serve_pools(cluster)
    cluster.call("POST", POOLS, pool("underlay-ip", 1))
    system = system_of(2, pools=None)
    for number in range(3):
        cluster.create_pod(f"pod-{number}")
    wait(lambda: len(cluster.bound()) == 2, 60, "both units given")
    system.refusal_of(next(iter({f"pod-{number}" for number in range(3)} - set(cluster.bound()))))
    full = {"observedGeneration": 1, "capacity": 2, "used": 2, "free": 0, "waiting": 1, "overCommitted": 0}
    domains = [{"name": f"node-{number}", "capacity": 1, "used": 1, "free": 0} for number in (1, 2)]
    wait(lambda: reconciled(system) == {**full, "domains": domains}, 60, "the status", every=0.5)
    shown = {"Name": "underlay-ip", "Capacity": 2, "Used": 2, "Free": 0, "Waiting": 1, "Ready": "True"}
    assert row(cluster) == shown
    written = cluster.get(f"{POOLS}/underlay-ip")["metadata"]["resourceVersion"]
    reconciled(system)  # nothing has changed, so nothing is written, and no event comes of it
    assert cluster.get(f"{POOLS}/underlay-ip")["metadata"]["resourceVersion"] == written
    cluster.patch(f"{POOLS}/underlay-ip", {"spec": {"capacity": {"perDomain": 2}}})
    wait(lambda: row(cluster)["Capacity"] == 4, 30, "the status by the Pool's own event")


@pytest.mark.long
def test_the_crd_is_replaced_under_load_and_its_removal_frees_nothing(
    system_of: Systems, cluster: Cluster
) -> None:
    serve_pools(cluster)
    cluster.call("POST", POOLS, pool("underlay-ip", 10))
    system = system_of(3, pools=None)
    with cluster.watch_pods() as seen:
        for part in range(3):
            cluster.create_pods(*(f"pod-{part}-{number}" for number in range(10)))
            crd = cluster.get(CRD)
            crd["spec"]["versions"][0]["additionalPrinterColumns"].append(
                {"name": f"New-{part}", "type": "integer", "jsonPath": ".status.used"}
            )
            cluster.call("PUT", CRD, crd)
        cluster.wait_bound()
    assert max(seen.peak.values()) == 10
    # For a moment after the last change the API server answers 429 (storage is (re)initializing).
    wait(lambda: system.berth.post("reconcile", {}).status == 200, 60, "the Pools are served again")
    settled(system)

    cluster.call("DELETE", CRD)
    wait(lambda: cluster.request("GET", POOLS).status == 404, 60, "no Pools any more")
    problems = wait(lambda: system.berth.reconcile()["problems"], 60, "a word about it")
    assert problems == ["no Pools: set BERTH_POOLS to a file of them, or install the Pool CRD in the cluster"]

    with cluster.watch_pods() as seen:
        serve_pools(cluster)
        cluster.call("POST", POOLS, pool("underlay-ip", 11))
        wait(lambda: free(system) == [1, 1, 1], 60, "one more unit on each node, and all others held")
        cluster.create_pods(*(f"more-{number}" for number in range(4)))
        wait(lambda: len(cluster.bound()) == 33, 60, "three of four bound")
        settled(system)
    assert max(seen.peak.values()) == 11


def free(system: System) -> list[int]:
    return [units for units, _ in system.berth.ledger().free.get("underlay-ip", {}).values()]


def reconciled(system: System) -> Object:
    """The status, without conditions, after a reconcile, which leaves it to another that is at it at the same
    time."""
    system.berth.reconcile()
    status: Object = system.cluster.get(f"{POOLS}/underlay-ip")["status"]
    return {field: value for field, value in status.items() if field != "conditions"}


def row(cluster: Cluster) -> Object:
    """The Pool's line of `kubectl get pools`, by column, but for its age."""
    table = cluster.request("GET", POOLS, accept="application/json;as=Table;v=v1;g=meta.k8s.io").body
    columns = [column["name"] for column in table["columnDefinitions"] if column["priority"] == 0]
    cells = dict(zip(columns, table["rows"][0]["cells"], strict=False))
    return {name: cell for name, cell in cells.items() if name != "Age"}
