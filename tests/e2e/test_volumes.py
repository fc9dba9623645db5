"""A volume that waits for its first consumer is bound to a node before our bind is asked for that node.

kube-scheduler's PreBind pins the volume, and only then bind reserves a unit. If another pod took the last one
meanwhile, the pod can go to no other node: docs/operations.md, Volumes that wait for their first pod.
There is no kube-controller-manager here: the tests do what its volume controller does.
"""

import pytest

from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool, settled
from tests.support.cluster import Cluster, Object, wait

STORAGE = "/apis/storage.k8s.io/v1/storageclasses"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
NODES = ("node-1", "node-2")


@pytest.fixture
def system(system_of: Systems, cluster: Cluster) -> System:
    """Two nodes with one unit and one local volume each."""
    found = system_of(nodes=2, pools=[pool(units=1)])
    storage = {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner"}
    cluster.call("POST", STORAGE, {**storage, "volumeBindingMode": "WaitForFirstConsumer"})
    for node in NODES:
        cluster.call("POST", VOLUMES, volume(node))
        cluster.patch(f"{VOLUMES}/on-{node}/status", {"status": {"phase": "Available"}})
    return found


def volume(node: str) -> Object:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "metadata": {"name": f"on-{node}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "local": {"path": "/nowhere"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


def create_pod_with_volume(cluster: Cluster, name: str, claim: str) -> None:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.call(
        "POST", CLAIMS, {"metadata": {"name": claim}, "spec": {**wanted, "storageClassName": "local"}}
    )
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    cluster.create_pod(name, spec={"volumes": volumes})


def pinned_to(cluster: Cluster, claim: str) -> str:
    """The node of the volume that kube-scheduler chose for the claim; it is waited for."""

    def chosen() -> str | None:
        for node in NODES:
            reference = cluster.get(f"{VOLUMES}/on-{node}")["spec"].get("claimRef") or {}
            if reference.get("name") == claim:
                return node
        return None

    node = wait(chosen, 60, f"a volume for {claim}")
    assert node is not None
    return node


def complete(cluster: Cluster, claim: str, node: str) -> None:
    """Bind the claim to its volume, once kube-scheduler has chosen that."""
    done = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    cluster.patch(f"{CLAIMS}/{claim}", {"metadata": done, "spec": {"volumeName": f"on-{node}"}})
    cluster.patch(f"{CLAIMS}/{claim}/status", {"status": {"phase": "Bound"}})


def test_a_pod_whose_volume_was_pinned_to_a_full_node_waits_for_that_node_or_a_new_volume(
    system: System, cluster: Cluster
) -> None:
    create_pod_with_volume(cluster, "late", "data")
    node = pinned_to(cluster, "data")
    (other,) = set(NODES) - {node}
    cluster.create_pod("quick", spec={"nodeSelector": {"kubernetes.io/hostname": node}})
    cluster.wait_bound("quick")
    complete(cluster, "data", node)
    wait(lambda: said(cluster, "underlay-ip: 0 of 1 free, 1 asked"), 60, "the late pod's node is full")
    wait(
        lambda: said(cluster, "didn't match PersistentVolume's node affinity"),
        60,
        "its volume keeps it there",
    )
    assert "late" not in cluster.bound()

    create_pod_with_volume(cluster, "made-anew", "data-again")
    assert pinned_to(cluster, "data-again") == other
    complete(cluster, "data-again", other)
    assert cluster.wait_bound("made-anew") == {"made-anew": other}

    cluster.delete_pod("quick")
    assert cluster.wait_bound("late") == {"late": node}
    settled(system)


def said(cluster: Cluster, text: str) -> bool:
    return any(text in message for message in cluster.events_of("late"))
