"""Units that running pods say they use and that their Pool lists, but its documents do not (yet): whose they
are; pure. A Pool may have listed them again, or a look may have ended before it listed them."""

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from berth.api.pool import Pool
from berth.api.units import Units
from berth.ledger.model import Claim, Domain, Holding

Unit = tuple[str, str]
"""A pool and the name of one of its units."""

Documents = Mapping[str, Mapping[str, Domain]]
"""By pool and name."""


class Believed(NamedTuple):
    """`claims` name no unit any more that is another's; `unlisted` are those of their units that no document
    lists."""

    claims: list[Claim]
    unlisted: frozenset[Unit] = frozenset()


def believed(
    claims: Collection[Claim], pools: Mapping[str, Pool], before: Mapping[str, Pool], documents: Documents
) -> Believed:
    """Return these claims with those of their units that are no other pod's, by the Pools as they are.

    A unit that another domain lists, or may list at any time by the Pools of `before`, may be given there: it
    is not believed. What the pod's own claim says already always is.
    """
    places_by_pool = _unlisted(claims, pools, documents)
    if not places_by_pool:
        return Believed([*claims])
    holders = {
        (pool, unit): uids
        for pool in places_by_pool
        for unit, uids in _holders(documents.get(pool, {}), pool).items()
    }
    barred = {
        (pool, unit)
        for pool, places in places_by_pool.items()
        for unit in _elsewhere(places, pools[pool], before.get(pool), documents.get(pool, {}))
    }

    def others(claim: Claim) -> Claim:
        kept = tuple(
            _without(claim.uid, holding, places_by_pool.get(holding.pool, {}), barred, holders)
            for holding in claim.holdings
        )
        return claim if kept == claim.holdings else replace(claim, holdings=kept)

    return Believed(
        [others(claim) for claim in claims],
        frozenset((pool, unit) for pool, places in places_by_pool.items() for unit in places),
    )


def _unlisted(
    claims: Iterable[Claim], pools: Mapping[str, Pool], documents: Documents
) -> dict[str, dict[str, str]]:
    """Return by pool, the units of these claims that their Pool lists and the document of that domain does
    not; and the domain."""

    @cache
    def lists(pool: str, place: str) -> tuple[Units, Units]:
        head = documents.get(pool, {}).get(place, Domain())
        return Units.parse(pools[pool].spec.units.get(place, ())), Units.of(head.units or ())

    unlisted: dict[str, dict[str, str]] = {}
    for holding in (holding for claim in claims for holding in claim.holdings):
        for unit in holding.units if holding.pool in pools else ():
            now, known = lists(holding.pool, holding.whole)
            if unit in now and unit not in known:
                unlisted.setdefault(holding.pool, {})[unit] = holding.whole
    return unlisted


def _holders(documents: Mapping[str, Domain], pool: str) -> dict[str, set[str]]:
    """Return UIDs by the units that pods hold."""
    holders: dict[str, set[str]] = {}
    for domain in documents.values():
        for claim in domain.claims.values():
            for unit in (
                unit for holding in claim.holdings if holding.pool == pool for unit in holding.units
            ):
                holders.setdefault(unit, set()).add(claim.uid)
    return holders


def _elsewhere(
    places: Mapping[str, str], pool: Pool, before: Pool | None, documents: Mapping[str, Domain]
) -> set[str]:
    """Return those of these units that another domain than theirs lists, or may list."""
    listed = Units().joined(
        Units.of(chain.from_iterable(domain.units or () for domain in documents.values()))
    )
    same = before is not None and before.counts == pool.counts
    lists = (
        {place: Units.parse(units) for place, units in before.spec.units.items()} if before and same else {}
    )
    known = Units()
    for units in lists.values():
        known = known.joined(units)
    return {
        unit
        for unit, place in places.items()
        if unit in listed or (unit in known and unit not in lists.get(place, Units()))
    }


def _without(
    uid: str,
    holding: Holding,
    places: Mapping[str, str],
    barred: Collection[Unit],
    holders: Mapping[Unit, Collection[str]],
) -> Holding:
    def mine(unit: str) -> bool:
        of = holders.get((holding.pool, unit), ())
        return unit not in places or uid in of or not (of or (holding.pool, unit) in barred)

    return replace(holding, units=tuple(filter(mine, holding.units)))
