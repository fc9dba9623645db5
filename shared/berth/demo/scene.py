"""What the demo's story needs: create and delete objects, wait for a state, and count broken promises.
It looks from outside, at the API server and the ledger; it does not know how they came to be so."""

import threading
import time
from collections.abc import Callable
from typing import Any

from berth.cluster import Cluster
from berth.errors import BerthError
from berth.ledger import Ledger

Json = dict[str, Any]

_POOL = "underlay-ip"
_PODS = "/api/v1/namespaces/default/pods"


class Scene:
    """One cluster with one pool of `units` a node, every pod of which asks for one unit."""

    def __init__(self, cluster: Cluster, ledger: Ledger, units: int) -> None:
        self._cluster, self._ledger, self._units = cluster, ledger, units
        self._most: dict[str, int] = {}

    def add_node(self, name: str, labels: dict[str, str]) -> None:
        self._cluster.create("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})

    def add_pod(self, name: str) -> None:
        container = {
            "name": "main",
            "image": "example/app:1",
            "resources": {"limits": {f"berth.dev/{_POOL}": "1"}, "requests": {f"berth.dev/{_POOL}": "1"}},
        }
        self._cluster.create(
            _PODS, {"metadata": {"name": name}, "spec": {"schedulerName": "berth", "containers": [container]}}
        )

    def delete_pod(self, name: str) -> None:
        self._cluster.delete(f"{_PODS}/{name}")

    def bound(self) -> dict[str, str]:
        """Node by pod; each look also notes the most pods seen on a node."""
        found = {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in self._pods()
            if pod["spec"].get("nodeName")
        }
        for node in found.values():
            self._most[node] = max(self._most.get(node, 0), sum(other == node for other in found.values()))
        return found

    def waiting(self) -> dict[str, str]:
        """Why each unbound pod waits, as kube-scheduler's condition says; empty while it says nothing."""
        return {pod["metadata"]["name"]: _why(pod) for pod in self._pods() if not pod["spec"].get("nodeName")}

    def all_waiters_refused(self) -> bool:
        """Refused by filter, that is: a refused bind says so too, but is still to be tried again."""
        return all(why.startswith("0/") for why in self.waiting().values())

    def capacity(self) -> int:
        return sum(capacity for _, capacity in self._ledger.view().free.get(_POOL, {}).values())

    def all_claims_bound(self) -> bool:
        return all(claim.state == "bound" for claim in self._ledger.view().claims())

    def over_allocated(self) -> int:
        """Units given beyond a node's capacity, at the worst moment seen."""
        return sum(max(0, most - self._units) for most in self._most.values())

    def leaked(self) -> int:
        """Claims that no bound pod stands for, and bound pods without their claim."""
        claims = {claim.name: claim.node for claim in self._ledger.view().claims()}
        return len(claims.items() ^ self.bound().items())

    def until(self, condition: Callable[[], object], what: str, seconds: float) -> None:
        """Wait until the condition holds. Raises BerthError that says what did not come about."""
        give_up_at, pause = time.monotonic() + seconds, threading.Event()
        while not condition():
            if time.monotonic() > give_up_at:
                raise BerthError(
                    f"the demo waited {seconds:g} s in vain until {what}; waiting: {self.waiting()}"
                )
            pause.wait(0.02)

    def _pods(self) -> list[Json]:
        return self._cluster.snapshot("/api/v1/pods", {})[0]


def _why(pod: Json) -> str:
    conditions = pod["status"].get("conditions", [])
    return next((found.get("message", "") for found in conditions if found["type"] == "PodScheduled"), "")
