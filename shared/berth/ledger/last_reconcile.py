"""What the last reconcile mended, and what it could not: one document, written by each.
It is for people and for alarms: nothing is decided by it, and it may be missing or be an older version's."""

from collections.abc import Mapping

import msgspec

from berth.stores.base import Document

MOST_PROBLEMS = 20
_MOST_CHARACTERS = 500
"""Of a problem; so the document stays below 50 KB in any alphabet."""


class LastReconcile(msgspec.Struct, frozen=True, kw_only=True):
    """One reconcile that ended well: when (seconds since the epoch of Unix), how long it took, what it
    mended, by kind, and what it left.

    `more` problems are not written down.
    """

    at: float
    seconds: float
    mended: Mapping[str, int]
    problems: tuple[str, ...] = ()
    more: int = 0

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
