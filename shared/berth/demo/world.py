"""One world of the demo: its cluster, its scheduler, its count, and what the story does to them.
It looks from outside, at the API server and at what the count says, and does not know how that counts."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from berth.demo.courier import Courier, Parcel
from berth.demo.gateway import Gateway
from berth.errors import BerthError, ClusterRefusedError
from berth.kube.cluster import Cluster
from berth.local.processes import Supervisor

Json = dict[str, Any]

UNITS = 3
RESOURCE = "berth.dev/underlay-ip"
PATIENCE = 120.0  # seconds for what takes well under five: past it the demonstration has failed
_PODS = "/api/v1/namespaces/default/pods"
_SCHEDULERS_SECONDS = 10.0


class Scheduler(Protocol):
    """kube-scheduler, as far as the demonstration has to wait for it."""

    def attempts(self) -> int:
        """Return how many times it has tried a pod."""

    def idle(self, pods: Iterable[Json]) -> bool:
        """Whether it has seen these pods as they are, and has none of them to try."""


@dataclass(frozen=True)
class Count:
    """One way to count, running: its functions, the units used by node according to it, and its file;
    `reconcile` does nothing where there is none."""

    functions: Supervisor
    used: Callable[[], dict[str, int]]
    file: Path
    reconcile: Callable[[], None]

    def kill(self) -> None:
        """Kill the extender (kill -9), its workers too."""
        for function in self.functions.all:
            if function.name == "extender" and function.pid is not None:
                os.killpg(function.pid, signal.SIGKILL)


@dataclass(frozen=True)
class World:
    """Nodes with UNITS units each; every pod asks for one."""

    name: str
    cluster: Cluster
    scheduler: Scheduler
    gateway: Gateway
    courier: Courier
    count: Count
    go_on: Callable[[], None] = lambda: None  # asked in every wait; raises when the demonstration is to end

    def add_node(self, name: str) -> None:
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "reason": "Demo", "message": "there is no kubelet"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        self.cluster.create("/api/v1/nodes", {"metadata": {"name": name}, "status": status})

    def create_pods(self, *numbers: int) -> None:
        """Create pods with these numbers, each of which asks for one unit."""
        resources = {"limits": {RESOURCE: "1"}, "requests": {RESOURCE: "1"}}
        container = {"name": "main", "image": "example/app:1", "resources": resources}
        # New nodes have a taint that only a node controller takes away, and there is none.
        tolerations = [{"operator": "Exists"}]
        spec = {"schedulerName": "berth", "tolerations": tolerations, "containers": [container]}
        for number in numbers:
            self.cluster.create(_PODS, {"metadata": {"name": f"pod-{number}"}, "spec": spec})

    def delete_pod(self, name: str, events: int) -> Parcel:
        """Delete the pod, wait until kube-scheduler has tried those that wait, as it does after a deletion
        (docs/kubernetes.md#requeue). The caller sends the event."""
        self._wait_known(name)
        wanted = self.scheduler.attempts() + len(self.waiting())
        parcel = self.courier.expect_delete(name, events)
        self.cluster.delete(f"{_PODS}/{name}")
        # It need not come true: a scheduler that does not try them makes no count worse.
        self.comes_true(lambda: self.scheduler.attempts() >= wanted and self._idle(), _SCHEDULERS_SECONDS)
        return parcel

    def forge_delete(self, name: str) -> None:
        """Deliver a delete event of a pod that lives."""
        self._wait_known(name)
        self.courier.forge_delete(name)

    def _wait_known(self, name: str) -> None:
        self.until(lambda: self.courier.knows_node_of(name), f"an event has told the node of {name}")

    def settle(self) -> None:
        """Wait until each pod is bound or refused, and kube-scheduler has nothing to try."""
        self.until(
            lambda: all(why.startswith("0/") for why in self.waiting().values()) and self._idle(),
            "every pod is bound or has its reason",
        )

    def bound(self) -> dict[str, str]:
        """Return the node of each bound pod."""
        nodes = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in self.pods()}
        return {name: node for name, node in nodes.items() if node}

    def waiting(self) -> dict[str, str]:
        """Return why each unbound pod waits, by kube-scheduler's condition; empty while it has none."""
        return {pod["metadata"]["name"]: _why(pod) for pod in self.pods() if not pod["spec"].get("nodeName")}

    def pods(self) -> list[Json]:
        return self.cluster.snapshot(_PODS, {})[0]

    def leaked(self) -> int:
        """Return the units that are used according to the count, beyond those that living pods hold."""
        return (Counter(self.count.used()) - Counter(self.bound().values())).total()

    def uncounted(self) -> int:
        """Return the units that living pods hold and the count does not have."""
        return (Counter(self.bound().values()) - Counter(self.count.used())).total()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until the condition holds. Raises BerthError that says what did not happen."""
        if not self.comes_true(condition, PATIENCE):
            raise BerthError(
                f"the demo ({self.name}) waited {PATIENCE:g} s in vain until {what}; "
                f"waiting: {self.waiting()}"
            )

    def comes_true(self, condition: Callable[[], object], seconds: float) -> bool:
        give_up_at, pause = time.monotonic() + seconds, threading.Event()
        while not self._holds(condition):
            self.go_on()
            if time.monotonic() > give_up_at:
                return False
            pause.wait(0.02)
        return True

    def _holds(self, condition: Callable[[], object]) -> bool:
        try:
            return bool(condition())
        except ClusterRefusedError:
            raise
        except BerthError:
            return False  # the API server or the ledger did not answer: try again

    def _idle(self) -> bool:
        return self.scheduler.idle(self.pods())


def _why(pod: Json) -> str:
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "PodScheduled":
            return str(condition.get("message", ""))
    return ""
