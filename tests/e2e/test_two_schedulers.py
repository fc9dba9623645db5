"""Two kube-schedulers with leader election, the leader killed with -9 while Bindings are on their way.

How soon the other one takes over is the lease's business, not Berth's.
"""

import signal
import time
from pathlib import Path

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.bursts import PATIENCE, creating, in_the_end, tell
from tests.e2e.conftest import Systems
from tests.e2e.faults.fault_world import Faults
from tests.e2e.harness import System, faulty_functions, pool
from tests.support.builders.places import Place
from tests.support.cluster import wait
from tests.support.fakes.proxy import Proxy, held

NODES, UNITS, PODS = 20, 5, 120
BOUND_BEFORE, IN_FLIGHT = 20, 5
HOLD_SECONDS = 60.0
BIND = Path(__file__).parent / "faults" / "bind.py"
# Long enough that a busy machine takes the lease from nobody who lives.
ELECTION = {
    "leaderElect": True,
    "leaseDuration": "10s",
    "renewDeadline": "8s",
    "retryPeriod": "1s",
    "resourceLock": "leases",
    "resourceName": "berth-scheduler",  # the one that its account may take
    "resourceNamespace": "berth",
}


def start_scheduler(system: System, name: str) -> None:
    """On the configuration that Berth wrote, with a leader election added."""
    system.plane.start_scheduler(system.scheduler_config(name, leaderElection=ELECTION), name)


def leads(system: System, name: str) -> bool:
    return 'leader_election_master_status{name="kube-scheduler"} 1' in system.plane.scheduler_metrics(name)


def the_leader(system: System, *names: str) -> str:
    return wait(lambda: next((name for name in names if leads(system, name)), ""), PATIENCE, "a leader")


@pytest.mark.long
def test_the_leader_killed_in_mid_bind_leaves_nothing_that_the_next_one_does_not_finish(
    system_of: Systems, place: Place, plane: ControlPlane, tmp_path: Path
) -> None:
    with Proxy(plane) as proxy:
        environment = {
            "FAULTS": str(Faults(tmp_path / "faults").folder),
            "KUBECONFIG_OF_BIND": str(proxy.kubeconfig(tmp_path / "kubeconfig-of-bind")),
        }
        functions = faulty_functions(tmp_path, bind=BIND)
        system = system_of(
            NODES,
            start_scheduler=False,
            pools=[pool(units=UNITS)],
            store=place.url,
            functions=functions,
            environment=environment,
        )
        start_scheduler(system, "first")
        the_leader(system, "first")
        start_scheduler(system, "second")
        with system.cluster.watch_pods() as seen:
            on_their_way = proxy.on("POST", r"/binding$", held(HOLD_SECONDS), IN_FLIGHT, skip=BOUND_BEFORE)
            with creating(system.cluster, PODS):
                wait(lambda: on_their_way.seen == IN_FLIGHT, PATIENCE, "Bindings on their way", every=0.005)
                killed = the_leader(system, "first", "second")
                system.plane.stop_scheduler(killed, signal.SIGKILL)
                before, at = seen.total, time.monotonic()
                on_their_way.resume.set()
            in_the_end(system, seen, NODES, UNITS)
            other = "second" if killed == "first" else "first"
        assert leads(system, other)
    tell(
        f"{place.name}: leader killed with {IN_FLIGHT} Bindings held and {before} of {NODES * UNITS} pods "
        f"bound, the last one bound {max(seen.bound_at.values()) - at:.1f} s later",
    )
