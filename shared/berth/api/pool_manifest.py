"""Pool documents: what operators write, checked as a whole, before anything is made of it.
Nothing an operator wrote is ever ignored: what is unknown or contradicts itself is refused by its name."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from berth.api.names import LABEL, SUBDOMAIN, WORD
from berth.api.pool_spec import HIGHEST_SCORE, Capacity, PoolSpec, numbers_of_units
from berth.api.units import Units
from berth.errors import BadInputError

GROUP = "berth.dev"
API_VERSION = f"{GROUP}/v1alpha1"
NATIVE = f"native.{GROUP}"  # kube-scheduler counts this group too, and evicts for it (decision 0016)

_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")
_NAME = re.compile(SUBDOMAIN)
# In a quota `requests.` stands before the domain, which may have 253 signs then.
_RESOURCE = re.compile(rf"(?=[^/]{{1,244}}/){SUBDOMAIN}/{WORD}")
_KEY = re.compile(rf"({SUBDOMAIN}/)?{WORD}")
_NAMESPACE = re.compile(rf"{LABEL}|\*")
_DOMAINS = {
    "Node": (re.compile(rf"(?=.{{1,253}}$){SUBDOMAIN}"), "the name of a node"),
    "Topology": (re.compile(WORD), "the value of a label"),
    "Cluster": (re.compile(r"\*"), "*, the one domain of scope Cluster"),
}
_NO_CAPACITY = Capacity(per_domain=0)

# What breaks a rule, and the rule in words; infra's CRD has the same rules and words.
_RULES: tuple[tuple[Callable[[PoolSpec], bool], str], ...] = (
    (lambda s: s.capacity is None and not s.units, "spec needs capacity or units"),
    (
        lambda s: s.capacity is not None and bool(s.units),
        "spec has capacity and units; with units the capacity follows from the lists: remove capacity",
    ),
    (
        lambda s: s.scope == "Topology" and s.topology_key is None,
        "spec.scope: Topology needs topologyKey, the key of a node's label",
    ),
    (
        lambda s: s.scope != "Topology" and s.topology_key is not None,
        "spec.topologyKey goes with scope Topology only",
    ),
    (
        lambda s: s.topology_key is not None and not _KEY.fullmatch(s.topology_key),
        "spec.topologyKey should be a label's key, such as topology.kubernetes.io/zone",
    ),
    (
        lambda s: s.scope != "Node" and (s.capacity or _NO_CAPACITY).node_annotation is not None,
        "spec.capacity.nodeAnnotation goes with scope Node only",
    ),
    (lambda s: s.score == "Names" and not s.node_names, "spec.score: Names needs nodeNames"),
    (lambda s: s.score != "Names" and bool(s.node_names), "spec.nodeNames goes with score Names only"),
    (
        lambda s: s.scope != "Node" and s.preemption == "Native",
        "spec.preemption: Native goes with scope Node only",
    ),
    (
        lambda s: s.preemption == "Native" and s.resource is not None and not _native(s.resource),
        f"spec.resource should be {NATIVE}/NAME with preemption Native",
    ),
    (
        lambda s: s.preemption != "Native" and s.resource is not None and _native(s.resource),
        f"spec.resource: the group {NATIVE} goes with preemption Native only",
    ),
    (lambda s: s.scope != "Cluster" and s.external > 0, "spec.external goes with scope Cluster only"),
    (lambda s: s.adopt_from is not None and not s.units, "spec.adoptFrom goes with units only"),
    (
        lambda s: s.claimable_by is not msgspec.UNSET and not s.units,
        "spec.claimableBy goes with units only",
    ),
    (
        lambda s: s.adopt_from is not None and not _KEY.fullmatch(s.adopt_from),
        "spec.adoptFrom should be an annotation's key, such as example.com/ip",
    ),
)


def read(document: Any, source: str) -> tuple[str, str, PoolSpec]:
    """Name, resource and spec of a decoded document. Raises BadInputError naming source, Pool and field."""
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
    decoded = _decoded(spec, where)
    try:
        _check(decoded)
    except ValueError as error:
        raise BadInputError(f"{where}: {error}") from error
    return name, _resource(name, decoded, where), decoded


def _decoded(spec: Any, where: str) -> PoolSpec:
    try:
        return msgspec.convert(spec, PoolSpec)
    except msgspec.ValidationError as error:
        said = str(error).replace("`$", "`spec")
        raise BadInputError(f"{where}: {said if '`spec' in said else f'{said} - at `spec`'}") from error


def _check(spec: PoolSpec) -> None:
    for breaks, rule in _RULES:
        if breaks(spec):
            raise ValueError(rule)
    suspended = () if isinstance(spec.suspended, bool) else spec.suspended
    _domains(spec, "capacity.domains", (spec.capacity or _NO_CAPACITY).domains)
    _domains(spec, "units", spec.units)
    _domains(spec, "suspended", suspended)
    _scores(spec.node_names)
    _limits(spec.limits)
    _lists(spec.units)
    _claimable({} if spec.claimable_by is msgspec.UNSET else spec.claimable_by)


def _domains(spec: PoolSpec, field: str, names: Iterable[str]) -> None:
    right, what = _DOMAINS[spec.scope]
    for name in names:
        if not right.fullmatch(name):
            raise ValueError(f"spec.{field}: domain {name[:64]!r} should be {what}")


def _scores(names: Mapping[str, int]) -> None:
    for name, score in names.items():
        if not 0 <= score <= HIGHEST_SCORE:
            raise ValueError(f"spec.nodeNames: {name}: {score} is not a score from 0 to {HIGHEST_SCORE}")


def _namespaces(field: str, names: Iterable[str]) -> None:
    for namespace in names:
        if not _NAMESPACE.fullmatch(namespace):
            raise ValueError(f"spec.{field}: {namespace[:64]!r} should be the name of a namespace, or *")


def _claimable(by: Mapping[str, tuple[str, ...]]) -> None:
    """Units that are not listed may stand there, too: they may be listed later."""
    _namespaces("claimableBy", by)
    for namespace, entries in by.items():
        try:
            Units.parse(entries)
        except ValueError as error:
            raise ValueError(f"spec.claimableBy: {namespace}: {error}") from error


def _limits(limits: Mapping[str, int]) -> None:
    _namespaces("limits", limits)
    try:
        numbers_of_units(limits.items())
    except ValueError as error:
        raise ValueError(f"spec.limits: {error}") from error


def _lists(lists: Mapping[str, tuple[str, ...]]) -> None:
    """Each list is one of units, and no unit is in two of them."""
    parsed = {}
    for domain, entries in lists.items():
        try:
            parsed[domain] = Units.parse(entries)
        except ValueError as error:
            raise ValueError(f"spec.units: {domain}: {error}") from error
    unit = _twice(list(parsed.values()))[1]
    if unit is not None:
        one, other = [domain for domain, units in parsed.items() if unit in units][:2]
        raise ValueError(f"spec.units: unit {unit} is in domains {one} and {other}")


def _twice(lists: Sequence[Units]) -> tuple[Units, str | None]:
    """All units of the lists, and one that is in two of them. By halves: there may be a list for each of
    thousands of nodes."""
    if len(lists) < 2:
        return (lists[0] if lists else Units()), None
    half = len(lists) // 2
    (one, in_one), (other, in_other) = _twice(lists[:half]), _twice(lists[half:])
    both = one.shared(other).take(1)[0].entries()
    return one.joined(other), in_one or in_other or next(iter(both), None)


def is_extended_resource(name: str) -> bool:
    """Whether Kubernetes takes it for an extended resource.

    See IsExtendedResourceName in https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/apis/core/v1/helper/helpers.go
    """
    if name.startswith("requests.") or "kubernetes.io/" in name:
        return False
    return _RESOURCE.fullmatch(name) is not None


def _native(resource: str) -> bool:
    return resource.startswith(f"{NATIVE}/")


def _resource(name: str, spec: PoolSpec, where: str) -> str:
    resource = spec.resource or f"{NATIVE if spec.preemption == 'Native' else GROUP}/{name}"
    if not is_extended_resource(resource):
        raise BadInputError(
            f"{where}: spec.resource {resource!r} should be an extended resource, such as {GROUP}/{name}"
        )
    return resource
