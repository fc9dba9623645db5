"""Small clusters drawn from a seed, in which the number of pods that can be placed is determined.

kube-scheduler breaks ties at random, so in any cluster at all its choices decide how many pods fit. In these
they do not, by one of two constructions:

- `alike`: nodes are in groups, and the pods of a group ask the same of a node and its rack, by whatever words
  they choose the group. A node's room and a rack's room are then numbers of such pods, one within the other
  (a laminar matroid): wherever pods went before, as many more fit as the room's rank has left. What pods of
  several groups share (seats of the whole cluster, a namespace's limit, reserved seats) depends on how many
  were placed, not on where. One priority, with one group and one demand of seats, is placed after the other.
- `pinned`: each pod names its node, and asks for whatever it likes; pods come one after the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.e2e.harness import CONTROL_PLANE, pool
from tests.support.cluster import Object, pod_document

PRIORITIES = {"p2000": 2000, "p1000": 1000, "p500": 500, "p0": 0}
NAMESPACES = ("team-a", "team-b")
RACK = "example.com/rack"
IP, PORT, SEAT, DEVICE = (f"berth.dev/{name}" for name in ("ip", "port", "seat", "device"))
_TAINT = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


@dataclass
class Generated:
    """`nodes` are create_node's options by name; `waves` are pods that come together, the first of them
    before the simulation."""

    nodes: dict[str, Object]
    cordoned: list[str]
    pools: list[Object]
    waves: list[list[Object]] = field(default_factory=list)
    pinned: bool = False


def alike(seed: int) -> Generated:
    random = Random(seed)
    groups = ("red", "blue")
    made = _nodes(random, groups)
    demands = {group: _demand(random) for group in groups}
    tolerant = {group: random.random() < 0.5 for group in groups}
    for number, priority in enumerate(PRIORITIES):
        group, namespace = random.choice(groups), random.choice(NAMESPACES)
        cpu, asked = demands[group]
        seats = random.choice((0, 0, 1, 1, 2))
        resources = asked | ({SEAT: seats} if seats else {})
        spec = _choosing(random, group) | ({"tolerations": _TOLERATIONS} if tolerant[group] else {})
        made.waves.append(
            [
                _pod(f"w{number}-{index}", namespace, resources, cpu, priority, spec)
                for index in range(random.randint(2, 8))
            ]
        )
    return made


def pinned(seed: int) -> Generated:
    random = Random(seed)
    made = _nodes(random, ("red", "blue"))
    made.pinned = True
    names = list(made.nodes)
    for number, priority in enumerate(sorted(random.choices(list(PRIORITIES), k=16), key=_falling)):
        cpu, resources = _demand(random)
        resources = {name: random.randint(1, 2) for name in resources}
        if random.random() < 0.4:
            resources[SEAT] = random.randint(1, 3)
        spec = _pinning(random, random.choice(names))
        spec |= {"tolerations": _TOLERATIONS} if random.random() < 0.5 else {}
        namespace = random.choice(NAMESPACES)
        made.waves.append([_pod(f"w{number}", namespace, resources, cpu, priority, spec)])
    return made


_TOLERATIONS = [{"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}]


def _falling(priority: str) -> int:
    return -PRIORITIES[priority]


def _nodes(random: Random, groups: Sequence[str]) -> Generated:
    nodes: dict[str, Object] = {}
    racks = []
    for size, group in enumerate(groups, 1):
        for number in range(random.randint(2, 4)):
            labels = {"group": group, "size": str(size)}
            if random.random() < 0.85:
                labels[RACK] = f"{group}-{random.randint(1, 2)}"
                racks.append(labels[RACK])
            taints = [_TAINT] if random.random() < 0.25 else []
            options = {"cpu": random.choice("123"), "pods": random.choice(("2", "4", "110"))}
            nodes[f"{group}-{number}"] = {"labels": labels, "taints": taints, **options}
    if random.random() < 0.3:
        nodes["master"] = {"labels": {**CONTROL_PLANE, "group": "red", "size": "1"}, "cpu": "4"}
    cordoned = [name for name in nodes if random.random() < 0.12]
    return Generated(nodes, cordoned, _pools(random, list(nodes), sorted(set(racks))))


def _pools(random: Random, nodes: Sequence[str], racks: Sequence[str]) -> list[Object]:
    exceptions = {name: random.randint(0, 5) for name in nodes if random.random() < 0.3}
    ip = {"perDomain": random.randint(1, 4), "domains": exceptions}
    limits = {random.choice((*NAMESPACES, "*")): random.randint(2, 8)} if random.random() < 0.4 else {}
    seats: dict[str, Any] = {"limits": {"team-b": random.randint(1, 6)}} if random.random() < 0.5 else {}
    if random.random() < 0.5:
        seats["reserved"] = {"priorityAtLeast": 1000, "units": random.randint(1, 3)}
    if random.random() < 0.3:
        seats["external"] = random.randint(1, 2)
    return [
        pool(
            "ip", ip, suspended=_some(random, nodes), score=random.choice(("Spread", "Pack")), limits=limits
        ),
        pool(
            "port", random.randint(2, 7), scope="Topology", topologyKey=RACK, suspended=_some(random, racks)
        ),
        pool("seat", random.randint(3, 12), scope="Cluster", **seats),
        _devices(random, nodes, racks),
    ]


def _devices(random: Random, nodes: Sequence[str], racks: Sequence[str]) -> Object:
    by_rack = bool(racks) and random.random() < 0.5
    there = racks if by_rack else nodes
    units = {where: [f"{where}-d{index}" for index in range(random.randint(1, 4))] for where in there}
    made = pool("device", 0, **({"scope": "Topology", "topologyKey": RACK} if by_rack else {}))
    made["spec"] = {key: value for key, value in made["spec"].items() if key != "capacity"}
    made["spec"] |= {"units": units, "suspended": _some(random, there)}
    return made


def _some(random: Random, names: Sequence[str]) -> list[str]:
    return [name for name in names if random.random() < 0.15]


def _demand(random: Random) -> tuple[str, dict[str, int]]:
    """CPU, and what is asked of nodes and racks; at least something."""
    asked = {
        IP: random.choice((0, 1, 1, 2)),
        PORT: random.choice((0, 0, 1, 2)),
        DEVICE: random.choice((0, 0, 0, 1)),
    }
    asked = {name: count for name, count in asked.items() if count} or {IP: 1}
    return random.choice(("100m", "500m", "700m", "1500m")), asked


def _choosing(random: Random, group: str) -> Object:
    """The fields of a pod that is for this group's nodes, in one of several wordings."""
    (other,) = {"red", "blue"} - {group}
    expressions = [
        [{"key": "group", "operator": "In", "values": [group, "green"]}],
        [
            {"key": "group", "operator": "NotIn", "values": [other]},
            {"key": "group", "operator": "Exists"},
            {"key": "unheard-of", "operator": "DoesNotExist"},
        ],
        [{"key": "size", "operator": "Lt", "values": ["2"]}]
        if group == "red"
        else [{"key": "size", "operator": "Gt", "values": ["1"]}],
    ]
    if random.random() < 0.25:
        return {"nodeSelector": {"group": group}}
    return _required({"matchExpressions": random.choice(expressions)})


def _pinning(random: Random, node: str) -> Object:
    if random.random() < 0.5:
        return {"nodeSelector": {"kubernetes.io/hostname": node}}
    return _required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]})


def _required(*terms: Mapping[str, Any]) -> Object:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def _pod(
    name: str, namespace: str, resources: Mapping[str, int], cpu: str, priority: str, spec: Object
) -> Object:
    document = pod_document(name, resources, cpu=cpu, priority_class=priority, spec=spec)
    document["metadata"]["namespace"] = namespace
    return document
