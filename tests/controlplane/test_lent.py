"""A control plane that is lent again holds only what a new one does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.lent import LentPlane, Planes
from tests.support.builders.manifests import serve_pools
from tests.support.cluster import Cluster
from tests.support.kubernetes import ASKED, BINARIES

pytestmark = pytest.mark.long

POOLS = "/apis/berth.dev/v1alpha1/pools"
POOL = {
    "apiVersion": "berth.dev/v1alpha1",
    "kind": "Pool",
    "metadata": {"name": "ip"},
    "spec": {"capacity": {"perDomain": 1}},
}


@pytest.fixture(scope="module")
def lender(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planes]:
    """One of this module's own, so that which plane comes next is known."""
    assert binaries == BINARIES[ASKED]
    made = Planes(binaries, tmp_path_factory.mktemp("lent"))
    yield made
    made.stop()


def seen_by(plane: LentPlane) -> Cluster:
    return Cluster(plane.url, plane.admin_token, plane.ca_file)


def test_what_a_test_has_made_is_gone_whoever_would_keep_it(lender: Planes) -> None:
    with lender.lent() as plane:
        cluster = seen_by(plane)
        serve_pools(cluster)
        cluster.call("POST", POOLS, POOL)
        cluster.create_namespace("other")
        cluster.create_node("node-1")
        cluster.create_pod("pod", {}, "other", spec={"nodeName": "node-1"})
        cluster.patch("/api/v1/namespaces/other/pods/pod", {"metadata": {"finalizers": ["example.com/kept"]}})
    with lender.lent() as again:
        assert again is plane
        assert cluster.list_pods(None) == []
        assert cluster.get("/api/v1/nodes")["items"] == []
        assert cluster.request("GET", "/api/v1/namespaces/other").status == 404
        assert cluster.request("GET", POOLS).status == 404
        serve_pools(cluster)
        assert cluster.get(POOLS)["items"] == []
    cluster.close()


def test_a_plane_is_not_lent_again_when_what_it_began_with_is_changed(lender: Planes) -> None:
    with lender.lent() as plane:
        cluster = seen_by(plane)
        cluster.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"team": "a"}}})
        cluster.close()
    with lender.lent() as another:
        assert another is not plane


def test_a_plane_is_not_lent_to_two_at_once(lender: Planes) -> None:
    with lender.lent() as one, lender.lent() as other:
        assert one.url != other.url


def test_a_plane_whose_api_server_has_ended_is_not_lent_again(lender: Planes) -> None:
    with lender.lent() as plane:
        plane.stop_apiserver()
    with lender.lent() as another:
        assert another is not plane
        assert seen_by(another).list_pods(None) == []
