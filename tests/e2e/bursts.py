"""What the tests of bursts share: systems of many nodes, and what is true once a burst is over.

No time is asserted here; the deadlines are for a machine that is busy with other things.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.controlplane.plane import ControlPlane
from tests.e2e.harness import System, settled
from tests.support.cluster import Cluster, Object, wait
from tests.support.neighbours import MEASURED
from tests.support.podwatch import PodWatch

PATIENCE = 300.0
SETTLE_SECONDS = 60.0


def names(count: int, prefix: str = "pod") -> list[str]:
    return [f"{prefix}-{number:04}" for number in range(count)]


@contextmanager
def creating(cluster: Cluster, count: int) -> Iterator[None]:
    """Pods are made all through the block, as fast as the API server takes them; all are there after it."""
    with ThreadPoolExecutor(1) as background:
        made = background.submit(cluster.create_pods, *names(count))
        yield
        made.result(PATIENCE)


def tell(what: str) -> None:
    """A line for whoever reads the run: its summary shows it."""
    print(f"{MEASURED}{what}")


def wait_held(seen: PodWatch, units: int, what: str, seconds: float = PATIENCE) -> None:
    """Until at least these many units are held at once, as the API server's watch shows it."""
    wait(lambda: seen.total >= units, seconds, f"{units} units held {what}; held {seen.total}", every=0.02)


def wait_all_that_fits(system: System, seen: PodWatch, units: int) -> None:
    """Until every unit is held, none lies idle beside a waiter; there must be pods enough."""

    def why() -> str:
        waiting = Counter(refusal_of(pod)[:300] for pod in unbound(system))
        return f"all {units} units held; held {seen.total}; the others say {waiting.most_common(5)}"

    try:
        wait_held(seen, units, "in the end")
    except AssertionError as error:
        raise AssertionError(why()) from error


def assert_never_over(seen: PodWatch, nodes: int, units: int) -> None:
    """At no moment did a node's pods hold more than its units; the watch has seen every moment."""
    assert not seen.gaps, f"the watch did not see all: {seen.gaps}"
    assert set(seen.peak) <= {f"node-{number}" for number in range(1, nodes + 1)}
    over = {node: peak for node, peak in seen.peak.items() if peak > units}
    assert not over, f"more than {units} units held at some moment: {over}"


def in_the_end(system: System, seen: PodWatch, nodes: int, units: int) -> Object:
    """All units held, and one reconcile later the ledger equals the pods; what that reconcile mended."""
    wait_all_that_fits(system, seen, nodes * units)
    mended = settled(system, SETTLE_SECONDS)
    seen.settle()
    assert system.cluster.per_node() == {f"node-{number}": units for number in range(1, nodes + 1)}
    assert_never_over(seen, nodes, units)
    return mended


def unbound(system: System) -> list[Object]:
    return [pod for pod in system.cluster.list_pods() if not pod["spec"].get("nodeName")]


def refusal_of(pod: Object) -> str:
    """What kube-scheduler last wrote into the pod: why it was not scheduled."""
    conditions = pod["status"].get("conditions", [])
    said = (each.get("message", "") for each in conditions if each["type"] == "PodScheduled")
    return next(said, "")


def attempts_failed(plane: ControlPlane, reason: str) -> tuple[int, int]:
    """How often kube-scheduler gave up an attempt with an extender's Error: for this reason, and for others.
    A filter's refusal is no Error, so the first are binds that were refused."""
    log = plane.scheduler_log().splitlines()
    errors = [line for line in log if '"Error scheduling pod; retrying"' in line]
    refused = sum(reason in line for line in errors)
    return refused, len(errors) - refused
