"""Which nodes kube-scheduler itself would let a pod have: selectors, taints, and room for what it counts.
It knows no more than that: no affinity between pods, topology spread, volumes, host ports, preemption."""

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from berth.api.names import is_ours
from berth.api.quantity import rounded_up
from berth.errors import BadInputError
from berth.kube.types import (
    Affinity,
    Node,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodInFull,
    Quantity,
    SpecInFull,
    Taint,
    Volume,
)
from berth.scheduling.demand import effective

LOOKED_AT = (
    "node selectors and required node affinity",
    "taints",
    "room for pods, CPU, memory and other resources",
    "Berth's pools",
)

_PODS = "pods"
_CORDONED = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")
_SHUT_OUT = ("NoSchedule", "NoExecute")
_UNSAID = {"cpu": 100, "memory": 200 * 1024 * 1024}
"""What a container counts for in scores that does not say what it needs (source: util/pod_resources.go)."""

STEP = 2**20
"""Of a score. Of nodes with equal scores kube-scheduler takes one at random; with less for each pod it is the
one with the fewest pods, so they spread as they do there in the mean."""

Amounts = Mapping[str, int]
"""Amounts by resource; CPU in thousandths."""


class _Asked(NamedTuple):
    """What a pod asks of its node, and what it counts for in scores."""

    amounts: Amounts
    load: Amounts


class _Kind(NamedTuple):
    """Pods that every node takes alike: what they ask of it, and what they say of nodes."""

    amounts: frozenset[tuple[str, int]]
    load: frozenset[tuple[str, int]]
    selection: tuple[str, str, str]


class _Room(NamedTuple):
    """The nodes that can take a pod of one kind, with their scores; changed as pods are placed."""

    pod: PodInFull
    asked: _Asked
    scores: dict[str, int]


class Nodes:
    """Nodes, and what is used of them. Pods come and none goes: a node that is full stays full."""

    def __init__(self, nodes: Iterable[Node], ignored: Collection[str], running: Iterable[Pod] = ()) -> None:
        """`ignored` are resources that kube-scheduler leaves to Berth. Raises BadInputError for a quantity
        that is none."""
        self._count = partial(_amounts, ignored=frozenset(ignored))
        self._nodes = {node.metadata.name: node for node in nodes}
        self._has = {name: _allocatable(node) for name, node in self._nodes.items()}
        self._used: dict[str, Counter[str]] = {name: Counter() for name in self._nodes}
        self._load: dict[str, Counter[str]] = {name: Counter() for name in self._nodes}
        self._rooms: dict[_Kind, _Room] = {}
        self._refusals: dict[_Kind, Counter[str]] = {}
        for pod in running:
            if pod.spec.node_name in self._used:
                self._add(pod, pod.spec.node_name)

    def __len__(self) -> int:
        return len(self._nodes)

    def copy(self) -> "Nodes":
        """Return the nodes as they are now, for something else to be tried on."""
        other = copy.copy(self)
        other._used = {name: Counter(used) for name, used in self._used.items()}
        other._load = {name: Counter(load) for name, load in self._load.items()}
        other._rooms = {kind: room._replace(scores=dict(room.scores)) for kind, room in self._rooms.items()}
        other._refusals = dict(self._refusals)
        return other

    def room(self, pod: PodInFull) -> Mapping[str, int]:
        """Return the nodes that can take the pod, with the scores that they get for what they have left: from
        0 to 100 times STEP, less one for each pod that is there. It changes when a pod is placed."""
        return self._room(pod)[1].scores

    def place(self, pod: Pod, name: str) -> None:
        """Count what the pod uses of the node."""
        self._add(pod, name)
        self._refusals.clear()
        for room in self._rooms.values():
            if name not in room.scores:
                continue
            if self._short(name, room.asked.amounts):
                del room.scores[name]
            else:
                room.scores[name] = self._score(name, room.asked.load)

    def refusals(self, pod: PodInFull) -> Counter[str]:
        """Return why nodes can't take the pod, each reason with the number of nodes that say so."""
        kind, room = self._room(pod)
        if kind not in self._refusals:
            others = (name for name in self._nodes if name not in room.scores)
            reasons = (reason for name in others for reason in self._why(name, room))
            self._refusals[kind] = Counter(reasons)
        return self._refusals[kind]

    def _room(self, pod: PodInFull) -> tuple[_Kind, _Room]:
        asked, spec = self._asked(pod), pod.spec
        says = (repr(spec.node_selector), repr(spec.affinity), repr(spec.tolerations))
        kind = _Kind(frozenset(asked.amounts.items()), frozenset(asked.load.items()), says)
        if kind not in self._rooms:
            names = [
                name
                for name, node in self._nodes.items()
                if not self._short(name, asked.amounts) and why_not(pod, node) is None
            ]
            scores = {name: self._score(name, asked.load) for name in names}
            self._rooms[kind] = _Room(pod, asked, scores)
        return kind, self._rooms[kind]

    def _why(self, name: str, room: _Room) -> Sequence[str]:
        why = why_not(room.pod, self._nodes[name])
        short = self._short(name, room.asked.amounts)
        return [why] if why is not None else [_insufficient(resource) for resource in short]

    def _short(self, name: str, amounts: Amounts) -> list[str]:
        used, has = self._used[name], self._has[name]
        return [
            resource for resource, count in amounts.items() if used[resource] + count > has.get(resource, 0)
        ]

    def _score(self, name: str, load: Amounts) -> int:
        """Return the score of what would be left, as plugin NodeResourcesFit does by LeastAllocated."""
        there, has = self._load[name], self._has[name]
        shares = []
        for resource in _UNSAID:
            if total := has.get(resource, 0):
                left = total - there[resource] - load.get(resource, 0)
                shares.append(max(0, left) * 100 // total)
        score = sum(shares) // len(shares) if shares else 0
        return score * STEP - self._used[name][_PODS]

    def _add(self, pod: Pod, name: str) -> None:
        asked = self._asked(pod)
        self._used[name].update(asked.amounts)
        self._load[name].update(asked.load)

    def _asked(self, pod: Pod) -> _Asked:
        try:
            return _Asked({_PODS: 1, **effective(pod, self._count)}, effective(pod, _load))
        except ValueError as error:
            raise BadInputError(f"pod {pod.label}: {error}") from error


def why_not(pod: PodInFull, node: Node) -> str | None:
    """Return why kube-scheduler would not put the pod on the node, whatever room it has: the first reason by
    the order of its plugins, in its own words; of a taint it has not all of these."""
    if node.spec.unschedulable and not _tolerates(pod, _CORDONED):
        return "node(s) were unschedulable"
    hard = (one for one in node.spec.taints or () if one.effect in _SHUT_OUT and not _tolerates(pod, one))
    if (taint := next(hard, None)) is not None:
        return f"node(s) had untolerated taint(s) {{{taint.key}: {taint.value}}}"
    if not _selected(pod, node):
        return "node(s) didn't match Pod's node affinity/selector"
    return None


def unseen(pod: PodInFull) -> list[str]:
    """Return what the pod has that kube-scheduler decides by, and that is not looked at here."""
    spec = pod.spec
    affinity = spec.affinity or Affinity()
    spread = spec.topology_spread_constraints or ()
    has = {
        "affinity.podAffinity": affinity.pod_affinity,
        "affinity.podAntiAffinity": affinity.pod_anti_affinity,
        "topologySpreadConstraints": any(one.when_unsatisfiable == "DoNotSchedule" for one in spread),
        "volumes": any(volume != Volume() for volume in spec.volumes or ()),
        "host ports": _has_host_ports(spec),
        "resourceClaims": spec.resource_claims,
        "resources of the pod as a whole": spec.resources,
        "runtimeClassName": spec.runtime_class_name,
    }
    return [name for name, there in has.items() if there]


def keeps_away(pod: PodInFull, namespaces: Collection[str]) -> bool:
    """Whether the pod may keep pods of these namespaces from where it runs, by their labels."""
    affinity = pod.spec.affinity or Affinity()
    terms = affinity.pod_anti_affinity.required if affinity.pod_anti_affinity else None
    return any(
        term.namespace_selector is not None
        or not {*(term.namespaces or [pod.namespace])}.isdisjoint(namespaces)
        for term in terms or ()
    )


def _has_host_ports(spec: SpecInFull) -> bool:
    """Whether some port is its node's own: with the host's network every port of a container is."""
    sidecars = (one for one in spec.init_containers or () if one.restart_policy == "Always")
    ports = [port for one in (*(spec.containers or ()), *sidecars) for port in one.ports or ()]
    return bool(ports) if spec.host_network else any(port.host_port for port in ports)


def _tolerates(pod: Pod, taint: Taint) -> bool:
    tolerations = pod.spec.tolerations or ()
    return any(one.tolerates(taint.key, taint.effect, taint.value) for one in tolerations)


def _selected(pod: PodInFull, node: Node) -> bool:
    labels, affinity = node.metadata.labels or {}, pod.spec.affinity
    if any(labels.get(key) != value for key, value in (pod.spec.node_selector or {}).items()):
        return False
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    return required is None or any(_matches(term, node) for term in required.node_selector_terms or ())


def _matches(term: NodeSelectorTerm, node: Node) -> bool:
    """Whether the node matches the term; one without any expression matches none."""
    on_labels, on_fields = term.match_expressions or (), term.match_fields or ()
    fields = {"metadata.name": node.metadata.name}
    return bool(on_labels or on_fields) and all(
        (
            *(_holds(one, node.metadata.labels or {}) for one in on_labels),
            *(_holds(one, fields) for one in on_fields),
        )
    )


_OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _number(value) is not None and _compared(value, values) > 0,
    "Lt": lambda value, values: _number(value) is not None and _compared(value, values) < 0,
}


def _holds(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    operator = _OPERATORS.get(requirement.operator)
    return operator is not None and operator(labels.get(requirement.key), requirement.values or ())


def _compared(value: str | None, values: Sequence[str]) -> int:
    other = _number(values[0]) if len(values) == 1 else None
    return 0 if other is None else (_number(value) or 0) - other


def _number(text: str | None) -> int | None:
    # A label's value has no sign, but it may have underscores, which Python takes for a number's own.
    return int(text) if text and text.isdecimal() else None


def _allocatable(node: Node) -> dict[str, int]:
    """Return what the node has for pods; where it does not say, what it has in all."""
    amounts = node.status.allocatable or node.status.capacity or {}
    try:
        return {name: _amount(name, quantity) for name, quantity in amounts.items()}
    except ValueError as error:
        raise BadInputError(f"node {node.metadata.name}: {error}") from error


def _amounts(quantities: Mapping[str, Quantity], ignored: frozenset[str]) -> dict[str, int]:
    theirs = (name for name in quantities if not is_ours(name))
    return {name: _amount(name, quantities[name]) for name in theirs if name not in ignored}


def _load(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    return {
        name: _amount(name, quantities[name]) if name in quantities else unsaid
        for name, unsaid in _UNSAID.items()
    }


def _amount(resource: str, quantity: Quantity) -> int:
    try:
        return rounded_up(quantity, 1000 if resource == "cpu" else 1)
    except ValueError as error:
        raise ValueError(f"{resource}: {str(quantity)[:64]!r} {error}") from None


def _insufficient(resource: str) -> str:
    return "Too many pods" if resource == _PODS else f"Insufficient {resource}"
