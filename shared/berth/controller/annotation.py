"""Which units a running pod says that it uses: by our annotation, or by that of a Pool's `adoptFrom`.
Users can write both: what is noted here is believed only where the unit is of the pool, and free."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice

import msgspec
from msgspec.structs import replace

from berth.api.pool import Pool
from berth.api.units import Units, normal
from berth.kube.types import Pod
from berth.ledger.keys import unreserved_quota
from berth.ledger.model import Claim, Holding, in_order
from berth.scheduling.demand import Terms

ALLOCATED = "berth.dev/allocated"

_MOST = 1024  # units of a pod that are looked at


class _Noted(msgspec.Struct):
    pool: str
    units: list[str] = []
    claim: str = ""


_noted = msgspec.json.Decoder(list[_Noted])


def with_notes(claim: Claim, pod: Pod, pools: Mapping[str, Pool]) -> Claim:
    """The claim with the names of units that the pod says it uses, each in the domain that lists it; what has
    no name stays where it is."""
    known = {each.claim for each in claim.holdings}
    asked = {each.pool for each in claim.holdings}

    def noted(pool: Pool, holding: Holding) -> Iterable[tuple[str, str]]:
        units = _units(pod, pool, asked, holding.claim, known) if pool.named else []
        return listed(pool, units, holding.domain)

    return _with(claim, pools, noted)


def with_own(claim: Claim, had: Claim, terms: Terms) -> Claim:
    """The claim with the names of units that the pod's claim until now holds: of the same Pool, where it
    holds them, or of one that is gone, or counts something else, and whose resource this one counts now,
    where this one lists them.

    Of a Pool whose units have no names now they are kept in mind: it may list them again. A PoolClaim's units
    are those that it gave, as far as it is of so many still: the pod uses all that it has, whoever gave it.
    """
    if had.node != claim.node:
        return claim
    known, asked = {each.claim for each in claim.holdings}, {each.pool for each in claim.holdings}
    others = {each.pool for each in had.holdings if each.pool not in asked or terms.recounted(each.pool)}

    def own(pool: Pool, mine: Collection[Holding], domain: str) -> Iterator[tuple[str, str]]:
        """The units of these holdings, for one in that domain."""
        before = {each for each in others if terms.resource_of(each, asked) in (None, pool.resource)}
        same = [each for each in mine if each.pool == pool.name and not terms.recounted(pool.name)]
        if not terms.reshaped(pool.name):
            yield from ((each.whole if pool.named else domain, unit) for each in same for unit in each.units)
        moved = (each for each in mine if each in same or each.pool in before)
        yield from listed(pool, [unit for each in moved for unit in each.units], domain)
        yield from ((domain, unit) for each in same for unit in each.units)

    def given(pool: Pool, holding: Holding) -> Iterator[tuple[str, str]]:
        mine = [each for each in had.holdings if _given_by(each.claim, known) == holding.claim]
        return own(pool, mine, holding.domain)

    placed = _with(claim, terms.pools, given)
    return _with(placed, terms.pools, lambda pool, each: own(pool, had.holdings, each.domain))


def _with(
    claim: Claim, pools: Mapping[str, Pool], units_of: Callable[[Pool, Holding], Iterable[tuple[str, str]]]
) -> Claim:
    """The claim with more units' names, given with the domains in which they are to be held."""
    known = {(each.pool, unit) for each in claim.holdings for unit in each.units}
    holdings: list[Holding] = []
    for each in claim.holdings:
        pool, lacking = pools.get(each.pool), each.count - len(each.units)
        if pool is None or each.is_quota or not lacking:
            holdings.append(each)
            continue
        holdings += parts_of(each, islice(_fresh(units_of(pool, each), pool.name, known), lacking))
    return claim if tuple(holdings) == claim.holdings else replace(claim, holdings=merged(holdings))


def _fresh(
    units: Iterable[tuple[str, str]], pool: str, known: set[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Those of these units of the pool that are not known; they are then."""
    for domain, unit in units:
        if (pool, unit) not in known:
            known.add((pool, unit))
            yield domain, unit


def parts_of(holding: Holding, units: Iterable[tuple[str, str]]) -> list[Holding]:
    """The holding with more units, given with their domains: a part for each of these, and what has no name
    where it was."""
    found = {holding.domain: holding.units}
    for domain, unit in units:
        found[domain] = (*found.get(domain, ()), unit)
    rest = holding.count - sum(map(len, found.values()))
    parts = [
        replace(holding, domain=domain, count=len(units) + rest * (domain == holding.domain), units=units)
        for domain, units in found.items()
    ]
    return [each for each in parts if each.count]


def merged(holdings: Iterable[Holding]) -> tuple[Holding, ...]:
    """These holdings, one for each domain and PoolClaim. What is not reserved for important pods is a share
    of the domains where the units are."""
    found: dict[tuple[str, str, str], Holding] = {}
    shares: dict[str, Holding] = {}
    places: dict[str, Counter[str]] = defaultdict(Counter)
    for each in holdings:
        if each.name.kind == "unreserved":
            shares[each.pool] = _joined(shares.get(each.pool), each)
            continue
        where = (each.pool, each.domain, each.claim)
        found[where] = _joined(found.get(where), each)
        if not each.is_quota:
            places[each.pool][each.domain] += each.count
    unreserved = []
    for pool, share in shares.items():
        left = share.count
        for domain, count in sorted(places[pool].items()):
            unreserved.append(replace(share, domain=unreserved_quota(domain), count=min(count, left)))
            left -= unreserved[-1].count
    return in_order((*found.values(), *(each for each in unreserved if each.count)))


def _joined(one: Holding | None, other: Holding) -> Holding:
    if one is None:
        return other
    return replace(one, count=one.count + other.count, units=one.units + other.units)


def _units(pod: Pod, pool: Pool, asked: Collection[str], claim: str, known: Collection[str]) -> list[str]:
    """What a PoolClaim gave that is no more the pod uses still, and what a Pool gave of which it asks for
    none now: that Pool is gone, or counts something else."""
    annotations = pod.metadata.annotations or {}
    noted = [each for each in _read(annotations.get(ALLOCATED)) if _given_by(each.claim, known) == claim]
    found = [unit for each in noted if each.pool == pool.name for unit in each.units]
    found = found or [unit for each in noted if each.pool not in asked for unit in each.units]
    if not found and pool.spec.adopt_from and not claim:
        found = annotations.get(pool.spec.adopt_from, "").replace(",", " ").split()
    return list(dict.fromkeys(map(normal, found[:_MOST])))


def _given_by(claim: str, known: Collection[str]) -> str:
    """The PoolClaim that gave units; none if it is gone."""
    return claim if claim in known else ""


def _read(text: str | None) -> list[_Noted]:
    try:
        return [] if text is None else _noted.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return []


def listed(pool: Pool, units: Collection[str], own: str = "") -> Iterator[tuple[str, str]]:
    """Those of these units that the Pool lists, with the domains that list them: this one's own first."""
    left = [*units]
    for domain in sorted(pool.spec.units, key=lambda name: name != own) if left else ():
        there = Units.parse(pool.spec.units[domain])
        yield from ((domain, unit) for unit in left if unit in there)
        left = [unit for unit in left if unit not in there]
        if not left:
            return
