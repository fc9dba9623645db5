"""What Berth costs others: idle waiters, and the pods of the cluster's own scheduler.

Throughput is not measured here.
"""

import json
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import Systems
from tests.e2e.counting import CountedFilter
from tests.e2e.harness import System, settled
from tests.support.cluster import UNDERLAY_IP

pytestmark = pytest.mark.long

IDLE_SECONDS = 30


def test_a_waiter_costs_at_most_three_filter_calls_in_30_idle_seconds(
    system_of: Systems, tmp_path: Path
) -> None:
    counted = CountedFilter(tmp_path)
    system = system_of(10, functions=counted.functions)
    cluster = system.cluster
    cluster.create_priority_class("urgent", 1000)
    for number in range(10):
        cluster.create_pod(f"holder-{number}", {UNDERLAY_IP: 10})
    cluster.wait_bound()
    before = counted.calls
    cluster.create_pod("waiter")
    # Without care kube-scheduler tries to preempt for it, and its own note on the pod wakes it again.
    cluster.create_pod("urgent-waiter", priority_class="urgent")
    for name in ("waiter", "urgent-waiter"):
        system.refusal_of(name)
    time.sleep(IDLE_SECONDS)  # the promise is about this time itself
    made = counted.calls - before
    assert set(made) == {"waiter", "urgent-waiter"}
    assert max(made.values()) <= 3, f"filter calls: {made}"
    assert len(cluster.bound()) == 10


def test_pods_of_the_default_scheduler_on_the_same_nodes_are_not_disturbed(
    system_of: Systems, tmp_path: Path
) -> None:
    counted = CountedFilter(tmp_path)
    system = system_of({f"node-{number}": {"cpu": "4"} for number in (1, 2)}, functions=counted.functions)
    system.plane.start_scheduler(_stock_config(system, tmp_path), name="stock")
    cluster = system.cluster
    for number in range(2):
        cluster.create_pod(f"plain-{number}", {}, scheduler="default-scheduler", cpu="1")
        cluster.create_pod(f"counted-{number}", cpu="2")
    cluster.wait_bound()
    cluster.create_pod("plain-too-big", {}, scheduler="default-scheduler", cpu="3")
    cluster.create_pod("counted-too-big", cpu="3")
    for name in ("plain-too-big", "counted-too-big"):
        said = system.refusal_of(name)
        assert "2 Insufficient cpu" in said
    # Without infra's admission policies: nobody else finds a node for what only Berth counts.
    cluster.create_pod("counted-elsewhere", scheduler="default-scheduler", cpu="100m")
    assert "2 Insufficient berth.dev/underlay-ip" in system.refusal_of("counted-elsewhere")
    for number in range(2):
        cluster.create_pod(f"plain-small-{number}", {}, scheduler="default-scheduler", cpu="100m")
    cluster.wait_bound("plain-small-0", "plain-small-1")
    assert all(used <= 4000 for used in _cpu(system).values()), _cpu(system)
    assert not [name for name in counted.calls if name.startswith("plain")]
    # Only pods of ours hold anything.
    settled(system)
    assert {pod for pod, _, _ in system.berth.claims()} == {"counted-0", "counted-1"}


def _stock_config(system: System, folder: Path) -> Path:
    """Defaults throughout: the profile default-scheduler, no extender."""
    path = folder / "stock.yaml"
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(system.berth.kubeconfig)},
        "leaderElection": {"leaderElect": False},
    }
    path.write_text(json.dumps(document))
    return path


def _cpu(system: System) -> dict[str, int]:
    """Thousandths of CPUs asked for on each node by the pods there."""
    used: dict[str, int] = {}
    for pod in system.cluster.list_pods():
        if node := pod["spec"].get("nodeName"):
            asked = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            amount = int(asked[:-1]) if asked.endswith("m") else 1000 * int(asked)
            used[node] = used.get(node, 0) + amount
    return used
