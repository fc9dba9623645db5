"""An API server in memory that berth's own client talks to without sockets, for the property test.

It is the demonstration's stand-in, which tests/contract/test_apiserver_*.py hold against the real one. That
one costs milliseconds a call, and can't be stopped between two calls.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import msgspec
import urllib3
from kubernetes import client

from berth.apiserver import Client
from berth.cluster import Cluster
from berth.demo import calls
from berth.demo.checks import Key
from berth.demo.memory import Memory
from berth.demo.rules import Json, StatusError
from tests.support.objects import pool_document

HOST = "http://in.memory"
NAMESPACE = "default"
NODES, POOLS = ("n1", "n2"), ("ip", "seat")
RESOURCES = {pool: f"berth.dev/{pool}" for pool in POOLS}
_POOLS_PATH = "/apis/berth.dev/v1alpha1/pools"
_POOLS = [
    pool_document(pool, capacity={"nodeAnnotation": f"example.com/{pool}"}, resource=RESOURCES[pool])
    for pool in POOLS
]
Carried = Callable[[str, str, Any, Callable[[], "Answer"]], "Answer"]


class Answer:
    """As much of urllib3's response as berth's client looks at."""

    def __init__(self, status: int, body: Json | str) -> None:
        self.status = status
        self._content = body.encode() if isinstance(body, str) else msgspec.json.encode(body)

    def read(self) -> bytes:
        return self._content

    def release_conn(self) -> None:
        pass


class Api:
    """Pods in one namespace and nodes; `carried` is told each request and lets it through, or not."""

    def __init__(self, clock: Callable[[], float], carried: Carried) -> None:
        numbers = count(1)
        self._memory = Memory(clock, lambda: f"uid-{next(numbers)}", 10_000)
        self._memory.kube_system["metadata"]["uid"] = "a-cluster"
        self._pools = {
            pool["metadata"]["name"]: {**pool, "metadata": {**pool["metadata"], "resourceVersion": "1"}}
            for pool in _POOLS
        }
        self._carried = carried

    def cluster(self, api_client: Client) -> Cluster:
        """berth's view of it, for one process; the client was made by `api_client`."""
        vars(api_client.rest_client)["pool_manager"] = self  # all that it uses of urllib3's is `request`
        return Cluster(api_client)

    def request(self, method: str, url: str, *, headers: Mapping[str, str], body: Any, **_: Any) -> Answer:
        """What urllib3's pool does for the client."""
        document = None if body is None else msgspec.json.decode(body)
        target = url.removeprefix(HOST)

        def play() -> Answer:
            if target.startswith(_POOLS_PATH):  # which the stand-in does not have: it knows pods and nodes
                return self._about_pools(target, document)
            try:
                action, call = calls.find(method, target, headers["Content-Type"], document)
                return Answer(*action(self._memory, call))
            except StatusError as refusal:
                return Answer(refusal.code, refusal.status())

        return self._carried(method, urlsplit(target).path, document, play)

    def _about_pools(self, target: str, document: Json | None) -> Answer:
        """All of them, or a write of one's status, which names the version that was read."""
        if document is None:
            return Answer(200, {"items": list(self._pools.values())})
        pool = self._pools[target.removeprefix(f"{_POOLS_PATH}/").removesuffix("/status")]
        version = pool["metadata"]["resourceVersion"]
        if document["metadata"]["resourceVersion"] != version:
            return Answer(409, {"message": "the Pool was written since"})
        meta = {**pool["metadata"], "resourceVersion": str(int(version) + 1)}
        self._pools[meta["name"]] = {**pool, "metadata": meta, "status": document["status"]}
        return Answer(200, self._pools[meta["name"]])

    # What its users do

    def create_pod(self, name: str, asks: Mapping[str, int]) -> str:
        """A waiting pod; its UID."""
        asked = {RESOURCES[pool]: str(units) for pool, units in asks.items()}
        container = {"name": "main", "image": "x", "resources": {"limits": asked, "requests": asked}}
        body = {"metadata": {"name": name}, "spec": {"schedulerName": "berth", "containers": [container]}}
        uid: str = self._memory.create("pods", NAMESPACE, body)["metadata"]["uid"]
        return uid

    def delete_pod(self, name: str, *, at_once: bool) -> None:
        """Not at once: a bound pod is marked, and runs on until it is deleted once more."""
        self._memory.delete(pod_key(name), 0 if at_once else None, {})

    def finish_pod(self, name: str) -> None:
        self._memory.patch(pod_key(name), {"status": {"phase": "Succeeded"}}, False, "spec")

    def write_pod(self, name: str, text: str) -> None:
        """Somebody writes to its status, which gives it a new resourceVersion."""
        note = {"type": "example.com/x", "status": "True", "message": text}
        self._memory.patch(pod_key(name), {"status": {"conditions": [note]}}, True, "spec")

    def bind_around(self, name: str, node: str) -> None:
        """A Binding that berth had no part in."""
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        self._memory.bind(pod_key(name), binding)

    def set_node(self, name: str, capacities: Mapping[str, int]) -> None:
        """The node, there or not before, with these capacities."""
        noted = {"annotations": {f"example.com/{pool}": str(units) for pool, units in capacities.items()}}
        if name in self.nodes():
            self._memory.patch(node_key(name), {"metadata": noted}, False, "status")
        else:
            self._memory.create("nodes", "", {"metadata": {"name": name, **noted}})

    def remove_node(self, name: str) -> None:
        self._memory.delete(node_key(name), 0, {})

    # What there is

    def pods(self) -> dict[str, Json]:
        """By UID."""
        found, _ = self._memory.select("pods", "", lambda _: True)
        return {pod["metadata"]["uid"]: pod for pod in found}

    def nodes(self) -> dict[str, dict[str, int]]:
        """The capacities of each, by pool."""
        found, _ = self._memory.select("nodes", "", lambda _: True)
        return {
            node["metadata"]["name"]: {
                pool: int(node["metadata"]["annotations"][f"example.com/{pool}"]) for pool in POOLS
            }
            for node in found
        }


def api_client() -> Client:
    """The kubernetes client, as `berth.cluster.connect` would make it for this API server."""
    settings = client.Configuration()
    settings.host = HOST
    return Client(settings)


def lost() -> BaseException:
    """What the client sees of a request, or of its answer, that got lost."""
    return urllib3.exceptions.ReadTimeoutError(None, HOST, "no answer")  # type: ignore[arg-type]


def pod_key(name: str) -> Key:
    return Key("pods", NAMESPACE, name)


def node_key(name: str) -> Key:
    return Key("nodes", "", name)


def bound_node(pod: Json) -> str:
    """Its node, empty while it waits."""
    return str(pod["spec"].get("nodeName") or "")


def finished(pod: Json) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")
