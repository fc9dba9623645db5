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
    """What is remembered of a pod that has, or had, a turn in line; times in Unix seconds.

    All that it asks for was held for it for `whole_seconds` in all, however its turn was interrupted, and
    `is_whole` at the last look. `vain` of its turns came to nothing, and it has no turn `until` then.
    `looked` is when it was last seen that it may go to no node.
    """

    whole_seconds: float = 0.0
    is_whole: bool = False
    vain: int = 0
    until: float = 0.0
    looked: float = 0.0


class LineTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """The turn in the line of one pool: whose it is (UID, namespace/name), for how many seconds in all held
    units were in no use since a turn in this line last ended well, and whether they were at the last look."""

    uid: str
    label: str
    idle_seconds: float = 0.0
    idles: bool = False


class LineNotes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one reconcile remembers of the line for the next: notes by the pods' UIDs, until when nobody has a
    turn in the line of a pool, after one that came to nothing, whose turn it is by pool, and when it looked
    (Unix seconds)."""

    pods: Mapping[str, LineNote] = {}
    rests: Mapping[str, float] = {}
    turns: Mapping[str, LineTurn] = {}
    at: float = 0.0

    def believed(self, now: float) -> "LineNotes":
        """Return these notes without times that only a wrong clock can have noted."""
        latest = now + LONGEST_BELIEVED
        replace = msgspec.structs.replace
        pods = {
            uid: replace(note, until=min(note.until, latest), looked=min(note.looked, now))
            for uid, note in self.pods.items()
        }
        rests = {pool: min(until, latest) for pool, until in self.rests.items()}
        return replace(self, pods=pods, rests=rests, at=min(self.at, now))


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
