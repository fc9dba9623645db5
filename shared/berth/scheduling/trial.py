"""A copy of what the ledger says, in which a change can be tried: would the pod find a node then?
The answer is filter's own. Nothing is written, and the View that it is made of stays as it is."""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from berth.api.pool import EVERYWHERE, Pool
from berth.api.units import Units
from berth.kube.types import Pod
from berth.ledger import transitions
from berth.ledger.keys import (
    OVERRUNS,
    domain_key,
    namespace_quota,
    node_key,
    pool_key,
    poolclaim_quota,
    stripe,
    unreserved_quota,
)
from berth.ledger.model import LAST, Claim, Domain, PoolClaimSpec, Rank, Reading, encode
from berth.ledger.overruns import body_of
from berth.ledger.view import View
from berth.scheduling.fit import evaluate

_NEW = "berth-trial-{}"  # names for units that a trial adds to a pool whose units have names


class Draft:
    """Changes to what a View says, and to one pod, that are to be tried together."""

    def __init__(self, view: View, pod: Pod, names: Collection[str], now: float) -> None:
        self.pod, self.names, self.now = pod, set(names), now
        self.held = view.held
        self._view = view
        self._pools: dict[str, Pool] = {}
        self._domains: dict[tuple[str, str], Domain] = {}
        self._places: dict[str, Mapping[str, str]] = {}

    def add(self, pool: str, domain: str, units: int) -> None:
        """Give the domain, or quota, so many units more, of which nothing is used."""
        head = self._domain(pool, domain)
        names = tuple(map(_NEW.format, range(units))) if self._named(pool, head) else ()
        self._domains[pool, domain] = _with_units(head, units, names)
        if head.stripes:
            # The stripes together have what the domain has; while it is closed they may have more.
            parts = [self._domain(pool, stripe(domain, number)) for number in range(head.stripes)]
            beyond = (head.capacity or 0) - sum(part.capacity or 0 for part in parts)
            self._domains[pool, stripe(domain, 0)] = _with_units(parts[0], units + beyond, names)

    def establish(self, pool: str, domain: str, units: int) -> None:
        """Make a domain with so many units, of which those are reserved that the Pool reserves."""
        self.add(pool, domain, units)
        reserved = self._pool(pool).spec.reserved
        if reserved is not None:
            self.add(pool, unreserved_quota(domain), max(0, units - reserved.units))

    def resume(self, pool: str, domain: str | None = None) -> None:
        """Let the pool, or one of its domains, give out units again."""
        before = self._pool(pool)
        left = tuple(name for name in before.spec.suspended_domains if name != domain)
        suspended = False if domain is None else left or False
        self._pools[pool] = replace(before, spec=replace(before.spec, suspended=suspended))

    def read(self, pool: str) -> None:
        """Let what others use of the pool have been read just now, and be as much as it was."""
        source = self._pool(pool).external_from
        if source is not None:
            head = self._domain(pool, EVERYWHERE)
            self._domains[pool, EVERYWHERE] = replace(head, reading=Reading(self.now, source.mark))

    def limit(self, pool: str, namespace: str, units: int) -> None:
        """Let the namespace hold so many units."""
        before = self._pool(pool)
        more = units - (before.limit(namespace) or 0)
        spec = replace(before.spec, limits={**before.spec.limits, namespace: units})
        self._pools[pool] = replace(before, spec=spec)
        if self._domain(pool, namespace_quota(namespace)).capacity is not None:
            self.add(pool, namespace_quota(namespace), more)

    def free(self, pools: Iterable[str], claim: Claim) -> None:
        """Take the claim away, as if its pod were gone and its units were nobody's."""
        for pool in pools:
            for holding in claim.holdings:
                if holding.pool == pool:
                    key = holding.key
                    before = self._domain(pool, holding.domain)
                    if claim.uid in before.claims:
                        after = transitions.without(claim.uid, {key: before})[key]
                        self._domains[pool, holding.domain] = after

    def place(self, pool: str, node: str, domain: str) -> None:
        """Put the node into the domain, as its label would."""
        places = self._places.get(node, self._view.nodes.get(node, {}))
        self._places[node] = {**places, pool: domain}

    def claim(self, pool: str, namespace: str, name: str, units: int) -> None:
        """Let there be a PoolClaim for so many units, which nobody holds."""
        domain = Domain(capacity=1, poolclaim=PoolClaimSpec(units))
        self._domains[pool, poolclaim_quota(f"{namespace}/{name}")] = domain

    def documents(self) -> dict[str, bytes]:
        """Return the documents that are other ones by these changes."""
        return {
            **{pool_key(name): encode(pool) for name, pool in self._pools.items()},
            **{domain_key(*key): encode(domain) for key, domain in self._domains.items()},
            **{node_key(node): encode(places) for node, places in self._places.items()},
        }

    def _pool(self, name: str) -> Pool:
        return self._pools.get(name, self._view.pools[name])

    def _domain(self, pool: str, name: str) -> Domain:
        return self._domains.get((pool, name), self._view.document(pool, name))

    def _named(self, pool: str, head: Domain) -> bool:
        return head.units is not None or (head.capacity is None and self._pool(pool).named)


class Trial:
    """One pod, and copies of the documents of some pools; `admits` says what filter would say of them."""

    def __init__(self, view: View, pools: Collection[str], pod: Pod, names: Collection[str], now: float):
        self._view, self._pod, self._names, self._now = view, pod, names, now
        self._documents = documents_of(view, pools)

    def draft(self) -> Draft:
        return Draft(self._view, self._pod, self._names, self._now)

    def view(self, draft: Draft) -> View:
        """Return what the ledger would say with these changes, at the draft's time."""
        copy = View()
        copy.update({**self._documents, **draft.documents()}, draft.now)
        epoch = self._view.epoch
        copy.epoch = None if epoch is None else replace(epoch, held=draft.held)
        return copy

    def admits(self, draft: Draft) -> bool:
        """Whether some node could take the pod with these changes."""
        reasons = evaluate(draft.pod, draft.names, self.view(draft), draft.now).reasons
        return len(reasons) < len(draft.names)


def documents_of(view: View, pools: Iterable[str]) -> dict[str, bytes]:
    """Return a View's documents: Pools, nodes' places, whom nobody believes, and these pools' domains."""
    return {
        OVERRUNS: body_of(view.overruns),
        **{pool_key(name): encode(pool) for name, pool in view.pools.items()},
        **{node_key(node): encode(places) for node, places in view.nodes.items()},
        **{
            domain_key(pool, name): encode(domain)
            for pool in pools
            for name, domain in view.domains.get(pool, {}).items()
        },
    }


def slack(view: View, pool: str, domain: str, owners: Collection[str], now: float, rank: Rank = LAST) -> int:
    """Return what is free of a domain, or quota, for a pod of these owners and this rank; below 0 where more
    is in use, or held for the first in line, than there is."""
    parts = view.parts(pool, domain)
    left = sum(part.slack(pool, name, owners, now, rank) for name, part in parts.items())
    # While it is closed, its stripes may have more than the domain itself.
    capacity = view.document(pool, domain).capacity or 0
    return left + capacity - sum(part.capacity or 0 for part in parts.values())


def _with_units(domain: Domain, units: int, names: Collection[str]) -> Domain:
    listed = None
    if names or domain.units is not None:
        listed = Units.of(domain.units or ()).joined(Units.of(names)).entries()
    return replace(domain, capacity=(domain.capacity or 0) + units, units=listed, closed=False)
