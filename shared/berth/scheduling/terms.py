"""By which Pools, nodes' places and PoolClaims a pod's demand is read: what it wants, and what it is to hold.
It knows no store and no cluster; who asks says by which state of them."""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from berth.api.pool import Pool, by_resource
from berth.api.poolclaim import named
from berth.kube.types import Pod
from berth.ledger import refusals
from berth.ledger.model import (
    NAMESPACE,
    NOWHERE,
    POOL_CLAIM,
    UNRESERVED,
    Claim,
    Holding,
    PoolClaimSpec,
    in_order,
)
from berth.ledger.view import View
from berth.scheduling.demand import demand

_LONGEST_NAME, _LONGEST_KIND = 253, 63

Named = Mapping[tuple[str, str], tuple[str, PoolClaimSpec]]
"""PoolClaims by namespace and name: their pool, and what they want of it."""


class Asked(msgspec.Struct, frozen=True):
    """Units by pool, and those of the PoolClaims that the pod names: (name, pool, what it wants).

    With a `refusal` the pod can be served on no node; one that runs all the same holds those units.
    """

    units: Mapping[str, int]
    claims: tuple[tuple[str, str, PoolClaimSpec], ...] = ()
    refusal: str | None = None


class Terms(NamedTuple):
    """`places` are nodes' domains by pool, for pools whose domains are not nodes; `before` are the Pools by
    which claims were made, where they may be others."""

    pools: Mapping[str, Pool]
    places: Mapping[str, Mapping[str, str]]
    named: "Named | View"
    before: Mapping[str, Pool] = MappingProxyType({})

    def asked(self, pod: Pod) -> Asked:
        found = demand(pod, by_resource(self.pools))
        try:
            names = named(pod)
        except ValueError as error:
            return Asked(found.units, (), str(error))
        claims = []
        refusal = found.refusal
        for name in names:
            known = self._named(pod.metadata.namespace or "default", name)
            if known is None:
                refusal = refusal or refusals.no_claim(name)
                if not pod.spec.node_name:
                    break  # it gets nothing; one that runs holds those of its PoolClaims that are there
            else:
                claims.append((name, *known))
        return Asked(found.units, tuple(claims), refusal or _too_few(found.units, claims))

    def place(self, pool: str, node: str) -> str:
        """The node's domain; NOWHERE if it has none."""
        found = self.pools.get(pool)
        if found is None or found.spec.scope == "Node":
            return node
        return self.places.get(pool, {}).get(node) or NOWHERE

    def holdings(self, pod: Pod, node: str, asked: Asked) -> tuple[Holding, ...]:
        """What the pod is to hold on that node, by whole domains."""
        namespace = pod.metadata.namespace or "default"
        found = []
        for pool, count in asked.units.items():
            domain = self.place(pool, node)
            given = [(name, wants.count) for name, of, wants in asked.claims if of == pool]
            found += [Holding(pool, domain, units, (), name) for name, units in given]
            found += [Holding(pool, f"{POOL_CLAIM}{namespace}/{name}", 1) for name, _ in given]
            rest = count - sum(units for _, units in given)
            found += [Holding(pool, domain, rest)] if rest > 0 else []
            found += [Holding(pool, bound, count) for bound in self.bounds(pool, domain, pod)]
        return in_order(found)

    def bounds(self, pool: str, domain: str, pod: Pod) -> list[str]:
        """What bounds how much of the pool the pod may have: its namespace's limit, its priority."""
        found, namespace = self.pools[pool], pod.metadata.namespace or "default"
        limited = found.limit(namespace) is not None
        bounds = [f"{NAMESPACE}{namespace}"] if limited else []
        return [*bounds, f"{domain}{UNRESERVED}"] if is_ordinary(found, pod) else bounds

    def same(self, pool: str) -> bool:
        """Whether the pool counts what it counted before, in the same domains, as far as is known."""
        before, now = self.before.get(pool), self.pools.get(pool)
        return before is None or now is None or before.counts == now.counts

    def reshaped(self, pool: str) -> bool:
        """Whether what pods hold of it is to be counted anew: it counts something else now, or in other
        domains, or its units have come to have names, or have none any more."""
        before, now = self.before.get(pool), self.pools.get(pool)
        return before is not None and now is not None and before.shape != now.shape

    def recounted(self, pool: str) -> bool:
        """Whether the Pool counts another resource now: what pods hold of it is of the one before."""
        before, now = self.before.get(pool), self.pools.get(pool)
        return before is not None and now is not None and before.resource != now.resource

    def handed_on(self, pool: str) -> bool:
        """The same, and another Pool counts the resource of before."""
        return self.recounted(pool) and self.before[pool].resource in by_resource(self.pools)

    def heir(self, pool: str) -> Pool | None:
        """The Pool that counts now what this one counted: as a rule itself, else the one that has its
        resource; None if no Pool has."""
        before = self.before.get(pool)
        if before is not None and (pool not in self.pools or self.handed_on(pool)):
            return by_resource(self.pools).get(before.resource)
        return self.pools.get(pool)

    def judged_by(self) -> dict[str, Pool]:
        """By which Pool it is to be judged what is held of each, also of those that are gone."""
        found = {name: self.heir(name) for name in {*self.before, *self.pools}}
        return {name: pool for name, pool in found.items() if pool is not None}

    def resource_of(self, pool: str, asked: Collection[str]) -> str | None:
        """Of what resource a claim on the pool is, of a pod that asks for these Pools; None: nobody knows.

        A pod that asks for none of a Pool holds what that Pool counted once.
        """
        before = self.before.get(pool)
        once = pool in self.pools and pool not in asked and not self.recounted(pool)
        return None if before is None or once else before.resource

    def _named(self, namespace: str, name: str) -> tuple[str, PoolClaimSpec] | None:
        if not isinstance(self.named, View):
            return self.named.get((namespace, name))
        domain = f"{POOL_CLAIM}{namespace}/{name}"
        for pool in self.pools:
            found = self.named.domains.get(pool, {}).get(domain)
            if found is not None and found.wants is not None:
                return pool, found.wants
        return None


def terms_of(view: View) -> Terms:
    """As the ledger has them."""
    return Terms(view.pools, view.places, view)


def is_ordinary(pool: Pool, pod: Pod) -> bool:
    """Whether some units are kept for pods that are more important."""
    reserved = pool.spec.reserved
    return reserved is not None and (pod.spec.priority or 0) < reserved.priority_at_least


def owner_of(pod: Pod) -> str:
    """Who made the pod: its controller, a Deployment rather than the ReplicaSet of one of its revisions.

    A name or kind that is longer than any in Kubernetes is nobody's: users can write these, and the ledger
    keeps them.
    """
    meta = pod.metadata
    made = next((each for each in meta.owner_references or () if each.controller), None)
    if made is None or len(made.name) > _LONGEST_NAME or len(made.kind) > _LONGEST_KIND:
        return ""
    revision = (meta.labels or {}).get("pod-template-hash", "")
    name = made.name.removesuffix(f"-{revision}") if made.kind == "ReplicaSet" and revision else made.name
    return f"{meta.namespace or 'default'}/{made.kind}:{name}"


def owners_of(pod: Pod) -> tuple[str, ...]:
    """By whom units may be kept that this pod may have."""
    return tuple(filter(None, (pod.label, owner_of(pod))))


def unnamed(claims: Iterable[Claim], pools: Mapping[str, Pool]) -> list[str]:
    """A line for each claim with units of a named pool whose names are not known, by domain: how that is cut
    into stripes is nothing to a person."""
    found = []
    for claim in claims:
        held: dict[tuple[str, str], tuple[int, int]] = {}
        for each in claim.holdings:
            if each.pool in pools and pools[each.pool].named and not each.bound:
                count, by_name = held.get((each.pool, each.place), (0, 0))
                held[(each.pool, each.place)] = count + each.count, by_name + len(each.units)
        found += [
            f"pod {claim.label} holds {count} of {pool} in {place}, {by_name} of them by name: what it uses "
            "besides is another pod's, or not of the pool"
            for (pool, place), (count, by_name) in held.items()
            if by_name < count
        ]
    return found


def _too_few(units: Mapping[str, int], claims: Iterable[tuple[str, str, PoolClaimSpec]]) -> str | None:
    """A pod asks for what its PoolClaims give it as well: without that it might be bound without a call."""
    given: dict[str, int] = {}
    for _, pool, wants in claims:
        given[pool] = given.get(pool, 0) + wants.count
    for pool, count in given.items():
        if units.get(pool, 0) < count:
            return f"{pool}: {units.get(pool, 0)} asked, and the PoolClaims that the pod names are of {count}"
    return None
