"""A tenant's ways to reserved units and to any number of PoolClaims, and the quotas of infra that close them,
on the real API server."""

import pytest

from tests.controlplane.plane import ControlPlane
from tests.support.builders.manifests import INFRA, kustomized, serve_pools
from tests.support.cluster import ONE_IP, Cluster, Object, pod_document, wait

pytestmark = pytest.mark.long

SYSTEM = ("system-cluster-critical", "system-node-critical")
PODS, QUOTAS = "/api/v1/namespaces/team-a/pods", "/api/v1/namespaces/team-a/resourcequotas"
CLAIMS = "/apis/berth.dev/v1alpha1/namespaces/team-a/poolclaims"


@pytest.fixture
def tenant(plane: ControlPlane, cluster: Cluster) -> Cluster:
    """Namespaces of two tenants."""
    assert plane.url
    for name in ("team-a", "team-b"):
        cluster.create_namespace(name)
    return cluster


def said(cluster: Cluster, priority: str | None, path: str = PODS) -> Object | str:
    """The pod as the API server takes it, or its refusal."""
    document = pod_document("p", ONE_IP, priority_class=priority)
    reply = cluster.request("POST", f"{path}?dryRun=All", document)
    return reply.body if reply.status < 300 else str(reply.body["message"])


def use_up(cluster: Cluster, name: str) -> None:
    """Apply this ResourceQuota, and say that all of it is used.

    That is the quota controller's: without it nothing is known of what is used."""
    (quota,) = (each for each in kustomized(INFRA / "tenant") if each["metadata"]["name"] == name)
    cluster.call("POST", f"{QUOTAS}?fieldValidation=Strict", quota)
    hard = quota["spec"]["hard"]
    cluster.patch(f"{QUOTAS}/{name}/status", {"status": {"hard": hard, "used": hard}})


def test_a_quota_keeps_a_tenant_from_the_priority_that_reserved_units_are_for(tenant: Cluster) -> None:
    for name in SYSTEM:
        taken = said(tenant, name)
        assert isinstance(taken, dict)
        assert taken["spec"]["priority"] >= 2_000_000_000  # anybody's, above any class of one's own

    use_up(tenant, "no-system-priority")

    def refused() -> bool:
        return all("exceeded quota: no-system-priority" in str(said(tenant, name)) for name in SYSTEM)

    wait(refused, 60, "pods of the system's priority refused", every=0.1)
    assert isinstance(said(tenant, None), dict)
    assert isinstance(said(tenant, SYSTEM[0], "/api/v1/namespaces/team-b/pods"), dict)  # no quota there


def test_a_quota_keeps_a_tenant_from_making_poolclaims_without_end(tenant: Cluster) -> None:
    serve_pools(tenant)
    claim = {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "PoolClaim",
        "metadata": {"name": "one-more"},
        "spec": {"pool": "k80"},
    }
    assert tenant.request("POST", f"{CLAIMS}?dryRun=All", claim).status == 201
    use_up(tenant, "poolclaims")

    def refused() -> bool:
        return "exceeded quota: poolclaims" in str(tenant.request("POST", f"{CLAIMS}?dryRun=All", claim).body)

    wait(refused, 60, "PoolClaims refused", every=0.1)
