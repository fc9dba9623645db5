"""What evicting pods would do for one that waits: where it could help at all, and whether it frees enough.
It reads the View, so it only advises: bind's reservation decides."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, partial

from msgspec.structs import replace

from berth.api.pool import Pool
from berth.kube.types import Pod
from berth.ledger import allocation, transitions
from berth.ledger.allocation import Requester, Short
from berth.ledger.keys import domain_of, parse_domain
from berth.ledger.model import Claim, Domain
from berth.ledger.refusals import Requirement
from berth.ledger.view import View
from berth.scheduling.demand import Demand, Terms, owners_of, rank_of, terms_of


def resolvable(
    names: Collection[str], requirements: Iterable[Requirement], pools: Mapping[str, Pool]
) -> frozenset[str]:
    """Return those of these refused nodes where nothing is short but units that pods may be evicted for."""
    hard: set[str] = set()
    soft: set[str] = set()
    for requirement in requirements:
        short = list(requirement.short(names))
        if pools[requirement.pool].spec.preemption == "Native":
            hard.update(name for name in short if not requirement.gives(name))
            soft.update(short)
        else:
            hard.update(short)
    return frozenset(soft - hard)


def in_vain(pods: Collection[Pod], schedulers: Collection[str], terms: Terms) -> list[Pod]:
    """Return those of these pods that wait with a nomination for units that pods may be evicted for, on a
    node where no pod is ending. Nothing tells kube-scheduler when that comes to nothing."""
    ending = {
        pod.spec.node_name for pod in pods if pod.metadata.deletion_timestamp is not None and not pod.finished
    }
    return [
        pod
        for pod in pods
        if pod.waiting
        and pod.spec.scheduler_name in schedulers
        and pod.status.nominated_node_name
        and pod.status.nominated_node_name not in ending
        and any(terms.pools[pool].spec.preemption == "Native" for pool in terms.demand(pod).units)
    ]


class Evictions:
    """Whether one pod that waits would fit if some pods' claims were gone."""

    def __init__(self, pod: Pod, demand: Demand, view: View, now: float) -> None:
        self._pod, self._demand, self._view = pod, demand, view
        self._terms = terms_of(view)
        self._requester = Requester(
            pod.metadata.uid,
            pod.metadata.namespace or "default",
            owners_of(pod),
            now,
            rank=rank_of(pod, view, now),
        )

    def short(self, node: str, victims: Collection[str] = (), *, rested: bool = False) -> list[Short] | None:
        """Return what the pod lacks on the node once the claims of these UIDs are gone, as bind's reservation
        would, and once nothing rests there any more if it is to be `rested`; None where no eviction can
        help."""
        if any(self._view.pools[name].suspends(self._terms.place(name, node)) for name in self._demand.units):
            return None
        at, meta = cache(partial(self._without, frozenset(victims), rested)), self._pod.metadata
        holdings = self._terms.holdings(self._pod, node, self._demand)
        namespace = self._requester.namespace
        claim = Claim(uid=meta.uid, namespace=namespace, name=meta.name, node=node, holdings=holdings)
        requester = self._requester._replace(places=allocation.places_of(claim))
        holdings, short = allocation.plan(claim, at, requester)
        if not short:
            _, short = allocation.taken(holdings, at, requester)
        return None if any(lack.capacity is None for lack in short) else short

    def chosen(self, node: str) -> tuple[str, ...]:
        """Return the UIDs of pods on the node that are to be evicted for this one: those of less importance
        alone, the least important first, and none too many. Empty: none need to be, or none are enough.

        Only for what Pools let pods be evicted for is anybody chosen.
        """
        short = self.short(node)
        if not short or any(not self._evicts(lack.holding.pool) for lack in short):
            return ()
        pools = {lack.holding.pool for lack in short}
        claims = [claim for claim in self._less_important(node) if self._may_be_chosen(claim)]
        if self.short(node, {claim.uid for claim in claims}) != []:
            return ()
        # Who is left to be evicted where the most important are spared first, and of these once who hold the
        # least and once who hold the most: the fewest, and of as many those who lose the least.
        held = {claim.uid: _units_of(claim, pools) for claim in claims}
        by_units = sorted(claims, key=lambda claim: held[claim.uid])
        orders = (
            sorted(order, key=lambda claim: -(claim.priority or 0)) for order in (by_units, by_units[::-1])
        )
        sets = [self._not_spared(node, order) for order in orders]
        best = min(sets, key=lambda some: (_importance(some), len(some), sum(held[one.uid] for one in some)))
        return tuple(claim.uid for claim in best)

    def _not_spared(self, node: str, claims: Sequence[Claim]) -> list[Claim]:
        """Return those of the claims that have to go, where each is spared, in this order, if it can be."""
        victims = {claim.uid for claim in claims}
        for claim in claims:
            if self.short(node, victims - {claim.uid}) == []:
                victims.remove(claim.uid)
        return [claim for claim in reversed(claims) if claim.uid in victims]

    def would_be_whole(self, node: str, victims: Collection[str] = ()) -> bool:
        """Whether the pod fits on the node when these pods' claims are settled, and units that rest there are
        free. Without any it is about all pods there that may be less important."""
        uids = victims or {
            claim.uid
            for claim in self._less_important(node, or_unknown=True)
            if claim.state != "lost"  # its pod is gone, and its units are held until its node is back
        }
        return self.short(node, uids, rested=True) == []

    def grace(self, uids: Iterable[str]) -> int:
        """Return the longest time, in seconds, that those of these pods have to end that hold claims."""
        return max((claim.grace for uid in uids for claim in self._view.claims_of(uid)), default=0)

    def _less_important(self, node: str, *, or_unknown: bool = False) -> list[Claim]:
        """Return the claims of pods on the node on units that pods may be evicted for. One that was reserved
        by an older version does not say how important its pod is."""
        own, priority = self._pod.metadata.uid, self._pod.spec.priority or 0
        documents = (
            domain
            for name in self._demand.units
            if self._evicts(name)
            for domain in self._view.parts(name, self._terms.place(name, node)).values()
        )
        claims = {claim.uid: claim for domain in documents for claim in domain.claims.values()}
        return [
            claim
            for claim in claims.values()
            if claim.node == node
            and claim.uid != own
            and (or_unknown if claim.priority is None else claim.priority < priority)
        ]

    def _may_be_chosen(self, claim: Claim) -> bool:
        """Whether kube-scheduler knows the pod on its node. It does not know those that have finished, and
        the ledger does not tell which of a Pool with `releaseOn: Deleted` have."""
        pools = (self._view.pools.get(holding.pool) for holding in claim.holdings)
        kept = any(pool is not None and pool.spec.release_on == "Deleted" for pool in pools)
        return claim.state == "bound" and not kept

    def _evicts(self, pool: str) -> bool:
        return self._view.pools[pool].spec.preemption == "Native"

    def _without(self, victims: frozenset[str], rested: bool, key: str) -> Domain:
        """Return a document without the claims of these pods."""
        domain, (pool_name, where) = self._view.at(key), domain_of(key)
        pool, name = self._view.pools.get(pool_name), parse_domain(where)
        if pool is None:
            return domain
        if name.kind == "namespace" and domain.capacity is None:
            # Its document is made when the namespace's first pod is bound.
            return Domain(capacity=pool.limit(name.namespace))
        if rested and domain.retained:
            left = tuple(replace(units, rest_until=0.0) for units in domain.retained)
            domain = replace(domain, retained=left)
        for uid in victims & domain.claims.keys():
            # A PoolClaim counts what is held, all else what is kept as well.
            if name.kind == "poolclaim" or not self._gets_them_back(domain.claims[uid], pool):
                domain = transitions.without(uid, {key: domain})[key]
        return domain

    def _gets_them_back(self, victim: Claim, pool: Pool) -> bool:
        """Whether its units would be kept for another owner's next pod: evicting it would be in vain."""
        if pool.spec.sticky is None:
            return False
        owner = victim.label if pool.spec.sticky.by == "Pod" else victim.owner
        return bool(owner) and owner not in self._requester.owners


def _units_of(claim: Claim, pools: Collection[str]) -> int:
    return sum(holding.count for pool in pools for holding in claim.at_places(pool))


def _importance(claims: Iterable[Claim]) -> int:
    """Return the priority of the most important of these."""
    return max(claim.priority or 0 for claim in claims)
