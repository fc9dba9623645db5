"""What was read last of a pool's use by others: one document a pool, written by each reading.
It is for people and for `berth doctor`: nothing is given or refused by it, and it may be missing."""

from collections.abc import Mapping

import msgspec

MOST_NAMES = 200
"""Names that are kept of each kind, each cut to some characters: 40 KB in all."""

_MOST_CHARACTERS = 100


class LastReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a licence server said at a time (Unix seconds).

    `idle` are names of pods that held claims and had nothing checked out; `beyond` pods that had more than
    their claims, by so many units; `others` who else had how many, by the word that `match` says.
    """

    at: float
    issued: int = 0
    in_use: int = 0
    outside: int = 0
    idle: tuple[str, ...] = ()
    beyond: Mapping[str, int] = {}
    others: Mapping[str, int] = {}


_decoder = msgspec.json.Decoder(LastReading)


def body_of(last: LastReading) -> bytes:
    """Return the document, with the first names of each kind."""
    cut = msgspec.structs.replace(
        last, idle=last.idle[:MOST_NAMES], beyond=_first(last.beyond), others=_first(last.others)
    )
    return msgspec.json.encode(cut)


def last_reading_of(body: bytes | None) -> LastReading | None:
    """Return what the document says; None: there is none, or it can't be read."""
    if body is None:
        return None
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _first(counts: Mapping[str, int]) -> dict[str, int]:
    """Return those with the most units."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_NAMES]
    return {name[:_MOST_CHARACTERS]: count for name, count in ordered}
