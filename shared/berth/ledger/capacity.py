"""How large a domain's documents are: a plain one's capacity, and how a domain is cut into stripes; pure.
Capacities never move claims: what pods hold stays in the document where it is."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from berth.api.units import MOST, Units
from berth.ledger import retained
from berth.ledger.allocation import MOST_STRIPES, STRIPE
from berth.ledger.keys import PoolDomain, domain_key, parse_domain, stripe
from berth.ledger.model import Domain, Holding, RetainedUnits, listed_in
from berth.ledger.retained import NOTHING_RETAINED, RetainedByUnit
from berth.ledger.transitions import Domains

Capacity = int | tuple[str, ...] | None
"""A number of units, or their names (as `Units.entries` has them); None: no share of the pool."""


def amount(capacity: Capacity) -> int:
    """Return a capacity in units."""
    return min(Units.of(capacity).size, MOST) if isinstance(capacity, tuple) else capacity or 0


class CapacityChange(NamedTuple):
    """A domain's capacity before and after."""

    pool: str
    domain: str
    before: Capacity
    after: Capacity

    @property
    def which(self) -> PoolDomain:
        return self.pool, self.domain

    @property
    def key(self) -> str:
        return domain_key(self.pool, self.domain)

    @property
    def gained(self) -> int:
        return max(0, amount(self.after) - amount(self.before))


class Lot(NamedTuple):
    """Units that rest in a stripe `until` then: of what was left there in this place, or with names (-1)."""

    until: float
    stripe: int
    place: int
    units: int


class Part(NamedTuple):
    """One stripe while its domain is cut: what pods use of it, and its units' names in a named pool."""

    domain: Domain
    used: int
    held: Units
    units: Units | None = None

    @property
    def most(self) -> int | None:
        """Return units that it could give by their names; None where they have none."""
        return None if self.units is None else self.units.size - self.units.shared(self.held).size


def plain(domain: Domain, capacity: Capacity) -> Domain:
    """Return a domain that is one document, with this capacity."""
    units = capacity if isinstance(capacity, tuple) else None
    return replace(domain, capacity=None if capacity is None else amount(capacity), units=units)


def stripes_for(capacity: Capacity, before: int = 0) -> int:
    """Return how many stripes a domain of this capacity has; a stripe once made stays."""
    return max(before, 1, min(MOST_STRIPES, -(-amount(capacity) // STRIPE)))


def beside(part: Domain, holding: Holding) -> bool:
    """Whether some units of a holding are none of those that its stripe lists, as far as is known."""
    if part.units is None:
        return False
    there = Units.of(part.units)
    return len(holding.units) < holding.count or any(unit not in there for unit in holding.units)


def uneven(pool: str, name: str, part: Domain) -> bool:
    """Whether a stripe has more room than units to give."""
    if part.units is None:
        return False
    there, held = Units.of(part.units), Units.parse(part.held(pool, name))
    return (part.capacity or 0) - part.used(pool, name) > there.without(held).size


def narrowed(change: CapacityChange) -> CapacityChange | None:
    """Return the part of a change that takes names away, if there is one."""
    if not isinstance(change.before, tuple):
        return None
    if not isinstance(change.after, tuple):
        return change
    kept = Units.of(change.before).shared(Units.of(change.after)).entries()
    return None if kept == change.before else change._replace(after=kept)


def rest_of(change: CapacityChange, done: Iterable[CapacityChange]) -> CapacityChange:
    """Return what is left of a change."""
    before = next((one.after for one in done if one.which == change.which), change.before)
    return change._replace(before=before)


def not_elsewhere(
    pool: str, changes: Iterable[CapacityChange], documents: Mapping[str, Domain]
) -> list[CapacityChange]:
    """Return the changes of a pool's domains without names that another domain still lists, or that a pod
    holds there; `documents` are the pool's domains and stripes."""
    listed = listed_in(documents.values())
    held = {
        unit: parse_domain(name).whole for name, part in documents.items() for unit in part.held(pool, name)
    }
    return [_without(change, listed, held) for change in changes]


def _without(change: CapacityChange, listed: Units, held: Mapping[str, str]) -> CapacityChange:
    if not isinstance(change.after, tuple):
        return change
    after = fresh = Units.of(change.after)
    if isinstance(change.before, tuple):
        fresh = after.without(Units.of(change.before))
    others = [unit for unit, place in held.items() if place != change.domain]
    barred = listed.joined(Units.parse(others)).shared(fresh)
    return change._replace(after=after.without(barred).entries())


def cut(
    pool: str,
    name: str,
    head: Domain,
    stripes: Sequence[Domain],
    capacity: Capacity,
    elsewhere: RetainedByUnit = NOTHING_RETAINED,
    now: float = 0.0,
) -> dict[str, Domain]:
    """Return the head and stripes, by their names, that change when the domain gets this capacity.

    What pods use is never cut off: while they use more than there is, the head is closed, and the stripes
    keep what they have. `elsewhere` is what other domains tell of units that they list no more.
    """
    if capacity is None:
        return _withdrawn(name, head, stripes)
    count = stripes_for(capacity, len(stripes))
    before = [*stripes, *[Domain()] * (count - len(stripes))]
    named = ((stripe(name, number), part) for number, part in enumerate(before))
    parts = [Part(part, part.used(pool, own), Units.parse(part.held(pool, own))) for own, part in named]
    if isinstance(capacity, tuple):
        parts = _listed(parts, Units.of(capacity))
    total, used = amount(capacity), sum(part.used for part in parts)
    closed = used > total
    new = {name: replace(plain(head, capacity), stripes=count, closed=closed, line_hold=None)}
    listed = [
        replace(part.domain, units=None if part.units is None else part.units.entries()) for part in parts
    ]
    by_unit = retained.unlisted([*new.values(), *listed], elsewhere)
    pairs = zip(parts, listed, strict=True)
    parts = [part._replace(domain=retained.carried(domain, part.domain, by_unit)) for part, domain in pairs]
    sized = _with_rooms(pool, name, parts, total - used, now)
    new |= {stripe(name, number): part for number, part in enumerate(sized)}
    old = {name: head, **{stripe(name, number): part for number, part in enumerate(stripes)}}
    return {part: domain for part, domain in new.items() if old.get(part) != domain}


def _with_rooms(pool: str, name: str, parts: Sequence[Part], free: int, now: float) -> list[Domain]:
    """Return the stripes with their parts of what is free, and with what rests without a name where there is
    room.

    Where more rests than is free, those units have room that rest longest: the others' rest is over first.
    """
    if free < 0:
        return [replace(part.domain, capacity=part.domain.capacity or 0) for part in parts]
    lots = [*_first(free, sorted(_lots(pool, name, parts, now), key=lambda lot: -lot.until))]
    resting = [sum(lot.units for lot in lots if lot.stripe == number) for number in range(len(parts))]
    sizes = _shared_out(parts, free, resting)
    spare = [sizes[number] - part.used - resting[number] for number, part in enumerate(parts)]
    lefts = [[*part.domain.retained] for part in parts]
    for lot in (lot for lot in lots if lot.place >= 0):
        count = lot.units
        while count and spare[lot.stripe] < 0:
            there = max(range(len(spare)), key=spare.__getitem__)
            more = min(count, -spare[lot.stripe], spare[there])
            lefts[there].append(_taken(lefts[lot.stripe], lot.place, more, parts[lot.stripe].units is None))
            spare[lot.stripe], spare[there] = spare[lot.stripe] + more, spare[there] - more
            count -= more
    standing = [tuple(left for left in units if left.count) for units in lefts]
    sized = zip(parts, sizes, standing, strict=True)
    return [replace(part.domain, capacity=size, retained=left) for part, size, left in sized]


def _lots(pool: str, name: str, parts: Sequence[Part], now: float) -> Iterator[Lot]:
    """Yield what rests, or is kept, in each stripe and is in no pod's use."""
    for number, part in enumerate(parts):
        for place, count in enumerate(part.domain.nameless(pool, stripe(name, number), (), now)):
            yield Lot(part.domain.retained[place].until, number, place, count)
        for left in part.domain.retained_here if part.units is not None else ():
            if left.stands(now):
                yield Lot(left.until, number, -1, sum(unit not in part.held for unit in left.units))


def _first(units: int, lots: Iterable[Lot]) -> Iterator[Lot]:
    """Yield the first so many units of these."""
    for lot in lots:
        count = min(units, lot.units)
        units -= count
        if count:
            yield lot._replace(units=count)


def _taken(lefts: list[RetainedUnits], place: int, count: int, unlisted: bool) -> RetainedUnits:
    """Take so many units of one of these; with `unlisted` their names count for nothing."""
    left = lefts[place]
    units = left.units[:count] if unlisted else ()
    lefts[place] = replace(left, count=left.count - count, units=left.units[len(units) :])
    return replace(left, count=count, units=units)


def _withdrawn(name: str, head: Domain, stripes: Sequence[Domain]) -> dict[str, Domain]:
    """Return what changes when the domain has no share of the pool any more. The head goes with its last
    claim, and when nothing rests there."""
    count = len(stripes) if any(part.claims or part.retained for part in stripes) else 0
    changed = {stripe(name, number): plain(part, None) for number, part in enumerate(stripes)}
    return {name: replace(plain(head, None), closed=False, stripes=count), **changed}


def _listed(parts: Sequence[Part], whole: Units) -> list[Part]:
    """Return the stripes with their units' names. A unit stays in its stripe, and above all in that where a
    pod holds it; one that is new goes where there is room."""
    kept = []
    for number, part in enumerate(parts):
        units = Units.of(part.domain.units or ()).joined(part.held).shared(whole)
        for other in (*parts[:number], *parts[number + 1 :]):
            units = units.without(other.held)
        kept.append(units)
    fresh = whole
    for units in kept:
        fresh = fresh.without(units)
    size = max(STRIPE, -(-whole.size // len(parts)))
    listed = []
    for part, units in zip(parts, kept, strict=True):
        more, fresh = fresh.take(size - units.size)
        listed.append(part._replace(units=units.joined(more)))
    return listed


def _shared_out(parts: Sequence[Part], free: int, resting: Sequence[int]) -> list[int]:
    """Return each stripe's capacity: what is used there, and its part of what is free; few of them change."""
    size = max(STRIPE, -(-(free + sum(part.used for part in parts)) // len(parts)))
    most = [max(0, size - part.used) if part.most is None else part.most for part in parts]
    had = [max(0, (part.domain.capacity or 0) - part.used) for part in parts]
    now = [min(pair) for pair in zip(most, had, strict=True)]
    while True:
        # Units that rest are taken last: they would rest no more where their stripe has no room for them.
        # Where it has none already, it gets some of what others have to spare.
        spare = [max(0, units - left) for units, left in zip(now, resting, strict=True)]
        lacking = sum(max(0, min(pair) - units) for *pair, units in zip(resting, most, now, strict=True))
        over = sum(now) - free + (lacking if any(spare) else 0)
        if over <= 0:
            break
        largest = max(range(len(now)), key=lambda number: (spare[number], now[number]))
        now[largest] -= min(over, max(1, (spare[largest] or now[largest]) // 2))
    short = free - sum(now)
    for wanted in (resting, most):
        for number in reversed(range(len(now))):
            more = max(0, min(short, min(wanted[number], most[number]) - now[number]))
            now[number] += more
            short -= more
    now[-1] += short
    return [part.used + more for part, more in zip(parts, now, strict=True)]


# What one commit changes


def resized(
    changes: Mapping[str, CapacityChange], elsewhere: RetainedByUnit, domains: Domains
) -> tuple[list[CapacityChange], Domains]:
    """Return those of the changes (by key) whose domain still has the capacity that they start from."""
    current = {key: change for key, change in changes.items() if domains[key].size == change.before}
    sized = {key: plain(domains[key], change.after) for key, change in current.items()}
    carried = {key: retained.carried(domain, domains[key], elsewhere) for key, domain in sized.items()}
    return list(current.values()), carried


def prepared(key: str, count: int, domains: Domains) -> tuple[None, Domains]:
    """Give the domain so many stripes, if it has none yet and nobody holds any of it."""
    there = domains[key].stripes or domains[key].claims
    return None, {} if there else {key: replace(domains[key], stripes=count)}


def counts(limit: Domain, now: float) -> bool:
    """Whether a namespace's limit, or a stripe of it, counts anything."""
    return bool(limit.claims) or any(left.stands(now) for left in limit.retained)


def without_unused(
    limits: Mapping[PoolDomain, Sequence[str]], now: float, domains: Domains
) -> tuple[None, Domains]:
    """Take the capacity of those limits, given with the keys of their documents, that count nothing."""
    changed: dict[str, Domain] = {}
    for (pool, name), keys in limits.items():
        head, *stripes = (domains[key] for key in keys)
        if head.stripes == len(stripes) and not any(counts(part, now) for part in stripes or [head]):
            parts = cut(pool, name, head, stripes, None)
            changed |= {domain_key(pool, part): domain for part, domain in parts.items()}
    return None, changed
