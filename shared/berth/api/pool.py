"""A Pool: which of its domains a node is in, how many units a domain has, who may have how many of them.
It says nothing of who holds what; how a document becomes a Pool is in `pool_manifest`."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import msgspec

from berth.api.pool_manifest import API_VERSION, GROUP, NATIVE, is_extended_resource, read
from berth.api.pool_spec import Capacity, PoolSpec, Reserved, Selector, Sticky
from berth.api.quantity import units
from berth.api.units import MOST, Units
from berth.errors import BadInputError
from berth.kube.types import Node

__all__ = [
    "API_VERSION", "EVERYWHERE", "GROUP", "NATIVE", "Capacity", "Pool", "PoolSpec", "Reserved", "Selector",
    "Sticky", "by_resource", "is_extended_resource", "parse",
]  # fmt: skip

EVERYWHERE = "*"  # the one domain of a pool of scope Cluster

_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_NO_NUMBERS = Capacity(per_domain=0)


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
        """What it counts, and by what it divides it; where that changes, what is held of it, or a domain's
        name, may stand for something else than before."""
        return self.resource, self.spec.scope, self.spec.topology_key

    @property
    def shape(self) -> tuple[str, str, str | None, bool]:
        """The same, and whether its units have names: where that changes, what is held is counted anew."""
        return *self.counts, self.named

    @property
    def holds_lost(self) -> bool:
        """Whether units of pods on a lost node stay held (onLostNode); so they do if they have names."""
        return (self.spec.on_lost_node or ("Hold" if self.named else "Release")) == "Hold"

    @property
    def retains(self) -> bool:
        """Whether units that a pod leaves rest, or are kept for a next one."""
        return self.spec.reuse_after_seconds > 0 or self.spec.sticky is not None

    def place(self, node: Node) -> str | None:
        """The node's domain; None: it is not in this pool, empty: it lacks the label that would name one."""
        labels = node.metadata.labels or {}
        if not self.spec.include_control_plane and any(key in labels for key in _CONTROL_PLANE):
            return None
        if not self.spec.node_selector.selects(labels):
            return None
        if self.spec.scope == "Topology":
            return labels.get(self.spec.topology_key or "", "")
        return node.metadata.name if self.spec.scope == "Node" else EVERYWHERE

    def capacity_of(self, domain: str, node: Node | None = None) -> int | None:
        """Units of a domain, those in use outside the cluster with them; None: there can be no such domain.

        An annotation that is not a whole number gives 0 units: see `problem`."""
        if not domain or (domain == EVERYWHERE) != (self.spec.scope == "Cluster"):
            return None
        if self.named:
            return min(Units.parse(self.spec.units.get(domain, ())).size, MOST)
        if domain in self._numbers.domains:
            return self._numbers.domains[domain]
        text = None if node is None else self._annotation(node)
        return self._numbers.per_domain or 0 if text is None else _whole(text)

    def capacity(self, node: Node) -> int | None:
        """Units of the node's domain, or None when it has none."""
        domain = self.place(node)
        return None if domain is None else self.capacity_of(domain, node)

    def problem(self, node: Node) -> str | None:
        """What is wrong with the node's annotation, if the capacity comes from it."""
        text = self._annotation(node)
        if text is None or node.metadata.name in self._numbers.domains or self.capacity(node) is None:
            return None
        try:
            units(text)
        except ValueError as error:
            return (
                f"{self.name}: node {node.metadata.name}: annotation {self._numbers.node_annotation}"
                f" is {text[:64]!r}, which {error}; counted as 0"
            )
        return None

    def explicit(self) -> tuple[str, ...]:
        """The domains that are there without a node."""
        if self.spec.scope == "Node":
            return ()
        if self.spec.scope == "Cluster":
            return (EVERYWHERE,)
        return tuple(sorted({*self._numbers.domains, *self.spec.units}))

    def limit(self, namespace: str) -> int | None:
        """The most units that a namespace may hold; None: as many as there are."""
        return self.spec.limits.get(namespace, self.spec.limits.get("*"))

    @property
    def listed(self) -> Units:
        """The units of all its domains: joined at once, for there may be thousands of lists."""
        lists = (Units.parse(entries).entries() for entries in self.spec.units.values())
        return Units().joined(Units.of(chain.from_iterable(lists)))

    def claimable_by(self, namespace: str) -> Units | None:
        """The units that PoolClaims of the namespace may name; None: all there are."""
        by = self.spec.claimable_by
        return None if by is msgspec.UNSET else Units.parse(by.get(namespace, by.get("*", ())))

    def suspends(self, domain: str) -> bool:
        """Whether the domain takes no new claims."""
        suspended = self.spec.suspended
        return suspended if isinstance(suspended, bool) else domain in suspended

    @property
    def _numbers(self) -> Capacity:
        return self.spec.capacity or _NO_NUMBERS

    def _annotation(self, node: Node) -> str | None:
        key = self._numbers.node_annotation
        return None if key is None else (node.metadata.annotations or {}).get(key)


def parse(documents: Iterable[Any], source: str) -> dict[str, Pool]:
    """Pools by name out of decoded documents. Raises BadInputError that names the source, Pool and field."""
    pools: dict[str, Pool] = {}
    for document in documents:
        if document is None:
            continue
        pool = Pool(*read(document, source))
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


def _whole(text: str) -> int:
    try:
        return units(text)
    except ValueError:
        return 0
