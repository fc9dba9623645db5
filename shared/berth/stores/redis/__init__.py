"""The ledger in Redis 7 or Valkey: a hash of documents and two sorted sets of what changed when.

`changes` is exact on a single primary: it never lags behind `read`. A server that was restarted, failed
over to, emptied, or put back to older data begins a new generation (generation.lua).

Not promised: that two primaries of a split network are told apart before they meet again
(min-replicas-max-lag bounds it); that older keys, put back by hand, are noticed where only processes call
that had seen no more; that an answered write outlives a fail-over (`?wait=` makes it likelier), only that
its loss is noticed.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

from berth.stores.base import EPOCH, NOTHING, Changes, Cursor, Document, Version, chunks, only_read
from berth.stores.redis.client import Client, Script
from berth.stores.redis.generation import Generations
from berth.stores.redis.url import RedisUrl, parse

_SECONDS = 1.0  # for a connection, and for an answer
_KEPT_DELETIONS = 10_000  # deletions remembered for readers that are behind
_MARK = b"\xff"


def _script(name: str) -> Script:
    folder = resources.files(__name__)
    return Script("".join((folder / f"{part}.lua").read_text("utf-8") for part in ("generation", name)))


_READ, _COMMIT, _CHANGES = _script("read"), _script("transaction"), _script("feed")


class RedisStore:
    """See `berth.stores.base.Store`. Nothing is sent before the first call."""

    def __init__(
        self,
        url: RedisUrl,
        new_generation: Callable[[], str] = lambda: os.urandom(8).hex(),
        seconds: float = _SECONDS,
        *,
        reads_only: bool = False,
    ) -> None:
        self._reads_only = reads_only
        self._client = Client(url, seconds, reads_only=reads_only)
        self._keys = [f"{{{url.prefix}}}:{name}" for name in ("documents", "written", "deleted")]
        self._new_generation, self._replicas = new_generation, url.wait
        self._generations = Generations()

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        if not keys:
            return {}
        generation, _, values = self._run(_READ, *keys)
        if not generation:
            return {}
        read = zip(keys, values, strict=True)
        return {key: _document(generation, value) for key, value in read if value is not None}

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        if self._reads_only:
            raise only_read()
        written = {key: body for key, body in writes.items() if body is not None}
        _, _, (done,) = self._run(
            _COMMIT,
            len(expected),
            len(written),
            _KEPT_DELETIONS,
            *(word for key, version in expected.items() for word in (key, version or "")),
            *(word for pair in written.items() for word in pair),
            *(key for key, body in writes.items() if body is None),
            replicas=self._replicas if writes else 0,
        )
        return bool(done)

    def changes(self, since: Cursor | None) -> Changes:
        known, _, seen = (since or "").partition(".")
        generation, rev, changed = self._run(_CHANGES, known, seen if seen.isdecimal() else -1)
        if not generation:
            return NOTHING
        documents: dict[str, bytes | None] = {}
        if changed:
            pairs = iter(changed[0])
            documents = {
                key.decode(): value.partition(b" ")[2]
                for key, value in zip(pairs, pairs, strict=True)
                if key != _MARK
            }
            documents |= {key.decode(): None for gone in changed[1:] for key in gone if key != _MARK}
        return Changes(documents, f"{generation}.{rev}", len(changed) == 1)

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        return chunks(keys)

    def close(self) -> None:
        self._client.close()

    def _run(self, script: Script, *arguments: Any, replicas: int = 0) -> tuple[str, int, list[Any]]:
        """Return the store's generation and revision, and what else the script answered."""
        known = self._generations.known
        fresh = "" if self._reads_only else self._new_generation()
        trust = [EPOCH, fresh, known.generation, known.rev, " ".join(known.over)]
        answer = self._client.run(
            script,
            [len(self._keys), *self._keys, *trust, *arguments],
            again=script is not _COMMIT,
            replicas=replicas,
        )
        generation, rev = answer[0].decode(), int(answer[1])
        self._generations.learn(known, generation, rev)
        return generation, rev, answer[2:]


def open_store(url: str, *, reads_only: bool = False) -> RedisStore:
    """Return the store of this URL. Raises SettingsError."""
    return RedisStore(parse(url), reads_only=reads_only)


def _document(generation: str, value: bytes) -> Document:
    rev, _, body = value.partition(b" ")
    return Document(f"{generation}.{rev.decode()}", body)
