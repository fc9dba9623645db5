"""The Pools and nodes of test_capabilities.py, and what its tests do with them: ask, look, change.
Each of these is one step; what has to come of it is the test's to say."""

import json
from typing import Any

from msgspec.structs import replace

from berth.ledger.model import Claim
from tests.e2e.harness import System, pool
from tests.support.cluster import Object, wait

ZONE = "topology.kubernetes.io/zone"
NODES = {"a-1": "zone-a", "a-2": "zone-a", "b-1": "zone-b", "bare": ""}
POOL_PATH = "/apis/berth.dev/v1alpha1/pools"
CLAIM_PATH = "/apis/berth.dev/v1alpha1/namespaces/default/poolclaims"
USED_IP = "example.com/ip"
SUBNET, NIC, DEVICE = "cni.example.com/ip", "example.com/nic", "example.com/device"


def named(name: str, units: Object, **spec: Any) -> Object:
    """A Pool document whose units have names."""
    return {**pool(name), "spec": {"units": units, **spec}}


TOPOLOGY = {"scope": "Topology", "topologyKey": ZONE}
STICKY = {"sticky": {"by": "Pod", "forSeconds": 3600}}
POOLS = [
    pool("rack-port", 1, **TOPOLOGY),
    pool("licence", 2, scope="Cluster"),
    named(
        "subnet", {"zone-a": ["10.0.3.0/30"]}, reuseAfterSeconds=3600, annotations={SUBNET: '["{unit}"]'},
        **TOPOLOGY,
    ),
    named("new-ip", {"a-1": ["n1", "n2"]}, reuseAfterSeconds=3600),
    named("web-ip", {"a-1": ["fd00::1", "fd00::2"], "b-1": ["fd00::3", "fd00::4"]}, **STICKY),
    pool("seat", 10, scope="Cluster", limits={"default": 2, "*": 10}),
    pool("line", 2, scope="Cluster", reserved={"priorityAtLeast": 1000, "units": 1}),
    pool("desk", 3, scope="Cluster"),
    named("host-ip", {"a-1": ["10.1.0.0/30"]}, adoptFrom=USED_IP),
    named("nic", {"a-2": ["nic-0", "nic-1", "nic-2"]}, annotations={NIC: "{unit} in {domain}"}),
    named("device", {"b-1": ["k80-0"]}, annotations={DEVICE: "{units:json}"}),
    pool("favourite", 10, score="Names", nodeNames={"a-2": 4}),
    pool("even", 10),
    pool("silent", 10, score="None"),
]  # fmt: skip


def ask(system: System, pod: str, node: str = "", /, **pools: int) -> None:
    """A pod that asks for these pools' units (`_` for `-`), if so only on that node."""
    resources = {f"berth.dev/{name.replace('_', '-')}": units for name, units in pools.items()}
    spec = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    system.cluster.create_pod(pod, resources, spec=spec)


def bound(system: System, pod: str, node: str = "", /, **pools: int) -> str:
    """Make a pod as `ask` does, and return the node where it came to run."""
    ask(system, pod, node, **pools)
    return system.cluster.wait_bound(pod)[pod]


def says(system: System, pod: str, *texts: str) -> None:
    """Waits for an event of the pod with all of this."""

    def said() -> bool:
        return any(all(text in event for text in texts) for event in system.cluster.events_of(pod))

    wait(said, 60, f"an event of {pod} that says {texts}; it has {system.cluster.events_of(pod)}")


def units(system: System, pod: str) -> list[str]:
    """As the pod's annotation has them."""
    annotations = system.cluster.get_pod(pod)["metadata"]["annotations"]
    return [unit for each in json.loads(annotations["berth.dev/allocated"]) for unit in each.get("units", [])]


def said_to(system: System, pod: str, key: str) -> str | None:
    """What this annotation of the pod says."""
    text: str | None = system.cluster.get_pod(pod)["metadata"]["annotations"].get(key)
    return text


def change(system: System, name: str, **spec: Any) -> None:
    system.cluster.patch(f"{POOL_PATH}/{name}", {"spec": spec})


def zone(system: System, node: str, value: str | None) -> None:
    system.cluster.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {ZONE: value}}})


def status(system: System, name: str) -> Object:
    found: Object = system.cluster.get(f"{POOL_PATH}/{name}").get("status", {})
    return found


def used(system: System, domain: str) -> int:
    parts = system.berth.ledger().parts("rack-port", domain)
    return sum(part.used("rack-port", name) for name, part in parts.items())


def ready(system: System, node: str, value: str) -> None:
    """As a kubelet, or the node controller for one that is silent, writes it."""
    condition = {"type": "Ready", "status": value, "reason": "Test", "message": "by a test"}
    system.cluster.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": [condition]}}, "strategic")


def held(system: System) -> dict[str, Claim]:
    """Claims by their pods, without what a rebuilt ledger can't know: the attempt, and since when."""
    found = system.berth.ledger().claims()
    return {each.name: replace(each, attempt="", since=0.0, made=0.0, began=0.0) for each in found}
