"""Whose pods ran longer than they had said: such an owner's word is not believed for a day. One document.
It is forgotten with the ledger, and may be an older version's or damaged: then everybody is believed."""

from collections.abc import Mapping

import msgspec

DISBELIEVED_SECONDS = 86400.0
"""How long an owner's word is not believed after a pod of it was last seen that ran too long."""

RENEWED_SECONDS = 3600.0
"""How much later that has to be for the document to be written again: it is not written every minute."""

MOST_OWNERS = 200
"""Owners that are remembered, those that are believed last again: 80 KB at most."""

Overruns = Mapping[str, float]
"""Until when these owners' declared times are not believed (Unix seconds)."""

_decoder = msgspec.json.Decoder(dict[str, float])


def body_of(overruns: Overruns) -> bytes:
    """Return the document, with as many owners as are remembered."""
    latest = sorted(overruns.items(), key=lambda item: (-item[1], item[0]))
    return msgspec.json.encode(dict(latest[:MOST_OWNERS]))


def believed(known: Overruns, now: float) -> Overruns:
    """Return these times without what only a wrong clock can have noted: none is later than such a note of
    now would say."""
    latest = now + DISBELIEVED_SECONDS
    return {owner: min(until, latest) for owner, until in known.items()}


def overruns_of(body: bytes | None) -> Overruns:
    """Return what the document says; nothing where there is none, or it can't be read."""
    try:
        return {} if body is None else _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def news(known: Overruns, seen: Mapping[str, float]) -> Overruns:
    """Return until when these owners are not believed, of whom pods were seen at these times to run too long;
    without those of whom that is known, but for some minutes."""
    until = {owner: at + DISBELIEVED_SECONDS for owner, at in seen.items()}
    return {owner: end for owner, end in until.items() if end >= known.get(owner, 0.0) + RENEWED_SECONDS}
