"""A volume that waits for its first consumer is bound to a node before our bind is asked for that node.

kube-scheduler's PreBind pins the volume, and only then bind reserves a unit. If another pod took the last one
meanwhile, the pod can go to no other node.
docs/concepts/claims-and-waking.md#volumes-that-wait-for-their-first-pod says so, and it is shown here.
There is no kube-controller-manager here: the tests do what its volume controller does.
"""

import pytest

from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool, settled
from tests.support.cluster import Cluster, Object, wait
from tests.support.kubernetes import has

pytestmark = pytest.mark.long

STORAGE = "/apis/storage.k8s.io/v1/storageclasses"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
NODES = ("node-1", "node-2")
BIND_REFUSES = "underlay-ip: 0 of 1 free, 1 asked"  # filter's refusals stand behind "0/2 nodes are available"
# kube-scheduler's words for the other node: those of 1.32 are older.
ELSEWHERE = (
    "didn't match PersistentVolume's node affinity" if has("1.33") else "had volume node affinity conflict"
)
DOCUMENTED = f"0/2 nodes are available: 1 node(s) {ELSEWHERE}, 1 underlay-ip: 0 of 1 free, 1 asked."


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


def create_pod_with_volume(cluster: Cluster) -> None:
    """The pod `late`, with the claim `data`."""
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.call(
        "POST", CLAIMS, {"metadata": {"name": "data"}, "spec": {**wanted, "storageClassName": "local"}}
    )
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster.create_pod("late", spec={"volumes": volumes})


def pinned_to(cluster: Cluster) -> str:
    """The node of the volume that kube-scheduler chose for the claim; it is waited for."""
    claim = cluster.get(f"{CLAIMS}/data")["metadata"]["uid"]

    def chosen() -> str | None:
        for node in NODES:
            reference = cluster.get(f"{VOLUMES}/on-{node}")["spec"].get("claimRef") or {}
            if reference.get("uid") == claim:
                return node
        return None

    node = wait(chosen, 60, "a volume for the claim")
    assert node is not None
    return node


def complete(cluster: Cluster, node: str) -> None:
    """Bind the claim to its volume, once kube-scheduler has chosen that."""
    done = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    cluster.patch(f"{CLAIMS}/data", {"metadata": done, "spec": {"volumeName": f"on-{node}"}})
    cluster.patch(f"{CLAIMS}/data/status", {"status": {"phase": "Bound"}})


def delete_with_volume(cluster: Cluster) -> None:
    """Delete the claim, then the pod, as docs/concepts/claims-and-waking.md says."""
    cluster.call("DELETE", f"{CLAIMS}/data")
    cluster.delete_pod("late")
    # The claim's protection ends with its pod; the controller that sees to it is not here.
    cluster.patch(f"{CLAIMS}/data", {"metadata": {"finalizers": None}})


def pinned_to_a_full_node(cluster: Cluster) -> tuple[str, str]:
    """The node of the late pod's volume, whose unit another pod took meanwhile, and the other node."""
    create_pod_with_volume(cluster)
    node = pinned_to(cluster)
    (other,) = set(NODES) - {node}
    cluster.create_pod("quick", spec={"nodeSelector": {"kubernetes.io/hostname": node}})
    cluster.wait_bound("quick")
    complete(cluster, node)
    wait(lambda: said(cluster, BIND_REFUSES), 60, "bind refuses the late pod")
    wait(lambda: said(cluster, DOCUMENTED), 60, "its event says that it can go nowhere else")
    assert "late" not in cluster.bound()
    return node, other


def said(cluster: Cluster, text: str) -> bool:
    """Whether an event of the late pod begins so."""
    return any(message.startswith(text) for message in cluster.events_of("late"))


def test_a_pod_whose_volume_was_pinned_to_a_full_node_waits_for_a_unit_of_that_node(
    system: System, cluster: Cluster
) -> None:
    node, _ = pinned_to_a_full_node(cluster)
    cluster.delete_pod("quick")
    assert cluster.wait_bound("late") == {"late": node}
    settled(system)


def test_a_pod_whose_volume_was_pinned_to_a_full_node_can_be_moved_by_a_new_volume(
    system: System, cluster: Cluster
) -> None:
    node, other = pinned_to_a_full_node(cluster)
    delete_with_volume(cluster)
    create_pod_with_volume(cluster)
    assert pinned_to(cluster) == other
    complete(cluster, other)
    assert cluster.wait_bound("late", "quick") == {"late": other, "quick": node}
    settled(system)
