"""What a pod wants of its pools as it sees them, for filter and prioritize: from the ledger's View to policy.
It reads no store and decides nothing; near the last unit bind's reservation does."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from berth.api.pool import Pool
from berth.api.units import Units
from berth.kube.types import Pod
from berth.ledger import refusals
from berth.ledger.model import NAMESPACE, POOL_CLAIM, Domain
from berth.ledger.refusals import Want
from berth.ledger.view import Shares, View
from berth.scheduling.demand import Demand, is_unreserved, owners_of
from berth.scheduling.score import Ask


class _Limited(NamedTuple):
    """Why a namespace's limit gives a pod nothing, but for `there`: those units are kept for it."""

    text: str
    there: frozenset[str]


class Wanted:
    """One pod's demand and the shares that it sees, now (Unix seconds)."""

    def __init__(self, pod: Pod, asked: Demand, view: View, now: float) -> None:
        self._pod, self._asked, self._view, self._now = pod, asked, view, now
        self._namespace = pod.metadata.namespace or "default"
        self._owners = owners_of(pod)
        self._shares: Shares = view.free_for(pod.metadata.uid, asked.units, self._owners, now)

    def nowhere(self) -> list[str]:
        """Why no node can take the pod, whatever it has."""
        texts = []
        for pool, count in self._asked.units.items():
            found = self._view.pools[pool]
            if found.spec.suspended is True:
                texts.append(refusals.suspended(pool))
            if found.resource in self._view.held:
                texts.append(refusals.held_back(pool))
            limited = self._limited(found, count)
            if limited is not None and not limited.there:
                texts.append(limited.text)
            texts += [refusals.leaving(pool)] if self._leaving(found) else []
        for name, pool, wants in self._asked.claims:
            share = self._shares.bounds[pool].get(f"{POOL_CLAIM}{self._namespace}/{name}", (0, 0))
            texts += [] if share[0] else [refusals.claimed(pool, name, share, wants.refused)]
        return texts

    def wants(self) -> list[Want]:
        """What nodes are judged by."""
        found = []
        for pool, count in self._asked.units.items():
            spec = self._view.pools[pool]
            places = self._places(pool)
            label = refusals.unlabelled(pool, spec.spec.topology_key or "")
            free, not_here = self._shares.free[pool], self._not_here(spec)
            found.append(Want(pool, count, free, places, refusals.told, label, not_here))
            if is_unreserved(spec, self._pod):
                found.append(Want(pool, count, self._shares.ordinary[pool], places, refusals.ordinary, label))
        return found

    def asks(self) -> list[Ask]:
        """What nodes are scored by."""
        return [
            Ask(self._view.pools[pool], self._shares.free[pool], self._places(pool))
            for pool in self._asked.units
        ]

    def keeps_to(self, names: Iterable[str]) -> set[str] | None:
        """Those of these nodes where units are that the pod, or its PoolClaim, had before and that are free,
        of as many pools as can be; None where there are none: then it may go anywhere."""
        domains = [*self._had(), *self._kept()]
        there, offered = None, list(names) if domains else []
        for domain in domains:
            there = self._in(*domain, offered if there is None else there) or there
        return there

    def kept_elsewhere(self, names: Collection[str]) -> bool:
        """Whether there are such units that are on none of these nodes."""
        return not all(self._in(*domain, names) for domain in [*self._had(), *self._kept()])

    def _in(self, pool: str, domain: str, names: Collection[str]) -> set[str]:
        """Those of these nodes that are in the domain."""
        places = self._places(pool)
        return {name for name in names if (name if places is None else places.get(name)) == domain}

    def _places(self, pool: str) -> Mapping[str, str] | None:
        """Nodes' domains; None where each node is its own."""
        is_node = self._view.pools[pool].spec.scope == "Node"
        return None if is_node else self._view.places.get(pool, {})

    def _leaving(self, pool: Pool) -> bool:
        """Whether units that are to be kept for this pod are not free yet: a pod of its name had them, which
        is gone, or this one would not be there."""
        if pool.spec.sticky is None or pool.spec.sticky.by != "Pod":
            return False
        found = self._view.named(self._pod.label, pool.name)
        return any(claim.uid != self._pod.metadata.uid and claim.state != "lost" for claim in found)

    def _limited(self, pool: Pool, count: int) -> "_Limited | None":
        """How the namespace's limit stands in the way of so many units; None if it does not."""
        limit, domain = pool.limit(self._namespace), f"{NAMESPACE}{self._namespace}"
        share = (count, count) if limit is None else (limit, limit)
        share = share if limit is None else self._shares.bounds[pool.name].get(domain, share)
        if share[0] >= count:
            return None
        kept = self._view.kept_of_bound(pool.name, domain, self._owners, self._now)
        there = frozenset(place for place, units in kept.items() if share[0] + units >= count)
        return _Limited(refusals.limited(pool.name, self._namespace, share, count, pool.retains), there)

    def _not_here(self, pool: Pool) -> dict[str, str]:
        suspended = pool.spec.suspended
        found = {} if isinstance(suspended, bool) else dict.fromkeys(suspended, refusals.suspended(pool.name))
        limited = self._limited(pool, self._asked.units[pool.name])
        if limited is not None:
            found |= dict.fromkeys(self._shares.free[pool.name].keys() - limited.there, limited.text)
        for name, of, wants in self._asked.claims:
            if of == pool.name and wants.units:
                here = {each for each in self._listing(of, wants.units) if self._has(of, each, wants.units)}
                found |= dict.fromkeys(self._shares.free[of].keys() - here, refusals.elsewhere(of, name))
        return found

    def _listing(self, pool: str, units: Iterable[str]) -> set[str]:
        """The domains that list any of these units; there may be thousands that do not."""
        wanted = Units.parse(units)
        found = self._view.domains.get(pool, {}).items()
        return {
            name.partition("#")[0]
            for name, each in found
            if each.units and wanted.meets(Units.of(each.units))
        }

    def _has(self, pool: str, domain: str, units: Iterable[str]) -> bool:
        """Whether these very units are in the domain, and free for the pod."""
        free: set[str] = set()
        for name, part in self._view.parts(pool, domain).items():
            there = Units.of(part.units or ())
            listed = {unit for unit in units if unit in there}
            free |= listed - self._held(pool, name, part) if listed else listed
        return free.issuperset(units)

    def _held(self, pool: str, name: str, part: Domain) -> set[str]:
        """The units of a document that the pod can't have."""
        mine = part.claims.get(self._pod.metadata.uid)
        own = frozenset[tuple[str, str]]() if mine is None else mine.units
        return {unit for unit in part.held(pool, name) if (pool, unit) not in own} | {
            unit for left in part.left if left.bars(self._owners, self._now) for unit in left.units
        }

    def _had(self) -> list[tuple[str, str]]:
        return [
            (pool, wants.domain)
            for _, pool, wants in self._asked.claims
            if wants.domain and not wants.units and self._has(pool, wants.domain, wants.had)
        ]

    def _kept(self) -> list[tuple[str, str]]:
        places = self._view.kept_for(self._owners, self._now)
        return [place for place in places if place[0] in self._asked.units]
