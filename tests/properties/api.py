"""An API server in memory that berth's own client talks to without sockets, for the property test.

It is the demonstration's stand-in, which tests/testing/test_conformance*.py hold against the real one. That
one costs milliseconds a call, and can't be stopped between two calls.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import msgspec
import urllib3
from urllib3.connection import HTTPConnection

from berth.api.gang import GANG, GANG_SIZE
from berth.api.poolclaim import CLAIMS
from berth.api.run_time import RUNS_FOR
from berth.kube.client import Client
from berth.kube.cluster import BERTH_API, POOL_CLAIMS, POOLS, Cluster, pool_claim_path
from berth.testing.api_server import calls
from berth.testing.api_server.memory import Memory
from berth.testing.api_server.rules import Json, Key, StatusError, merge
from tests.properties.pools import CLAIM, NAMESPACE, NodeIs, Spec, space_of
from tests.properties.wish import Wish

HOST = "http://in.memory"
FINALIZER = "example.com/kept"
_REVISION = "5d8f"
_CLAIM_PATH = pool_claim_path(NAMESPACE, CLAIM)
Carried = Callable[[str, str, Any, Callable[[], "Answer"]], "Answer"]


class Answer:
    """As much of an answer as berth's client looks at."""

    def __init__(self, status: int, body: Json | str) -> None:
        self.status = status
        self.data = body.encode() if isinstance(body, str) else msgspec.json.encode(body)


class Api:
    """Pods in one namespace and nodes; `carried` is told each request and lets it through, or not."""

    ConnectionCls, proxy = HTTPConnection, None  # what berth's client looks at of a pool of urllib3's

    def __init__(self, clock: Callable[[], float], carried: Carried) -> None:
        numbers = count(1)
        self._memory = Memory(clock, lambda: f"uid-{next(numbers)}", 10_000)
        self._memory.kube_system["metadata"]["uid"] = "a-cluster"
        self._versions = count(1)
        self._ours: dict[str, Json] = {}  # Pools and the PoolClaim, by path
        self.refused: set[str] = set()  # pods whose status can't be written: a webhook is down for them
        self._carried = carried

    def cluster(self, api_client: Client) -> Cluster:
        """berth's view of it, for one process; the client was made by `api_client`."""
        api_client.pool = self  # all that it uses of urllib3's is the pool for this server, and its `urlopen`
        return Cluster(api_client)

    def connection_from_url(self, _: str, __: object = None) -> "Api":
        return self

    def urlopen(self, method: str, url: str, *, headers: Mapping[str, str], body: Any, **_: Any) -> Answer:
        """What urllib3's pool does for the client."""
        document = None if body is None else msgspec.json.decode(body)
        target = url.removeprefix(HOST)

        def play() -> Answer:
            if target.startswith(BERTH_API):  # which the stand-in does not have: it knows pods and nodes
                return self._about_ours(target, document)
            if method == "PATCH" and (document or {}).get("metadata", {}).get("uid") in self.refused:
                return Answer(500, {"message": "failed calling webhook: connection refused"})
            try:
                action, call = calls.find(method, target, headers["Content-Type"], document)
                return Answer(*action(self._memory, call))
            except StatusError as refusal:
                return Answer(refusal.code, refusal.status())

        return self._carried(method, urlsplit(target).path, document, play)

    def _about_ours(self, target: str, document: Json | None) -> Answer:
        """All of a kind, one of them, or a write of one's status, which names the version that was read."""
        if (listed := urlsplit(target).path) in (POOLS, POOL_CLAIMS):
            kind = "/pools/" if listed == POOLS else "/poolclaims/"
            return Answer(200, {"items": [each for path, each in self._ours.items() if kind in path]})
        path = target.removesuffix("/status")
        found = self._ours.get(path)
        if found is None:
            return Answer(404, {"message": "there is none"})
        if document is None:
            return Answer(200, found)
        if document["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            return Answer(409, {"message": "it was written since"})
        return Answer(200, self._write_ours(path, merge(found, {"status": document["status"]})))

    def _write_ours(self, path: str, document: Json) -> Json:
        version = str(next(self._versions))
        self._ours[path] = {**document, "metadata": {**document["metadata"], "resourceVersion": version}}
        return self._ours[path]

    # What its users do

    def create_pod(self, name: str, wish: Wish) -> str:
        """A waiting pod; its UID."""
        asked = {f"berth.dev/{pool}": str(number) for pool, number in wish.units.items()}
        container = {"name": "main", "image": "x", "resources": {"limits": asked, "requests": asked}}
        spec = {"schedulerName": "berth", "containers": [container], "priority": wish.priority}
        kind, _, owner = wish.owner.partition(":")
        revision = f"-{_REVISION}" if kind == "ReplicaSet" else ""
        owners = (
            [{"kind": kind, "name": f"{owner}{revision}", "uid": wish.owner, "controller": True}]
            if kind
            else []
        )
        labels = {"pod-template-hash": _REVISION} if kind == "ReplicaSet" else {}
        notes = {CLAIMS: CLAIM} if wish.claim else {}
        notes |= {RUNS_FOR: wish.runs_for} if wish.runs_for else {}
        notes |= {GANG: wish.gang, GANG_SIZE: str(wish.size)} if wish.gang else {}
        finalizers = [FINALIZER] if wish.finalizer else []
        lists = {"ownerReferences": owners, "labels": labels, "annotations": notes, "finalizers": finalizers}
        body = {"metadata": {"name": name, **{key: it for key, it in lists.items() if it}}, "spec": spec}
        uid: str = self._memory.create("pods", space_of(name), body)["metadata"]["uid"]
        return uid

    def delete_pod(self, name: str, *, at_once: bool) -> None:
        """Not at once: a bound pod is marked, and runs on until it is deleted once more."""
        self._memory.delete(pod_key(name), 0 if at_once else None, {})

    def finish_pod(self, name: str, phase: str = "Succeeded") -> None:
        """Its container has run."""
        status = {"phase": phase, "containerStatuses": [{"name": "main", "containerID": "x"}]}
        self._memory.patch(pod_key(name), {"status": status}, False, "spec")

    def take_off_finalizer(self, name: str) -> None:
        """A pod that was deleted goes by that."""
        self._memory.patch(pod_key(name), {"metadata": {"finalizers": None}}, False, "spec")

    def write_pod(self, name: str, text: str) -> None:
        """Somebody writes to its status, which gives it a new resourceVersion."""
        note = {"type": "example.com/x", "status": "True", "message": text}
        self._memory.patch(pod_key(name), {"status": {"conditions": [note]}}, True, "spec")

    def say_why_not(self, name: str, text: str) -> None:
        """kube-scheduler says why it has placed the pod nowhere; the same again is no write."""
        said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
        self._memory.patch(pod_key(name), {"status": {"conditions": [said]}}, True, "spec")

    def bind_around(self, name: str, node: str) -> None:
        """A Binding that berth had no part in."""
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        self._memory.bind(pod_key(name), binding)

    def set_node(self, name: str, wanted: NodeIs) -> None:
        """The node, there or not before, like this."""
        noted = {f"example.com/{pool}": str(units) for pool, units in wanted.units.items()}
        meta = {"annotations": noted, "labels": {"zone": wanted.zone or None}}
        status = {"conditions": [{"type": "Ready", "status": "True" if wanted.ready else "Unknown"}]}
        if name not in self.nodes():
            self._memory.create("nodes", "", {"metadata": {"name": name}})
        self._memory.patch(node_key(name), {"metadata": meta, "status": status}, False, "spec")
        cordoned = {"spec": {"unschedulable": wanted.cordoned or None}}
        self._memory.patch(node_key(name), cordoned, False, "status")

    def remove_node(self, name: str) -> None:
        self._memory.delete(node_key(name), 0, {})

    def set_pool(self, name: str, spec: Spec | None) -> None:
        """The Pool; None: it is taken away."""
        if spec is None:
            self._ours.pop(f"{POOLS}/{name}", None)
            return
        self._write_ours(f"{POOLS}/{name}", {"metadata": {"name": name}, "spec": dict(spec)})

    def set_claim(self, spec: Spec | None) -> None:
        """The PoolClaim; None: it is taken away."""
        if spec is None:
            self._ours.pop(_CLAIM_PATH, None)
            return
        self._write_ours(_CLAIM_PATH, {"metadata": {"name": CLAIM, "namespace": NAMESPACE}, "spec": spec})

    # What there is

    def claimed(self) -> Json | None:
        """The PoolClaim."""
        return self._ours.get(_CLAIM_PATH)

    def pods(self) -> dict[str, Json]:
        """By UID."""
        found, _ = self._memory.select("pods", "", lambda _: True)
        return {pod["metadata"]["uid"]: pod for pod in found}

    def nodes(self) -> dict[str, NodeIs]:
        found, _ = self._memory.select("nodes", "", lambda _: True)
        return {node["metadata"]["name"]: _as_it_is(node) for node in found}


def _as_it_is(node: Json) -> NodeIs:
    meta = node["metadata"]
    units = {key.partition("/")[2]: int(units) for key, units in meta.get("annotations", {}).items()}
    ready = any(each["status"] == "True" for each in node.get("status", {}).get("conditions", ()))
    cordoned = bool(node.get("spec", {}).get("unschedulable"))
    return NodeIs(units, meta.get("labels", {}).get("zone", ""), ready, cordoned)


class _Nobody:
    """Reaches this API server as nobody."""

    host, pool = HOST, None

    def headers(self, wanted: Mapping[str, str]) -> Mapping[str, str]:
        return wanted

    def renew(self) -> None:
        pass


def api_client() -> Client:
    """What `berth.kube.cluster.connect` would make for this API server."""
    return _Nobody()


def lost() -> BaseException:
    """What the client sees of a request, or of its answer, that got lost."""
    return urllib3.exceptions.ReadTimeoutError(None, HOST, "no answer")  # type: ignore[arg-type]


def pod_key(name: str) -> Key:
    return Key("pods", space_of(name), name)


def node_key(name: str) -> Key:
    return Key("nodes", "", name)


def bound_node(pod: Json) -> str:
    """Its node, empty while it waits."""
    return str(pod["spec"].get("nodeName") or "")


def finished(pod: Json) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")
