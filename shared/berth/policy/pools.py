"""Pool documents: what operators write, checked; which domain of a pool a node belongs to, and its capacity.
What is not built yet is refused by its name; nothing an operator wrote is ever ignored."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from berth.errors import BadInputError
from berth.objects import Node
from berth.policy.quantity import units

GROUP = "berth.dev"
API_VERSION = f"{GROUP}/v1alpha1"

_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_NOT_BUILT = frozenset({
    "topologyKey", "units", "reuseAfterSeconds", "nodeNames", "releaseOn", "onLostNode", "preemption",
    "sticky", "limits", "reserved", "external", "adoptFrom", "suspended",
})  # fmt: skip
_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")
_NOT_BUILT_VALUES = {"scope": ("Topology", "Cluster"), "score": ("Names", "None")}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class _Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class Requirement(_Spec, frozen=True):
    """One expression of a LabelSelector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.operator in ("In", "NotIn")) != bool(self.values):
            raise ValueError(
                f"operator {self.operator} {'needs values' if not self.values else 'takes no values'}"
            )


class Selector(_Spec, frozen=True):
    """A LabelSelector (apimachinery, meta/v1); an empty one selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            _meets(expression, labels) for expression in self.match_expressions
        )


class Capacity(_Spec, frozen=True):
    """How many units a domain has: an exception by domain, else the node's annotation, else perDomain."""

    per_domain: int | None = None
    domains: dict[str, int] = {}
    node_annotation: str | None = None

    def __post_init__(self) -> None:
        for where, count in (("perDomain", self.per_domain or 0), *self.domains.items()):
            if not 0 <= count < 2**31:
                raise ValueError(f"{where}: {count} is not a number of units from 0 to 2147483647")
        if self.per_domain is None and not self.domains and self.node_annotation is None:
            raise ValueError("it needs perDomain, domains or nodeAnnotation")


class PoolSpec(_Spec, kw_only=True, frozen=True):
    """The built part of a Pool's spec (design 3)."""

    capacity: Capacity
    resource: str | None = None
    scope: Literal["Node"] = "Node"
    node_selector: Selector = Selector()
    include_control_plane: bool = False
    score: Literal["Spread", "Pack"] = "Spread"


class Pool(msgspec.Struct, frozen=True):
    """One scarce thing that is counted; `resource` is what pods ask for."""

    name: str
    resource: str
    spec: PoolSpec

    def capacity(self, node: Node) -> int | None:
        """The capacity of the node's domain, or None when the node is not in this pool.

        An annotation that is not a whole number gives 0 units: see `problem`."""
        labels = node.metadata.labels or {}
        if not self.spec.include_control_plane and any(key in labels for key in _CONTROL_PLANE):
            return None
        if not self.spec.node_selector.selects(labels):
            return None
        return self._units(node)

    def problem(self, node: Node) -> str | None:
        """What is wrong with the node's annotation, if the capacity comes from it."""
        text = self._annotation(node)
        if text is None or node.metadata.name in self.spec.capacity.domains or self.capacity(node) is None:
            return None
        try:
            units(text)
        except ValueError as error:
            return (
                f"{self.name}: node {node.metadata.name}: annotation {self.spec.capacity.node_annotation}"
                f" is {text[:64]!r}, which {error}; counted as 0"
            )
        return None

    def _units(self, node: Node) -> int:
        capacity = self.spec.capacity
        if node.metadata.name in capacity.domains:
            return capacity.domains[node.metadata.name]
        text = self._annotation(node)
        if text is None:
            return capacity.per_domain or 0
        try:
            return units(text)
        except ValueError:
            return 0

    def _annotation(self, node: Node) -> str | None:
        key = self.spec.capacity.node_annotation
        return None if key is None else (node.metadata.annotations or {}).get(key)


def parse(documents: Iterable[Any], source: str) -> dict[str, Pool]:
    """Pools by name out of decoded documents. Raises BadInputError that names the source, Pool and field."""
    pools: dict[str, Pool] = {}
    for document in documents:
        if document is None:
            continue
        pool = _pool(document, source)
        clash = next((other for other in pools.values() if other.resource == pool.resource), None)
        if pool.name in pools:
            raise BadInputError(f"{source}: Pool {pool.name} is there twice")
        if clash is not None:
            raise BadInputError(
                f"{source}: Pools {clash.name} and {pool.name} both have resource {pool.resource}"
            )
        pools[pool.name] = pool
    return pools


def by_resource(pools: Mapping[str, Pool]) -> dict[str, Pool]:
    return {pool.resource: pool for pool in pools.values()}


def _pool(document: Any, source: str) -> Pool:
    if (
        not isinstance(document, dict)
        or document.get("kind") != "Pool"
        or document.get("apiVersion") != API_VERSION
    ):
        raise BadInputError(
            f"{source}: each document should be an object with apiVersion: {API_VERSION} and kind: Pool"
        )
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or len(name) > 63 or not _NAME.fullmatch(name):
        raise BadInputError(
            f"{source}: metadata.name {name!r} should be a name of lower-case letters, digits, - and ."
        )
    where, spec = f"{source}: Pool {name}", document.get("spec") or {}
    unknown = [key for key in document if key not in _FIELDS]
    if unknown:
        raise BadInputError(f"{where}: unknown field {unknown[0]!r}; fields of a Pool go under spec")
    _refuse_unbuilt(spec, where)
    try:
        decoded = msgspec.convert(spec, PoolSpec)
    except msgspec.ValidationError as error:
        said = str(error).replace("`$", "`spec")
        raise BadInputError(f"{where}: {said if '`spec' in said else f'{said} - at `spec`'}") from error
    return Pool(name, _resource(name, decoded, where), decoded)


def _refuse_unbuilt(spec: Any, where: str) -> None:
    for field, value in spec.items() if isinstance(spec, dict) else ():
        if field in _NOT_BUILT:
            raise BadInputError(f"{where}: spec.{field} is not built yet; remove it")
        if value in _NOT_BUILT_VALUES.get(field, ()):
            raise BadInputError(f"{where}: spec.{field}: {value} is not built yet")


def _resource(name: str, spec: PoolSpec, where: str) -> str:
    resource = spec.resource or f"{GROUP}/{name}"
    domain = resource.partition("/")[0]
    if not _RESOURCE.fullmatch(resource) or domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        raise BadInputError(
            f"{where}: spec.resource {resource!r} should be an extended resource, such as {GROUP}/{name}"
        )
    return resource


def _meets(expression: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
