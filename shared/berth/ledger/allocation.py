"""Where a claim's units come from: which stripes of a domain, then which units in them; pure functions.
A plan may be made by documents that are old; `taken` decides, on those that the commit expects."""

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, filterfalse
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from berth.api.units import Units
from berth.errors import BerthError, RefusedError
from berth.ledger import refusals
from berth.ledger.keys import domain_key, kept_at, poolclaim_quota, stripe
from berth.ledger.model import FIRST, LAST, Claim, Domain, Holding, PoolClaimSpec, Rank, by_whole, in_order

STRIPE = 128
"""Units of a stripe: so many claims a document has at most, unless there are more than MOST_STRIPES."""

MOST_STRIPES = 80
"""Less than a store's LIMIT, so that a domain's documents can be read, and resized, together."""

At = Callable[[str], Domain]
"""The document of a key, as far as it is known."""


class StripeFullError(BerthError):
    """There was less room than was thought, or in other stripes: look at all of them before refusing."""


class Short(NamedTuple):
    """Why a holding can't be had: units free and the capacity of where it is asked; None: there is none.

    `these`: it is for a PoolClaim of certain units, and one of them can't be had there. `retained`: what pods
    left counts as well. `refused`: why the PoolClaim is nobody's. `held` units are held for the first in
    line, `first`, and are `lent` to pods that are done in time.
    """

    holding: Holding
    free: int
    capacity: int | None
    these: bool = False
    retained: bool = False
    refused: str = ""
    held: int = 0
    first: str = ""
    lent: bool = False

    def text(self) -> str:
        """Return the refusal's words."""
        pool, name, asked = self.holding.pool, self.holding.name, self.holding.count
        share = None if self.capacity is None else (self.free, self.capacity)
        if name.kind == "namespace":
            held = self.held, self.first
            return refusals.limited(pool, name.namespace, share, asked, self.retained, *held)
        if name.kind == "poolclaim":
            return refusals.claimed(pool, name.poolclaim, share, self.refused)
        if name.kind == "unreserved":
            return refusals.unreserved(pool, share, asked)
        if self.these and share is not None:
            return refusals.elsewhere(pool, self.holding.claim)
        if self.held and share is not None:
            return refusals.held_in_line(pool, share, asked, self.held, self.first, self.lent)
        return refusals.lacking(pool, share, asked)


class Requester(NamedTuple):
    """For whom room is looked for: a pod, and the owners whose kept units it may have now.

    `places` are its domains by pool, `retaining` the pools in which what pods left rests or is kept. By its
    `rank` it is before or behind in line.
    """

    uid: str
    namespace: str = ""
    owners: tuple[str, ...] = ()
    now: float = 0.0
    places: Mapping[str, str] = MappingProxyType({})
    retaining: Collection[str] = ()
    rank: Rank = LAST

    def owners_at(self, holding: Holding) -> tuple[str, ...]:
        """Return the owners as the holding's document names them."""
        if not holding.is_quota:
            return self.owners
        place = self.places.get(holding.pool, "")
        return tuple(kept_at(owner, holding.pool, place) for owner in self.owners)


def places_of(claim: Claim) -> dict[str, str]:
    """Return the domains that a claim's units are in, by pool."""
    return {holding.pool: holding.whole for holding in claim.holdings if not holding.is_quota}


def plan(claim: Claim, at: At, requester: Requester) -> tuple[tuple[Holding, ...], list[Short]]:
    """Return the claim's holdings by documents, and what is short where they can't all be had."""
    planned: list[Holding] = []
    short: list[Short] = []
    at = _besides(at, planned, requester)
    for holding in _picky_first(claim.holdings, at, requester):
        head = at(holding.key)
        if not head.stripes:
            planned.append(holding)
            continue
        parts = None if head.closed or head.capacity is None else _parts(holding, head.stripes, at, requester)
        if parts is None:
            rooms = (_room(_in(holding, number), at, requester) for number in range(head.stripes))
            short.append(_short(holding, 0 if head.closed else sum(rooms), at, requester))
        planned += parts or ()
    return tuple(planned), short


def anyhow(claim: Claim, at: At, requester: Requester) -> tuple[Holding, ...]:
    """Return the holdings, by documents, of a pod that runs already, room or not.

    Its holdings share no room while there is enough for all: a stripe in which more is used than there is
    closes the domain until it is shared out anew, and who asks meanwhile is refused, and woken by nobody.
    """
    placed: list[Holding] = []
    at = _besides(at, placed, requester)
    # Units with names stand where they are listed; the others go where those leave room.
    for holding in sorted(_picky_first(claim.holdings, at, requester), key=lambda holding: not holding.units):
        head = at(holding.key)
        if holding.units and head.stripes:
            placed += _noted(holding, head.stripes, at, requester)
        elif not head.stripes:
            placed.append(holding)
        else:
            # A domain without a capacity (yet) has room nowhere: its stripes need no look, and may be many.
            parts = None if head.capacity is None else _parts(holding, head.stripes, at, requester)
            placed += parts or [_in(holding, _first(requester.uid, head.stripes))]
    return in_order(placed)


def gathered(holdings: Collection[Holding], uid: str, at: At) -> tuple[Holding, ...]:
    """Return these holdings, with all units of a domain that have no names in one of its stripes, room or
    not."""

    def anywhere(holding: Holding) -> bool:
        return not holding.units and holding.whole != holding.domain

    wholes = by_whole(filter(anywhere, holdings))
    moved = (_in(whole, _first(uid, at(whole.key).stripes)) for whole in wholes)
    return (*filterfalse(anywhere, holdings), *moved)


def whole(holdings: Iterable[Holding], at: At) -> bool:
    """Whether none of these means a domain that has stripes now, since claims stand in those, or a stripe of
    one that has none any more."""
    return all(
        bool(at(domain_key(holding.pool, holding.whole)).stripes) == (holding.whole != holding.domain)
        for holding in holdings
    )


def require_whole(holdings: Iterable[Holding], at: At) -> None:
    """Raise StripeFullError if these are not `whole`."""
    if not whole(holdings, at):
        raise StripeFullError("a domain is in stripes now, or no more")


def keys(holdings: Iterable[Holding]) -> set[str]:
    """Return the documents to be read for these holdings: theirs, and the heads of those in stripes."""
    return {key for holding in holdings for key in (holding.key, domain_key(holding.pool, holding.whole))}


def parted(holdings: Iterable[Holding], most: int) -> Iterator[set[str]]:
    """Yield the keys that `keys` returns in parts of so many documents, in the order of the holdings' own."""
    part: set[str] = set()
    for holding in sorted(holdings, key=lambda holding: holding.key):
        more = keys([holding])
        if len(part | more) > most:
            yield part
            part = set()
        part |= more
    yield part


def taken(
    holdings: Iterable[Holding], at: At, requester: Requester
) -> tuple[tuple[Holding, ...], list[Short]]:
    """Return these holdings with the names of their units, in a named pool; and what is short."""
    given: list[Holding] = []
    short: list[Short] = []
    at = _besides(at, given, requester)
    for holding in _picky_first(holdings, at, requester):
        domain = at(holding.key)
        closed = at(domain_key(holding.pool, holding.whole)).closed
        room = 0 if closed or domain.capacity is None else _room(holding, at, requester)
        units = names(holding, domain, at, requester) if room >= holding.count else None
        if units is None:
            short.append(_short(holding, room if room < holding.count else 0, at, requester))
        else:
            given.append(replace(holding, units=units))
    return in_order(given), short


def names(holding: Holding, domain: Domain, at: At, requester: Requester) -> tuple[str, ...] | None:
    """Return names for the holding's units, None where there are not as many, or not those that it is to
    have; () where units have none.

    A PoolClaim gets those it names, or first those that it had; an owner's pod first those kept for it.
    """
    if holding.is_quota:
        return ()
    spec = poolclaim_of(holding, at, requester)
    if domain.units is None:
        return None if spec is not None and spec.units else ()
    there = Units.of(domain.units)
    held = _held(holding, domain, requester)
    if spec is not None and spec.units:
        mine = tuple(unit for unit in spec.units if unit in there)
        return mine if len(mine) == holding.count and held.isdisjoint(mine) else None
    kept = (unit for left in domain.retained if left.owner in requester.owners for unit in left.units)
    liked = () if spec is None else spec.had
    chosen = there.free(holding.count, held, (*liked, *kept))
    return chosen if len(chosen) == holding.count else None


def poolclaim_of(holding: Holding, at: At, requester: Requester) -> PoolClaimSpec | None:
    """Return the spec of the holding's PoolClaim; None where it is for none, or there is none."""
    if not holding.claim:
        return None
    return at(domain_key(holding.pool, poolclaim_quota(f"{requester.namespace}/{holding.claim}"))).poolclaim


def _short(holding: Holding, free: int, at: At, requester: Requester) -> Short:
    domain, spec = at(holding.key), poolclaim_of(holding, at, requester)
    these, retained = spec is not None and bool(spec.units), holding.pool in requester.retaining
    refused = "" if domain.poolclaim is None else domain.poolclaim.refused
    held = _held_in_line(holding, at, requester)
    return Short(holding, free, domain.capacity, these, retained, refused, *held)


def _held_in_line(holding: Holding, at: At, requester: Requester) -> tuple[int, str, bool]:
    """Return how many units of the holding's domain are held for the first in line, who that is, and whether
    they are lent to others meanwhile."""
    domain, first = at(holding.key), ""
    parts = [_in(holding, number) for number in range(domain.stripes)] or [holding]
    held, lent = 0, False
    for part in parts:
        there, rank, now = at(part.key), requester.rank, requester.now
        if there.line_hold is not None and there.bars(part.pool, part.domain, rank, now):
            first = there.line_hold.label
            held += _room(part, at, requester, FIRST) - _room(part, at, requester)
            lent = lent or there.lends(part.pool, part.domain, rank, now)
    return held, first, lent


def renewed(
    standing: Claim, wanted: Claim, after: str | None, domains: Mapping[str, Domain], requester: Requester
) -> float:
    """Return when the pod of a reservation that another call takes over is gone at the latest.

    The same bind call goes on `after` an attempt of its own: what it takes is in MARGIN_SECONDS. A later one
    begins anew, and so does the pod: raises RefusedError where it had units that are lent, and would not
    bring them back in time now. reconcile cancels such a reservation.
    """
    if after is not None:
        return standing.ends
    for holding in standing.holdings:
        there, now = domains[holding.key], requester.now
        hold = there.line_hold
        if hold is None or hold.since > standing.since:
            continue  # it had them before
        is_whole = there.whole_by(holding.pool, holding.domain, now) == now
        if not is_whole and there.bars(holding.pool, holding.domain, requester.rank, now):
            raise RefusedError(refusals.too_late(holding.pool, hold.label))
    return wanted.ends


def _picky_first(holdings: Iterable[Holding], at: At, requester: Requester) -> list[Holding]:
    """Return the holdings, those first that can't have just any unit: one of their units might be given to
    the others."""
    specs = {holding: poolclaim_of(holding, at, requester) for holding in holdings}
    return sorted(specs, key=lambda holding: 2 if (spec := specs[holding]) is None else 1 - bool(spec.units))


def _besides(at: At, holdings: Sequence[Holding], requester: Requester) -> At:
    """Return the documents with these holdings of the same claim in them: two may be of one document."""

    def document(key: str) -> Domain:
        mine = tuple(holding for holding in holdings if holding.key == key)
        if not mine:
            return at(key)
        ends = requester.rank.ends
        beside = Claim(uid="", namespace="", name="", node="", holdings=mine, ends=ends)
        return replace(at(key), claims={**at(key).claims, "": beside})

    return document


def _room(holding: Holding, at: At, requester: Requester, rank: Rank | None = None) -> int:
    """Return how many units the requester, or one of that rank, may have there, with those that it holds
    already."""
    domain = at(holding.key)
    mine = domain.claims.get(requester.uid)
    own = 0 if mine is None else sum(one.count for one in mine.holdings if one.key == holding.key)
    owners, now = requester.owners_at(holding), requester.now
    return domain.room(holding.pool, holding.domain, owners, now, own, rank or requester.rank)


def _fits(holding: Holding, at: At, requester: Requester) -> int:
    """Return how many of the holding's units the requester may have there, and there are names for."""
    room = min(holding.count, _room(holding, at, requester))
    domain = at(holding.key)
    if not room or domain.units is None or holding.is_quota:
        return room
    held = _held(holding, domain, requester)
    return len(Units.of(domain.units).free(room, held))


def _held(holding: Holding, domain: Domain, requester: Requester) -> set[str]:
    """Return the names of units that the requester can't have."""
    return domain.held(holding.pool, holding.domain) | domain.barred(requester.owners, requester.now)


def _parts(holding: Holding, count: int, at: At, requester: Requester) -> list[Holding] | None:
    """Return the holding in one stripe with enough room, else over as many as it takes; None if there is too
    little.

    Each pod begins at another stripe, so that many at once seldom want the same document.
    """
    start = _first(requester.uid, count)

    def stripes() -> Iterator[Holding]:
        return (_in(holding, (start + number) % count) for number in range(count))

    spec = poolclaim_of(holding, at, requester)
    if spec is not None and spec.units:
        return _with_units(spec.units, stripes(), at, requester)
    had = () if spec is None or len(spec.had) != holding.count else spec.had
    if had and (again := _with_units(had, stripes(), at, requester)) is not None:
        return again
    kept: list[Holding] = []
    if holding.pool in requester.retaining:
        owners = requester.owners_at(holding)
        kept = [part for part in stripes() if any(left.owner in owners for left in at(part.key).retained)]
    rooms: dict[Holding, int] = {}
    for part in chain(kept, stripes()):  # one look as a rule: with thousands of claims each is dear
        rooms[part] = _fits(part, at, requester)
        if rooms[part] >= holding.count:
            return [part]
    return _over(holding, rooms, kept)


def _over(holding: Holding, rooms: Mapping[Holding, int], kept: Collection[Holding]) -> list[Holding] | None:
    """Return the holding over as few stripes as can be: a commit takes so many documents and no more."""
    parts, left = [], holding.count
    for part, room in sorted(rooms.items(), key=lambda item: (item[0] not in kept, -item[1])):
        if room and left:
            parts.append(replace(part, count=min(room, left)))
            left -= parts[-1].count
    return None if left else parts


def _with_units(
    units: Sequence[str], stripes: Iterable[Holding], at: At, requester: Requester
) -> list[Holding] | None:
    """Return the stripes that have these very units; None where one is in none, or there is no room."""
    parts = []
    for part in stripes:
        domain = at(part.key)
        there, held = Units.of(domain.units or ()), _held(part, domain, requester)
        mine = sum(unit in there and unit not in held for unit in units)
        if mine:
            parts.append(replace(part, count=mine))
    enough = sum(part.count for part in parts) == len(units)
    return parts if enough and all(part.count <= _room(part, at, requester) for part in parts) else None


def _noted(holding: Holding, count: int, at: At, requester: Requester) -> list[Holding]:
    """Return the holding in the stripes that list its units. A unit that is in none stands in one by its own
    name: so all pods that say they use it meet in one document."""
    by_stripe: dict[int, tuple[str, ...]] = {}
    left = holding.units
    for number in range(count):
        there = Units.of(at(_in(holding, number).key).units or ())
        mine = tuple(unit for unit in left if unit in there)
        if mine:
            by_stripe[number] = mine
            left = tuple(unit for unit in left if unit not in there)
    for unit in left:
        number = _first(unit, count)
        by_stripe[number] = (*by_stripe.get(number, ()), unit)
    rest, first = holding.count - sum(map(len, by_stripe.values())), _first(requester.uid, count)
    if rest:
        by_stripe.setdefault(first, ())
    return [
        replace(_in(holding, number), count=len(units) + rest * (number == first), units=units)
        for number, units in by_stripe.items()
    ]


def _in(holding: Holding, number: int) -> Holding:
    return replace(holding, domain=stripe(holding.domain, number))


def _first(uid: str, count: int) -> int:
    return zlib.crc32(uid.encode()) % count
