"""Pods, nodes and Pools for tests of the policy and the verbs, as small as a test needs them.

They are built as berth decodes them; nothing here is a fixture.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from berth.api import pool as pools
from berth.api.names import API_VERSION
from berth.api.pool import Pool
from berth.http import extender_v1
from berth.http.cloudevents import Event
from berth.kube.types import Container, Meta, Node, Pod, PodSpec, Quantity, Resources

EVENTS = Path(__file__).resolve().parents[3] / "events"
IP = "berth.dev/underlay-ip"
SEAT = "berth.dev/matlab-licence"


def event(change: str, about: Mapping[str, Any]) -> Event:
    """An event of Knative's ApiServerSource: `change` is add, update or delete."""
    return Event(f"dev.knative.apiserver.resource.{change}", msgspec.Raw(msgspec.json.encode(about)))


def container(requests: Mapping[str, Quantity], restart_policy: str | None = None) -> Container:
    return Container(Resources(requests=dict(requests)), restart_policy)


def sidecar(requests: Mapping[str, Quantity]) -> Container:
    return container(requests, "Always")


def pod(
    *containers: Container,
    init: Sequence[Container] = (),
    overhead: Mapping[str, Quantity] | None = None,
    name: str = "a",
) -> Pod:
    spec = PodSpec(
        scheduler_name="berth",
        containers=list(containers),
        init_containers=list(init) or None,
        overhead=None if overhead is None else dict(overhead),
    )
    return Pod(Meta(name=name, namespace="default", uid=f"uid-of-{name}"), spec)


def pod_asking(requests: Mapping[str, Quantity]) -> Pod:
    return pod(container(requests))


def node(
    name: str = "n1", labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
) -> Node:
    return Node(Meta(name=name, labels=dict(labels or {}), annotations=dict(annotations or {})))


def pool_document(name: str = "underlay-ip", **spec: Any) -> dict[str, Any]:
    """A Pool document as operators write it; 10 units in each domain unless told otherwise."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Pool",
        "metadata": {"name": name},
        "spec": {"capacity": {"perDomain": 10}, **spec},
    }


def pool(name: str = "underlay-ip", **spec: Any) -> Pool:
    return pools.parse([pool_document(name, **spec)], "a test")[name]


def pools_of(*found: Pool) -> dict[str, Pool]:
    """Pools by resource, as `demand` takes them."""
    return pools.by_resource({pool.name: pool for pool in found})


def filter_call(names: Sequence[str], requests: Mapping[str, Quantity] | None = None) -> bytes:
    """A filter or prioritize call as kube-scheduler makes it with nodeCacheCapable."""
    resources = {"requests": dict(requests or {})}
    document = {
        "metadata": {"name": "a", "namespace": "default", "uid": "u"},
        "spec": {"containers": [{"name": "main", "resources": resources}], "schedulerName": "berth"},
    }
    return json.dumps({"Pod": document, "Nodes": None, "NodeNames": list(names)}).encode()


def candidates(
    names: Sequence[str], requests: Mapping[str, Quantity] | None = None
) -> extender_v1.Candidates:
    return extender_v1.candidates(filter_call(names, requests))


def units_at(pool: Pool, at: Node) -> int | None:
    """Return the units of the node's domain, or None when it has none."""
    domain = pool.domain_of(at)
    return None if domain is None else pool.capacity_of(domain, at)
