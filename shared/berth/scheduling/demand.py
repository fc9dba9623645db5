"""What a pod demands of the pools, and what it is to hold on a node.
Of a pod's annotations only the one that names PoolClaims counts: no other is a demand or proves a claim."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from math import inf
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from berth.api.annotations import is_same_for_all, takes_one_unit
from berth.api.gang import gang_label, gang_of
from berth.api.names import is_ours
from berth.api.pool import Pool, by_resource
from berth.api.poolclaim import CLAIMS, named
from berth.api.quantity import units
from berth.api.run_time import ends_at
from berth.errors import few
from berth.kube.types import Container, Pod, Quantity
from berth.ledger import refusals
from berth.ledger.keys import NOWHERE, namespace_quota, poolclaim_quota, unreserved_quota
from berth.ledger.model import Claim, Holding, PoolClaimSpec, Rank, by_whole, in_order
from berth.ledger.view import View

PoolClaims = Mapping[tuple[str, str], tuple[str, PoolClaimSpec]]
"""PoolClaims by namespace and name: their pool, and what they claim of it."""

_MOST_SHOWN = 10  # pools that are named in a refusal; the rest are counted
_MOST_CONTAINERS = 4
_LONGEST_NAME, _LONGEST_KIND = 253, 63

_Picks = Callable[[str], bool]


class Demand(msgspec.Struct, frozen=True):
    """Units that a pod asks for, by pool, and the PoolClaims that it names: (name, pool, what it claims).

    With a `refusal` the pod can be served on no node; one that runs all the same holds those units.
    """

    units: Mapping[str, int]
    claims: tuple[tuple[str, str, PoolClaimSpec], ...] = ()
    refusal: str | None = None


_NONE = Demand({})


class Terms(NamedTuple):
    """The Pools, nodes' domains and PoolClaims by which a pod's demand is read.

    `places` are nodes' domains by pool, for pools whose domains are not nodes; `before` are the Pools by
    which claims were made, where they may be others. It knows no store and no cluster.
    """

    pools: Mapping[str, Pool]
    places: Mapping[str, Mapping[str, str]]
    poolclaims: "PoolClaims | View"
    before: Mapping[str, Pool] = MappingProxyType({})

    def demand(self, pod: Pod) -> Demand:
        """Return what the pod demands, its PoolClaims included."""
        demand = demand_of(pod, by_resource(self.pools))
        try:
            names = named(pod)
        except ValueError as error:
            return replace(demand, refusal=str(error))
        claims, refusal = [], demand.refusal
        for name in names:
            claim = self.poolclaim(pod.metadata.namespace or "default", name)
            if claim is None:
                refusal = refusal or refusals.no_claim(name)
                if not pod.spec.node_name:
                    break  # it gets nothing; one that runs holds those of its PoolClaims that are there
            else:
                claims.append((name, *claim))
        refusal = refusal or _too_few(demand.units, claims) or self._untellable(pod, demand.units)
        refusal = refusal or (None if pod.spec.node_name else _no_gang(pod))
        return Demand(demand.units, tuple(claims), refusal)

    def _untellable(self, pod: Pod, demanded: Mapping[str, int]) -> str | None:
        """Return why the pools' annotations could not tell a waiting pod what it got; None if they can."""
        writers: dict[str, Pool] = {}
        for pool, count in () if pod.spec.node_name else demanded.items():
            writer = self.pools[pool]
            for key, template in writer.annotations.items():
                other = writers.setdefault(key, writer)
                same = other is writer or (template == other.annotations[key] and is_same_for_all(template))
                if not same:
                    return refusals.both_write(other.name, pool, key)
                if count != 1 and takes_one_unit(template):
                    return refusals.one_unit(pool, key, count)
                if writer.spec.on_annotated == "Refuse" and key in (pod.metadata.annotations or {}):
                    return refusals.brought(pool, key)
        return None

    def place(self, pool: str, node: str) -> str:
        """Return the node's domain in the pool; NOWHERE if it has none."""
        if pool not in self.pools or self.pools[pool].spec.scope == "Node":
            return node
        return self.places.get(pool, {}).get(node) or NOWHERE

    def holdings(self, pod: Pod, node: str, demand: Demand) -> tuple[Holding, ...]:
        """Return what the pod is to hold on that node, by whole domains."""
        namespace = pod.metadata.namespace or "default"
        holdings = []
        for pool, count in demand.units.items():
            domain = self.place(pool, node)
            given = [(name, spec.count) for name, of, spec in demand.claims if of == pool]
            holdings += [Holding(pool, domain, units, (), name) for name, units in given]
            holdings += [Holding(pool, poolclaim_quota(f"{namespace}/{name}"), 1) for name, _ in given]
            rest = count - sum(units for _, units in given)
            holdings += [Holding(pool, domain, rest)] if rest > 0 else []
            holdings += [Holding(pool, quota, count) for quota in self._quotas(pool, domain, pod)]
        return in_order(holdings)

    def same(self, pool: str) -> bool:
        """Whether the pool counts what it counted before, in the same domains, as far as is known."""
        return not self._differs(pool, lambda pool: pool.counts)

    def reshaped(self, pool: str) -> bool:
        """Whether what pods hold of it is to be counted anew: it counts something else now, or in other
        domains, or its units have come to have names, or have none any more."""
        return self._differs(pool, lambda pool: pool.shape)

    def recounted(self, pool: str) -> bool:
        """Whether the Pool counts another resource now: what pods hold of it is of the one before."""
        return self._differs(pool, lambda pool: pool.resource)

    def handed_on(self, pool: str) -> bool:
        """Whether the Pool counts another resource now, and another Pool counts the one of before."""
        return self.recounted(pool) and self.before[pool].resource in by_resource(self.pools)

    def heir(self, pool: str) -> Pool | None:
        """Return the Pool that counts now what this one counted: as a rule itself, else the one that has its
        resource; None if no Pool has."""
        before = self.before.get(pool)
        if before is not None and (pool not in self.pools or self.handed_on(pool)):
            return by_resource(self.pools).get(before.resource)
        return self.pools.get(pool)

    def judged_by(self) -> dict[str, Pool]:
        """Return for each Pool, also for those that are gone, the one that judges what is held of it."""
        heirs = {name: self.heir(name) for name in {*self.before, *self.pools}}
        return {name: pool for name, pool in heirs.items() if pool is not None}

    def resource_of(self, pool: str, demanded: Collection[str]) -> str | None:
        """Return of what resource a claim on the pool is, of a pod that demands these Pools; None: nobody
        knows. A pod that demands none of a Pool holds what that Pool counted once."""
        before = self.before.get(pool)
        once = pool in self.pools and pool not in demanded and not self.recounted(pool)
        return None if before is None or once else before.resource

    def _differs(self, name: str, what: Callable[[Pool], object]) -> bool:
        """Whether this of the Pool was another before, as far as is known."""
        before, now = self.before.get(name), self.pools.get(name)
        return before is not None and now is not None and what(before) != what(now)

    def _quotas(self, pool: str, domain: str, pod: Pod) -> list[str]:
        """Return the domains that limit how much of the pool the pod may have: its namespace's, and that of
        the units that are not reserved for more important pods."""
        spec, namespace = self.pools[pool], pod.metadata.namespace or "default"
        quotas = [] if spec.limit(namespace) is None else [namespace_quota(namespace)]
        return [*quotas, unreserved_quota(domain)] if is_unreserved(spec, pod) else quotas

    def poolclaim(self, namespace: str, name: str) -> tuple[str, PoolClaimSpec] | None:
        """Return the pool of a PoolClaim, and what it claims of it; None where there is none."""
        if not isinstance(self.poolclaims, View):
            return self.poolclaims.get((namespace, name))
        key = poolclaim_quota(f"{namespace}/{name}")
        for pool in self.pools:
            if (spec := self.poolclaims.document(pool, key).poolclaim) is not None:
                return pool, spec
        return None


def terms_of(view: View) -> Terms:
    """Return the Pools, nodes' domains and PoolClaims as the ledger has them."""
    return Terms(view.pools, view.places, view)


def might_ask(pod: Pod) -> bool:
    """Whether the pod asks for any extended resource, or names a PoolClaim: if not, nobody needs to look at
    the pools.

    Source: an extended resource's name has a domain (kubernetes.io/docs, Extended resources)."""
    if CLAIMS in (pod.metadata.annotations or {}):
        return True
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    requests = (*map(_requests, containers), pod.spec.overhead or {})
    return any("/" in name for quantities in requests for name in quantities)


def resources(pod: Pod) -> frozenset[str]:
    """Return the extended resources that the pod asks for, with a Pool or without."""
    try:
        return frozenset(_effective(pod, lambda name: "/" in name))
    except ValueError:
        return frozenset()  # it was never given any


def demand_of(pod: Pod, pools: Mapping[str, Pool]) -> Demand:
    """Return what the pod's containers ask of `pools` (by resource name). A sum of 0 is no demand."""
    if not might_ask(pod):
        return _NONE
    try:
        counts = _effective(pod, lambda name: name in pools or is_ours(name))
    except ValueError as error:
        return Demand({}, refusal=str(error))
    missing = min(counts.keys() - pools.keys(), default=None)
    return Demand(
        {pools[resource].name: count for resource, count in sorted(counts.items()) if resource in pools},
        refusal=None if missing is None else _no_such_pool(missing, pools),
    )


def asking_containers(pod: Pod, pool: Pool) -> dict[str, int]:
    """Return how many units of the pool each container asks for, by its name; init containers included, and
    those that ask for none left out."""
    asking: dict[str, int] = {}
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        with suppress(ValueError):  # the demand's refusal says which quantity is wrong
            if count := _whole(_requests(container), pool.resource.__eq__).get(pool.resource):
                asking[container.name] = count
    return asking


def several_ask(pod: Pod, pools: Iterable[Pool]) -> str:
    """Return which containers ask for units of a pool of which more than one asks; empty: there is no such
    pool. A webhook may have added a container that asks, too."""
    if len(pod.spec.containers or ()) + len(pod.spec.init_containers or ()) < 2:
        return ""
    texts = []
    for pool in pools:
        if len(asking := asking_containers(pod, pool)) > 1:
            names = few((f"{name} ({count})" for name, count in asking.items()), _MOST_CONTAINERS)
            texts.append(f"{pool.name} is asked for by the containers {names}")
    return "; ".join(texts)


def is_unreserved(pool: Pool, pod: Pod) -> bool:
    """Whether some of the pool's units are reserved for pods that are more important than this one."""
    reserved = pool.spec.reserved
    return reserved is not None and (pod.spec.priority or 0) < reserved.priority_at_least


def owner_of(pod: Pod) -> str:
    """Return who made the pod: its controller, or a Deployment where that is one of its ReplicaSets.

    A name or kind that is longer than any in Kubernetes is nobody's: users can write these, and the ledger
    keeps them.
    """
    meta = pod.metadata
    made = next((owner for owner in meta.owner_references or () if owner.controller), None)
    if made is None or len(made.name) > _LONGEST_NAME or len(made.kind) > _LONGEST_KIND:
        return ""
    revision = (meta.labels or {}).get("pod-template-hash", "")
    name = made.name.removesuffix(f"-{revision}") if made.kind == "ReplicaSet" and revision else made.name
    return f"{meta.namespace or 'default'}/{made.kind}:{name}"


def rank_of(pod: Pod, view: View, now: float) -> Rank:
    """Return by what the pod is before or behind others in line, and when it would be gone if it had what it
    asks for now."""
    ends = ends_at(pod, now) if view.line_holds else 0.0  # nobody asks where nothing is held
    if ends and disbelieved_until(pod, view, now):
        ends = inf
    made, gang = inf if pod.made_at is None else pod.made_at, gang_label(pod) if view.line_holds else ""
    return Rank(pod.metadata.uid, pod.spec.priority or 0, made, ends, gang, pod.label)


def disbelieved_until(pod: Pod, view: View, now: float) -> float:
    """Return until when nobody believes how long the pod says that it runs, because another one of its owner
    ran longer; 0: it is believed."""
    until = view.overruns.get(owner_of(pod) or pod.label, 0.0) if view.overruns else 0.0
    return until if until > now else 0.0


def owners_of(pod: Pod) -> tuple[str, ...]:
    """Return the names under which units may be retained that this pod may have."""
    return tuple(filter(None, (pod.label, owner_of(pod))))


def unnamed(claims: Iterable[Claim], pools: Mapping[str, Pool]) -> list[tuple[Claim, str]]:
    """Return what to say of each claim with units of a named pool whose names are not known, by domain: how
    that is cut into stripes is nothing to a person."""
    lines: list[tuple[Claim, str]] = []
    for claim in claims:
        held = [
            replace(holding, claim="")
            for holding in claim.holdings
            if holding.pool in pools and pools[holding.pool].named and not holding.is_quota
        ]
        lines += [
            (
                claim,
                (
                    f"holds {holding.count} of {holding.pool} in {holding.whole}, "
                    f"{len(holding.units)} of them by name: "
                    "what it uses besides is another pod's, or not of the pool"
                ),
            )
            for holding in by_whole(held)
            if len(holding.units) < holding.count
        ]
    return lines


def effective(pod: Pod, count: Callable[[Mapping[str, Quantity]], dict[str, int]]) -> dict[str, int]:
    """Return what the pod asks for by Kubernetes' rule: the larger of what runs together in the end
    (containers and sidecars) and of what each init container needs beside the sidecars started before it;
    then overhead. `count` makes whole numbers of one container's requests.

    Source: k8s.io/component-helpers/resource/helpers.go, PodRequests and AggregateContainerRequests.
    """
    running: dict[str, int] = {}
    for container in pod.spec.containers or ():
        running = _add(running, count(_requests(container)))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.spec.init_containers or ():
        own = count(_requests(container))
        peak = _larger(peak, _add(own, sidecars))
        if container.restart_policy == "Always":
            running, sidecars = _add(running, own), _add(sidecars, own)
    total = _larger(running, peak)
    if pod.spec.overhead:
        total = _add(total, count(pod.spec.overhead))
    return {name: amount for name, amount in total.items() if amount}


def _effective(pod: Pod, picks: _Picks) -> dict[str, int]:
    return effective(pod, lambda quantities: _whole(quantities, picks))


def _requests(container: Container) -> Mapping[str, Quantity]:
    """Return requests, and limits where there is no request: the API server fills it in by the same rule."""
    asked = container.resources
    return {} if asked is None else {**(asked.limits or {}), **(asked.requests or {})}


def _whole(quantities: Mapping[str, Quantity], picks: _Picks) -> dict[str, int]:
    counts = {}
    for name, quantity in quantities.items():
        if picks(name):
            try:
                counts[name] = units(quantity)
            except ValueError as error:
                raise ValueError(f"{name}: {str(quantity)[:64]!r} {error}; ask for a whole number") from None
    return counts


def _add(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    # No Counter: its sums take twice the time, and this is done for every pod at every call.
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _no_such_pool(resource: str, pools: Mapping[str, Pool]) -> str:
    there = few(sorted(pools), _MOST_SHOWN) or "none yet"
    return f"{resource}: no Pool has this resource; there are: {there}"


def _no_gang(pod: Pod) -> str | None:
    """Return what is wrong with the pod's gang, if it says one."""
    try:
        gang_of(pod)
    except ValueError as error:
        return str(error)
    return None


def _too_few(counts: Mapping[str, int], claims: Iterable[tuple[str, str, PoolClaimSpec]]) -> str | None:
    """Return what is wrong where a pod asks for less than its PoolClaims give it: it might be bound without
    a call."""
    given: dict[str, int] = defaultdict(int)
    for _, pool, spec in claims:
        given[pool] += spec.count
    for pool, most in given.items():
        asked = counts.get(pool, 0)
        if asked < most:
            return f"{pool}: {asked} asked, and the PoolClaims that the pod names are of {most}"
    return None
