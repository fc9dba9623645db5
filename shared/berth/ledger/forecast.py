"""When units of a domain come free, by what pods declare and by how long they have held them.
It is an estimate by which units are held where they do come free; no promise rests on it."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from berth.ledger.keys import domain_key
from berth.ledger.model import FIRST, Claim, Domain
from berth.ledger.transitions import used_from
from berth.ledger.view import View

SERVICES = ("DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet")
"""Kinds of owners whose pods do not finish: they run until somebody deletes them."""

SETTLED_SECONDS = 3600.0
"""How long a pod of a service has to hold its units before they are expected never to come free. One that is
younger may be of a service that is rolled out, or scaled up and down, all the time."""

Comes = list[tuple[float, int]]
"""Times (Unix seconds) and how many more units are free from then on, in order."""


class Outlook(NamedTuple):
    """By when an ask for units of one domain is expected to be free (Unix seconds), and how many of them in
    which of its documents (by key)."""

    by: float
    parts: Mapping[str, int]


def never_ends(claim: Claim, now: float) -> bool:
    """Whether nobody knows that the claim's units ever come free: they are used outside the cluster or lost
    with their node, or a service has held them for long and does not declare an end."""
    if claim.is_external or claim.state == "lost":
        return True
    kind = claim.owner.partition("/")[2].partition(":")[0]
    return kind in SERVICES and claim.ends <= now and now - used_from(claim) > SETTLED_SECONDS


def obtainable(view: View, pool: str, domain: str, now: float) -> int:
    """Return how many units of a domain, or quota, may ever come free, by what is known now."""
    parts = view.parts(pool, domain).items()
    return sum(max(0, (part.capacity or 0) - _endless(part, pool, name, now)) for name, part in parts)


def outlook(view: View, pool: str, domain: str, count: int, now: float) -> Outlook | None:
    """Return by when so many units of a domain, or quota, are expected to be free, in as few of its documents
    as come free by about then; None where they never are, by what is known now."""
    rests = view.pools[pool].spec.reuse_after_seconds
    comes = {name: _comes(part, pool, name, rests, now) for name, part in view.parts(pool, domain).items()}
    merged = sorted(entry for part in comes.values() for entry in part)
    by = _time_of(merged, count)
    if by is None:
        return None
    # A little later in fewer documents is better: the claim stands in each of them.
    horizon = now + 2 * (by - now)
    there = {name: sum(units for time, units in part if time <= horizon) for name, part in comes.items()}
    taken: dict[str, int] = {}
    rest = count
    while rest > 0:
        best = min(
            (name for name in there if name not in taken and there[name] > 0),
            key=lambda name: (-min(rest, there[name]), _time_of(comes[name], min(rest, there[name])), name),
        )
        taken[best] = min(rest, there[best])
        rest -= taken[best]
    latest = max(_time_of(comes[name], units) or now for name, units in taken.items())
    return Outlook(latest, {domain_key(pool, name): units for name, units in taken.items()})


def held_by(view: View, pool: str, name: str, count: int, now: float) -> float | None:
    """Return by when so many units of one document, such as a hold is for, are expected to be free; None:
    never, by what is known now."""
    rests = view.pools[pool].spec.reuse_after_seconds
    return _time_of(_comes(view.document(pool, name), pool, name, rests, now), count)


def _endless(part: Domain, pool: str, name: str, now: float) -> int:
    return sum(
        holding.count
        for claim in part.claims.values()
        if never_ends(claim, now)
        for holding in claim.holdings
        if (holding.pool, holding.domain) == (pool, name)
    )


def _comes(part: Domain, pool: str, name: str, rests: int, now: float) -> Comes:
    """Return when units of a document are free, those first that are free now."""
    free = part.slack(pool, name, (), now, FIRST)
    comes = sorted(_changes(part, pool, name, rests, now))
    if free >= 0:
        return [(now, free), *comes] if free else comes
    after: Comes = []  # more is in use than there is: what comes first is nobody's
    for time, units in comes:
        free += units
        if free > 0:
            after.append((time, min(units, free)))
    return after


def _changes(part: Domain, pool: str, name: str, rests: int, now: float) -> Iterator[tuple[float, int]]:
    for claim in part.claims.values():
        count = sum(one.count for one in claim.holdings if (one.pool, one.domain) == (pool, name))
        if count and not never_ends(claim, now):
            # What has been held for long is expected to be held for as long again.
            ends = claim.ends if claim.ends > now else now + max(0.0, now - used_from(claim))
            yield ends + rests, count
    for retained in part.retained:
        if retained.bars((), now):
            yield retained.until, retained.count


def _time_of(comes: Comes, count: int) -> float | None:
    """Return from when on so many units are free; None: never."""
    there = 0
    for time, units in comes:
        there += units
        if there >= count:
            return time
    return None
