"""A Pool: its fields, what each of them accepts, how they go together, and what they mean.
It does not know who holds what. What is unknown or wrong is refused by its name, never ignored.

A new field goes into `PoolSpec`, its rules into `_contradictions` or `_wrong`, what it means into `Pool`;
infra/base/crds/pool.yaml has the same fields, rules and words.
"""

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Literal

import msgspec

from berth.api import annotations, quantity
from berth.api.manifest import is_kind, not_of_kind, spec_of
from berth.api.names import (
    GROUP,
    LABEL,
    NATIVE,
    SUBDOMAIN,
    WORD,
    is_extended_resource,
    is_key,
    is_pool_name,
)
from berth.api.units import MOST, Units
from berth.errors import BadInputError
from berth.kube.types import Node

EVERYWHERE = "*"  # the one domain of a pool of scope Cluster
HIGHEST_SCORE = 10  # of a node: extender/v1 MaxExtenderPriority; the lowest is 0
LONGEST_RETAINED = 31 * 24 * 3600  # seconds that a freed unit may rest, or be kept for a next pod

_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_NAMESPACE = re.compile(rf"{LABEL}|\*")
_URL = re.compile(r"https?://[A-Za-z0-9._:\[\]-]+(/[^\s@#]*)?")
_DOMAINS = {
    "Node": (re.compile(rf"(?=.{{1,253}}$){SUBDOMAIN}"), "the name of a node"),
    "Topology": (re.compile(WORD), "the value of a label"),
    "Cluster": (re.compile(r"\*"), "*, the one domain of scope Cluster"),
}

_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
_Priority = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Seconds = Annotated[int, msgspec.Meta(ge=0, le=LONGEST_RETAINED)]


def _wrong_counts(counts: Iterable[tuple[str, int]]) -> list[str]:
    return [
        f"{where}: {count} is not a number of units from 0 to {MOST}"
        for where, count in counts
        if not 0 <= count <= MOST
    ]


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

    def selects(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None


class Selector(_Spec, frozen=True):
    """A LabelSelector (apimachinery, meta/v1); an empty one selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            requirement.selects(labels) for requirement in self.match_expressions
        )


class Capacity(_Spec, frozen=True):
    """How many units a domain has: an exception by domain, else the node's annotation, else perDomain."""

    per_domain: int | None = None
    domains: dict[str, int] = {}
    node_annotation: str | None = None

    def __post_init__(self) -> None:
        if wrong := _wrong_counts((("perDomain", self.per_domain or 0), *self.domains.items())):
            raise ValueError("; ".join(wrong))
        if self.per_domain is None and not self.domains and self.node_annotation is None:
            raise ValueError("it needs perDomain, domains or nodeAnnotation")


class Sticky(_Spec, frozen=True):
    """For whom freed units are kept a while: the next pod of that name, or of that owner."""

    by: Literal["Pod", "Owner"]
    for_seconds: _Seconds


class Reserved(_Spec, frozen=True):
    """Units of each domain that only pods of at least this priority get."""

    priority_at_least: _Priority
    units: Annotated[int, msgspec.Meta(ge=1, le=MOST)]


class Line(_Spec, frozen=True, omit_defaults=True):
    """Whether units are held for the pod that is first in line: after how long a wait, for how long once they
    are enough for it, and for how long they may be idle in all."""

    holds: Literal["FirstInLine", "None"] = "FirstInLine"
    hold_after_seconds: _Seconds = 60
    while_held_seconds: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_RETAINED)] = 30
    idle_seconds: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_RETAINED)] = 600


class ExternalFrom(_Spec, kw_only=True, frozen=True):
    """From where is read what others use of a cluster-wide pool; without a `url` it comes by POST only.

    `match` is the word of a checkout that has a pod's name. `capacity` Issued: the pool has as many units as
    the licence server issues.
    """

    feature: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    url: Annotated[str, msgspec.Meta(max_length=2048)] | None = None
    format: Literal["lmstat", "rlmstat", "prometheus", "json"] = "lmstat"
    match: Literal["host", "user", "display"] = "host"
    every_seconds: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_RETAINED)] = 60
    stale_after_seconds: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_RETAINED)] = 180
    when_stale: Literal["Hold", "Ignore"] = "Hold"
    capacity: Literal["Pool", "Issued"] = "Pool"

    @property
    def mark(self) -> str:
        """Return a mark of what is read. A reading with another mark is one of something else."""
        what = (self.url, self.format, self.feature, self.match, self.capacity)
        return f"{zlib.crc32(msgspec.json.encode(what)):08x}"


class PoolSpec(_Spec, kw_only=True, frozen=True):
    """A Pool's spec, as in infra/base/crds/pool.yaml; docs/reference/pool.md explains its fields.

    Only what a field accepts by itself is checked here; `_wrong` does the rest when an operator's document is
    read. What the ledger has is not checked again.
    """

    capacity: Capacity | None = None
    resource: str | None = None
    scope: Literal["Node", "Topology", "Cluster"] = "Node"
    topology_key: str | None = None
    node_selector: Selector = Selector()
    include_control_plane: bool = False
    units: dict[str, tuple[str, ...]] = {}
    reuse_after_seconds: _Seconds = 0
    score: Literal["Spread", "Pack", "Names", "None"] = "Spread"
    node_names: dict[str, int] = {}
    release_on: Literal["Finished", "Deleted"] = "Finished"
    on_lost_node: Literal["Release", "Hold"] | None = None
    preemption: Literal["None", "Native"] = "None"
    sticky: Sticky | None = None
    limits: dict[str, int] = {}
    reserved: Reserved | None = None
    external: _Count = 0
    adopt_from: str | None = None
    suspended: bool | tuple[str, ...] = False
    # Left out of the ledger's documents where not set: versions before these fields read those as well.
    exclude: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    claimable_by: dict[str, tuple[str, ...]] | msgspec.UnsetType = msgspec.UNSET
    annotations: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    on_annotated: Literal["Overwrite", "Refuse"] | msgspec.UnsetType = msgspec.UNSET
    line: Line | msgspec.UnsetType = msgspec.UNSET
    gang_seconds: Annotated[int, msgspec.Meta(ge=10, le=3600)] | msgspec.UnsetType = msgspec.UNSET
    external_from: ExternalFrom | msgspec.UnsetType = msgspec.UNSET

    @property
    def capacities(self) -> Capacity:
        """What `capacity` says; where it is left out, no domain has units by it."""
        return self.capacity or _NO_CAPACITY

    @property
    def suspended_domains(self) -> tuple[str, ...]:
        """The domains that `suspended` names."""
        return () if isinstance(self.suspended, bool) else self.suspended


_NO_CAPACITY = Capacity(per_domain=0)
_NO_TEMPLATES: Mapping[str, str] = {}
_LINE = Line()
_GANG_SECONDS = 120


class Pool(msgspec.Struct, frozen=True):
    """One scarce thing that is counted; `resource` is what pods ask for."""

    name: str
    resource: str
    spec: PoolSpec

    @property
    def named(self) -> bool:
        """Whether its units have names."""
        return bool(self.spec.units)

    @property
    def counts(self) -> tuple[str, str, str | None]:
        """Return what it counts, and by what it divides it. Where that changes, what is held of it, or a
        domain's name, may stand for something else than before."""
        return self.resource, self.spec.scope, self.spec.topology_key

    @property
    def shape(self) -> tuple[str, str, str | None, bool]:
        """Return `counts`, and whether units have names. Where that changes, what is held is counted anew."""
        return *self.counts, self.named

    @property
    def annotations(self) -> Mapping[str, str]:
        """Return the templates of what pods with its units are told, by the annotation's key."""
        templates = self.spec.annotations
        return _NO_TEMPLATES if isinstance(templates, msgspec.UnsetType) else templates

    @property
    def line(self) -> Line:
        """Return how it serves the first in line."""
        return _LINE if isinstance(self.spec.line, msgspec.UnsetType) else self.spec.line

    @property
    def gang_seconds(self) -> int:
        """Return how many seconds seats wait for the pods of a gang."""
        seconds = self.spec.gang_seconds
        return _GANG_SECONDS if isinstance(seconds, msgspec.UnsetType) else seconds

    @property
    def external_from(self) -> ExternalFrom | None:
        """Return from where is read what others use of it; None: nothing is read."""
        source = self.spec.external_from
        return None if isinstance(source, msgspec.UnsetType) else source

    @property
    def capacity_is_read(self) -> bool:
        """Whether it has as many units as its licence server issues."""
        return self.external_from is not None and self.external_from.capacity == "Issued"

    @property
    def holds_lost(self) -> bool:
        """Whether units of pods on a lost node stay held (onLostNode); so they do if they have names."""
        return (self.spec.on_lost_node or ("Hold" if self.named else "Release")) == "Hold"

    @property
    def returns_after(self) -> int | None:
        """Return how many seconds after a pod has ended others may have its units; None: nobody can say, as
        they are kept for its owner, or held until somebody deletes the pod."""
        told = self.spec.sticky is None and self.spec.release_on == "Finished"
        return self.spec.reuse_after_seconds if told else None

    @property
    def retains(self) -> bool:
        """Whether units that a pod leaves rest, or are kept for a next one."""
        return self.spec.reuse_after_seconds > 0 or self.spec.sticky is not None

    def domain_of(self, node: Node) -> str | None:
        """Return the node's domain; None: it is not in this pool; empty: it lacks the label for it."""
        labels = node.metadata.labels or {}
        if not self.spec.include_control_plane and any(key in labels for key in _CONTROL_PLANE):
            return None
        if not self.spec.node_selector.selects(labels):
            return None
        if self.spec.scope == "Topology":
            return labels.get(self.spec.topology_key or "", "")
        return node.metadata.name if self.spec.scope == "Node" else EVERYWHERE

    def capacity_of(self, domain: str, node: Node | None = None) -> int | None:
        """Return how many units a domain has, also those in use outside the cluster; None: no such domain can
        be. An annotation that is not a whole number gives 0 units: see `annotation_problem`. Where the
        capacity is read, it is none of the Pool's."""
        if not domain or (domain == EVERYWHERE) != (self.spec.scope == "Cluster"):
            return None
        if self.named:
            return min(self.units_of(domain).size, MOST)
        capacity = self.spec.capacities
        if domain in capacity.domains:
            return capacity.domains[domain]
        text = None if node is None else self._annotation(node)
        if text is None:
            return capacity.per_domain or 0
        try:
            return quantity.units(text)
        except ValueError:
            return 0

    def annotation_problem(self, node: Node) -> str | None:
        """Return what is wrong with the node's annotation, if the node's capacity comes from it."""
        text, domain = self._annotation(node), self.domain_of(node)
        if text is None or domain is None or domain in self.spec.capacities.domains:
            return None
        try:
            quantity.units(text)
        except ValueError as error:
            return (
                f"{self.name}: node {domain}: annotation {self.spec.capacities.node_annotation}"
                f" is {text[:64]!r}, which {error}; counted as 0"
            )
        return None

    def domains_without_nodes(self) -> tuple[str, ...]:
        """Return the domains that are there also while no node is in them."""
        if self.spec.scope == "Node":
            return ()
        if self.spec.scope == "Cluster":
            return (EVERYWHERE,)
        return tuple(sorted({*self.spec.capacities.domains, *self.spec.units}))

    def limit(self, namespace: str) -> int | None:
        """Return the most units that a namespace may hold; None: as many as there are."""
        return self.spec.limits.get(namespace, self.spec.limits.get("*"))

    def units_of(self, domain: str) -> Units:
        """Return the units that a domain's list has, without those that are excluded."""
        listed = Units.parse(self.spec.units.get(domain, ()))
        return (
            listed if self.spec.exclude is msgspec.UNSET else listed.without(Units.parse(self.spec.exclude))
        )

    @property
    def all_units(self) -> Units:
        """Return the units of all its domains. They are joined at once: there may be thousands of lists."""
        lists = (self.units_of(domain).entries() for domain in self.spec.units)
        return Units().joined(Units.of(chain.from_iterable(lists)))

    def claimable_by(self, namespace: str) -> Units | None:
        """Return the units that PoolClaims of the namespace may name; None: all there are."""
        by = self.spec.claimable_by
        return None if by is msgspec.UNSET else Units.parse(by.get(namespace, by.get("*", ())))

    def suspends(self, domain: str) -> bool:
        """Whether the domain takes no new claims."""
        return self.spec.suspended is True or domain in self.spec.suspended_domains

    def _annotation(self, node: Node) -> str | None:
        key = self.spec.capacities.node_annotation
        return None if key is None else (node.metadata.annotations or {}).get(key)


def parse(documents: Iterable[Any], source: str) -> dict[str, Pool]:
    """Return the documents' Pools by name. Raises BadInputError with all mistakes, each with the source, the
    Pool and the field."""
    return parse_each((document, source) for document in documents)


def parse_each(placed: Iterable[tuple[Any, str]]) -> dict[str, Pool]:
    """Do as `parse` does with documents that have a source each."""
    pools: dict[str, Pool] = {}
    by_resource: dict[str, str] = {}
    wrong: list[str] = []
    for document, source in placed:
        if document is None:
            continue
        try:
            pool = _pool(document, source)
        except BadInputError as error:
            wrong += error.problems
            continue
        clash = by_resource.setdefault(pool.resource, pool.name)
        if pool.name in pools:
            wrong.append(f"{source}: Pool {pool.name} is there twice")
        elif clash != pool.name:
            wrong.append(f"{source}: Pools {clash} and {pool.name} both have resource {pool.resource}")
        pools[pool.name] = pool
    if wrong:
        raise BadInputError(*wrong)
    return pools


def by_resource(pools: Mapping[str, Pool]) -> dict[str, Pool]:
    """Return the same Pools by the resource that pods ask for."""
    return {pool.resource: pool for pool in pools.values()}


def _pool(document: Any, source: str) -> Pool:
    if not is_kind(document, "Pool"):
        raise BadInputError(f"{source}: {not_of_kind(document, 'Pool')}")
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not is_pool_name(name):
        given = "is missing: it" if name is None else repr(name)
        raise BadInputError(
            f"{source}: metadata.name {given} should be a name of lower-case letters, digits, - and ."
        )
    where = f"{source}: Pool {name}"
    spec = spec_of(document, PoolSpec, where)
    resource = spec.resource or f"{NATIVE if spec.preemption == 'Native' else GROUP}/{name}"
    wrong = list(_wrong(spec))
    if not is_extended_resource(resource):
        wrong.append(f"spec.resource {resource!r} should be an extended resource, such as {GROUP}/{name}")
    if wrong:
        raise BadInputError(*(f"{where}: {text}" for text in wrong))
    return Pool(name, resource, spec)


def _contradictions(spec: PoolSpec) -> Iterator[str]:
    """Yield what does not go together; infra's CRD has the same rules and words."""
    source = None if isinstance(spec.external_from, msgspec.UnsetType) else spec.external_from
    issued = source is not None and source.capacity == "Issued"
    if spec.capacity is None and not spec.units and not issued:
        yield "spec needs capacity or units"
    if spec.capacity is not None and spec.units:
        yield "spec has capacity and units; with units the capacity follows from the lists: remove capacity"
    if spec.scope == "Topology" and spec.topology_key is None:
        yield "spec.scope: Topology needs topologyKey, the key of a node's label"
    if spec.scope != "Topology" and spec.topology_key is not None:
        yield "spec.topologyKey goes with scope Topology only"
    if spec.topology_key is not None and not is_key(spec.topology_key):
        yield "spec.topologyKey should be a label's key, such as topology.kubernetes.io/zone"
    if spec.scope != "Node" and spec.capacities.node_annotation is not None:
        yield "spec.capacity.nodeAnnotation goes with scope Node only"
    if spec.score == "Names" and not spec.node_names:
        yield "spec.score: Names needs nodeNames"
    if spec.score != "Names" and spec.node_names:
        yield "spec.nodeNames goes with score Names only"
    if spec.scope != "Node" and spec.preemption == "Native":
        yield "spec.preemption: Native goes with scope Node only"
    native = spec.resource is not None and spec.resource.startswith(f"{NATIVE}/")
    if spec.preemption == "Native" and spec.resource is not None and not native:
        yield f"spec.resource should be {NATIVE}/NAME with preemption Native"
    if spec.preemption != "Native" and native:
        yield f"spec.resource: the group {NATIVE} goes with preemption Native only"
    if spec.scope != "Cluster" and spec.external > 0:
        yield "spec.external goes with scope Cluster only"
    if source is not None:
        yield from _wrong_source(spec, source)
    if spec.adopt_from is not None and not spec.units:
        yield "spec.adoptFrom goes with units only"
    if spec.exclude is not msgspec.UNSET and not spec.units:
        yield "spec.exclude goes with units only"
    if spec.claimable_by is not msgspec.UNSET and not spec.units:
        yield "spec.claimableBy goes with units only"
    if spec.adopt_from is not None and not is_key(spec.adopt_from):
        yield "spec.adoptFrom should be an annotation's key, such as example.com/ip"
    if spec.on_annotated is not msgspec.UNSET and not spec.annotations:
        yield "spec.onAnnotated goes with annotations only"
    if not isinstance(spec.annotations, msgspec.UnsetType):
        yield from annotations.problems(spec.annotations, spec.scope, named=bool(spec.units))


def _wrong_source(spec: PoolSpec, source: ExternalFrom) -> Iterator[str]:
    if spec.scope != "Cluster":
        yield "spec.externalFrom goes with scope Cluster only"
    if spec.external > 0:
        yield "spec has external and externalFrom; what others use is then read: remove external"
    if source.capacity == "Issued" and (spec.capacity is not None or spec.units):
        yield "spec.externalFrom.capacity: Issued goes without capacity and units: remove them"
    if source.stale_after_seconds <= source.every_seconds:
        yield "spec.externalFrom.staleAfterSeconds should be more than everySeconds"
    if source.url is not None and not _URL.fullmatch(source.url):
        form = "http://HOST/PATH or https://HOST/PATH, without a user or password"
        yield f"spec.externalFrom.url should be {form}"


def _wrong(spec: PoolSpec) -> Iterator[str]:
    """Yield what is wrong with a spec whose fields are right by themselves."""
    yield from _contradictions(spec)
    yield from _wrong_domains(spec, "capacity.domains", spec.capacities.domains)
    yield from _wrong_domains(spec, "units", spec.units)
    yield from _wrong_domains(spec, "suspended", spec.suspended_domains)
    for name, score in spec.node_names.items():
        if not 0 <= score <= HIGHEST_SCORE:
            yield f"spec.nodeNames: {name}: {score} is not a score from 0 to {HIGHEST_SCORE}"
    yield from _wrong_namespaces("limits", spec.limits)
    yield from (f"spec.limits: {text}" for text in _wrong_counts(spec.limits.items()))
    yield from _wrong_units("units", spec.units) or _shared_units(spec.units)
    if spec.exclude is not msgspec.UNSET:
        yield from (f"spec.exclude: {text}" for text in _wrong_entries(spec.exclude))  # of any units, too
    if spec.claimable_by is not msgspec.UNSET:
        yield from _wrong_namespaces("claimableBy", spec.claimable_by)
        yield from _wrong_units("claimableBy", spec.claimable_by)  # of any units: they may be listed later


def _wrong_domains(spec: PoolSpec, field: str, names: Iterable[str]) -> Iterator[str]:
    pattern, what = _DOMAINS[spec.scope]
    for name in names:
        if not pattern.fullmatch(name):
            yield f"spec.{field}: domain {name[:64]!r} should be {what}"


def _wrong_namespaces(field: str, names: Iterable[str]) -> Iterator[str]:
    for namespace in names:
        if not _NAMESPACE.fullmatch(namespace):
            yield f"spec.{field}: {namespace[:64]!r} should be the name of a namespace, or *"


def _wrong_units(field: str, lists: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return what is wrong with lists of units, naming the list and the entry."""
    return [
        f"spec.{field}: {where}: {text}"
        for where, entries in lists.items()
        for text in _wrong_entries(entries)
    ]


def _wrong_entries(entries: tuple[str, ...]) -> list[str]:
    try:
        Units.parse(entries)
    except ValueError as error:
        return [str(error)]
    return []


def _shared_units(lists: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return a word about a unit that two of these domains list."""
    parsed = {where: Units.parse(entries) for where, entries in lists.items()}
    _, unit = _joined([*parsed.values()])
    if unit is None:
        return []
    one, other = [domain for domain, units in parsed.items() if unit in units][:2]
    return [f"spec.units: unit {unit} is in domains {one} and {other}"]


def _joined(lists: Sequence[Units]) -> tuple[Units, str | None]:
    """Return all units of the lists, and one that is in two of them. By halves: there may be a list for each
    of thousands of nodes."""
    if len(lists) < 2:
        return (lists[0] if lists else Units()), None
    half = len(lists) // 2
    (one, in_one), (other, in_other) = _joined(lists[:half]), _joined(lists[half:])
    both = one.shared(other).take(1)[0].entries()
    return one.joined(other), in_one or in_other or next(iter(both), None)
