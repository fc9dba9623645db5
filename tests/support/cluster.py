"""A thin Kubernetes client for tests, over raw HTTP, so that berth's own client is never what checks berth.

It knows only what the tests need and retries nothing; an answer that is no success raises ApiError.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import urllib3

from tests.support.podwatch import PodWatch
from tests.support.usewatch import UseWatch

Object = dict[str, Any]
T = TypeVar("T")
PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}
UNDERLAY_IP = "berth.dev/underlay-ip"
PARALLEL = 12  # of the 16 connections that are kept
ONE_IP: Mapping[str, int | str] = {UNDERLAY_IP: 1}


class ApiError(Exception):
    def __init__(self, method: str, path: str, status: int, body: Any) -> None:
        message = body.get("message", body) if isinstance(body, dict) else body
        super().__init__(f"{method} {path}: {status} {message}")
        self.status = status
        self.body = body


@dataclass(frozen=True)
class Reply:
    status: int
    body: Any


def wait(predicate: Callable[[], T], seconds: float, what: str, every: float = 0.03) -> T:
    """The predicate's first true value; after `seconds` an AssertionError that tells the last one."""
    deadline = time.monotonic() + seconds
    while not (value := predicate()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what} (last seen: {value!r})")
        time.sleep(every)
    return value


def wait_empty(
    read: Callable[[], Collection[object]], seconds: float, what: str, every: float = 0.03
) -> None:
    """Wait until it reads nothing any more; after `seconds` an AssertionError tells what it read last."""
    last: list[object] = []

    def emptied() -> bool:
        last[:] = read()
        return not last

    try:
        wait(emptied, seconds, f"no more of {what}", every)
    except AssertionError:
        raise AssertionError(f"after {seconds:g} s there is still {what}: {last}") from None


def pod_document(
    name: str,
    resources: Mapping[str, int | str],
    *,
    scheduler: str = "berth",
    cpu: str | None = None,
    priority_class: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    node_name: str | None = None,
    scheduling_gates: Sequence[str] = (),
    spec: Mapping[str, Any] | None = None,
) -> Object:
    """A pod of one container; `spec` overrides whatever the other arguments made of it."""
    amounts = {resource: str(amount) for resource, amount in resources.items()}
    container = {
        "name": "main",
        "image": "none",
        # The API server wants extended resources as limits, and requests equal to them.
        "resources": {"limits": amounts, "requests": amounts | ({"cpu": cpu} if cpu else {})},
    }
    options = {
        "priorityClassName": priority_class,
        "nodeName": node_name,
        "schedulingGates": [{"name": gate} for gate in scheduling_gates],
    }
    given = {key: value for key, value in options.items() if value}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})},
        "spec": {"schedulerName": scheduler, "containers": [container], **given, **(spec or {})},
    }


class Cluster:
    """The API server at `url` as the bearer of `token` sees it; `ca` is not needed for plain http."""

    def __init__(self, url: str, token: str, ca: Path | None = None) -> None:
        self._url = url
        self._token = token
        self._http = urllib3.PoolManager(maxsize=16, ca_certs=str(ca) if ca else None, retries=False)

    def close(self) -> None:
        self._http.clear()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        token: str | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Reply:
        """Any call, whatever the answer, as the bearer of `token`; an empty one is nobody."""
        bearer = self._token if token is None else token
        headers = {"Content-Type": content_type, "Accept": accept}
        headers |= {"Authorization": f"Bearer {bearer}"} if bearer else {}
        data = None if body is None else json.dumps(body)
        timeout = urllib3.Timeout(connect=30, read=120)  # of a machine that is busy
        answer = self._http.request(method, self._url + path, body=data, headers=headers, timeout=timeout)
        is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        return Reply(answer.status, answer.json() if is_json else answer.data.decode())

    def answers(self, seconds: float) -> bool:
        """Whether anything comes back within that time."""
        try:
            self._http.request("GET", f"{self._url}/readyz", timeout=seconds)
        except urllib3.exceptions.HTTPError:
            return False
        return True

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """A call that has to succeed."""
        reply = self.request(method, path, body, content_type=content_type)
        if reply.status >= 300:
            raise ApiError(method, path, reply.status, reply.body)
        return reply.body

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def patch(self, path: str, body: Any, how: str = "merge") -> Any:
        """`how` is merge, strategic or json."""
        return self.call("PATCH", path, body, PATCH_TYPES[how])

    # Nodes, namespaces, priority classes

    def create_node(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        cpu: str = "64",
        pods: str = "110",
        taints: Sequence[Object] = (),
    ) -> Object:
        """A ready node; its second call replaces the not-ready taint that admission gives to new nodes."""
        amounts = {"cpu": cpu, "memory": "256Gi", "pods": pods}
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "there is no kubelet"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, **(labels or {})},
                "annotations": dict(annotations or {}),
            },
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
        }
        # As a kubelet does it: status with the creation, so that no watcher sees a node without capacity.
        self.call("POST", "/api/v1/nodes", node)
        created: Object = self.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": list(taints) or None}})
        return created

    def delete_node(self, name: str) -> None:
        self.call("DELETE", f"/api/v1/nodes/{name}")

    def create_namespace(self, name: str) -> None:
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def create_priority_class(self, name: str, value: int) -> None:
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        self.call("POST", path, {"metadata": {"name": name}, "value": value})

    # Pods

    def create_pod(
        self,
        name: str,
        resources: Mapping[str, int | str] = ONE_IP,
        namespace: str = "default",
        **options: Any,
    ) -> Object:
        """`options` are those of pod_document."""
        document = pod_document(name, resources, **options)
        created: Object = self.call("POST", f"/api/v1/namespaces/{namespace}/pods", document)
        return created

    def create_pods(self, *names: str, **options: Any) -> None:
        """All at once, as far as the API server takes them; `options` are those of create_pod."""
        with ThreadPoolExecutor(PARALLEL) as workers:
            list(workers.map(lambda name: self.create_pod(name, **options), names))

    def get_pod(self, name: str, namespace: str = "default") -> Object:
        pod: Object = self.get(pod_path(name, namespace))
        return pod

    def list_pods(self, namespace: str | None = "default") -> list[Object]:
        """With None the pods of all namespaces."""
        pods: list[Object] = self.get(pods_path(namespace))["items"]
        return pods

    def delete_pod(self, name: str, namespace: str = "default", grace: int = 0) -> None:
        self.call("DELETE", f"{pod_path(name, namespace)}?gracePeriodSeconds={grace}")

    def finish_pod(self, name: str, namespace: str = "default", phase: str = "Succeeded") -> None:
        self.patch(f"{pod_path(name, namespace)}/status", {"status": {"phase": phase}})

    def bound(self, namespace: str | None = "default") -> dict[str, str]:
        """The node of each pod that has one and is not finished."""
        held = (pod for pod in self.list_pods(namespace) if not is_finished(pod))
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in held if pod["spec"].get("nodeName")
        }

    def per_node(self, namespace: str | None = "default") -> Counter[str]:
        return Counter(self.bound(namespace).values())

    def wait_bound(self, *names: str, seconds: float = 60, namespace: str = "default") -> dict[str, str]:
        """The pods' nodes; without names, of all pods there are now."""
        wanted = set(names) or {pod["metadata"]["name"] for pod in self.list_pods(namespace)}

        def missing() -> set[str]:
            return wanted - set(self.bound(namespace))

        deadline = time.monotonic() + seconds
        while absent := missing():
            if time.monotonic() > deadline:
                raise AssertionError(self._why_unbound(sorted(absent), namespace, seconds))
            time.sleep(0.03)
        bound = self.bound(namespace)
        return {name: bound[name] for name in wanted}

    def _why_unbound(self, names: list[str], namespace: str, seconds: float) -> str:
        said = self.events_of(names[0], namespace)
        return f"not bound within {seconds:g} s: {', '.join(names)}; of {names[0]} was said: {said}"

    def condition(self, name: str, kind: str, namespace: str = "default") -> Object | None:
        conditions: list[Object] = self.get_pod(name, namespace)["status"].get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), None)

    def events_of(
        self, name: str, namespace: str = "default", reason: str | None = "FailedScheduling"
    ) -> list[str]:
        """The messages of the events about a pod, oldest first; with reason None, of all of them."""
        wanted = {"involvedObject.name": name} | ({"reason": reason} if reason else {})
        selector = ",".join(f"{field}={value}" for field, value in wanted.items())
        path = f"/api/v1/namespaces/{namespace}/events?{urlencode({'fieldSelector': selector})}"
        events = sorted(self.get(path)["items"], key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [event["message"] for event in events]

    def watch_pods(self, resource: str = UNDERLAY_IP) -> PodWatch:
        """Use as `with cluster.watch_pods() as seen:`; then `seen.peak[node]`."""
        return PodWatch(self._http, self._url, self._token, resource)

    def watch_use(self, resource: str = UNDERLAY_IP) -> UseWatch:
        """As `watch_pods`; it also has when each pod was made, bound and gone."""
        return UseWatch(self._http, self._url, self._token, resource)


def pods_path(namespace: str | None) -> str:
    return "/api/v1/pods" if namespace is None else f"/api/v1/namespaces/{namespace}/pods"


def pod_path(name: str, namespace: str = "default") -> str:
    return f"{pods_path(namespace)}/{name}"


def is_finished(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
