"""Which units a running pod says that it uses: by our annotation, or by that of a Pool's `adoptFrom`.
Users can write both: what is noted here is believed only where the unit is of the pool, and free."""

from collections.abc import Callable, Collection, Mapping

import msgspec
from msgspec.structs import replace

from berth.documents import ORDINARY, Claim, Holding, in_order
from berth.objects import Pod
from berth.policy.pools import Pool
from berth.policy.units import Units, normal
from berth.steps.terms import Terms

ALLOCATED = "berth.dev/allocated"

_MOST = 1024  # units of a pod that are looked at


class _Noted(msgspec.Struct):
    pool: str
    units: list[str] = []
    claim: str = ""


_noted = msgspec.json.Decoder(list[_Noted])


def with_notes(claim: Claim, pod: Pod, pools: Mapping[str, Pool]) -> Claim:
    """The claim with the names of units that the pod says it uses, each in the domain that lists it."""
    known = {each.claim for each in claim.holdings}
    asked = {each.pool for each in claim.holdings}
    return _with(claim, pools, lambda pool, each: _units(pod, pool, asked, each.claim, known))


def with_own(claim: Claim, had: Claim, terms: Terms) -> Claim:
    """The claim with the names of units that the pod's claim until now holds: of the same Pool, where it
    holds them, or of one that is gone, or counts something else, and whose resource this one counts now,
    where this one lists them.

    Of a Pool whose units have no names now they are kept in mind: it may list them again.
    """
    if had.node != claim.node:
        return claim
    known, asked = {each.claim for each in claim.holdings}, {each.pool for each in claim.holdings}
    others = {each.pool for each in had.holdings if each.pool not in asked or terms.recounted(each.pool)}

    def of(pools: Collection[str], holding: Holding) -> list[Holding]:
        mine = (each for each in had.holdings if each.pool in pools and each.units)
        return [each for each in mine if _given_by(each.claim, known) == holding.claim]

    def kept(holding: Holding) -> Holding:
        mine = [] if holding.bound or terms.reshaped(holding.pool) else of((holding.pool,), holding)
        units = [unit for each in mine for unit in each.units][: holding.count]
        named = bool(mine) and terms.pools[holding.pool].named
        return replace(holding, domain=mine[0].place if named else holding.domain, units=tuple(units))

    def taken_over(pool: Pool, holding: Holding) -> list[str]:
        before = {each for each in others if terms.resource_of(each, asked) in (None, pool.resource)}
        own = set() if terms.recounted(pool.name) else {pool.name}
        return [unit for each in of(own | before, holding) for unit in each.units]

    def in_mind(holding: Holding) -> Holding:
        if holding.bound or not terms.reshaped(holding.pool) or terms.recounted(holding.pool):
            return holding
        mine = (unit for each in of((holding.pool,), holding) for unit in each.units)
        more = [unit for unit in mine if unit not in holding.units]
        return replace(holding, units=(*holding.units, *more)[: holding.count])

    here = _beside(claim, tuple(map(kept, claim.holdings)))
    placed = _with(replace(claim, holdings=here), terms.pools, taken_over)
    return replace(placed, holdings=tuple(map(in_mind, placed.holdings)))


def _with(claim: Claim, pools: Mapping[str, Pool], units_of: Callable[[Pool, Holding], list[str]]) -> Claim:
    """The claim with more units' names."""
    holdings = []
    for each in claim.holdings:
        pool = pools.get(each.pool)
        if pool is None or not pool.named or each.bound or len(each.units) == each.count:
            holdings.append(each)
            continue
        domain, units = _listed(pool, units_of(pool, each), each)
        holdings.append(replace(each, domain=domain, units=units[: each.count]))
    return replace(claim, holdings=_beside(claim, tuple(holdings)))


def _beside(claim: Claim, holdings: tuple[Holding, ...]) -> tuple[Holding, ...]:
    """What is not reserved for important pods is a share of the domain where the units are."""
    moved = {
        (before.pool, f"{before.domain}{ORDINARY}"): f"{after.domain}{ORDINARY}"
        for before, after in zip(claim.holdings, holdings, strict=True)
    }
    found = (replace(each, domain=moved.get((each.pool, each.domain), each.domain)) for each in holdings)
    return in_order(found)


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


def _listed(pool: Pool, units: list[str], holding: Holding) -> tuple[str, tuple[str, ...]]:
    """The holding's units with those of these that one domain lists: the one where it has some, else the
    node's own, else whichever has the first of them."""
    lists = [holding.domain] if holding.units else pool.spec.units
    for domain in sorted(lists, key=lambda name: name != holding.domain) if units else ():
        there = Units.parse(pool.spec.units.get(domain, ()))
        found = tuple(unit for unit in units if unit in there and unit not in holding.units)
        if found:
            return domain, holding.units + found
    return holding.domain, holding.units
