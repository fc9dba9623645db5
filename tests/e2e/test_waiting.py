"""`berth waiting` beside a real kube-scheduler: pods are bound in the order of the places that it gives.

Its rows are in tests/unit/controller/test_waiting.py, its forms and errors in tests/cli/test_waiting.py.
"""

import json
import time
from functools import partial

from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool
from tests.support.cluster import Object, wait

BACK_OFF = 1.0  # seconds; what the configuration says of the first and of the longest one
PODS = {"low-1": "", "mid-1": "mid", "low-2": "", "high-1": "high", "mid-2": "mid"}  # the oldest first
ORDER = ["high-1", "mid-1", "mid-2", "low-1", "low-2"]


def test_pods_are_bound_in_the_order_of_their_places_when_room_comes_one_by_one(system_of: Systems) -> None:
    """Back-offs are over, no pod is deleted, and the node takes one more pod each time, so that no two are
    bound at once: controller/line.py says why the order may be another else."""
    system = system_of({"node-1": {"pods": "1"}}, pools=[pool(units=0)], start_scheduler=False)
    for name, value in (("high", 1000), ("mid", 100)):
        system.cluster.create_priority_class(name, value)
    back_off = {"podInitialBackoffSeconds": int(BACK_OFF), "podMaxBackoffSeconds": int(BACK_OFF)}
    system.plane.start_scheduler(system.scheduler_config("berth", **back_off))
    for name, priority in PODS.items():
        system.cluster.create_pod(name, priority_class=priority or None)
        system.refusal_of(name)
        _pass(BACK_OFF)  # Kubernetes knows the age of a pod in whole seconds
    found = _waiting(system)
    rows = sorted(found["pods"], key=lambda row: row["place"])
    assert [row["pod"] for row in rows] == ORDER
    assert {row["why"] for row in rows} == {"underlay-ip: 0 of 0 free, 1 asked"}
    assert found["summary"] == {"waiting": 5, "pools": 1, "placeable": 0, "other": 0}
    assert _bound_one_by_one(system) == ORDER
    assert _waiting(system)["pods"] == []


def _bound_one_by_one(system: System) -> list[str]:
    bound: list[str] = []
    for room in range(1, len(PODS) + 1):
        amounts = {"pods": str(room)}
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        system.cluster.patch("/api/v1/nodes/node-1/status", status)
        wait(partial(_all_wait_for_units, system), 30, "they wait for units alone")
        _pass(BACK_OFF)
        system.berth.write_pools([pool(units=room)])
        bound += sorted(wait(partial(_bound_since, system, set(bound)), 30, "one more pod is bound"))
    return bound


def _all_wait_for_units(system: System) -> bool:
    waiting = PODS.keys() - system.cluster.bound().keys()
    said = [system.cluster.condition(name, "PodScheduled") or {} for name in waiting]
    return all(" asked" in each.get("message", "") for each in said)


def _bound_since(system: System, before: set[str]) -> set[str]:
    return set(system.cluster.bound()) - before


def _waiting(system: System) -> Object:
    done = system.berth.run("waiting", "--store", system.berth.store, "-o", "json", seconds=60)
    assert (done.returncode, done.stderr) == (0, "")
    found: Object = json.loads(done.stdout)
    return found


def _pass(seconds: float) -> None:
    """Let kube-scheduler's own clock go on: nobody can set it, and it tells nobody whose back-off is over."""
    until = time.monotonic() + seconds + 0.1
    wait(lambda: time.monotonic() > until, seconds + 5, "time passes")
