"""A tenant's way to reserved units, and the ResourceQuota of infra that closes it, on the real API server."""

import pytest

from tests.controlplane.plane import ControlPlane
from tests.support.cluster import ONE_IP, Cluster, Object, pod_document, wait
from tests.support.manifests import INFRA, kustomized

SYSTEM = ("system-cluster-critical", "system-node-critical")
PODS, QUOTAS = "/api/v1/namespaces/team-a/pods", "/api/v1/namespaces/team-a/resourcequotas"


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


def test_a_quota_keeps_a_tenant_from_the_priority_that_reserved_units_are_for(tenant: Cluster) -> None:
    for name in SYSTEM:
        taken = said(tenant, name)
        assert isinstance(taken, dict)
        assert taken["spec"]["priority"] >= 2_000_000_000  # anybody's, above any class of one's own

    (quota,) = kustomized(INFRA / "tenant")
    tenant.call("POST", f"{QUOTAS}?fieldValidation=Strict", quota)
    # What the quota controller does elsewhere: without it nothing is known of what is used.
    hard = quota["spec"]["hard"]
    tenant.patch(f"{QUOTAS}/no-system-priority/status", {"status": {"hard": hard, "used": hard}})

    def refused() -> bool:
        return all("exceeded quota: no-system-priority" in str(said(tenant, name)) for name in SYSTEM)

    wait(refused, 60, "pods of the system's priority refused", every=0.1)
    assert isinstance(said(tenant, None), dict)
    assert isinstance(said(tenant, SYSTEM[0], "/api/v1/namespaces/team-b/pods"), dict)  # no quota there
