"""Which units a running pod says that it uses: by Berth's annotation, or by the one that `adoptFrom` names;
and what a pod is told of its units by the annotations of its Pools.
Users can write all of them, so one counts only where the unit is one of the pool's, and free."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice

import msgspec
from msgspec.structs import replace

from berth.api.annotations import text_of
from berth.api.pool import Pool
from berth.api.units import Units, normal
from berth.errors import RefusedError
from berth.kube.types import Pod
from berth.ledger.keys import unreserved_quota
from berth.ledger.model import Claim, Holding, by_whole, in_order
from berth.scheduling.demand import Terms

ALLOCATED = "berth.dev/allocated"

_MOST = 1024  # units of a pod that are read


class OtherNamesError(RefusedError):
    """The pod's claim was made when its Pool named its units, and now does not, or the other way round."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(f"pod {claim.label}: units of a Pool have got or lost names; it will be retried")
        self.claim = claim


class _Part(msgspec.Struct):
    """What the annotation says of one pool, domain and PoolClaim."""

    pool: str
    units: list[str] = []
    claim: str = ""


_parts = msgspec.json.Decoder(list[_Part])


def with_annotated_units(claim: Claim, pod: Pod, pools: Mapping[str, Pool]) -> Claim:
    """Return the claim with the names of units that the pod says it uses, in the domains that list them.
    Units without a name stay where they are."""
    known = {holding.claim for holding in claim.holdings}
    asked = {holding.pool for holding in claim.holdings}

    def annotated(pool: Pool, holding: Holding) -> Iterable[tuple[str, str]]:
        units = _units(pod, pool, asked, holding.claim, known) if pool.named else []
        return listed(pool, units, holding.domain)

    return _with(claim, pools, annotated)


def pools_annotations(claim: Claim, pools: Mapping[str, Pool]) -> dict[str, str]:
    """Return what the Pools' annotations tell the pod of its units, by their keys.

    Raises OtherNamesError where the claim's units have names, or none, and the Pool's have not, or have.
    """
    told: dict[str, str] = {}
    for name in sorted({holding.pool for holding in claim.holdings} & pools.keys()):
        pool, held = pools[name], by_whole(claim.at_places(name))
        units = [unit for part in held for unit in part.units]
        if len(units) != (sum(part.count for part in held) if pool.named else 0):
            raise OtherNamesError(claim)
        for key, template in pool.annotations.items():
            told[key] = text_of(template, name, held[0].domain, units)
    return told


def with_own(claim: Claim, had: Claim, terms: Terms) -> Claim:
    """Return the claim with the names of units that the pod's claim until now holds.

    Units of the same Pool stay where the claim holds them. Units of a Pool that is gone, or counts something
    else now, go to the Pool that counts its resource now, into the domains that list them. Where a Pool's
    units have no names any more, the claim still keeps their names: the Pool may list them again.
    A PoolClaim's units are those that it gave, up to its count now; what is beyond that the pod still uses.
    """
    if had.node != claim.node:
        return claim
    known, asked = {holding.claim for holding in claim.holdings}, {holding.pool for holding in claim.holdings}
    had_pools = {holding.pool for holding in had.holdings}
    others = {name for name in had_pools if name not in asked or terms.recounted(name)}

    def own(pool: Pool, mine: Collection[Holding], domain: str) -> Iterator[tuple[str, str]]:
        """Yield the units of these holdings, with domains, for a holding in that domain."""
        before = {name for name in others if terms.resource_of(name, asked) in (None, pool.resource)}
        same = [holding for holding in mine if holding.pool == pool.name and not terms.recounted(pool.name)]
        if not terms.reshaped(pool.name):
            yield from ((part.whole if pool.named else domain, unit) for part in same for unit in part.units)
        moved = (holding for holding in mine if holding in same or holding.pool in before)
        yield from listed(pool, [unit for holding in moved for unit in holding.units], domain)
        yield from ((domain, unit) for holding in same for unit in holding.units)

    def given(pool: Pool, holding: Holding) -> Iterator[tuple[str, str]]:
        mine = [part for part in had.holdings if _giver(part.claim, known) == holding.claim]
        return own(pool, mine, holding.domain)

    placed = _with(claim, terms.pools, given)
    return _with(placed, terms.pools, lambda pool, holding: own(pool, had.holdings, holding.domain))


def _with(
    claim: Claim, pools: Mapping[str, Pool], units_of: Callable[[Pool, Holding], Iterable[tuple[str, str]]]
) -> Claim:
    """Return the claim with more units' names, which come with the domains in which they are to be held."""
    known = {(holding.pool, unit) for holding in claim.holdings for unit in holding.units}
    holdings: list[Holding] = []
    for holding in claim.holdings:
        pool, lacking = pools.get(holding.pool), holding.count - len(holding.units)
        if pool is None or holding.is_quota or not lacking:
            holdings.append(holding)
            continue
        holdings += parts_of(holding, islice(_fresh(units_of(pool, holding), pool.name, known), lacking))
    return claim if tuple(holdings) == claim.holdings else replace(claim, holdings=merged(holdings))


def _fresh(
    units: Iterable[tuple[str, str]], pool: str, known: set[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Yield those of these units of the pool that are not in `known`, and add them to it."""
    for domain, unit in units:
        if (pool, unit) not in known:
            known.add((pool, unit))
            yield domain, unit


def parts_of(holding: Holding, units: Iterable[tuple[str, str]]) -> list[Holding]:
    """Return the holding with more units, which come with their domains: a part for each domain. Units
    without a name stay where they were."""
    by_domain = {holding.domain: holding.units}
    for domain, unit in units:
        by_domain[domain] = (*by_domain.get(domain, ()), unit)
    rest = holding.count - sum(map(len, by_domain.values()))
    parts = [
        replace(holding, domain=domain, count=len(units) + rest * (domain == holding.domain), units=units)
        for domain, units in by_domain.items()
    ]
    return [part for part in parts if part.count]


def merged(holdings: Iterable[Holding]) -> tuple[Holding, ...]:
    """Return these holdings, joined to one for each domain and PoolClaim. What they take of unreserved quotas
    is divided among the domains where the units are."""
    joined: dict[tuple[str, str, str], Holding] = {}
    shares: dict[str, Holding] = {}
    places: dict[str, Counter[str]] = defaultdict(Counter)
    for holding in holdings:
        if holding.name.kind == "unreserved":
            shares[holding.pool] = _joined(shares.get(holding.pool), holding)
            continue
        where = (holding.pool, holding.domain, holding.claim)
        joined[where] = _joined(joined.get(where), holding)
        if not holding.is_quota:
            places[holding.pool][holding.domain] += holding.count
    unreserved = []
    for pool, share in shares.items():
        left = share.count
        for domain, count in sorted(places[pool].items()):
            unreserved.append(replace(share, domain=unreserved_quota(domain), count=min(count, left)))
            left -= unreserved[-1].count
    return in_order((*joined.values(), *(part for part in unreserved if part.count)))


def _joined(one: Holding | None, other: Holding) -> Holding:
    if one is None:
        return other
    return replace(one, count=one.count + other.count, units=one.units + other.units)


def _units(pod: Pod, pool: Pool, asked: Collection[str], claim: str, known: Collection[str]) -> list[str]:
    """Return the units that the pod's annotations name for this pool and PoolClaim.

    Units of a PoolClaim that is gone count as given by none. If none are of this pool, those of Pools count
    of which the pod now requests nothing: such a Pool is gone, or counts something else."""
    annotations = pod.metadata.annotations or {}
    parts = [part for part in _read(annotations.get(ALLOCATED)) if _giver(part.claim, known) == claim]
    units = [unit for part in parts if part.pool == pool.name for unit in part.units]
    units = units or [unit for part in parts if part.pool not in asked for unit in part.units]
    if not units and pool.spec.adopt_from and not claim:
        units = annotations.get(pool.spec.adopt_from, "").replace(",", " ").split()
    return list(dict.fromkeys(map(normal, units[:_MOST])))


def _giver(claim: str, known: Collection[str]) -> str:
    """Return the PoolClaim that gave units; none if it is gone."""
    return claim if claim in known else ""


def _read(text: str | None) -> list[_Part]:
    try:
        return [] if text is None else _parts.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return []


def listed(pool: Pool, units: Collection[str], own: str = "") -> Iterator[tuple[str, str]]:
    """Yield those of these units that the Pool lists, with the domains that list them: domain `own` first."""
    rest = [*units]
    for domain in sorted(pool.spec.units, key=lambda name: name != own) if rest else ():
        there = Units.parse(pool.spec.units[domain])
        yield from ((domain, unit) for unit in rest if unit in there)
        rest = [unit for unit in rest if unit not in there]
        if not rest:
            return
