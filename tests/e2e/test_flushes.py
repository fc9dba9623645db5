"""kube-scheduler tries a pod again that nobody has woken for minutes, and counts those that it could place
then (scheduler_pod_scheduled_after_flush_total): each is a wake that was missed.

Every test's control plane is asked for that count at its end (tests/controlplane/plane.py). Few tests last
for the five minutes, so here they are one second; kube-scheduler looks every 30 s.
"""

import re
from pathlib import Path

import pytest

from tests.e2e.conftest import Systems
from tests.e2e.harness import System, faulty_functions, pool
from tests.e2e.watched import FAULTS
from tests.support.cluster import wait

pytestmark = pytest.mark.long
SOON = ["--pod-max-in-unschedulable-pods-duration=1s"]
_TRIED = re.compile(
    r'^scheduler_queue_incoming_pods_total\{event="UnschedulableTimeout".*\} (\S+)$', re.MULTILINE
)


def flushing_system(system_of: Systems, folder: Path) -> System:
    """One with two units, two holders and two waiters; its ticks wake nobody, so that only events do."""
    faults = folder / "faults"
    faults.mkdir()
    (faults / "go").touch()
    functions = faulty_functions(folder, release=FAULTS / "release.py", reconcile=FAULTS / "reconcile.py")
    environment = {"FAULTS": str(faults)}
    system = system_of(
        1, pools=[pool(units=2)], start_scheduler=False, functions=functions, environment=environment
    )
    (faults / "no-tick").touch()  # not before: the first one opens the ledger
    system.plane.start_scheduler(system.scheduler_config("berth"), flags=SOON)
    for name in ("holder-1", "holder-2"):
        system.cluster.create_pod(name)
        system.cluster.wait_bound(name)
    for name in ("waiter-1", "waiter-2"):
        system.cluster.create_pod(name)
        system.refusal_of(name)
    return system


def tried_in_vain(system: System) -> float:
    """How many tries there were of pods that nobody had woken."""
    return sum(map(float, _TRIED.findall(system.plane.scheduler_metrics())))


def flushed(system: System) -> float:
    (count,) = re.findall(
        r"^scheduler_pod_scheduled_after_flush_total (\S+)$", system.plane.scheduler_metrics(), re.MULTILINE
    )
    return float(count)


def test_pods_that_wait_beyond_that_time_are_still_placed_because_they_were_woken(
    system_of: Systems, tmp_path: Path
) -> None:
    system = flushing_system(system_of, tmp_path)
    wait(lambda: tried_in_vain(system) >= 2, 90, "both waiters tried, though nobody woke them", every=0.5)
    for name in ("holder-1", "holder-2"):
        system.cluster.delete_pod(name)
    system.cluster.wait_bound("waiter-1", "waiter-2", seconds=20)
    assert flushed(system) == 0
