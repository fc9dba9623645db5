"""`berth waiting` beside a real kube-scheduler: the places that it gives are the order in which pods are bound.

Its rows are in tests/unit/controller/test_waiting.py, its forms and errors in tests/cli/test_waiting.py.
"""

import json
import time

from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool
from tests.support.cluster import Object, wait

BACK_OFF = 1.0  # seconds; what the configuration says of the first and of the longest one
PODS = {"low-1": "", "mid-1": "mid", "low-2": "", "high-1": "high", "mid-2": "mid"}  # the oldest first
ORDER = ["high-1", "mid-1", "mid-2", "low-1", "low-2"]


def test_pods_are_bound_in_the_order_of_their_places_when_room_comes_one_by_one(system_of: Systems) -> None:
    """Back-offs are over each time, and no pod is deleted: controller/line.py says why it must be so."""
    system = system_of(1, pools=[pool(units=0)], start_scheduler=False)
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
    bound: list[str] = []
    for units in range(1, len(PODS) + 1):
        _pass(BACK_OFF)
        system.berth.write_pools([pool(units=units)])
        wait(lambda: len(system.cluster.bound()) > len(bound), 30, "one more pod is bound")
        bound += sorted(system.cluster.bound().keys() - set(bound))
    assert bound == ORDER
    assert _waiting(system)["pods"] == []


def _waiting(system: System) -> Object:
    done = system.berth.run("waiting", "--store", system.berth.store, "-o", "json", seconds=60)
    assert (done.returncode, done.stderr) == (0, "")
    found: Object = json.loads(done.stdout)
    return found


def _pass(seconds: float) -> None:
    """Let kube-scheduler's own clock go on: nobody can set it, and it tells nobody whose back-off is over."""
    until = time.monotonic() + seconds + 0.1
    wait(lambda: time.monotonic() > until, seconds + 5, "time passes")
