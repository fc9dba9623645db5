"""Times that other processes have stamped, by the clock of the one that judges them; what is told of clocks.
A claim is stamped by the process that reserved it; reconcile brackets that between two of its own looks."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from berth.ledger.last_reconcile import MOST_SEATS, LastReconcile
from berth.ledger.model import Claim
from berth.ledger.view import View
from berth.skew import MOST_APART

TOLD_SECONDS = 5.0
"""Clocks that are further apart are told of: Date headers tell whole seconds."""


class SeatTimes:
    """When the seats of gangs were reserved, by reconcile's clock: not before a look that did not see them,
    and not after the first one that did. In between their own stamps are believed."""

    def __init__(self, looked: float = 0.0, before: Mapping[str, float] | None = None) -> None:
        """`looked` is when the last reconcile began to look, `before` the times that it noted."""
        self._looked, self._before = looked, before or {}
        self._noted: dict[str, float] = {}

    @classmethod
    def after(cls, last: LastReconcile | None) -> "SeatTimes":
        return cls() if last is None else cls(last.at - last.seconds, last.seats)

    @property
    def noted(self) -> Mapping[str, float]:
        """Return what the next reconcile is to know."""
        return dict([*self._noted.items()][-MOST_SEATS:])

    def by_our_clock(self, seat: Claim, now: float) -> Claim:
        """Return the seat with its times by this clock."""
        key = f"{seat.uid} {seat.seat_until}"
        since = self._before.get(key)
        if since is None or since > now:
            since = min(max(seat.since, min(self._looked, now)), now)
        self._noted[key] = since
        return replace(seat, since=since, seat_until=since + (seat.seat_until - seat.since))


def clock_problems(ahead: float | None, view: View, now: float) -> Iterator[str]:
    """Yield what is wrong with clocks: this machine's, by so many seconds `ahead` of the API server's, and
    those that stamped claims later than now. How far is in a metric: equal causes have equal words."""
    if ahead is not None and abs(ahead) > TOLD_SECONDS:
        side = "ahead of" if ahead > 0 else "behind"
        yield f"this machine's clock is more than {TOLD_SECONDS:g} s {side} the API server's"
    if any(claim.since > now + TOLD_SECONDS for claim in view.claims()):
        yield (
            f"claims are stamped more than {TOLD_SECONDS:g} s later than now: the clock of a process that "
            f"binds pods is ahead; up to {MOST_APART:g} s that does no harm"
        )
