"""kube-scheduler tries each pod again that nobody has woken for five minutes, and so may hide a wake that was
missed: no control plane of a test may have come to that (tests/controlplane/plane.py). Here it comes to it on
purpose: the five minutes are one second, and kube-scheduler looks every 30 s.
"""

from pathlib import Path

import pytest

from tests.e2e.conftest import Systems
from tests.e2e.harness import System, faulty_functions, pool
from tests.e2e.watched import FAULTS
from tests.support.cluster import wait

pytestmark = pytest.mark.nightly
SOON = ["--pod-max-in-unschedulable-pods-duration=1s"]


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
    system.plane.excuse = "pods are flushed on purpose"
    system.plane.start_scheduler(system.scheduler_config("berth"), flags=SOON)
    for name in ("holder-1", "holder-2"):
        system.cluster.create_pod(name)
        system.cluster.wait_bound(name)
    for name in ("waiter-1", "waiter-2"):
        system.cluster.create_pod(name)
        system.refusal_of(name)
    wait(lambda: system.plane.flushes() >= 2, 90, "both waiters tried, though nobody woke them", every=0.5)
    return system


def test_pods_that_were_flushed_in_vain_are_placed_because_they_are_woken(
    system_of: Systems, tmp_path: Path
) -> None:
    system = flushing_system(system_of, tmp_path)
    before = system.plane.flushes()
    for name in ("holder-1", "holder-2"):
        system.cluster.delete_pod(name)
    system.cluster.wait_bound("waiter-1", "waiter-2", seconds=20)  # the next flush is 30 s after the last one
    assert system.plane.flushes() == before


def test_a_pod_that_nobody_wakes_is_placed_by_a_flush_and_the_test_s_end_tells_of_it(
    system_of: Systems, tmp_path: Path
) -> None:
    """Otherwise the count would show nothing."""
    system = flushing_system(system_of, tmp_path)
    (tmp_path / "faults" / "mute").touch()
    before = system.plane.flushes()
    system.cluster.delete_pod("holder-1")
    wait(lambda: len(system.cluster.bound()) == 2, 90, "a waiter is placed all the same", every=0.5)
    assert system.plane.flushes() > before
    system.plane.excuse = ""
    with pytest.raises(AssertionError, match="times a pod was tried again that nobody had woken"):
        system.plane.require_no_flush()
    system.plane.excuse = "pods are flushed on purpose"
