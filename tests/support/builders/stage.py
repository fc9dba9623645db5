"""A small cluster for tests of the verbs: the stand-in API server, a ledger on any store, taps between calls.
Time does not pass by itself; a tap may do anything between two calls that a verb makes."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from berth.controller.fencing import condition
from berth.controller.notices import Teller
from berth.controller.settle import claim_of
from berth.errors import BerthError, ClusterUnavailableError
from berth.handlers import release
from berth.handlers.bind import Bind
from berth.handlers.inventory import Inventory
from berth.handlers.reconcile import Reconcile, Report
from berth.http import extender_v1
from berth.kube.cluster import connect
from berth.kube.event_queue import PodEvent
from berth.kube.types import Pod
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim
from berth.scheduling.demand import terms_of
from berth.settings import Settings
from berth.stores import open_store
from berth.stores.base import Store
from berth.testing.api_server import StandIn
from tests.support.builders.ledgers import Time, ledger_on
from tests.support.builders.objects import event
from tests.support.builders.places import Place
from tests.support.cluster import Cluster

RESOURCE = "berth.dev/ip"
_POOL = """apiVersion: berth.dev/v1alpha1
kind: Pool
metadata: {name: ip}
spec: {capacity: {perDomain: 1}}
"""


DOWN = ClusterUnavailableError(
    "the API server answered 500 to PATCH /status: failed calling webhook: connection refused"
)


class KilledError(BaseException):
    """Stands in for kill -9: nothing in the product may catch it."""


class Tap:
    """Passes every method on, calling `step` before and after each call."""

    def __init__(self, target: Any, step: Callable[[], object]) -> None:
        self._target, self._step = target, step

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self._step()
            answer = found(*arguments, **named)
            self._step()
            return answer

        return call


class Stage:
    """Nodes n1 and n2 with one unit each; pods in namespace default that ask for one.

    With `fresh` False the ledger is left as it is, and may be another cluster's.
    """

    def __init__(self, api: StandIn, folder: Path, place: Place, *, fresh: bool = True) -> None:
        with mock.patch.dict(os.environ, {"KUBECONFIG": str(api.kubeconfig(folder / "kubeconfig"))}):
            self.time = Time()
            self.cluster = connect(self.time)
        self.raw = Cluster(api.url, "")
        self._place = place
        self.store: Store = open_store(place.url)
        self._numbers = count()
        (folder / "pools.yaml").write_text(_POOL)
        self.settings = Settings(pools=folder / "pools.yaml")
        self.told: list[PodEvent] = []
        self.teller = Teller(self.told.append)
        for name in ("n1", "n2"):
            self.cluster.create("/api/v1/nodes", {"metadata": {"name": name}})
        if fresh:
            self.new_ledger()

    def new_ledger(self) -> None:
        """A ledger without a claim, opened by a reconcile."""
        self.lose_ledger()
        self.reconcile()

    def clear(self) -> None:
        """No pods, a new ledger."""
        for pod in self.cluster.pods():
            self.cluster.delete(f"/api/v1/namespaces/default/pods/{pod.metadata.name}")
        self.new_ledger()

    def claim(self, pod: Pod, node: str) -> Claim:
        """What the pod is to hold on that node, by the ledger's Pools."""
        terms = terms_of(ledger_on(self.store, time=self.time).view())
        return claim_of(pod, node, terms, terms.demand(pod), "a", self.time())

    def add_pod(
        self,
        units: str = "1",
        *,
        scheduler: str = "berth",
        priority: int = 0,
        gates: Sequence[Mapping[str, str]] = (),
        other: str = "",
        **metadata: Any,
    ) -> extender_v1.BindingCall:
        """A waiting pod that asks for units (and one of `other`), as the call that binds it to n1."""
        name = f"pod-{next(self._numbers)}"
        asked = {RESOURCE: units, **({other: "1"} if other else {})}
        spec = {
            "schedulerName": scheduler,
            "priority": priority,
            "schedulingGates": list(gates),
            "containers": [{"name": "main", "image": "x", "resources": {"limits": asked, "requests": asked}}],
        }
        body = {"metadata": {"name": name, **metadata}, "spec": spec}
        self.cluster.create("/api/v1/namespaces/default/pods", body)
        pod = self.cluster.pod("default", name)
        assert pod is not None
        return extender_v1.BindingCall(name, "default", pod.metadata.uid, "n1")

    def finish(self, call: extender_v1.BindingCall) -> None:
        self.raw.finish_pod(call.name)

    def bind(
        self, call: extender_v1.BindingCall, node: str = "", step: Callable[[], object] | None = None
    ) -> str:
        """One bind call; what its answer says, empty for success."""
        wanted = extender_v1.BindingCall(call.name, call.namespace, call.uid, node or call.node)
        try:
            self._bind(step or (lambda: None)).run(wanted)
        except BerthError as error:
            return str(error)
        return ""

    def reconcile(self, step: Callable[[], object] = lambda: None) -> Report:
        store: Any = Tap(self.store, step)
        cluster: Any = Tap(self.cluster, step)
        ledger = self._ledger(store, while_closed=True)
        return Reconcile(
            ledger, cluster, self.settings, clock=self.time, monotonic=self.time, teller=self.teller
        ).run()

    def events(self) -> list[tuple[str, str, str]]:
        """What was told of pods since the last call: pod, reason and words."""
        told = [(event.pod, event.reason, event.note) for event in self.told]
        self.told.clear()
        return told

    def ledger(self) -> Ledger:
        """The ledger as who only looks opens it."""
        return self._ledger(self.store, while_closed=True)

    @contextmanager
    def away(self) -> Iterator[None]:
        """The API server answers nothing meanwhile."""
        with mock.patch.object(self.cluster, "pending_pods", side_effect=DOWN):
            yield

    def lose_ledger(self) -> None:
        self._place.lose()

    def touch(self, call: extender_v1.BindingCall) -> None:
        """Write to the pod as any controller may, so that a Binding under way is refused."""
        pod = self.cluster.pod("default", call.name)
        assert pod is not None
        self.cluster.set_condition(pod, condition("Touched", "by a test", self.time.now), 5.0)

    def delete(self, call: extender_v1.BindingCall) -> None:
        self.cluster.delete(f"/api/v1/namespaces/default/pods/{call.name}")

    def delete_with_event(self, call: extender_v1.BindingCall) -> None:
        """Delete the pod, and let release have the event at once."""
        pod = self.cluster.pod("default", call.name)
        if pod is not None:
            self.delete(call)
            self.release(pod)

    def release(self, pod: Pod) -> None:
        """Let release have the pod's delete event."""
        told = event("delete", {"kind": "Pod", **msgspec.to_builtins(pod)})
        ledger = self._ledger(self.store)
        release.Release(ledger, self.cluster, ("berth",), self.time, self.teller).run(told)

    def inventory(self, node: str) -> None:
        """Let inventory have an event of the node."""
        told = event("update", {"kind": "Node", "metadata": {"name": node}})
        self._inventory_of(self._ledger(self.store)).run(told)

    def inventory_of_pool(self, *, seen: bool = False) -> dict[str, object]:
        """Let inventory have an event of the Pool, whose status may say that it was seen; what it answers."""
        status = {"observedGeneration": 1} if seen else {}
        about = {"kind": "Pool", "metadata": {"name": "ip", "generation": 1}, "status": status}
        return self._inventory_of(self._ledger(self.store)).run(event("update", about))

    def claims(self) -> dict[str, tuple[str, str]]:
        """Node and state by the name of the pod that holds a claim."""
        found = self._ledger(self.store, while_closed=True).view().claims()
        return {claim.name: (claim.node, claim.state) for claim in found}

    def bound(self) -> dict[str, str]:
        """Node by the name of each bound pod."""
        return {pod.metadata.name: pod.spec.node_name for pod in self.cluster.pods() if pod.spec.node_name}

    @contextmanager
    def unwritable(self, *names: str, error: BerthError = DOWN, seconds: float = 0.0) -> Iterator[list[str]]:
        """A webhook fails each write of these pods' status, after so many seconds; whose writes failed."""
        write, failed = self.cluster.set_condition, list[str]()

        def refuse(pod: Pod, *arguments: Any) -> Pod | None:
            if pod.metadata.name not in names:
                return write(pod, *arguments)
            self.time.now += seconds
            failed.append(pod.metadata.name)
            raise error

        with mock.patch.object(self.cluster, "set_condition", refuse):
            yield failed

    def versions(self) -> dict[str, str]:
        """Each pod's resourceVersion, by its name."""
        return {pod.metadata.name: pod.metadata.resource_version or "" for pod in self.cluster.pods()}

    def _bind(self, step: Callable[[], object]) -> Bind:
        store: Any = Tap(self.store, step)
        cluster: Any = Tap(self.cluster, step)
        ids = (f"attempt-{next(self._numbers)}" for _ in count())
        return Bind(
            self._ledger(store),
            cluster,
            ("berth",),
            clock=self.time,
            monotonic=self.time,
            new_attempt=lambda: next(ids),
            teller=self.teller,
        )

    def _inventory_of(self, ledger: Ledger) -> Inventory:
        return Inventory(ledger, self.cluster, self.settings, self.time, self.teller)

    def _ledger(self, store: Store, *, while_closed: bool = False) -> Ledger:
        time = self.time
        return Ledger(
            store,
            clock=time,
            monotonic=time,
            sleep=time.advance,
            while_closed=while_closed,
            cluster=self.cluster.identity,
            name=self._place.url,
        )


@contextmanager
def staged(folder: Path, place: Place, *, fresh: bool = True) -> Iterator[Stage]:
    with StandIn() as api:
        stage = Stage(api, folder, place, fresh=fresh)
        with closing(stage.store), closing(stage.raw):
            yield stage
