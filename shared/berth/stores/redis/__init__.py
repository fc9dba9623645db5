"""The ledger in Redis 7 or Valkey: a hash of documents and two sorted sets of what changed when.

`changes` is exact on a single primary: it never lags behind `read`. A server that was restarted, failed
over to, emptied, or put back to older data begins a new life (trust.lua). Not promised: that two primaries
of a split network are told apart before they meet again (min-replicas-max-lag bounds it); that older keys,
put back by hand, are noticed where only processes call that had seen no more; that an answered write
outlives a fail-over (`?wait=` makes it likelier), only that its loss is noticed.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from berth.stores.base import EPOCH, NOTHING, Changes, Cursor, Document, Version, chunks, only_read
from berth.stores.redis.client import Link, Script
from berth.stores.redis.url import Location

_SECONDS = 1.0  # for a connection, and for an answer
_KEPT_DELETIONS = 10_000  # deletions remembered for readers that are behind
_LIVES = 16  # remembered as over
_MARK = b"\xff"


def _script(name: str, *, reads_only: bool = False) -> Script:
    folder = resources.files(__name__)
    text = "".join((folder / f"{part}.lua").read_text("utf-8") for part in ("trust", name))
    return Script(text, reads_only=reads_only)


_READ, _COMMIT, _CHANGES = _script("read"), _script("commit"), _script("changes")
_ONLY_READ, _ONLY_CHANGES = _script("read", reads_only=True), _script("changes", reads_only=True)


class _Known(NamedTuple):
    """The latest that was seen here: a life, a revision of it, and which lives are over."""

    life: str = ""
    rev: int = 0
    over: tuple[str, ...] = ()


class RedisStore:
    """See `berth.stores.base.Store`. Nothing is sent before the first call."""

    def __init__(
        self,
        location: Location,
        new_life: Callable[[], str] = lambda: os.urandom(8).hex(),
        seconds: float = _SECONDS,
        *,
        reads_only: bool = False,
    ) -> None:
        self._reads_only = reads_only
        self._link = Link(location, seconds)
        self._keys = [f"{{{location.prefix}}}:{name}" for name in ("documents", "written", "deleted")]
        self._new_life, self._replicas = new_life, location.wait
        self._lock = threading.Lock()
        self._known = _Known()

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        if not keys:
            return {}
        life, _, values = self._run(_ONLY_READ if self._reads_only else _READ, *keys)
        if not life:
            return {}
        return {
            key: _document(life, value) for key, value in zip(keys, values, strict=True) if value is not None
        }

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        if self._reads_only:
            raise only_read()
        written = [each for key, body in writes.items() if body is not None for each in (key, body)]
        _, _, (done,) = self._run(
            _COMMIT,
            len(expected),
            len(written) // 2,
            _KEPT_DELETIONS,
            *(each for key, version in expected.items() for each in (key, version or "")),
            *written,
            *(key for key, body in writes.items() if body is None),
            replicas=self._replicas if writes else 0,
        )
        return bool(done)

    def changes(self, since: Cursor | None) -> Changes:
        known, _, seen = (since or "").partition(".")
        script = _ONLY_CHANGES if self._reads_only else _CHANGES
        life, rev, found = self._run(script, known, seen if seen.isdecimal() else -1)
        if not life:
            return NOTHING
        documents: dict[str, bytes | None] = {}
        if found:
            pairs = iter(found[0])
            documents = {
                key.decode(): _body(value) for key, value in zip(pairs, pairs, strict=True) if key != _MARK
            }
            documents |= {key.decode(): None for gone in found[1:] for key in gone if key != _MARK}
        return Changes(documents, f"{life}.{rev}", len(found) == 1)

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        return chunks(keys)

    def close(self) -> None:
        self._link.close()

    def _run(self, script: Script, *arguments: Any, replicas: int = 0) -> tuple[str, int, list[Any]]:
        """The life and revision the store was found in, and what else the script answered."""
        known = self._known
        fresh = "" if self._reads_only else self._new_life()
        trust = [EPOCH, fresh, known.life, known.rev, " ".join(known.over)]
        answer = self._link.run(
            script,
            [len(self._keys), *self._keys, *trust, *arguments],
            again=script is not _COMMIT,
            replicas=replicas,
        )
        life, rev = answer[0].decode(), int(answer[1])
        if not life:
            with self._lock:
                self._known = _Known()  # who only reads takes what is there next as it is
        elif life != self._known.life or rev > self._known.rev:
            self._learn(known, life, rev)
        return life, rev, answer[2:]

    def _learn(self, before: _Known, life: str, rev: int) -> None:
        with self._lock:
            now = self._known
            if life == now.life:
                self._known = now._replace(rev=max(rev, now.rev))
            # Answers come out of order: one to a question of an earlier life may tell of a life that is over.
            elif before.life == now.life and life not in now.over:
                over = (*now.over, now.life)[-_LIVES:] if now.life else ()
                self._known = _Known(life, rev, over)


def _document(life: str, value: bytes) -> Document:
    rev, _, body = value.partition(b" ")
    return Document(f"{life}.{rev.decode()}", body)


def _body(value: bytes) -> bytes:
    return value.partition(b" ")[2]
