"""What the last reconcile mended, what it could not, and whose turn in line came to nothing: one document,
written by each. It is for people and for alarms, and for the next reconcile, which does without it: it may be
missing or be an older version's."""

from collections.abc import Mapping

import msgspec

from berth.stores.base import Document

MOST_PROBLEMS = 20
_MOST_CHARACTERS = 500
"""Of a problem; so the problems stay below 50 KB in any alphabet."""

MOST_NOTES = 500
"""Pods of which is remembered that nothing came of their turns, the latest of them: 40 KB."""


MOST_SEATS = 1000
"""Seats of gangs of which is remembered when they were seen first: 60 KB."""

LONGEST_BELIEVED = 86400.0
"""Seconds from now that what is noted of the line may last: a clock that was wrong may have noted more."""


class LineNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is remembered of a pod that units are, or were, held for in line; times in Unix seconds.

    `whole` is since when they are enough for it; 0: they are not. `vain` times nothing came of that, and it
    has no turn `until` then.
    """

    whole: float = 0.0
    vain: int = 0
    until: float = 0.0


class LineNotes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one reconcile remembers of the line for the next: notes by the pods' UIDs, and until when nobody
    has a turn in the line of a pool, after one that came to nothing (Unix seconds)."""

    pods: Mapping[str, LineNote] = {}
    rests: Mapping[str, float] = {}

    def believed(self, now: float) -> "LineNotes":
        """Return these notes without times that only a wrong clock can have noted."""
        latest = now + LONGEST_BELIEVED
        pods = {
            uid: msgspec.structs.replace(note, whole=min(note.whole, now), until=min(note.until, latest))
            for uid, note in self.pods.items()
        }
        return LineNotes(pods, {pool: min(until, latest) for pool, until in self.rests.items()})


class LastReconcile(msgspec.Struct, frozen=True, kw_only=True):
    """One reconcile that ended well: when (seconds since the epoch of Unix), how long it took, what it
    mended, by kind, and what it left.

    `more` problems are not written down. `seats` is since when gangs' seats wait, by its clock, and `ahead`
    how many seconds its machine's clock was ahead of the API server's; None: nobody knows.
    """

    at: float
    seconds: float
    mended: Mapping[str, int]
    problems: tuple[str, ...] = ()
    more: int = 0
    line: LineNotes = LineNotes()
    seats: Mapping[str, float] = {}
    ahead: float | None = None

    @property
    def left(self) -> int:
        """Return how many problems were left."""
        return len(self.problems) + self.more


_decoder = msgspec.json.Decoder(LastReconcile)


def body_of(last: LastReconcile) -> bytes:
    """Return the document, with the first problems, each cut to some characters."""
    kept = tuple(problem[:_MOST_CHARACTERS] for problem in last.problems[:MOST_PROBLEMS])
    return msgspec.json.encode(msgspec.structs.replace(last, problems=kept, more=last.left - len(kept)))


def last_reconcile_of(document: Document | None) -> LastReconcile | None:
    """Return what the document says; None: there is none, or it can't be read."""
    if document is None:
        return None
    try:
        return _decoder.decode(document.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
