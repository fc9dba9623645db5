"""A stage with any Pools, PoolClaims and nodes with labels, for tests of what pools can do on every store.
Nodes are ready unless told otherwise; PoolClaims are kept here, for the stand-in API server has none."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from berth.api.names import API_VERSION
from berth.api.poolclaim import CLAIMS
from berth.api.run_time import RUNS_FOR
from berth.controller.usage import SETTLED_SECONDS
from berth.errors import ClusterRefusedError
from berth.handlers import filter as filter_verb
from berth.handlers import prioritize, release
from berth.handlers.reconcile import Report
from berth.http import extender_v1
from berth.kube.cluster import Cluster
from berth.kube.types import Pod
from berth.ledger.holders import wholes
from berth.testing.api_server import StandIn
from berth.testing.api_server.rules import Key
from tests.support.builders.objects import event, pool_document
from tests.support.builders.places import Place
from tests.support.builders.stage import Stage, Tap

READY = [{"type": "Ready", "status": "True"}]
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}

Held = dict[str, dict[tuple[str, str], tuple[int, tuple[str, ...]]]]
"""By pod, what it holds: count and units' names by pool and domain."""


def utc(at: float) -> str:
    """A time in Unix seconds as Kubernetes writes it."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


class WithPoolClaims:
    """A cluster that serves PoolClaims as well; the rest is the cluster's."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._numbers = count(1)
        self.documents: dict[tuple[str, str], dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def poolclaims(self, _: float = 0.0) -> list[dict[str, Any]]:
        return list(self.documents.values())

    def pool_claim(self, namespace: str, name: str, _: float = 0.0) -> dict[str, Any] | None:
        return self.documents.get((namespace, name))

    def set_pool_claim_status(
        self, document: Mapping[str, Any], status: Mapping[str, Any], _: float = 0.0
    ) -> None:
        meta = document["metadata"]
        found = self.documents.get((meta["namespace"], meta["name"]))
        if found is None or found["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise ClusterRefusedError("it was written since", 409)
        self.put({**found, "status": dict(status)})

    def put(self, document: Mapping[str, Any]) -> None:
        number = next(self._numbers)
        made = {"creationTimestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"}
        meta = {**made, **document["metadata"], "resourceVersion": str(number)}
        self.documents[(meta["namespace"], meta["name"])] = {**document, "metadata": meta}


class PoolsStage(Stage):
    """Ready nodes with these labels, and these Pools (specs by name); the ledger is open."""

    def __init__(
        self, api: StandIn, folder: Path, place: Place, pools: Mapping[str, Any], nodes: Mapping[str, Any]
    ) -> None:
        super().__init__(api, folder, place, fresh=False)
        self.api = api
        for name in ("n1", "n2"):
            self.cluster.delete(f"/api/v1/nodes/{name}")
        self.objects = WithPoolClaims(self.cluster)
        self.cluster: Any = self.objects
        for name, labels in nodes.items():
            self.add_node(name, **labels)
        self.specs: dict[str, Any] = {}
        self.write_pools(**pools)
        self.new_ledger()

    # What there is

    def write_pools(self, **specs: Any) -> None:
        """Change Pools in the file (None: the Pool goes); nobody is told."""
        self.specs = {name: spec for name, spec in {**self.specs, **specs}.items() if spec is not None}
        documents = [pool_document(name, **spec) for name, spec in self.specs.items()]
        for document in documents:
            if document["spec"].get("units"):
                del document["spec"]["capacity"]
        assert self.settings.pools is not None
        fresh = self.settings.pools.with_suffix(".new")
        # As JSON: it is read in a hundredth of the time that YAML takes.
        fresh.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
        fresh.rename(self.settings.pools)

    def pools(self, **specs: Any) -> dict[str, object]:
        """Write the file of Pools anew, and give inventory the event."""
        self.write_pools(**specs)
        return self.inventory_of_pool()

    def stepping(self, take: Callable[["PoolsStage"], object], step: Callable[[], object]) -> object:
        """Let a verb take over the Pools with `step` before and after each call it makes."""
        store, cluster = self.store, self.cluster

        def untapped() -> None:
            tapped = self.store, self.cluster
            self.store, self.cluster = store, cluster
            step()
            self.store, self.cluster = tapped

        self.store, self.cluster = Tap(store, untapped), Tap(cluster, untapped)
        try:
            return take(self)
        finally:
            self.store, self.cluster = store, cluster

    def clear_pods(self) -> None:
        """No pods and no claims; the ledger and the Pools stay."""
        for pod in self.cluster.pods():
            self.cluster.delete(f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}")
        self.reconcile()

    def add_node(self, name: str, *, ready: bool = True, **labels: str) -> None:
        self.cluster.create("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
        self.write_node(name, ready=ready)

    def write_node(
        self,
        name: str,
        *,
        ready: bool = True,
        since: float | None = None,
        cordoned: bool | None = None,
        taints: Any = (),
        **labels: str | None,
    ) -> None:
        """Set whether the node is ready, and since when, whether it is cordoned, its taints, and labels (None
        takes one away).

        Nobody is told."""
        condition = {**READY[0], "status": "True" if ready else "Unknown"}
        if since is not None:
            condition["lastTransitionTime"] = utc(since)
        status = {"conditions": [condition]}
        spec = {"taints": list(taints), "unschedulable": cordoned}
        body = {"metadata": {"labels": labels}, "spec": spec, "status": status}
        self.api.memory.patch(Key("nodes", "", name), body, False, "")  # its own calls reach no node's status

    def serve_node_status(self) -> None:
        """Take writes of nodes' status, which the stand-in API server does not serve."""

        def write(name: str, status: Mapping[str, Any]) -> None:
            self.api.memory.patch(Key("nodes", "", name), {"status": status}, False, "")

        self.objects.set_node_status = write  # type: ignore[attr-defined]
        self.reconcile()

    def annotate(self, node: str, **annotations: str) -> None:
        body = {"metadata": {"annotations": annotations}}
        self.api.memory.patch(Key("nodes", "", node), body, False, "")

    def note(self, pod: str, annotations: Mapping[str, str]) -> None:
        """Rewrite annotations of a pod, as its owner may."""
        self.api.memory.patch(
            Key("pods", "default", pod), {"metadata": {"annotations": dict(annotations)}}, False, ""
        )

    def status_of(self, pod: str, status: Mapping[str, Any], *, written: float | None = None) -> None:
        """Write a pod's status as its kubelet does, at that time."""
        stamp = {"manager": "kubelet", "subresource": "status", "time": utc(written or 0.0)}
        meta = {"managedFields": [stamp]} if written is not None else {}
        body = {"metadata": meta, "status": dict(status)}
        self.api.memory.patch(Key("pods", "default", pod), body, False, "")

    def pods(self) -> set[str]:
        return {pod.metadata.name for pod in self.cluster.pods()}

    def claim_object(self, name: str, pool: str, namespace: str = "default", **spec: Any) -> None:
        """A PoolClaim, which inventory hears of."""
        meta = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"}
        document = {"apiVersion": API_VERSION, "kind": "PoolClaim", "metadata": meta}
        self.objects.put({**document, "spec": {"pool": pool, **spec}})
        self.inventory_of_claim(name)

    def node_event(self, name: str) -> dict[str, object]:
        return self._inventory("Node", name)

    def inventory_of_claim(self, name: str) -> dict[str, object]:
        return self._inventory("PoolClaim", name)

    def _inventory(self, kind: str, name: str) -> dict[str, object]:
        return self._inventory_of(self._ledger(self.store)).run(
            event("update", {"kind": kind, "metadata": {"name": name}})
        )

    # Pods

    def pod(
        self,
        name: str = "",
        *,
        claims: str = "",
        namespace: str = "default",
        priority: int = 0,
        node: str = "",
        annotations: Mapping[str, str] | None = None,
        owner: str = "",
        owner_kind: str = "StatefulSet",
        selects: Mapping[str, str] | None = None,
        grace: int | None = None,
        tolerates: str = "",
        runs_for: str = "",
        deadline: int = 0,
        scheduler: str = "berth",
        **asked: int,
    ) -> extender_v1.BindingCall:
        """A waiting pod that asks for so many units of these pools, or one that runs on a node already."""
        name = name or f"pod-{next(self._numbers)}"
        limits = {self._resource(pool): str(units) for pool, units in asked.items()}
        noted = {**(annotations or {}), **({CLAIMS: claims} if claims else {})}
        noted |= {RUNS_FOR: runs_for} if runs_for else {}
        meta: dict[str, Any] = {"name": name, "annotations": noted}
        if owner:
            meta["ownerReferences"] = [{"kind": owner_kind, "name": owner, "controller": True}]
        spec: dict[str, Any] = {
            "schedulerName": scheduler,
            "priority": priority,
            "containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}],
            **({"nodeName": node} if node else {}),
            **({"terminationGracePeriodSeconds": grace} if grace is not None else {}),
            **({"activeDeadlineSeconds": deadline} if deadline else {}),
            **({"nodeSelector": dict(selects)} if selects else {}),
            **({"tolerations": [{"key": tolerates, "operator": "Exists"}]} if tolerates else {}),
        }
        self.cluster.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": meta, "spec": spec})
        pod = self.get(name, namespace)
        return extender_v1.BindingCall(name, namespace, pod.metadata.uid, node or "n1")

    def _resource(self, pool: str) -> str:
        native = self.specs.get(pool, {}).get("preemption") == "Native"
        return f"{'native.' if native else ''}berth.dev/{pool}"

    def get(self, name: str, namespace: str = "default") -> Pod:
        found: Pod | None = self.cluster.pod(namespace, name)
        assert found is not None
        return found

    def bound_pod(self, name: str = "", on: str = "n1", **how: Any) -> extender_v1.BindingCall:
        """A pod that was bound by bind."""
        call = self.pod(name, **how)
        assert self.bind(call, on) == ""
        return call

    def gone(self, call: extender_v1.BindingCall) -> dict[str, object]:
        """Delete the pod; what release answers to its event."""
        pod = self.get(call.name, call.namespace)
        self.cluster.delete(f"/api/v1/namespaces/{call.namespace}/pods/{call.name}")
        return self.event_of(pod)

    def count_use(self) -> None:
        """Have the journal count what ended: until then its notes keep documents of what is gone."""
        self.time.now += SETTLED_SECONDS
        self.reconcile()

    def event_of(self, pod: Pod, kind: str = "delete") -> dict[str, object]:
        told = event(kind, {"kind": "Pod", **msgspec.to_builtins(pod)})
        ledger = self._ledger(self.store)
        return release.Release(ledger, self.cluster, ("berth",), self.time, self.teller).run(told)

    def finished(self, call: extender_v1.BindingCall) -> dict[str, object]:
        """The pod succeeds; what release answers to its event."""
        self.finish(call)
        return self.event_of(self.get(call.name), "update")

    # What verbs say

    def why(self, call: extender_v1.BindingCall, *names: str) -> dict[str, str]:
        """The reasons of filter, by node."""
        refused = filter_verb.run(self._ledger(self.store).view, self._offered(call, names), self.time)
        return dict(refused.reasons)

    def passes(self, call: extender_v1.BindingCall, *names: str) -> set[str]:
        return set(names) - self.why(call, *names).keys()

    def scores(self, call: extender_v1.BindingCall, *names: str) -> dict[str, int]:
        found = [msgspec.json.decode(each) for each in self._scored(call, names)]
        return {each["Host"]: each["Score"] for each in found}

    def held(self) -> Held:
        """What pods hold, without bounds; by the pod's name."""
        found: Held = {}
        for claim in self._ledger(self.store, while_closed=True).view().claims():
            mine = found.setdefault(claim.name, {})
            for each in wholes(claim):
                number, units = mine.get((each.pool, each.domain), (0, ()))
                mine[(each.pool, each.domain)] = (number + each.count, tuple(sorted(units + each.units)))
        return found

    def of(self, call: extender_v1.BindingCall, pool: str) -> tuple[str, int, tuple[str, ...]]:
        """What the pod holds of one pool: domain, count and units."""
        (found,) = [
            (where[1], *what) for where, what in self.held().get(call.name, {}).items() if where[0] == pool
        ]
        return found

    def states(self) -> dict[str, str]:
        return {name: state for name, (_, state) in self.claims().items()}

    def free(self, pool: str, domain: str) -> tuple[int, int]:
        return self._ledger(self.store, while_closed=True).view().free[pool][domain]

    def status(self, name: str, namespace: str = "default") -> dict[str, Any]:
        """A PoolClaim's status, without its conditions."""
        found: dict[str, Any] = self.objects.documents[(namespace, name)].get("status") or {}
        return {field: value for field, value in found.items() if field != "conditions"}

    def conditions(self, name: str, namespace: str = "default") -> dict[str, tuple[str, str, str]]:
        """A PoolClaim's conditions by type: status, reason and message."""
        found = (self.objects.documents[(namespace, name)].get("status") or {}).get("conditions", ())
        return {one["type"]: (one["status"], one["reason"], one["message"]) for one in found}

    def woken(self) -> set[str]:
        items, _ = self.cluster.snapshot("/api/v1/pods", {})
        return {
            item["metadata"]["name"]
            for item in items
            if any(found.get("reason") == "Woken" for found in item["status"].get("conditions", []))
        }

    # What must be so

    def check_well(self, *problems: str) -> None:
        """A reconcile finds nothing to mend, and nothing to report but these."""
        assert mended(self.reconcile()) == ({"problems": list(problems)} if problems else {})

    def check_counts(self) -> None:
        """One reconcile later each bound pod has a claim, and there is no other."""
        self.reconcile()
        assert self.claims() == {name: (node, "bound") for name, node in self.bound().items()}
        self.check_well()

    def check_survives_a_loss(self) -> None:
        """A rebuilt ledger has the same holders with the same units."""
        before, states = self.held(), self.states()
        self.lose_ledger()
        assert self.reconcile().rebuilt
        assert (self.held(), self.states()) == (before, states)
        self.check_well()

    def _offered(self, call: extender_v1.BindingCall, names: tuple[str, ...]) -> extender_v1.Candidates:
        return extender_v1.Candidates(self.get(call.name, call.namespace), list(names), True, None)

    def _scored(self, call: extender_v1.BindingCall, names: tuple[str, ...]) -> list[bytes]:
        return prioritize.run(self._ledger(self.store).view, self._offered(call, names))


def mended(report: Report) -> dict[str, Any]:
    """What a reconcile mended or reports; waking pods mends nothing."""
    found = {name: getattr(report, name) for name in report.__struct_fields__ if name != "woken"}
    return {name: value for name, value in found.items() if value}


@contextmanager
def pools_staged(
    folder: Path, place: Place, pools: Mapping[str, Any], nodes: Mapping[str, Any] | None = None
) -> Iterator[PoolsStage]:
    """By default on nodes n1 and n2 without labels."""
    with StandIn() as api:
        stage = PoolsStage(api, folder, place, pools, nodes or {"n1": {}, "n2": {}})
        with closing(stage.store), closing(stage.raw):
            yield stage
