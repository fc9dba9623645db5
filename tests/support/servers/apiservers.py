"""One API server after the other for the conformance test: the demonstration's stand-in, then the real one.
What the real one needs that the stand-in does not (namespaces, a restart) is done here, not in tests."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any
from urllib.parse import urlencode

import pytest
import urllib3

from berth.testing.api_server import StandIn
from tests.controlplane.plane import ControlPlane
from tests.support.cluster import PATCH_TYPES, Cluster, Object, Reply

STAND_IN = "the stand-in"
REAL = "kube-apiserver"
HISTORY = 400
_numbers = count(1)

WAITING = {"type": "berth.dev/Waiting", "status": "True", "reason": "Full"}
NOBODY = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Api:
    """Calls as bare as they are; `forget` makes the server forget what a watch could resume from."""

    cluster: Cluster
    http: urllib3.PoolManager
    url: str
    token: str
    prepare_namespace: Callable[[str], object]
    forget: Callable[[], object]
    namespace: str = ""

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def call(self, method: str, path: str, body: Any = None, patch: str = "") -> Reply:
        """`patch` is merge or strategic."""
        content_type = PATCH_TYPES[patch] if patch else "application/json"
        return self.cluster.request(method, path, body, content_type=content_type)

    def create(self, name: str, labels: Object | None = None, **metadata: Any) -> Object:
        """A pod with schedulerName berth."""
        spec = {"schedulerName": "berth", "containers": [{"name": "main", "image": "none"}]}
        spec |= metadata.pop("spec", {})
        body = {"metadata": {"name": name, "labels": labels or {}, **metadata}, "spec": spec}
        pod: Object = self.cluster.call("POST", self.pods, body)
        return pod

    def bind(self, pod: str, node: str = "node-1", **metadata: Any) -> Reply:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, **metadata},
            "target": target,
        }
        return self.call("POST", f"{self.pods}/{pod}/binding", body)

    def patch_status(self, name: str, status: Object, how: str = "strategic", **metadata: Any) -> Reply:
        return self.call("PATCH", f"{self.pods}/{name}/status", {"metadata": metadata, "status": status}, how)

    def delete(self, name: str, grace: int | None = 0) -> Reply:
        query = "" if grace is None else f"?gracePeriodSeconds={grace}"
        return self.call("DELETE", f"{self.pods}/{name}{query}")

    def get(self, name: str) -> Object:
        pod: Object = self.cluster.get(f"{self.pods}/{name}")
        return pod

    def revision(self, path: str = "") -> str:
        """Where a watch begins that is to see everything from now on."""
        return str(self.cluster.get(path or self.pods)["metadata"]["resourceVersion"])

    def names(self, path: str, **selectors: str) -> set[str]:
        found = self.cluster.get(f"{path}?{urlencode(selectors)}")["items"]
        return {item["metadata"]["name"] for item in found}

    @contextmanager
    def watch(self, since: str = "", path: str = "", **query: str) -> Iterator[Iterator[Object]]:
        """The events as they come; the watch is answered before the block begins."""
        fields = {"watch": "1", "timeoutSeconds": "20", "resourceVersion": since, **query}
        url = f"{self.url}{path or self.pods}?{urlencode({k: v for k, v in fields.items() if v})}"
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = self.http.request("GET", url, headers=headers, preload_content=False, timeout=10)
        try:
            yield (json.loads(line) for line in answer)
        finally:
            answer.close()


@contextmanager
def _stand_in() -> Iterator[Api]:
    with StandIn(history=HISTORY) as stand_in, urllib3.PoolManager() as http:
        cluster = Cluster(stand_in.url, "none")

        def forget() -> None:
            cluster.call("POST", "/api/v1/nodes", {"metadata": {"name": "busy"}})
            for turn in range(2 * HISTORY):
                cluster.patch("/api/v1/nodes/busy", {"metadata": {"annotations": {"turn": str(turn)}}})

        yield Api(cluster, http, stand_in.url, "none", prepare_namespace=len, forget=forget)


@contextmanager
def _real(plane: ControlPlane) -> Iterator[Api]:
    def forget() -> None:
        plane.stop_apiserver()
        plane.start_apiserver()

    with plane, urllib3.PoolManager(ca_certs=str(plane.ca_file)) as http:
        cluster = Cluster(plane.url, plane.admin_token, plane.ca_file)
        yield Api(cluster, http, plane.url, plane.admin_token, cluster.create_namespace, forget)


@pytest.fixture(name="served", scope="module", params=[STAND_IN, REAL])
def served_api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One server for all tests of a module."""
    if request.param == STAND_IN:
        with _stand_in() as api:
            yield api
    else:
        folder = tmp_path_factory.mktemp("plane")
        with _real(ControlPlane(request.getfixturevalue("binaries"), folder)) as api:
            yield api


@pytest.fixture(name="api")
def fresh_api(served: Api) -> Api:
    """The server, with a namespace of this test's own."""
    namespace = f"test-{next(_numbers)}"
    served.prepare_namespace(namespace)
    return replace(served, namespace=namespace)


def told(reply: Reply) -> tuple[int, str]:
    """How a Status answers: its code and reason."""
    return reply.status, reply.body.get("reason", "")


def conditions(pod: Object) -> dict[str, Object]:
    return {condition["type"]: condition for condition in pod["status"].get("conditions", [])}


def version(pod: Object) -> str:
    return str(pod["metadata"]["resourceVersion"])


def seen(events: Iterator[Object], count: int) -> list[tuple[str, str]]:
    """Type and object's name of so many events."""
    return [(event["type"], event["object"]["metadata"]["name"]) for event in islice(events, count)]


def at_once(count: int, action: Callable[[int], Reply]) -> list[int]:
    """The statuses of that many calls made at the same moment."""
    barrier = threading.Barrier(count)
    statuses: list[int] = []

    def run(number: int) -> None:
        barrier.wait()
        statuses.append(action(number).status)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses
