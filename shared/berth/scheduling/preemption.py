"""What evicting pods would do for one that waits: where it could help at all, and whether it frees enough.
It reads the View, so it only advises: bind's reservation decides."""

from collections.abc import Collection, Iterable, Mapping
from functools import cache, partial

from berth.api.pool import Pool
from berth.kube.types import Pod
from berth.ledger import allocation, transitions
from berth.ledger.allocation import Requester, Short
from berth.ledger.keys import domain_of, parse_domain
from berth.ledger.model import Claim, Domain
from berth.ledger.refusals import Requirement
from berth.ledger.view import View
from berth.scheduling.demand import Demand, owners_of, rank_of, terms_of


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

    def short(self, node: str, victims: Collection[str] = ()) -> list[Short] | None:
        """Return what the pod lacks on the node once the claims of these UIDs are gone, as bind's reservation
        would; None where no eviction can help."""
        if any(self._view.pools[name].suspends(self._terms.place(name, node)) for name in self._demand.units):
            return None
        at, meta = cache(partial(self._without, frozenset(victims))), self._pod.metadata
        holdings = self._terms.holdings(self._pod, node, self._demand)
        namespace = self._requester.namespace
        claim = Claim(uid=meta.uid, namespace=namespace, name=meta.name, node=node, holdings=holdings)
        requester = self._requester._replace(places=allocation.places_of(claim))
        holdings, short = allocation.plan(claim, at, requester)
        if not short:
            _, short = allocation.taken(holdings, at, requester)
        return None if any(lack.capacity is None for lack in short) else short

    def held(self, uids: Iterable[str]) -> bool:
        """Whether the ledger still counts something for one of these pods."""
        return any(self._view.claims_of(uid) for uid in uids)

    def _without(self, victims: frozenset[str], key: str) -> Domain:
        """Return a document without the claims of these pods."""
        domain, (pool_name, where) = self._view.at(key), domain_of(key)
        pool, name = self._view.pools.get(pool_name), parse_domain(where)
        if pool is None:
            return domain
        if name.kind == "namespace" and domain.capacity is None:
            # Its document is made when the namespace's first pod is bound.
            return Domain(capacity=pool.limit(name.namespace))
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
