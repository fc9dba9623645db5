"""The latest releases, for people: what pods held that ended lately. One document, kept by reconcile.
Nothing is decided by it, and it may be missing or be an older version's."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from berth.ledger.keys import PoolDomain, parse_domain
from berth.ledger.model import EndedUse
from berth.stores.base import Document

MOST_RELEASES = 100
"""Releases that are remembered; so the document stays below 100 KB."""


class Release(msgspec.Struct, frozen=True):
    """What a pod held in one domain, since when, and when it ended."""

    namespace: str
    pod: str
    node: str
    pool: str
    domain: str
    count: int
    since: datetime
    ended: datetime


_decoder = msgspec.json.Decoder(tuple[Release, ...])


def releases_of(notes: Mapping[PoolDomain, Iterable[EndedUse]]) -> tuple[Release, ...]:
    """Return what the notes of ended use tell, by whole domains."""
    return tuple(
        Release(
            namespace=note.namespace,
            pod=note.pod,
            node=note.node,
            pool=pool,
            domain=parse_domain(name).place,
            count=note.count,
            since=_moment(note.start),
            ended=_moment(note.end),
        )
        for (pool, name), ended in notes.items()
        for note in ended
    )


def latest(*parts: Iterable[Release]) -> tuple[Release, ...]:
    """Return the releases of all parts, each once, the last one first, and no more than are remembered."""
    each = dict.fromkeys(release for part in parts for release in part)
    return tuple(sorted(each, key=lambda release: release.ended, reverse=True)[:MOST_RELEASES])


def body_of(releases: Iterable[Release]) -> bytes:
    return msgspec.json.encode(tuple(releases))


def remembered(document: Document | None) -> tuple[Release, ...]:
    """Return what the document says; nothing: there is none, or it can't be read."""
    if document is None:
        return ()
    try:
        return _decoder.decode(document.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(round(seconds, 3), UTC)
