"""The test control plane is what it says it is, before anything of berth is involved.

It says nothing of berth.
"""

import json
import re
from pathlib import Path

import pytest

from tests.controlplane.plane import ControlPlane
from tests.support.cluster import UNDERLAY_IP, Cluster, wait
from tests.support.kubernetes import FOLDERS, go_mod, version

ALICE = {"alices-token": ("alice", ["team-a"])}


def scheduler_config(plane: ControlPlane, folder: Path) -> Path:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(plane.kubeconfig(folder / "kubeconfig"))},
        "leaderElection": {"leaderElect": False},
    }
    path = folder / "scheduler.yaml"
    path.write_text(json.dumps(config))
    return path


def test_a_plain_kube_scheduler_binds_a_pod_and_says_why_it_cannot_bind_another(
    plane: ControlPlane, cluster: Cluster, tmp_path: Path
) -> None:
    plane.start_scheduler(scheduler_config(plane, tmp_path), name="plain")
    cluster.create_node("node-1", cpu="2")
    cluster.create_pod("fits", {}, scheduler="default-scheduler", cpu="1")
    cluster.create_pod("too-big", {}, scheduler="default-scheduler", cpu="3")
    assert cluster.wait_bound("fits") == {"fits": "node-1"}
    messages = wait(lambda: cluster.events_of("too-big"), 60, "an event of the pod too-big")
    assert "Insufficient cpu" in messages[-1]
    condition = wait(lambda: cluster.condition("too-big", "PodScheduled"), 60, "its condition")
    assert condition is not None
    assert condition["reason"] == "Unschedulable"
    assert "too-big" in plane.scheduler_log("plain")
    plane.restart_scheduler("plain")
    cluster.create_node("node-2", cpu="4")
    assert cluster.wait_bound("too-big") == {"too-big": "node-2"}


@pytest.mark.parametrize("plane", [ALICE], indirect=True)
def test_the_api_server_has_the_version_of_go_mod_and_knows_its_test_users(cluster: Cluster) -> None:
    said = cluster.get("/version")
    assert said["gitVersion"] == version()
    assert said["gitVersion"].startswith(f"v{said['major']}.{said['minor']}.")
    assert cluster.request("GET", "/api/v1/pods", token="").status == 403
    assert cluster.request("GET", "/api/v1/pods", token="alices-token").status == 403
    assert cluster.request("GET", "/api/v1/pods", token="nobodys-token").status == 401
    review = {"spec": {}, "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    user = cluster.request("POST", path, review, token="alices-token").body["status"]["userInfo"]
    assert user["username"] == "alice"
    assert "team-a" in user["groups"]


@pytest.mark.parametrize("which", FOLDERS)
def test_every_module_of_kubernetes_is_of_the_same_release(which: str) -> None:
    staged = re.findall(r"^\tk8s\.io/\S+ => k8s\.io/\S+ v0(\S+)$", go_mod(which), re.MULTILINE)
    assert len(staged) > 30
    assert {f"v1{each}" for each in staged} == {version(which)}


@pytest.mark.long
def test_the_watch_counts_the_units_that_each_node_held_at_every_moment(cluster: Cluster) -> None:
    cluster.create_pod("before", {UNDERLAY_IP: 2}, node_name="node-1")
    with cluster.watch_pods() as seen:
        cluster.create_pod("after", {UNDERLAY_IP: 3}, node_name="node-1")
        cluster.create_pod("waiting", {UNDERLAY_IP: 9})
        cluster.delete_pod("before")
        cluster.finish_pod("after")
        cluster.create_pod("elsewhere", {UNDERLAY_IP: 1}, node_name="node-2")
    assert seen.peak == {"node-1": 5, "node-2": 1}
    assert seen.held == {"node-1": 0, "node-2": 1}
    assert [(at.pod, at.held) for at in seen.history if at.node == "node-1"] == [
        ("before", 2),
        ("after", 5),
        ("before", 3),
        ("after", 0),
    ]
    assert set(seen.bound_at) == {"before", "after", "elsewhere"}


@pytest.mark.long
def test_an_api_server_that_was_away_comes_back_with_its_data_and_watchers_go_on(
    plane: ControlPlane, cluster: Cluster
) -> None:
    with cluster.watch_pods() as seen:
        cluster.create_pod("before", node_name="node-1")
        plane.stop_apiserver()
        plane.start_apiserver()
        cluster.create_pod("after", node_name="node-1")
    assert seen.peak == {"node-1": 2}
