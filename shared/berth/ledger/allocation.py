"""Where a claim's units come from: which stripes of a domain, then which units in them; pure functions.
A plan may be made by documents that are old; `taken` decides, on those that the commit expects."""

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from berth.api.units import Units
from berth.errors import BerthError
from berth.ledger import refusals
from berth.ledger.keys import domain_key, kept_at, poolclaim_quota, stripe, stripe_keys
from berth.ledger.model import Claim, Domain, Holding, PoolClaimSpec, in_order

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
    left counts as well. `refused`: why the PoolClaim is nobody's.
    """

    holding: Holding
    free: int
    capacity: int | None
    these: bool = False
    retained: bool = False
    refused: str = ""

    def text(self) -> str:
        """As a refusal says it."""
        pool, name, asked = self.holding.pool, self.holding.name, self.holding.count
        share = None if self.capacity is None else (self.free, self.capacity)
        if name.kind == "namespace":
            return refusals.limited(pool, name.namespace, share, asked, self.retained)
        if name.kind == "poolclaim":
            return refusals.claimed(pool, name.poolclaim, share, self.refused)
        if name.kind == "unreserved":
            return refusals.unreserved(pool, share, asked)
        if self.these and share is not None:
            return refusals.elsewhere(pool, self.holding.claim)
        return refusals.told(pool, share, asked)


class Requester(NamedTuple):
    """For whom room is looked for: a pod, and the owners whose kept units it may have now.

    `places` are its domains by pool, `retaining` the pools in which what pods left rests or is kept.
    """

    uid: str
    namespace: str = ""
    owners: tuple[str, ...] = ()
    now: float = 0.0
    places: Mapping[str, str] = MappingProxyType({})
    retaining: Collection[str] = ()

    def owners_at(self, holding: Holding) -> tuple[str, ...]:
        """Return the owners as the holding's document names them."""
        if not holding.is_quota:
            return self.owners
        place = self.places.get(holding.pool, "")
        return tuple(kept_at(owner, holding.pool, place) for owner in self.owners)


def places_of(claim: Claim) -> dict[str, str]:
    """Return the domains that a claim's units are in, by pool."""
    return {each.pool: each.whole for each in claim.holdings if not each.is_quota}


def plan(claim: Claim, at: At, requester: Requester) -> tuple[tuple[Holding, ...], list[Short]]:
    """The claim's holdings by documents, and what is short where they can't all be had."""
    found: list[Holding] = []
    short: list[Short] = []
    at = _besides(at, found)
    for holding in _picky_first(claim.holdings, at, requester):
        head = at(holding.key)
        if not head.stripes:
            found.append(holding)
            continue
        parts = None if head.closed or head.capacity is None else _parts(holding, head.stripes, at, requester)
        if parts is None:
            free, wants = (
                0 if head.closed else _free(holding, head, at, requester),
                wants_of(holding, at, requester),
            )
            these = wants is not None and bool(wants.units)
            short.append(Short(holding, free, head.capacity, these, holding.pool in requester.retaining))
        found += parts or ()
    return tuple(found), short


def anyhow(claim: Claim, at: At, requester: Requester) -> tuple[Holding, ...]:
    """The same for a pod that runs already, room or not.

    Its holdings share no room while there is enough for all: a stripe in which more is used than there is
    closes the domain until it is shared out anew, and who asks meanwhile is refused, and woken by nobody.
    """
    found: list[Holding] = []
    at = _besides(at, found)
    # Units with names stand where they are listed; the others go where those leave room.
    for holding in sorted(_picky_first(claim.holdings, at, requester), key=lambda each: not each.units):
        head = at(holding.key)
        if holding.units and head.stripes:
            found += _noted(holding, head.stripes, at, requester)
        elif not head.stripes:
            found.append(holding)
        else:
            # A domain without a capacity (yet) has room nowhere: its stripes need no look, and may be many.
            parts = None if head.capacity is None else _parts(holding, head.stripes, at, requester)
            found += parts or [_in(holding, _first(requester.uid, head.stripes))]
    return in_order(found)


def gathered(holdings: Iterable[Holding], uid: str, at: At) -> tuple[Holding, ...]:
    """These holdings, with all units of a domain that have no names in one of its stripes, room or not."""
    named, counts = [], dict[tuple[str, str, str], int]()
    for each in holdings:
        if each.units or each.whole == each.domain:
            named.append(each)
        else:
            where = (each.pool, each.whole, each.claim)
            counts[where] = counts.get(where, 0) + each.count
    for (pool, place, claim), count in counts.items():
        whole = Holding(pool, place, count, (), claim)
        named.append(_in(whole, _first(uid, at(whole.key).stripes)))
    return tuple(named)


def whole(holdings: Iterable[Holding], at: At) -> bool:
    """Whether none of these means a domain that has stripes now, since claims stand in those, or a stripe of
    one that has none any more."""
    return all(
        bool(at(domain_key(each.pool, each.whole)).stripes) == (each.whole != each.domain)
        for each in holdings
    )


def require_whole(holdings: Iterable[Holding], at: At) -> None:
    """Raise StripeFullError if these are not `whole`."""
    if not whole(holdings, at):
        raise StripeFullError("a domain is in stripes now, or no more")


def keys(holdings: Iterable[Holding]) -> set[str]:
    """The documents to be read for these holdings: theirs, and the heads of those in stripes."""
    return {key for each in holdings for key in (each.key, domain_key(each.pool, each.whole))}


def parted(holdings: Iterable[Holding], most: int) -> Iterator[set[str]]:
    """The same in parts of so many documents, in the order of the holdings' own."""
    part: set[str] = set()
    for each in sorted(holdings, key=lambda each: each.key):
        more = keys([each])
        if len(part | more) > most:
            yield part
            part = set()
        part |= more
    yield part


def all_keys(holdings: Iterable[Holding], at: At) -> list[set[str]]:
    """For each of these holdings of whole domains that has stripes, its documents."""
    counts = {each: at(each.key).stripes for each in holdings}
    return [
        {each.key, *stripe_keys(each.pool, each.domain, count)} for each, count in counts.items() if count
    ]


def taken(
    holdings: Iterable[Holding], at: At, requester: Requester
) -> tuple[tuple[Holding, ...], list[Short]]:
    """These holdings with the names of their units, in a named pool; and what is short."""
    found: list[Holding] = []
    short: list[Short] = []
    at = _besides(at, found)
    for each in _picky_first(holdings, at, requester):
        domain = at(each.key)
        closed = at(domain_key(each.pool, each.whole)).closed
        room = 0 if closed or domain.capacity is None else _room(each, at, requester)
        units = names(each, domain, at, requester) if room >= each.count else None
        if units is None:
            certain = wants_of(each, at, requester)
            these = certain is not None and bool(certain.units)
            free = room if room < each.count else 0
            refused = "" if domain.wants is None else domain.wants.refused
            short.append(Short(each, free, domain.capacity, these, each.pool in requester.retaining, refused))
        else:
            found.append(replace(each, units=units))
    return in_order(found), short


def names(holding: Holding, domain: Domain, at: At, requester: Requester) -> tuple[str, ...] | None:
    """Names for the holding's units, None where there are not as many, or not those that it is to have; ()
    where units have none.

    A PoolClaim gets those it wants, or first those that it had; an owner's pod first those kept for it.
    """
    if holding.is_quota:
        return ()
    wants = wants_of(holding, at, requester)
    if domain.units is None:
        return None if wants is not None and wants.units else ()
    there = Units.of(domain.units)
    held = _held(holding, domain, requester)
    if wants is not None and wants.units:
        mine = tuple(unit for unit in wants.units if unit in there)
        return mine if len(mine) == holding.count and held.isdisjoint(mine) else None
    kept = (unit for left in domain.left if left.owner in requester.owners for unit in left.units)
    liked = () if wants is None else wants.had
    found = there.free(holding.count, held, (*liked, *kept))
    return found if len(found) == holding.count else None


def wants_of(holding: Holding, at: At, requester: Requester) -> PoolClaimSpec | None:
    """What the PoolClaim that the holding is for wants; None where it is for none, or there is none."""
    if not holding.claim:
        return None
    return at(domain_key(holding.pool, poolclaim_quota(f"{requester.namespace}/{holding.claim}"))).wants


def _picky_first(holdings: Iterable[Holding], at: At, requester: Requester) -> list[Holding]:
    """Those first that can't have just any unit, or one of them would be given to the others."""
    wants = {each: wants_of(each, at, requester) for each in holdings}
    return sorted(wants, key=lambda each: 2 if (found := wants[each]) is None else 1 - bool(found.units))


def _besides(at: At, holdings: Sequence[Holding]) -> At:
    """The documents with these holdings of the same claim in them: two of its holdings may be of one."""

    def found(key: str) -> Domain:
        mine = tuple(each for each in holdings if each.key == key)
        if not mine:
            return at(key)
        beside = Claim(uid="", namespace="", name="", node="", holdings=mine)
        return replace(at(key), claims={**at(key).claims, "": beside})

    return found


def _room(holding: Holding, at: At, requester: Requester) -> int:
    """Units that the asker may have there, those with them that it holds already."""
    domain = at(holding.key)
    mine = domain.claims.get(requester.uid)
    own = 0 if mine is None else sum(each.count for each in mine.holdings if each.key == holding.key)
    return domain.room(holding.pool, holding.domain, requester.owners_at(holding), requester.now, own)


def _fits(holding: Holding, at: At, requester: Requester) -> int:
    """The same, but no more than are asked, and than there are names for."""
    room = min(holding.count, _room(holding, at, requester))
    domain = at(holding.key)
    if not room or domain.units is None or holding.is_quota:
        return room
    held = _held(holding, domain, requester)
    return len(Units.of(domain.units).free(room, held))


def _held(holding: Holding, domain: Domain, requester: Requester) -> set[str]:
    """Names of units that the asker can't have."""
    held = domain.held(holding.pool, holding.domain)
    return held | {
        unit for left in domain.left if left.bars(requester.owners, requester.now) for unit in left.units
    }


def _parts(holding: Holding, count: int, at: At, requester: Requester) -> list[Holding] | None:
    """The holding in one stripe with enough room, else over as many as it takes; None if there is too little.

    Each pod begins at another stripe, so that many at once seldom want the same document.
    """
    start = _first(requester.uid, count)
    stripes = [_in(holding, (start + number) % count) for number in range(count)]
    wants = wants_of(holding, at, requester)
    if wants is not None and wants.units:
        return _with_units(wants.units, stripes, at, requester)
    had = () if wants is None or len(wants.had) != holding.count else wants.had
    if had and (again := _with_units(had, stripes, at, requester)) is not None:
        return again
    owners = requester.owners_at(holding)
    kept = [each for each in stripes if any(left.owner in owners for left in at(each.key).left)]
    rooms: dict[Holding, int] = {}
    for each in (*kept, *stripes):  # one look as a rule: with thousands of claims each is dear
        rooms[each] = _fits(each, at, requester)
        if rooms[each] >= holding.count:
            return [each]
    return _over(holding, rooms, kept)


def _over(holding: Holding, rooms: Mapping[Holding, int], kept: Collection[Holding]) -> list[Holding] | None:
    """The holding over as few stripes as can be: a commit takes so many documents and no more."""
    found, left = [], holding.count
    for each, room in sorted(rooms.items(), key=lambda item: (item[0] not in kept, -item[1])):
        if room and left:
            found.append(replace(each, count=min(room, left)))
            left -= found[-1].count
    return None if left else found


def _with_units(
    units: Sequence[str], stripes: Sequence[Holding], at: At, requester: Requester
) -> list[Holding] | None:
    """The stripes that have these very units; None where one of them is in none, or there is no room."""
    found = []
    for each in stripes:
        domain = at(each.key)
        there, held = Units.of(domain.units or ()), _held(each, domain, requester)
        mine = sum(unit in there and unit not in held for unit in units)
        if mine:
            found.append(replace(each, count=mine))
    enough = sum(each.count for each in found) == len(units)
    return found if enough and all(each.count <= _room(each, at, requester) for each in found) else None


def _noted(holding: Holding, count: int, at: At, requester: Requester) -> list[Holding]:
    """The holding in the stripes that list its units. A unit that is in none stands in one by its own name:
    so all pods that say they use it meet in one document."""
    found: dict[int, tuple[str, ...]] = {}
    left = holding.units
    for number in range(count):
        there = Units.of(at(_in(holding, number).key).units or ())
        mine = tuple(unit for unit in left if unit in there)
        if mine:
            found[number] = mine
            left = tuple(unit for unit in left if unit not in there)
    for unit in left:
        number = _first(unit, count)
        found[number] = (*found.get(number, ()), unit)
    rest, first = holding.count - sum(map(len, found.values())), _first(requester.uid, count)
    if rest:
        found.setdefault(first, ())
    return [
        replace(_in(holding, number), count=len(units) + rest * (number == first), units=units)
        for number, units in found.items()
    ]


def _free(holding: Holding, head: Domain, at: At, requester: Requester) -> int:
    return sum(_room(_in(holding, number), at, requester) for number in range(head.stripes))


def _in(holding: Holding, number: int) -> Holding:
    return replace(holding, domain=stripe(holding.domain, number))


def _first(uid: str, count: int) -> int:
    return zlib.crc32(uid.encode()) % count
