"""How long units have been free and held in line, in no use: a turn ends when it is as long as its Pool says.
It counts by pool, whoever had the turn meanwhile, until a turn ends well: neither a pod of a higher priority
nor a pod that is deleted and created again begins it anew."""

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby

from msgspec.structs import replace

from berth.ledger.keys import domain_of
from berth.ledger.last_reconcile import LONGEST_BELIEVED, LineNote, LineNotes, LineTurn
from berth.ledger.model import FIRST
from berth.ledger.view import View


class IdleLine:
    """Idle seconds of the lines at one look (Unix seconds), and which lines rest.

    What is idle at one look counts until the next.
    """

    def __init__(self, before: LineNotes, now: float) -> None:
        self._now = now
        self._elapsed = min(max(0.0, now - before.at), LONGEST_BELIEVED) if before.at else 0.0
        self._turns = before.turns
        self._seconds: dict[str, float] = {}
        self.rests = {pool: until for pool, until in before.rests.items() if until > now}

    def noted(self, note: LineNote) -> LineNote:
        """Return the note with the time since the last look, if all was held for its pod then."""
        if not note.is_whole:
            return note
        return replace(note, whole_seconds=note.whole_seconds + self._elapsed)

    def end_turns(self, view: View, waiting: Collection[str]) -> None:
        """Count the time since the last look, and end the turns of pods that are not among these UIDs. After
        a pod that went without its units the line rests, as after one whose turn came to nothing."""
        for pool, turn in self._turns.items():
            seconds = turn.idle_seconds + (self._elapsed if turn.idles else 0.0)
            if pool not in view.pools or (turn.uid not in waiting and _was_served(view, pool, turn)):
                continue
            self._seconds[pool] = seconds
            if turn.uid not in waiting:
                self.end_in_vain([pool])

    def worn(self, pools: Iterable[str], view: View) -> str:
        """Return the first of these pools whose units were idle for as long as it says; empty if none."""
        worn = (
            pool
            for pool in sorted(pools)
            if self._seconds.get(pool, 0.0) >= view.pools[pool].line.idle_seconds
        )
        return next(worn, "")

    def end_in_vain(self, pools: Iterable[str]) -> float:
        """Let the lines of these pools rest for as long as their units were idle. Return the longest time."""
        seconds = {pool: self._seconds.pop(pool, 0.0) for pool in pools}
        self.rests |= {pool: self._now + idle for pool, idle in seconds.items() if idle}
        return max(seconds.values(), default=0.0)

    def turns(self, view: View) -> Mapping[str, LineTurn]:
        """Return the turns as they are after this look. Lines in which nobody has a turn any more rest, if
        their units were idle."""
        holds = sorted(view.line_holds.items())
        turns: dict[str, LineTurn] = {}
        for pool, some in groupby(holds, lambda item: domain_of(item[0])[0]):
            held = list(some)
            first, idles = held[0][1], any(_idles(view, key, self._now) for key, _ in held)
            turns[pool] = LineTurn(first.uid, first.label, self._seconds.get(pool, 0.0), idles)
        for pool in self._seconds.keys() - turns.keys():
            turn = self._turns[pool]
            if view.claims_of(turn.uid):  # it is being bound: what comes of that is not known yet
                turns[pool] = replace(turn, idle_seconds=self._seconds[pool], idles=False)
            else:
                self.end_in_vain([pool])
        return turns


def _idles(view: View, key: str, now: float) -> bool:
    """Whether units of this document, or of the quota that it is, are free and held."""
    domain, which = view.at(key), domain_of(key)
    return domain.room(*which, (), now, rank=FIRST) > domain.room(*which, (), now)


def _was_served(view: View, pool: str, turn: LineTurn) -> bool:
    """Whether the pod that had the turn got its units: it has a claim, or has ended and left a note."""
    if view.claims_of(turn.uid):
        return True
    notes = (note for domain in view.domains.get(pool, {}).values() for note in domain.ended)
    return any(f"{note.namespace}/{note.pod}" == turn.label for note in notes)
