"""What one commit of the ledger changes, decided on the domains as they were read; pure functions.
Whether the decision still holds is the store's to say: it takes the commit or reports a conflict."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from msgspec.structs import replace

from berth.api.pool import Pool
from berth.api.poolclaim import MOST_UNITS
from berth.api.units import Units
from berth.errors import BerthError, OtherClusterError, RefusedError
from berth.ledger import retained
from berth.ledger.allocation import Short, StripeFullError, require_whole
from berth.ledger.freed import NO_WAITERS, Waiters, moment
from berth.ledger.keys import NODE, PoolDomain, domain_key, domain_of, kept_at, node_key, parse_domain
from berth.ledger.model import (
    MOST_ENDED,
    Claim,
    Domain,
    EndedUse,
    Freed,
    Holding,
    LineHold,
    Places,
    PoolClaimSpec,
    Reading,
    RetainedUnits,
    decode_places,
    encode,
)
from berth.ledger.unlisted import Unit
from berth.skew import MOST_APART

Domains = Mapping[str, Domain]


class ElsewhereError(BerthError):
    """The pod has a claim for another node; it must be settled there first."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(f"pod {claim.label} holds a claim for node {claim.node}")
        self.claim = claim


class SupersededError(RefusedError):
    """Another bind call for the same pod has taken over: with the claim `by`, or that is gone by now."""

    def __init__(self, claim: Claim, by: Claim | None) -> None:
        super().__init__(
            f"pod {claim.label}: a newer bind call for this pod has taken over; this one did nothing"
        )
        self.by = by


class MissingClaimError(BerthError):
    """The claim to confirm is not in the ledger; reconcile adopts it from the pod."""


def require_cluster(owner: bytes | None, ours: str, ledger: str) -> None:
    """Raise OtherClusterError in another cluster's ledger. One that names no owner is anybody's: it was made
    by a berth that wrote none, or is new."""
    if owner is not None and owner != ours.encode():
        theirs = owner.decode(errors="replace")
        raise OtherClusterError(
            f"berth's ledger {ledger} belongs to another cluster (its kube-system namespace has UID "
            f"{theirs}, this one's is {ours}): give each cluster its own ledger (BERTH_STORE), or "
            "delete this one if its cluster is no more"
        )


def standing(wanted: Claim, holdings: Collection[Holding], domains: Domains) -> Claim | None:
    """Return the pod's claim in these domains; one that does not stand in all of them is none to go on with.

    It may stand in stripes that were not read as well, where the View lags behind.
    """
    claims = [
        claim for holding in holdings if (claim := domains[holding.key].claims.get(wanted.uid)) is not None
    ]
    if not claims:
        return None
    whole = len(claims) == len(holdings) and all(holding.key in domains for holding in claims[0].holdings)
    return claims[0] if whole or claims[0].logical() != wanted.logical() else None


def refuse(short: Iterable[Short]) -> None:
    """Raise StripeFullError where only stripes are short, else a RefusedError that says what is short."""
    final = [lack.text() for lack in short if not lack.holding.name.stripe]
    if final:
        raise RefusedError("; ".join(final))
    if any(short):
        raise StripeFullError("a stripe is full")


def with_claim(claim: Claim, domains: Domains) -> Domains:
    """Return those of these domains that the claim draws from, with the claim in each."""
    return _in_each({holding.key for holding in claim.holdings}, claim, domains)


def _in_each(keys: Iterable[str], claim: Claim, domains: Domains) -> Domains:
    return {key: _with(claim, key, domains[key]) for key in keys}


def _with(claim: Claim, key: str, domain: Domain) -> Domain:
    """Return the domain with the claim; units that were left, or held for the first in line, wait no more
    once a pod that may have them is bound.

    Which units without names it has, nobody can tell; none of those that rested when it was reserved.
    """
    known = domain.claims.get(claim.uid)
    domain = replace(domain, claims={**domain.claims, claim.uid: claim})
    hold = domain.line_hold
    if hold is not None and (
        (claim.state == "bound" and hold.uid == claim.uid) or (hold.gang and hold.gang == claim.gang_label)
    ):
        domain = replace(domain, line_hold=None)
    if not domain.retained or claim.state != "bound" or (known is not None and known.state == "bound"):
        return domain
    held = [holding for holding in claim.holdings if holding.key == key]
    names = {unit for one in held for unit in one.units}
    count = sum(one.count for one in held) - len(names)
    pool, name = domain_of(key)
    if parse_domain(name).is_quota:  # a PoolClaim's units are none that were kept
        count = min(count, sum(one.count for one in claim.at_places(pool) if not one.claim))
    left: list[RetainedUnits] = []
    for retained_units in domain.retained:
        units = tuple(unit for unit in retained_units.units if unit not in names)
        had = len(retained_units.units) - len(units)
        if (domain.units is None or not retained_units.units) and retained_units.may_be_of(claim):
            more = min(count, retained_units.count - had)
            had, count, units = had + more, count - more, units[more:]
        if had < retained_units.count:
            left.append(replace(retained_units, count=retained_units.count - had, units=units))
    return replace(domain, retained=tuple(left))


def with_line_holds(wanted: Mapping[str, LineHold], domains: Domains) -> tuple[bool, Domains]:
    """Hold units of these domains (by key) for the first in line. Return False, and change nothing, where
    something is held already."""
    if any(domains[key].line_hold is not None for key in wanted):
        return False, {}
    return True, {key: replace(domains[key], line_hold=hold) for key, hold in wanted.items()}


def with_reading(
    claim: Claim, key: str, reading: Reading, now: float, domains: Domains
) -> tuple[tuple[Holding, ...] | None, Domains]:
    """Count the claim for what others use, as of this reading, which stands in the document of this key.
    Return what was freed elsewhere; None, and change nothing, where a later reading stands."""
    standing = domains[key].reading
    if standing is not None and standing.mark == reading.mark and reading.at < standing.at <= now:
        return None, {}
    if claim.holdings:
        freed, changed = adopted(claim, True, domains)
    else:
        freed, changed = released(claim.uid, domains)
    return freed or (), {**changed, key: replace(changed.get(key, domains[key]), reading=reading)}


def with_failed_reading(key: str, why: str, domains: Domains) -> tuple[None, Domains]:
    """Say in the document of this key why the last try to read came to nothing; the last reading stands."""
    reading = domains[key].reading or Reading()
    changed = reading.failed != why and not domains[key].empty
    return None, {key: replace(domains[key], reading=replace(reading, failed=why))} if changed else {}


def without_reading(keys: Collection[str], domains: Domains) -> tuple[None, Domains]:
    """Forget the readings in these documents."""
    return None, {key: replace(domains[key], reading=None) for key in keys if domains[key].reading}


def with_returns(uid: str, after: Mapping[str, int | None], domains: Domains) -> tuple[None, Domains]:
    """Say anew of what is held for this pod how long units rest, or that nothing is lent, by key."""
    mine = {key: hold for key in after if (hold := domains[key].line_hold) is not None and hold.uid == uid}
    return None, {
        key: replace(domains[key], line_hold=replace(hold, rests=after[key])) for key, hold in mine.items()
    }


def without_line_hold(uid: str, gang: str, domains: Domains) -> tuple[tuple[Holding, ...], Domains]:
    """Hold nothing for this pod, or gang (namespace/name), any more. Return what was held."""
    there = {key: hold for key, domain in domains.items() if (hold := domain.line_hold)}
    mine = {key: hold for key, hold in there.items() if hold.is_for(uid, gang)}
    freed = tuple(Holding(*domain_of(key), hold.count) for key, hold in mine.items())
    return freed, {key: replace(domains[key], line_hold=None) for key in mine}


def without_freed(domains: Domains) -> tuple[None, Domains]:
    """Leave what came free to nobody in particular any more."""
    return None, {key: replace(domain, freed=None) for key, domain in domains.items() if domain.freed}


def cancelled(claim: Claim, now: float, domains: Domains) -> tuple[tuple[Holding, ...], Domains]:
    """Drop the claim where it stands as it is given. Return what was freed.

    What is reserved with a gang is a seat again as long as that waits for the pod: the others hold theirs. By
    clocks that are apart it may be one for longer; reconcile gives it back then."""
    mine = {
        key: domain
        for key, domain in domains.items()
        if (standing := domain.claims.get(claim.uid)) is not None and _is_same(standing, claim)
    }
    if claim.attempt and claim.seat_until and now < claim.seat_until + MOST_APART:
        seats = {
            key: replace(domain.claims[claim.uid], attempt="", state="reserved")
            for key, domain in mine.items()
        }
        return (), {key: _with(seat, key, mine[key]) for key, seat in seats.items()}
    freed = tuple(holding for holding in claim.holdings if holding.key in mine)
    return freed, without(claim.uid, mine)


def _is_same(standing: Claim, claim: Claim) -> bool:
    """Whether it was not taken over, confirmed or, as a seat, which no attempt names, given anew since."""
    of = standing.attempt, standing.state, standing.seat_until
    return of == (claim.attempt, claim.state, claim.seat_until)


def without(uid: str, domains: Domains) -> Domains:
    """Return those of these domains in which the pod has a claim, without it."""
    return {
        key: replace(domain, claims={other: claim for other, claim in domain.claims.items() if other != uid})
        for key, domain in domains.items()
        if uid in domain.claims
    }


class ReleasePolicy(NamedTuple):
    """How a pod's units are freed at this time: by what these Pools say of a next pod. Units of the pools in
    `hold` stay held, by a claim in state `hold_as`, but for those on the nodes `elsewhere`, where the pod did
    not run. `ended` is when the pod's use ended, for the journal; None: it goes on, or nothing is known of
    it. `bound`: the pod was bound, also where its claim is reserved still. Without `rests` nothing of the pod
    ran, and its units need no rest. `waiting` says how many pods wait for units."""

    pools: Mapping[str, Pool] = MappingProxyType({})
    now: float = 0.0
    hold: Collection[str] = ()
    hold_as: Literal["bound", "lost"] = "lost"
    elsewhere: Collection[str] = ()
    ended: float | None = None
    bound: bool = False
    rests: bool = True
    waiting: Waiters = NO_WAITERS

    def held(self, claim: Claim) -> Claim:
        """Return what stays of the claim."""
        hold = () if claim.node in self.elsewhere else self.hold
        holdings = tuple(holding for holding in claim.holdings if holding.pool in hold)
        return replace(claim, holdings=holdings, state=self.hold_as)

    def retained(self, claim: Claim, holding: Holding) -> RetainedUnits | None:
        """Return what of a holding is nobody's, or only some owner's, for a while after it is freed."""
        pool = self.pools.get(holding.pool)
        if pool is None or claim.is_external:
            return None
        # A PoolClaim remembers by itself what it had.
        sticky = None if holding.claim else pool.spec.sticky
        reuse = pool.spec.reuse_after_seconds if self.rests else 0
        rest_until = self.now + reuse if reuse else 0.0
        if sticky is None:
            rests = RetainedUnits(holding.count, holding.units, rest_until=rest_until, left=self.now)
            return rests if reuse else None
        owner = claim.label if sticky.by == "Pod" else claim.owner
        kept_until = self.now + sticky.for_seconds if owner else 0.0
        return RetainedUnits(holding.count, holding.units, owner, rest_until, kept_until, self.now)


def released(
    uid: str,
    domains: Domains,
    how: ReleasePolicy = ReleasePolicy(),  # noqa: B008 - it can't be changed
) -> tuple[tuple[Holding, ...], Domains]:
    """Drop the pod's claims, but for what stays held. Return what was freed, and the domains that change."""
    changed: dict[str, Domain] = {}
    freed: list[Holding] = []
    for key, domain in domains.items():
        claim = domain.claims.get(uid)
        if claim is None:
            continue
        held = how.held(claim)
        if any(holding.key == key for holding in held.holdings):
            if held != claim:
                changed[key] = replace(domain, claims={**domain.claims, uid: held})
            continue
        changed |= without(uid, {key: domain})
        for holding in (holding for holding in claim.holdings if holding.key == key):
            changed[key] = _after(claim, holding, changed[key], how)
            freed.append(holding)
    return tuple(freed), changed


def used_from(claim: Claim) -> float:
    """Return since when the claim's pod uses its units, in Unix seconds."""
    return min(claim.began, claim.since) if claim.began else claim.since


def _noted(claim: Claim, holding: Holding, domain: Domain, how: ReleasePolicy) -> Domain:
    """Return the domain with a note of what the pod used there. A mere reservation is no use."""
    is_used = (claim.state != "reserved" or how.bound) and claim.node not in how.elsewhere
    if how.ended is None or not is_used:
        return domain
    start = used_from(claim)
    end = max(start, how.ended)
    note = EndedUse(claim.namespace, holding.count, claim.made, start, end, claim.name, claim.node)
    return replace(domain, ended=(*domain.ended, note)[-MOST_ENDED:])


def _after(claim: Claim, holding: Holding, domain: Domain, how: ReleasePolicy) -> Domain:
    standing = tuple(left for left in domain.retained if left.stands(how.now))
    if holding.name.kind == "poolclaim":
        return _remembering(claim, holding, domain)
    if holding.is_quota:
        return replace(domain, retained=(*standing, *_counted(claim, holding, how)))
    domain = _noted(claim, holding, domain, how)
    left = how.retained(claim, holding)
    if left is not None:
        # What an earlier pod left of the same unit is over: this one had it since.
        standing = (*retained.without(standing, left.units), left)
    elif waiting := how.waiting.pods.get(holding.pool, 0):
        domain = replace(domain, freed=_freed(holding.count, waiting, domain.freed, how.waiting.at))
    return replace(domain, retained=standing)


def _freed(count: int, waiting: int, before: Freed | None, now: float) -> Freed:
    """Return what came free, with what came free just before."""
    recent = before is not None and 0 <= now - before.at <= moment(before.waiting)
    return Freed(now, count + (before.count if recent and before is not None else 0), waiting)


def _counted(claim: Claim, holding: Holding, how: ReleasePolicy) -> Iterator[RetainedUnits]:
    """Return what the claim's units leave of a quota, in one of its stripes if it has some: as many as nobody
    else may have. The claim's holdings at places, and the quota's, are as many units, in one order."""
    mine = [one for one in claim.holdings if (one.pool, one.whole) == (holding.pool, holding.whole)]
    skip = sum(one.count for one in mine if one.domain < holding.domain)
    first, last = skip, skip + holding.count
    start = 0
    for one in claim.at_places(holding.pool):
        count = min(last, start + one.count) - max(first, start)
        start += one.count
        if count > 0 and (left := how.retained(claim, one)) is not None:
            yield replace(left, count=count, units=(), owner=kept_at(left.owner, one.pool, one.whole))


def _remembering(claim: Claim, holding: Holding, domain: Domain) -> Domain:
    """Let a PoolClaim remember what it had last, which it prefers. No more is remembered than one may name: a
    namespace has many PoolClaims, and pods could leave thousands of names in each of them, one after the
    other."""
    name = holding.name.poolclaim
    had = [one for one in claim.holdings if one.claim == name and one.pool == holding.pool]
    if domain.poolclaim is None or not had:
        return domain
    units = tuple(unit for one in had for unit in one.units)[:MOST_UNITS]
    return replace(domain, poolclaim=replace(domain.poolclaim, domain=had[0].whole, had=units))


def adopted(
    claim: Claim, anew: bool, domains: Domains, unlisted: Collection[Unit] = ()
) -> tuple[tuple[Holding, ...] | None, Domains]:
    """Make the claim bound, room or not, and the pod's only one. Return what was freed elsewhere, None for no
    change.

    With `anew` False only in place of a claim that stands. Units that another pod holds, or that are not of
    the domain, are left out of it: the pod then holds as many without a name. Those in `unlisted` are of the
    domain, as their Pool is now, unless it has come to list them elsewhere. Where more is used than there is,
    the domain is closed.
    """
    keys = {holding.key for holding in claim.holdings}
    require_whole(claim.holdings, domains.__getitem__)
    stale = {key: domain for key, domain in domains.items() if claim.uid in domain.claims and key not in keys}
    if not anew and not any(claim.uid in domain.claims for domain in domains.values()):
        return None, {}
    bound = known_to(claim, domains, unlisted)
    if not stale and _stands(bound, keys, domains):
        return None, {}
    freed, dropped = released(claim.uid, stale)
    held = with_claim(bound, domains)
    return freed, {**dropped, **held, **_closed(bound, {**domains, **held})}


def known_to(claim: Claim, domains: Domains, unlisted: Collection[Unit] = ()) -> Claim:
    """Return the claim with those of its units that `adopted` leaves to it in these domains."""
    known = tuple(_known(claim.uid, holding, domains, unlisted) for holding in claim.holdings)
    return replace(claim, holdings=known)


def adopted_in(claim: Claim, domains: Domains, unlisted: Collection[Unit] = ()) -> tuple[bool, Domains]:
    """Make a claim, as `known_to` says, bound in those of its documents that are among these: all are too
    many for one commit. Return whether something changed. Raises StripeFullError where a unit was taken
    meanwhile."""
    here = replace(claim, holdings=tuple(holding for holding in claim.holdings if holding.key in domains))
    require_whole(here.holdings, domains.__getitem__)
    if known_to(here, domains, unlisted) != here:
        raise StripeFullError("a unit is another pod's now")
    keys = {holding.key for holding in here.holdings}
    if _stands(claim, keys, domains):
        return False, {}
    held = _in_each(keys, claim, domains)
    return True, {**held, **_closed(here, {**domains, **held})}


def all_adopted(
    claims: Collection[Claim], domains: Domains, unlisted: Collection[Unit] = ()
) -> tuple[dict[str, tuple[Holding, ...]], Domains]:
    """Adopt each of these claims. Return by UID what was freed elsewhere of those for which something
    changed."""
    freed_by_uid: dict[str, tuple[Holding, ...]] = {}
    changed: dict[str, Domain] = {}
    for claim in claims:
        freed, new = adopted(claim, True, {**domains, **changed}, unlisted)
        changed |= new
        if freed is not None:
            freed_by_uid[claim.uid] = freed
    return freed_by_uid, changed


def known_of(
    standing: Iterable[Claim], claim: Claim, pools: Mapping[str, Pool], reshaped: Collection[str]
) -> dict[str, tuple[Holding, ...]]:
    """Return what the pod holds already, by pool, where it is what `claim` says that it holds there, and its
    Pool has no other shape now.

    Of units with names all are to be known, and then it does not matter which ones the claim names: they are
    those that the pod got, wherever they are listed now, and users can write its annotation.
    """
    held_by_pool: dict[str, tuple[Holding, ...]] = {}
    for mine in (one for one in standing if one.node == claim.node):
        for pool in {holding.pool for holding in claim.holdings} - {*reshaped}:
            held, asked = _of(mine, pool), _of(claim, pool)
            by_name = pools[pool].named if pool in pools else any(one.units for one in asked)
            known = not by_name or all(len(one.units) == one.count for one in held if not one.is_quota)
            if known and _amounts(held, by_name) == _amounts(asked, by_name):
                held_by_pool[pool] = held
    return held_by_pool


def _of(claim: Claim, pool: str) -> tuple[Holding, ...]:
    return tuple(holding for holding in claim.holdings if holding.pool == pool)


def _amounts(holdings: Iterable[Holding], by_name: bool) -> Counter[tuple[str, str]]:
    """Return units by domain and PoolClaim; where they have names, wherever they are."""
    amounts: Counter[tuple[str, str]] = Counter()
    for holding in holdings:
        anywhere = by_name and holding.name.kind in ("place", "unreserved")
        amounts[(holding.name.kind if anywhere else holding.whole, holding.claim)] += holding.count
    return amounts


def _stands(claim: Claim, keys: Iterable[str], domains: Domains) -> bool:
    """Whether the pod's claim in these domains already says what the pod shows."""
    shown = (claim.node, claim.state, claim.priority, claim.holdings)
    standing = (domains[key].claims.get(claim.uid) for key in keys)
    return all(
        there is not None and (there.node, there.state, there.priority, there.holdings) == shown
        for there in standing
    )


def _known(uid: str, holding: Holding, domains: Domains, unlisted: Collection[Unit]) -> Holding:
    """Return the holding with those of its units that are the domain's and no other pod's.

    A domain that has no units yet, while a ledger is rebuilt, takes what it is told: stock is taken later.
    Who tells of none may have looked before the pod got its own: the pod keeps those.
    """
    domain, head = domains[holding.key], domains[domain_key(holding.pool, holding.whole)]
    mine = domain.claims.get(uid)
    if not holding.units:
        return replace(holding, units=() if mine is None else _own(mine, holding))
    there = None if domain.units is None else Units.of(domain.units)
    others = replace(domain, claims={other: one for other, one in domain.claims.items() if other != uid})
    own = frozenset[Unit]() if mine is None else mine.units
    held = others.held(holding.pool, holding.domain)
    listed = Units.of(head.units or ())  # in another stripe, if not in this one

    def known(unit: str) -> bool:
        fresh = (holding.pool, unit) in unlisted and unit not in listed
        return there is None or unit in there or (holding.pool, unit) in own or fresh

    units = filter(known, holding.units)
    return replace(holding, units=tuple(unit for unit in units if unit not in held))


def _own(claim: Claim, holding: Holding) -> tuple[str, ...]:
    """Return the units that the claim has where the holding is, as many as that is of."""
    of_it = [one for one in claim.holdings if (one.key, one.claim) == (holding.key, holding.claim)]
    return tuple(unit for one in of_it for unit in one.units)[: holding.count]


def _closed(claim: Claim, domains: Domains) -> Domains:
    """Return the heads of the claim's stripes in which more is used now than there is."""
    heads = {}
    for holding in claim.holdings:
        domain, head = domains[holding.key], domain_key(holding.pool, holding.whole)
        over = domain.capacity is not None and domain.used(holding.pool, holding.domain) > domain.capacity
        if over and head != holding.key and not domains[head].closed:
            heads[head] = replace(domains[head], closed=True)
    return heads


def placed(
    wanted: Mapping[str, Places], known: Mapping[str, Places], bodies: Mapping[str, bytes | None]
) -> tuple[list[str], Mapping[str, bytes | None]]:
    """Move those nodes, of these documents, that still are where they were `known` to be. Return them."""
    there = {key.removeprefix(NODE): decode_places(body, key) for key, body in bodies.items()}
    moved = [node for node, places in there.items() if places == known.get(node, {})]
    return moved, {node_key(node): encode(wanted[node]) if wanted[node] else None for node in moved}


def with_specs(
    specs: Mapping[str, PoolClaimSpec | None], domains: Domains
) -> tuple[list[PoolDomain], Domains]:
    """Give PoolClaims (by key) these specs; what a PoolClaim had last stays. Return those that changed."""
    changed: dict[str, Domain] = {}
    for key, domain in domains.items():
        spec, now = specs[key], domain.poolclaim or PoolClaimSpec(0)
        new = None if spec is None else replace(spec, domain=now.domain, had=now.had[:MOST_UNITS])
        if new != domain.poolclaim:
            capacity = None if new is None else 0 if new.refused else 1
            changed[key] = replace(domain, poolclaim=new, capacity=capacity)
    return [domain_of(key) for key in changed], changed
