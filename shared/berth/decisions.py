"""What one commit of the ledger changes, decided on the domains as they were read; pure functions.
Whether the decision still holds is the store's to say: it takes the commit or reports a conflict."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from berth.documents import Claim, Domain, Holding, domain_key
from berth.errors import BerthError, OtherClusterError, RefusedError
from berth.policy import fit

Domains = Mapping[str, Domain]


class ElsewhereError(BerthError):
    """The pod has a claim for another node; it must be settled there first."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(f"pod {claim.label} holds a claim for node {claim.node}")
        self.claim = claim


class SupersededError(RefusedError):
    """A newer bind call for the same pod has taken over."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(
            f"pod {claim.label}: a newer bind call for this pod has taken over; this one did nothing"
        )


class MissingClaimError(BerthError):
    """The claim to confirm is not in the ledger; reconcile adopts it from the pod."""


class CapacityChange(NamedTuple):
    """A domain's capacity before and after; None is no share of the pool."""

    pool: str
    domain: str
    before: int | None
    after: int | None

    @property
    def gained(self) -> int:
        return max(0, (self.after or 0) - (self.before or 0))


def require_ours(owner: bytes | None, ours: str, ledger: str) -> None:
    """A ledger that names no owner is anybody's: it was made by a berth that wrote none, or is new."""
    if owner is not None and owner.decode() != ours:
        raise OtherClusterError(
            f"berth's ledger {ledger} belongs to another cluster (its kube-system namespace has UID "
            f"{owner.decode()}, this one's is {ours}): give each cluster its own ledger (BERTH_STORE), or "
            "delete this one if its cluster is no more"
        )


def standing(wanted: Claim, domains: Domains) -> Claim | None:
    """The pod's claim in these domains; one that does not stand in all of them is none to go on with."""
    found = [claim for domain in domains.values() if (claim := domain.claims.get(wanted.uid)) is not None]
    whole = len(found) == len(domains) or (found and found[0].holdings != wanted.holdings)
    return found[0] if found and whole else None


def require_room(holdings: Collection[Holding], domains: Domains) -> None:
    short = [why for holding in holdings if (why := _shortage(holding, domains[holding.key])) is not None]
    if short:
        raise RefusedError("; ".join(short))


def _shortage(holding: Holding, domain: Domain) -> str | None:
    if domain.capacity is None:
        return fit.absent(holding.pool)
    free = max(0, domain.capacity - domain.used(holding.pool, holding.domain))
    if holding.count <= free:
        return None
    return fit.exhausted(holding.pool, free, domain.capacity, holding.count)


def with_claim(claim: Claim, domains: Domains) -> Domains:
    """These domains with the claim in each."""
    return {
        key: Domain(domain.capacity, {**domain.claims, claim.uid: claim}) for key, domain in domains.items()
    }


def without(uid: str, domains: Domains) -> Domains:
    """Those of these domains in which the pod has a claim, without it."""
    return {
        key: Domain(domain.capacity, {other: claim for other, claim in domain.claims.items() if other != uid})
        for key, domain in domains.items()
        if uid in domain.claims
    }


def released(uid: str, domains: Domains) -> tuple[tuple[Holding, ...], Domains]:
    freed = tuple(
        holding
        for key, domain in domains.items()
        if (claim := domain.claims.get(uid)) is not None
        for holding in claim.holdings
        if holding.key == key
    )
    return freed, without(uid, domains)


def adopted(claim: Claim, anew: bool, domains: Domains) -> tuple[tuple[Holding, ...] | None, Domains]:
    """The claim bound, room or not, and the pod's only one; what was freed elsewhere, None for no change.

    With `anew` False only in place of a claim that stands.
    """
    bound = msgspec.structs.replace(claim, state="bound")
    keys = {holding.key for holding in bound.holdings}
    held = {key: domains[key] for key in keys}
    stale = {key: domain for key, domain in domains.items() if claim.uid in domain.claims and key not in keys}
    if not anew and not stale and not any(claim.uid in domain.claims for domain in held.values()):
        return None, {}
    if not stale and all(agrees(domain.claims.get(claim.uid), bound) for domain in held.values()):
        return None, {}
    freed, dropped = released(claim.uid, stale)
    return freed, {**dropped, **with_claim(bound, held)}


def all_adopted(claims: Collection[Claim], domains: Domains) -> tuple[set[str], Domains]:
    """Each of these claims adopted; the UIDs of those for which something changed."""
    uids: set[str] = set()
    changed: dict[str, Domain] = {}
    for claim in claims:
        freed, new = adopted(claim, True, {**domains, **changed})
        changed |= new
        if freed is not None:
            uids.add(claim.uid)
    return uids, changed


def resized(wanted: Mapping[str, CapacityChange], domains: Domains) -> tuple[list[CapacityChange], Domains]:
    """Those of the wanted changes (by key) whose domain still has the capacity they start from."""
    changes = [change for key, change in wanted.items() if domains[key].capacity == change.before]
    by_key = {domain_key(change.pool, change.domain): change for change in changes}
    return changes, {key: Domain(change.after, domains[key].claims) for key, change in by_key.items()}


def agrees(found: Claim | None, claim: Claim) -> bool:
    """Whether the pod's claim already says what the pod shows."""
    return found is not None and (found.node, found.state, found.holdings) == (
        claim.node,
        "bound",
        claim.holdings,
    )
