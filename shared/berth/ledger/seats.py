"""Seats: where all pods of a gang find room at once; pure functions.
A seat is a claim that bind makes for a pod which is not being bound yet; the pod's own bind takes it."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from berth.errors import RefusedError
from berth.ledger import allocation, transitions
from berth.ledger.allocation import At, Requester, Short
from berth.ledger.model import Claim, Domain, Holding, Rank


class Member(NamedTuple):
    """A pod for which a seat is looked for: nodes that it may go to, the best first, its claim on one of
    them, and its place in line. Pods of one `kind` ask for the same, and may go to the same nodes."""

    nodes: Sequence[str]
    on: Callable[[str], Claim]
    kind: Hashable
    rank: Rank


class Seat(NamedTuple):
    """A claim that is to be made, by documents, and for whom room was looked for."""

    claim: Claim
    requester: Requester


class NoSeatError(Exception):
    """One of the pods finds no room beside the others: the one of this number. The text says what it lacks
    where it was tried last; it is empty where it may go to no node."""

    def __init__(self, number: int, short: Sequence[Short]) -> None:
        super().__init__("; ".join(lack.text() for lack in short))
        self.number = number


class GangLargeError(RefusedError):
    """Its pods would stand in more documents than one commit takes."""


def seated(members: Iterable[Member], at: At, requester_of: Callable[[Claim, Rank], Requester]) -> list[Seat]:
    """Return seats for all of these pods, those first that come first. Raises NoSeatError.

    It takes for each the first node that has room beside the others, and looks no further: where pods ask
    for different things, others may have been possible.
    """
    changed: dict[str, Domain] = {}
    begin: dict[Hashable, int] = {}  # nodes before that are full for pods of the kind: room only shrinks
    seats: list[Seat] = []

    def now(key: str) -> Domain:
        return changed[key] if key in changed else at(key)

    for member in members:
        seat, short = None, list[Short]()
        for number in range(begin.get(member.kind, 0), len(member.nodes)):
            begin[member.kind] = number
            claim = member.on(member.nodes[number])
            requester = requester_of(claim, member.rank)
            holdings, short = _held(claim, now, requester)
            if not short:
                seat = Seat(replace(claim, holdings=holdings), requester)
                break
        if seat is None:
            raise NoSeatError(len(seats), short)
        keys = {holding.key for holding in seat.claim.holdings}
        changed |= transitions.with_claim(seat.claim, {key: now(key) for key in keys})
        seats.append(seat)
    return seats


def without_claim(uid: str, at: At) -> At:
    """Return the documents as they would be if the pod had no claim."""

    def document(key: str) -> Domain:
        domain = at(key)
        return transitions.without(uid, {key: domain}).get(key, domain)

    return document


def _held(claim: Claim, at: At, requester: Requester) -> tuple[tuple[Holding, ...], list[Short]]:
    """Return what the claim would hold, by documents, and what is short where it can't be had."""
    planned, short = allocation.plan(claim, at, requester)
    return (planned, short) if short else allocation.taken(planned, at, requester)
