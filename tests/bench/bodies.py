"""The calls that kube-scheduler would make: its own spelling, a whole pod, one of the two node keys null.
Modelled on the recorded calls in events/extender; the nodes are made up, as large as a real one is."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.bench.contents import NO_POOL_CLAIM, POOL_CLAIM, number_of

ROOT = Path(__file__).parents[2]
PLAIN, CLAIMING, REFUSED = "plain", "claiming", "refused"
"""Pods of the recorded call: without its annotation; with a PoolClaim that is there; as it was recorded."""

_CLAIMS = {CLAIMING: POOL_CLAIM, REFUSED: NO_POOL_CLAIM}
_RECORDED = ROOT / "events" / "extender" / "filter-names.json"
_NODE_BYTES = 9600
_NAMES = (b',"Nodes":null,"NodeNames":[', b"]}")
_FULL = (b',"Nodes":{"metadata":{},"items":[', b']},"NodeNames":null}')
_WORKERS, _RUN = 16, 8

Raw = dict[str, Any]


class Calls:
    """Bodies without end, each for a pod of its own, its nodes in an order of its own."""

    def __init__(self, names: Sequence[str], *, full: bool, pod: str = PLAIN) -> None:
        self._pod = _pod(pod)
        self._numbers = itertools.count()
        self._nodes = [msgspec.json.encode(node(name) if full else name) for name in names]
        self.full = dict(zip(names, self._nodes, strict=True)) if full else None
        self._around = _FULL if full else _NAMES
        self._random = random.Random(len(names))

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        number = next(self._numbers)
        identity = {"name": f"pod-{number}", "uid": f"00000000-0000-4000-8000-{number:012}"}
        pod = {**self._pod, "metadata": {**self._pod["metadata"], **identity}}
        before, after = self._around
        nodes = b",".join(_as_found(self._nodes, self._random))
        return b"".join((b'{"Pod":', msgspec.json.encode(pod), before, nodes, after))


def _pod(kind: str) -> Raw:
    pod: Raw = msgspec.json.decode(_RECORDED.read_bytes())["Pod"]
    annotations = {"berth.dev/claims": _CLAIMS[kind]} if kind in _CLAIMS else {}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}


def _as_found(nodes: Sequence[bytes], chance: random.Random) -> Iterator[bytes]:
    """In the order of kube-scheduler's workers, who take the nodes chunk by chunk, side by side.

    Source: kubernetes, pkg/scheduler/framework/parallelize (16 workers, chunks of the root of the number).
    """
    size = max(1, min(math.isqrt(len(nodes)), len(nodes) // _WORKERS + 1))
    chunks = iter([nodes[start : start + size] for start in range(0, len(nodes), size)])
    busy = [list(chunk) for chunk in itertools.islice(chunks, _WORKERS)]
    while busy:
        turn = chance.randrange(len(busy))
        some = chance.randint(1, _RUN)
        yield from busy[turn][:some]
        busy[turn] = busy[turn][some:] or list(next(chunks, ()))
        if not busy[turn]:
            del busy[turn]


def node(name: str) -> Raw:
    """A v1 Node of about 9.6 KB: its images take what the rest leaves."""
    found = _bare_node(name)
    size = len(msgspec.json.encode(found))
    images = found["status"]["images"]
    while size < _NODE_BYTES:
        image = _image(len(images))
        images.append(image)
        size += len(msgspec.json.encode(image)) + 1
    return found


def _bare_node(name: str) -> Raw:
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "m5.4xlarge",
        "topology.kubernetes.io/region": "eu-central-1",
        "topology.kubernetes.io/zone": f"eu-central-1{'abc'[number_of(name) % 3]}",
    }
    return {
        "metadata": {
            "name": name,
            "uid": f"10000000-0000-4000-8000-{number_of(name):012}",
            "resourceVersion": "81234567",
            "creationTimestamp": "2026-03-01T08:00:00Z",
            "labels": labels,
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "managedFields": [_managed("kubelet", labels), _managed("kube-controller-manager", labels)],
        },
        "spec": {
            "podCIDR": "10.1.2.0/24",
            "podCIDRs": ["10.1.2.0/24"],
            "providerID": f"cloud:///zone/{name}",
        },
        "status": _status(name),
    }


def _status(name: str) -> Raw:
    resources = {"cpu": "16", "ephemeral-storage": "103079844Ki", "memory": "64618060Ki", "pods": "110"}
    return {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [
            _condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            _condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            _condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            _condition("Ready", "True", "KubeletReady"),
        ],
        "addresses": [{"type": "InternalIP", "address": "10.0.3.17"}, {"type": "Hostname", "address": name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "machineID": "ec2a1b3c4d5e6f708192a3b4c5d6e7f8",
            "systemUUID": "ec2a1b3c-4d5e-6f70-8192-a3b4c5d6e7f8",
            "bootID": "5c0de5a1-7a52-4e0c-b2f6-8d9a3c1b4e6f",
            "kernelVersion": "6.12.9-cloud-amd64",
            "osImage": "Debian GNU/Linux 13 (trixie)",
            "containerRuntimeVersion": "containerd://2.1.4",
            "kubeletVersion": "v1.36.3",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
        "images": [],
    }


def _condition(kind: str, status: str, reason: str) -> Raw:
    return {
        "type": kind,
        "status": status,
        "lastHeartbeatTime": "2026-11-20T10:00:00Z",
        "lastTransitionTime": "2026-03-01T08:00:30Z",
        "reason": reason,
        "message": f"kubelet says: {reason}",
    }


def _managed(manager: str, labels: Raw) -> Raw:
    fields: Raw = {"f:metadata": {"f:labels": {".": {}, **{f"f:{label}": {} for label in labels}}}}
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    conditions: Raw = {
        f'k:{{"type":"{kind}"}}': {".": {}, "f:lastHeartbeatTime": {}, "f:message": {}, "f:status": {}}
        for kind in kinds
    }
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-11-20T10:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {**fields, "f:status": {"f:conditions": conditions, "f:images": {}}},
    }


def _image(number: int) -> Raw:
    digest = f"{number:02x}" * 32
    return {
        "names": [
            f"registry.example/team/app-{number}@sha256:{digest}",
            f"registry.example/team/app-{number}:v1.{number}",
        ],
        "sizeBytes": 120_000_000 + number,
    }
