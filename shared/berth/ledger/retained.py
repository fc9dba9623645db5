"""Units that pods have left and that rest, or are kept for a next pod: how long that is believed, and how it
follows a unit's name to another list; pure functions. Who may have such units is for model."""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from berth.api.pool import LONGEST_RETAINED, Pool
from berth.api.units import Units
from berth.ledger.keys import PoolDomain, domain_of
from berth.ledger.model import Domain, RetainedUnits

RetainedByUnit = Mapping[str, RetainedUnits]
"""What is retained of units that another domain listed before, by unit."""

NOTHING_RETAINED: RetainedByUnit = MappingProxyType({})


def capped(domain: Domain, pool: Pool | None, now: float) -> Domain:
    """Return the domain with nothing resting or kept for longer from now than its Pool says.

    A clock that was wrong, or a Pool that said more, may have left longer times; of a Pool that is gone, the
    longest that one may say is believed. Times that are over are only taken out of a domain that has no
    capacity: others lose them when they are written next. Without a change it is the same object.
    """
    sticky = None if pool is None else pool.spec.sticky
    rest = LONGEST_RETAINED if pool is None else pool.spec.reuse_after_seconds
    kept = LONGEST_RETAINED if pool is None else 0 if sticky is None else sticky.for_seconds
    left = tuple(
        replace(
            retained_units,
            rest_until=min(retained_units.rest_until, now + rest),
            kept_until=min(retained_units.kept_until, now + kept),
        )
        for retained_units in domain.retained
    )
    standing = tuple(units for units in left if units.stands(now))
    if left == domain.retained and (domain.capacity is not None or standing == left):
        return domain
    return replace(domain, retained=standing)


def without(retained: Iterable[RetainedUnits], units: Collection[str]) -> tuple[RetainedUnits, ...]:
    """Return what was left, but for the units of these names."""
    return tuple(kept for left in retained if (kept := left.only(lambda unit: unit not in units)) is not None)


def unlisted(domains: Iterable[Domain], also: RetainedByUnit = NOTHING_RETAINED) -> dict[str, RetainedUnits]:
    """Return, by unit, what is left of units that their domain lists no more, together with `also`."""
    by_unit = dict(also)
    for domain in domains:
        there = Units.of(domain.units or ())
        for left in domain.retained:
            _newest(by_unit, left, (unit for unit in left.units if unit not in there))
    return by_unit


def carried(domain: Domain, before: Domain, elsewhere: RetainedByUnit) -> Domain:
    """Return the domain with what is left `elsewhere` of the units that are new on its list: a unit rests
    wherever its name goes."""
    if domain.units is None or domain.units == before.units or not (elsewhere or domain.retained):
        return domain
    fresh = Units.of(domain.units).without(Units.of(before.units or ()))
    by_unit = {unit: left for unit, left in elsewhere.items() if unit in fresh}
    for left in domain.retained:
        _newest(by_unit, left, (unit for unit in left.units if unit in by_unit))
    if not by_unit:
        return domain
    by_left: dict[RetainedUnits, list[str]] = {}
    for unit, left in by_unit.items():
        by_left.setdefault(left, []).append(unit)
    come = (replace(left, count=len(units), units=tuple(units)) for left, units in by_left.items())
    return replace(domain, retained=(*without(domain.retained, by_unit), *come))


def _newest(by_unit: dict[str, RetainedUnits], left: RetainedUnits, units: Iterable[str]) -> None:
    """Note `left` for these units, where nothing that lasts longer is noted of them."""
    for unit in units:
        if unit not in by_unit or by_unit[unit].until < left.until:
            by_unit[unit] = left


def all_capped(
    pools: Mapping[str, Pool], now: float, domains: Mapping[str, Domain]
) -> tuple[set[PoolDomain], Mapping[str, Domain]]:
    """Return those of the domains that `capped` changes, after the names of those that are empty then."""
    believed = {key: capped(domain, pools.get(domain_of(key)[0]), now) for key, domain in domains.items()}
    changed = {key: domain for key, domain in believed.items() if domain is not domains[key]}
    return {domain_of(key) for key, domain in changed.items() if domain.empty}, changed
