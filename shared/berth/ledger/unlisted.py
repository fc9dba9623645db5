"""Units that running pods say they use and that their Pool lists, but its documents do not (yet): whose they
are; pure. A Pool may have listed them again, or a look may have ended before it listed them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import NamedTuple

from msgspec.structs import replace

from berth.api.pool import Pool
from berth.api.units import Units
from berth.ledger.model import Claim, Documents, Domain, Holding, listed_in

Unit = tuple[str, str]
"""A pool and the name of one of its units."""


class Believed(NamedTuple):
    """`claims` name no unit any more that is another's; `unlisted` are those of their units that no document
    lists."""

    claims: list[Claim]
    unlisted: frozenset[Unit] = frozenset()


class _Unlisted(NamedTuple):
    """The units of one pool that pods say they use and their domain does not list.

    `places` are their domains; those in `barred` may be given elsewhere. `holders` are the UIDs of all the
    pool's units.
    """

    places: Mapping[str, str]
    barred: Collection[str]
    holders: Mapping[str, Collection[str]]

    def believed(self, uid: str, holding: Holding) -> Holding:
        """Return the pod's holding with those of its units that are no other pod's."""

        def own(unit: str) -> bool:
            holders = self.holders.get(unit, ())
            return unit not in self.places or uid in holders or not (holders or unit in self.barred)

        return replace(holding, units=tuple(filter(own, holding.units)))


def believed(
    claims: Collection[Claim], pools: Mapping[str, Pool], before: Mapping[str, Pool], documents: Documents
) -> Believed:
    """Return these claims with those of their units that are no other pod's, by the Pools as they are.

    A unit that another domain lists, or may list at any time by the Pools of `before`, may be given there: it
    is not believed. What the pod's own claim says already always is.
    """
    by_pool = {}
    for pool, places in _unlisted(claims, pools, documents).items():
        barred = _elsewhere(places, pools[pool], before.get(pool), documents.get(pool, {}))
        by_pool[pool] = _Unlisted(places, barred, _holders(pool, documents.get(pool, {})))
    if not by_pool:
        return Believed([*claims])

    def of_pod(claim: Claim) -> Claim:
        holdings = (
            by_pool[holding.pool].believed(claim.uid, holding) if holding.pool in by_pool else holding
            for holding in claim.holdings
        )
        return replace(claim, holdings=tuple(holdings))

    unlisted = frozenset((pool, unit) for pool, units in by_pool.items() for unit in units.places)
    return Believed(list(map(of_pod, claims)), unlisted)


def _unlisted(
    claims: Iterable[Claim], pools: Mapping[str, Pool], documents: Documents
) -> dict[str, dict[str, str]]:
    """Return by pool, the units of these claims that their Pool lists and the document of that domain does
    not; and the domain."""

    @cache
    def lists(pool: str, place: str) -> tuple[Units, Units]:
        head = documents.get(pool, {}).get(place, Domain())
        return pools[pool].units_of(place), Units.of(head.units or ())

    unlisted: dict[str, dict[str, str]] = {}
    for holding in (holding for claim in claims for holding in claim.holdings):
        for unit in holding.units if holding.pool in pools else ():
            now, known = lists(holding.pool, holding.whole)
            if unit in now and unit not in known:
                unlisted.setdefault(holding.pool, {})[unit] = holding.whole
    return unlisted


def _holders(pool: str, documents: Mapping[str, Domain]) -> dict[str, set[str]]:
    """Return UIDs by the units that pods hold."""
    holders = defaultdict[str, set[str]](set)
    for claim in (claim for domain in documents.values() for claim in domain.claims.values()):
        for unit in (unit for of, unit in claim.units if of == pool):
            holders[unit].add(claim.uid)
    return holders


def _elsewhere(
    places: Mapping[str, str], pool: Pool, before: Pool | None, documents: Mapping[str, Domain]
) -> set[str]:
    """Return those of these units that another domain than theirs lists, or may list."""
    listed = listed_in(documents.values())
    if before is None or before.counts != pool.counts:
        return {unit for unit in places if unit in listed}
    known = before.all_units
    own = {place: before.units_of(place) for place in set(places.values())}
    return {
        unit for unit, place in places.items() if unit in listed or (unit in known and unit not in own[place])
    }
