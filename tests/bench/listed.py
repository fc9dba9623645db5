"""An API server whose nodes and pods are prepared lists, told page by page as Kubernetes tells them.
It takes any write, and nothing in it changes. GET /asked tells what it was asked, and forgets it."""

import argparse
import json
import random
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from tests.bench.at_once import serve
from tests.bench.bodies import node
from tests.bench.contents import CAPACITY, POOL, RESOURCE, node_names

Raw = dict[str, Any]

_NODES, _PODS = "/api/v1/nodes", "/api/v1/pods"
_VERSION = "81234567"
_LEAST, _STEP, _SIZES = 4096, 256, 16  # bytes of a pod: from 4 to 8 KB
_NAME, _UID, _NODE = "pod-NAME", "UID-OF-THE-POD", "NODE-OF-THE-POD"
_FINISHED = 10  # one of so many pods of others has succeeded
_IDENTITY = b'{"metadata":{"name":"kube-system","uid":"bench"}}'
_NOTHING = b'{"metadata":{"resourceVersion":"81234567"},"items":[]}'


def pod_name(number: int) -> str:
    return f"listed-{number}"


def pod_uid(number: int) -> str:
    # By chance, as real ones are: some stores pack what they hold.
    return str(uuid.UUID(int=random.Random(number).getrandbits(128), version=4))


def node_of(number: int, nodes: Sequence[str]) -> str:
    return nodes[number % len(nodes)]


class Lists:
    """So many nodes and pods, of which the first ones are ours, bound, with a unit each."""

    def __init__(self, nodes: int, pods: int, ours: int) -> None:
        names = node_names(nodes)
        nodes_by_name = {name: msgspec.json.encode(node(name)) for name in names}
        pods_by_name = {pod_name(number): pod for number, pod in enumerate(_pods(names, pods, ours))}
        self._single = {
            **{f"{_NODES}/{name}": body for name, body in nodes_by_name.items()},
            **{f"/api/v1/namespaces/default/pods/{name}": body for name, body in pods_by_name.items()},
        }
        self._items = {
            _NODES: list(nodes_by_name.values()),
            _PODS: list(pods_by_name.values()),
            "/apis/berth.dev/v1alpha1/pools": [msgspec.json.encode(_POOL)],
            "/apis/berth.dev/v1alpha1/poolclaims": [],
        }
        self._asked, self._bytes = Counter[str](), 0

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        url = urlsplit(target)
        if url.path == "/asked":
            told, self._asked, self._bytes = {"calls": self._asked, "bytes": self._bytes}, Counter(), 0
            return 200, msgspec.json.encode(told)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        what = f"{url.path.rpartition('/')[0]}/NAME" if url.path in self._single else url.path
        self._asked[f"{method} {what}{' selected' if 'fieldSelector' in query else ''}"] += 1
        status, content = self._answer(method, url.path, query, body)
        self._bytes += len(content)
        return status, content

    def _answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if method != "GET":
            return 200, body
        if path.endswith("/kube-system"):
            return 200, _IDENTITY
        if (one := self._single.get(path)) is not None:
            return 200, one
        if (items := self._items.get(path)) is None:
            return 404, b'{"message":"there is none"}'
        if "fieldSelector" in query:  # pods without a node: all have one
            return 200, _NOTHING
        return 200, _page(items, int(query.get("continue", 0)), int(query.get("limit", len(items))))


def _page(items: Sequence[bytes], start: int, most: int) -> bytes:
    meta: Raw = {"resourceVersion": _VERSION}
    if (left := len(items) - start - most) > 0:
        meta |= {"continue": str(start + most), "remainingItemCount": left}
    head = b'{"kind":"List","apiVersion":"v1","metadata":%b,"items":[' % msgspec.json.encode(meta)
    return head + b",".join(items[start : start + most]) + b"]}\n"


_POOL = {
    "apiVersion": "berth.dev/v1alpha1",
    "kind": "Pool",
    "metadata": {"name": POOL, "uid": "pool", "resourceVersion": _VERSION, "generation": 1},
    "spec": {"capacity": {"perDomain": CAPACITY}},
}


def _pods(nodes: Sequence[str], pods: int, ours: int) -> list[bytes]:
    """Pods of many sizes; equal but for who they are and where they run."""
    own = [msgspec.json.encode(_pod(size, own=True)) for size in range(_SIZES)]
    others = [
        msgspec.json.encode(_pod(size, own=False, phase=phase))
        for phase in ("Running", "Succeeded")
        for size in range(_SIZES)
    ]
    listed = []
    for number in range(pods):
        finished = number >= ours and number % _FINISHED == 0
        template = own[number % _SIZES] if number < ours else others[number % _SIZES + _SIZES * finished]
        for placeholder, value in (
            (_NAME, pod_name(number)),
            (_UID, pod_uid(number)),
            (_NODE, node_of(number, nodes)),
        ):
            template = template.replace(placeholder.encode(), value.encode())
        listed.append(template)
    return listed


def _pod(size: int, *, own: bool, phase: str = "Running") -> Raw:
    """A pod of about so many steps above the smallest: its environment takes what the rest leaves."""
    pod = _bare_pod(own, phase)
    environment, wanted = pod["spec"]["containers"][0]["env"], _LEAST + _STEP * size
    while (missing := wanted - len(msgspec.json.encode(pod))) > 0:
        name = f"SETTING_{len(environment)}"
        environment.append({"name": name, "value": "x" * min(40, missing)})
    return pod


def _bare_pod(own: bool, phase: str) -> Raw:
    requests = {"cpu": "250m", "memory": "256Mi", **({RESOURCE: "1"} if own else {})}
    allocated = [{"pool": POOL, "domain": _NODE, "count": 1}]
    annotations = {"berth.dev/allocated": json.dumps(allocated, separators=(",", ":"))} if own else {}
    labels = {
        "app.kubernetes.io/name": "shop",
        "app.kubernetes.io/part-of": "storefront",
        "pod-template-hash": "5555555555",
    }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-5555555555"}
    return {
        "metadata": {
            "name": _NAME,
            "generateName": "shop-5555555555-",
            "namespace": "default",
            "uid": _UID,
            "resourceVersion": _VERSION,
            "creationTimestamp": "2026-11-20T10:00:00Z",
            "labels": labels,
            "annotations": {"example.com/checksum": "of-the-release", **annotations},
            "ownerReferences": [{**owner, "uid": "5c0de5a1", "controller": True, "blockOwnerDeletion": True}],
            "managedFields": [_managed("kube-controller-manager", labels), _managed("kubelet", labels)],
        },
        "spec": _spec(requests, "berth" if own else "default-scheduler"),
        "status": _status(phase),
    }


def _spec(requests: Raw, scheduler: str) -> Raw:
    mount = {"name": "kube-api-access", "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io"}
    container = {
        "name": "main",
        "image": "registry.example/team/shop:v1.2.3",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [],
        "resources": {"limits": requests, "requests": requests},
        "volumeMounts": [mount],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    tolerated = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    return {
        "volumes": [{"name": "kube-api-access", "projected": {"sources": [{"serviceAccountToken": {}}]}}],
        "containers": [container],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "nodeName": _NODE,
        "securityContext": {},
        "schedulerName": scheduler,
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", **tolerated} for key in ("not-ready", "unreachable")
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _status(phase: str) -> Raw:
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    since = "2026-11-20T10:00:05Z"
    return {
        "phase": phase,
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": since}
            for kind in kinds
        ],
        "hostIP": "10.0.3.17",
        "hostIPs": [{"ip": "10.0.3.17"}],
        "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}],
        "startTime": since,
        "containerStatuses": [
            {
                "name": "main",
                "state": {"running": {"startedAt": since}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": "registry.example/team/shop:v1.2.3",
                "imageID": f"registry.example/team/shop@sha256:{'ab' * 32}",
                "containerID": f"containerd://{'cd' * 32}",
                "started": True,
            }
        ],
        "qosClass": "Guaranteed",
    }


def _managed(manager: str, labels: Raw) -> Raw:
    fields = ("image", "imagePullPolicy", "name", "resources", "terminationMessagePath", "volumeMounts")
    container: Raw = {".": {}, **{f"f:{field}": {} for field in fields}}
    kinds = ("Initialized", "Ready", "ContainersReady")
    told: Raw = {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}}
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-11-20T10:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {
                "f:generateName": {},
                "f:labels": {".": {}, **{f"f:{name}": {} for name in labels}},
            },
            "f:spec": {
                "f:containers": {'k:{"name":"main"}': container},
                "f:dnsPolicy": {},
                "f:schedulerName": {},
            },
            "f:status": {"f:conditions": {f'k:{{"type":"{kind}"}}': told for kind in kinds}, "f:podIPs": {}},
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("port", "nodes", "pods", "ours"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    serve(options.port, Lists(options.nodes, options.pods, options.ours).answer)


if __name__ == "__main__":
    main()
