"""Pools as the worlds of the property test have them: of every scope, named or not, with every bound.
They are small, and stripes are cut small as well, so that a few pods meet each limit there is."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

import msgspec
from hypothesis import strategies as st

from berth.api.names import API_VERSION, GROUP
from berth.api.pool import Pool, parse
from berth.ledger import allocation, capacity, ledger

Spec = Mapping[str, Any]
Domain = tuple[str, str]
"""A pool and one of its domains, or what bounds it."""

NODES = ("n1", "n2", "a")
"""The last one is called like a zone."""

RESOURCES, ZONES = ("ip", "seat"), ("a", "b")
SPACES = {"p1": "default", "p2": "default", "p3": "default", "p4": "default", "p5": "other"}
"""The namespace of each of the machine's pods, by its name."""
NAMESPACE = "default"
EVERYWHERE, NOWHERE, UNRESERVED, LIMIT = "*", "?", "<", "@"
CLAIM = "erc"
"""The one PoolClaim, in namespace `default`."""

CLAIMED: Domain = ("ip", f"!{NAMESPACE}/{CLAIM}")
"""What bounds the PoolClaim to one holder. It names a Pool, and not what pods ask for."""

_ZONE: Spec = {"scope": "Topology", "topologyKey": "zone"}
_CLUSTER: Spec = {"scope": "Cluster"}


def _units(**lists: str) -> Spec:
    return {"units": {domain: units.split() for domain, units in lists.items()}}


def _seats(units: str, **more: Any) -> Spec:
    return {**_CLUSTER, "units": {EVERYWHERE: units.split()}, **more}


def _counted(units: int, **more: Any) -> Spec:
    return {**_CLUSTER, "capacity": {"domains": {EVERYWHERE: units}}, **more}


KINDS: list[list[Spec]] = [
    [{"capacity": {"nodeAnnotation": "example.com/{}"}}],
    [
        {**_ZONE, "capacity": {"perDomain": 3}},
        {**_ZONE, "capacity": {"perDomain": 1}},
        {**_ZONE, "capacity": {"domains": {"a": 5}, "perDomain": 2}},
    ],
    [_counted(5), _counted(2), _counted(5, external=2), _counted(4, external=1)],
    [
        _units(n1="a1 a2 a3", n2="b1 b2", a="c1"),
        _units(n1="a1 a2", n2="b1 b2 a3"),
        _units(n1="a2 d1", n2="b1"),
    ],
    [
        {**_ZONE, **_units(a="10.0.0.1 10.0.0.2 10.0.0.3", b="10.0.0.4 10.0.0.5")},
        {**_ZONE, **_units(a="10.0.0.1 10.0.0.2", b="10.0.0.3 10.0.0.4 10.0.0.5")},
        {**_ZONE, **_units(a="10.0.0.2", b="10.0.0.5")},
    ],
    [_seats("s1 s2 s3 s4 s5"), _seats("s2 s5"), _seats("s1 s2 s6 s7", external=1)],
]
"""Each a list of what a Pool may be, one after the other: its scope, and whether units have names, stay."""

LONG = 3600
GANG_SECONDS = 10
SKEW = 60.0
"""Seconds by which the verbs' clocks may differ from the right time."""

_FIELDS: list[Spec] = [
    {},
    {},
    {"limits": {"*": 3}},
    {"reserved": {"priorityAtLeast": 5, "units": 1}},
    {"sticky": {"by": "Pod", "forSeconds": 4}},
    {"sticky": {"by": "Owner", "forSeconds": 4}, "reuseAfterSeconds": 1},
    {"reuseAfterSeconds": 4},
    {"reuseAfterSeconds": LONG},
    {"releaseOn": "Deleted"},
    {"onLostNode": "Hold"},
]
_SUSPENDED: list[bool | None] = [False, False, False, False, True, None]
_FIRST = {"Node": "n1", "Topology": "a", "Cluster": EVERYWHERE}


def told_key(resource: str) -> str:
    """The annotation in which a pod is told of its units."""
    return f"example.com/told-{resource}"


def space_of(name: str) -> str:
    """A pod's namespace, by its name."""
    return SPACES.get(name, "other" if name.startswith("other-") else NAMESPACE)


class Kind(NamedTuple):
    """What a Pool is until it is rewritten: the index of its kind, the fields that stay, and whether units
    are held for the first in line."""

    number: int
    fields: Spec
    holds: bool = False

    @property
    def named(self) -> bool:
        return named(KINDS[self.number][0])

    def spec(self, resource: str, which: int, suspended: bool | None = False) -> Spec:
        """`suspended` None: in one domain."""
        variants = KINDS[self.number]
        found: Spec = {**variants[which % len(variants)], **self.fields}
        domains = [_FIRST[found.get("scope", "Node")]] if suspended is None else suspended
        found = {**found, "suspended": domains} if domains else found
        if "nodeAnnotation" in found.get("capacity", {}):
            found = {**found, "capacity": {"nodeAnnotation": f"example.com/{resource}"}}
        template = "{pool} {units}" if self.named else "{pool}"
        told = {told_key(resource): template}
        return {
            **found,
            "resource": f"{GROUP}/{resource}",
            "annotations": told,
            "line": _HOLDS if self.holds else _LINE,
            "gangSeconds": GANG_SECONDS,
        }


_LINE = {"holds": "None", "holdAfterSeconds": 60, "whileHeldSeconds": 30}
_HOLDS = {"holds": "FirstInLine", "holdAfterSeconds": 0, "whileHeldSeconds": 4}
"""So short that a turn begins and ends within an example."""

kinds = st.builds(
    Kind,
    st.integers(0, len(KINDS) - 1),
    st.sampled_from(_FIELDS),
    st.sampled_from([False, True, True]),
)
suspended = st.sampled_from(_SUSPENDED)


class NodeIs(NamedTuple):
    """A node: units by its annotations, its zone (empty: no label), whether it is ready and not cordoned."""

    units: Mapping[str, int]
    zone: str
    ready: bool = True
    cordoned: bool = False


def named(spec: Spec) -> bool:
    return "units" in spec


def holds_lost(spec: Spec) -> bool:
    return bool(spec.get("onLostNode", "Hold" if named(spec) else "Release") == "Hold")


def resource_of(name: str) -> str:
    """What a Pool of this name counts, whatever else it says: names are `ip`, `ip-b` and so on."""
    return name.partition("-")[0]


def limit(spec: Spec) -> int | None:
    found: int | None = spec.get("limits", {}).get("*")
    return found


def frame(spec: Spec) -> Spec:
    """All that says what a claim on the Pool looks like, and what becomes of it; not how much there is."""
    amounts = {"capacity", "suspended", "external", "units"}
    return {**{field: value for field, value in spec.items() if field not in amounts}, "named": named(spec)}


def as_pool(name: str, spec: Spec) -> Pool:
    """The Pool as berth reads it."""
    return parse([document(name, spec)], "the world")[name]


def document(name: str, spec: Spec) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "Pool", "metadata": {"name": name}, "spec": dict(spec)}


def spec_of(pool: Pool) -> Spec:
    """The other way round; what is the same without a field is not in it."""
    found: dict[str, Any] = {**msgspec.to_builtins(pool.spec), "resource": pool.resource}
    if found["capacity"] is not None:
        found["capacity"] = {field: value for field, value in found["capacity"].items() if value is not None}
    return {field: value for field, value in found.items() if value}


def place(spec: Spec, name: str, node: NodeIs | None) -> str:
    """The domain of a node, by the API server."""
    scope = spec.get("scope", "Node")
    if scope == "Node":
        return name
    if scope == "Cluster":  # a seat in use is in use, whatever became of the node
        return EVERYWHERE
    return NOWHERE if node is None else node.zone or NOWHERE


def capacities(pools: Mapping[str, Spec], nodes: Mapping[str, NodeIs]) -> dict[Domain, int]:
    """What there is, by the API server: domains, and shares of them that are not reserved."""
    found: dict[Domain, int] = {}
    for pool, spec in pools.items():
        numbers, lists = spec.get("capacity", {}), spec.get("units", {})
        places = {place(spec, name, node): node for name, node in nodes.items()}
        explicit = () if spec.get("scope", "Node") == "Node" else {**lists, **numbers.get("domains", {})}
        for domain in {*places, *explicit} - {NOWHERE}:
            node = places.get(domain)
            units = numbers.get("domains", {}).get(domain, numbers.get("perDomain", 0))
            if "nodeAnnotation" in numbers and node is not None:
                units = node.units[resource_of(pool)]
            found[pool, domain] = len(lists.get(domain, ())) if lists else units
            if "reserved" in spec:
                found[pool, domain + UNRESERVED] = max(0, found[pool, domain] - spec["reserved"]["units"])
    return found


@contextmanager
def small_stripes() -> Iterator[None]:
    """As long as it lasts, two units make a stripe."""
    with ExitStack() as patched:
        for module in (allocation, capacity, ledger):
            patched.enter_context(mock.patch.object(module, "STRIPE", 2))
        yield
