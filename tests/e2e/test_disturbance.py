"""What Berth costs others: idle waiters, and the pods of the cluster's own scheduler.

Throughput is not measured here.
"""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from berth.api.gang import GANG, GANG_SIZE
from berth.api.run_time import RUNS_FOR
from tests.e2e.conftest import Systems
from tests.e2e.counting import CountedFilter
from tests.e2e.harness import System, pool, settled
from tests.support.cluster import UNDERLAY_IP, Cluster, Object, wait

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


@pytest.mark.nightly
def test_600_waiters_of_all_kinds_cost_at_most_two_filter_calls_each_in_30_idle_seconds(
    system_of: Systems, tmp_path: Path
) -> None:
    """Units are held for the first in line, gangs wait whole, by half and against each other, some pods lack
    CPU, some are limited, some say how long they run; and one reconcile comes meanwhile."""
    counted = CountedFilter(tmp_path)
    line = {"holdAfterSeconds": 0, "whileHeldSeconds": 600}
    pools = [
        pool("seat", 8, scope="Cluster", line=line),
        pool("gpu", 2, line=line),
        pool("few", 100, scope="Cluster", limits={"default": 0}, line={"holds": "None"}),
    ]
    system = system_of(
        {f"node-{number}": {"cpu": "2"} for number in range(10)}, pools=pools, functions=counted.functions
    )
    cluster = system.cluster
    cluster.create_priority_class("urgent", 1000)
    holders = [f"holder-{number}" for number in range(10)]
    for number, name in enumerate(holders):
        cluster.create_pod(name, {"berth.dev/gpu": 2, **({"berth.dev/seat": 1} if number < 6 else {})})
    cluster.wait_bound()
    with ThreadPoolExecutor(8) as workers:
        names = list(workers.map(lambda number: _waiter(cluster, number), range(WAITERS)))
    for name in names[:10]:
        system.refusal_of(name)
    system.berth.reconcile()
    wait(lambda: bool(system.berth.ledger().line_holds), 60, "units are held")
    wait(lambda: _is_quiet(counted), 300, "everybody was told what it waits for", every=1)
    before = counted.calls
    time.sleep(IDLE_SECONDS / 2)  # the promise is about this time itself
    system.berth.reconcile()
    time.sleep(IDLE_SECONDS / 2)
    often = {name: calls for name, calls in (counted.calls - before).items() if calls > 2}
    assert not often, f"filter calls: {often}"
    assert sorted(cluster.bound()) == sorted(holders)


WAITERS = 600
_QUIET_SECONDS = 6.0


def _is_quiet(counted: CountedFilter) -> bool:
    before = counted.calls
    time.sleep(_QUIET_SECONDS)  # longer than half of the longest back-off
    return counted.calls == before


def _waiter(cluster: Cluster, number: int) -> str:
    """One of a kind; gangs of three are pods that follow each other."""
    name, gang = f"waiter-{number:03}", f"gang-{number // 10}"
    kind = number % 10
    resources: dict[str, int | str] = {"berth.dev/seat": 3 + number % 5}
    options: Object = {}
    if kind in (0, 1, 2):  # whole, and too large
        resources = {"berth.dev/seat": 1}
        options = {"annotations": {GANG: gang, GANG_SIZE: "3"}}
    elif kind == 3:  # of a gang that is not there
        options = {"annotations": {GANG: f"half-{number}", GANG_SIZE: "2"}}
    elif kind == 4:
        resources, options = {"berth.dev/gpu": 1}, {"annotations": {RUNS_FOR: "10m"}}
    elif kind == 5:
        resources, options = {"berth.dev/gpu": 2}, {"priority_class": "urgent"}
    elif kind == 6:
        resources = {"berth.dev/few": 1}
    elif kind == 7:
        resources, options = {"berth.dev/gpu": 1}, {"cpu": "3"}
    elif kind == 8:
        options = {"annotations": {RUNS_FOR: "2h"}}
    cluster.create_pod(name, resources, **options)
    return name


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
