"""The ledger in Redis 7 or Valkey: a hash of documents and two sorted sets of what changed when.

`changes` is exact on a single primary: it never lags behind `read`. A server that was restarted, failed
over to, emptied, or put back to older data begins a new generation (generation.lua).
`changes_at_once` takes a millisecond at most, and that only once, until `changes` has found the server quick.

Not promised: that two primaries of a split network are told apart before they meet again
(min-replicas-max-lag bounds it); that older keys, put back by hand, are noticed where only processes call
that had seen no more; that an answered write outlives a fail-over (`?wait=` makes it likelier), only that
its loss is noticed.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from berth.stores.base import (
    EPOCH,
    NOTHING,
    Changes,
    Cursor,
    Document,
    ServerFacts,
    Version,
    chunks,
    only_read,
)
from berth.stores.redis.client import Client, Script
from berth.stores.redis.generation import Generations, Known
from berth.stores.redis.url import RedisUrl, parse

_SECONDS = 1.0  # for a connection, and for an answer
_AT_ONCE = 0.00025  # seconds; to have a thread wait takes about as long
_KEPT_DELETIONS = 10_000  # deletions remembered for readers that are behind
_MARK = b"\xff"


def _script(name: str) -> Script:
    folder = resources.files(__name__)
    return Script("".join((folder / f"{part}.lua").read_text("utf-8") for part in ("generation", name)))


_READ, _COMMIT, _CHANGES = _script("read"), _script("transaction"), _script("feed")


class _Look(NamedTuple):
    """A look that was made at once, and its command: to put that together takes a fifth of a look."""

    known: Known
    since: Cursor
    command: bytes


class RedisStore:
    """See `berth.stores.base.Store`. Nothing is sent before the first call."""

    def __init__(
        self,
        url: RedisUrl,
        new_generation: Callable[[], str] = lambda: os.urandom(8).hex(),
        seconds: float = _SECONDS,
        at_once: float = _AT_ONCE,
        *,
        reads_only: bool = False,
    ) -> None:
        self._reads_only = reads_only
        self._at_once = 0.0 if url.tls else at_once  # a connection that is given up costs more there
        self._is_prompt = False  # whether the last look took no longer
        self._last: _Look | None = None
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
        began = time.monotonic()
        told = self._run(_CHANGES, *_since(since))
        self._is_prompt = time.monotonic() - began < self._at_once
        return _changes(*told)

    def changes_at_once(self, since: Cursor) -> Changes | None:
        """Return the changes from a server whose last answer came at once, too. One that hangs is waited for
        once, until `changes` has found that it answers again."""
        if not self._is_prompt:
            return None
        began, known, last = time.monotonic(), self._generations.known, self._last
        if last is None or last.known is not known or last.since != since:
            words = self._words(known, *_since(since))
            last = _Look(known, since, self._client.command(_CHANGES, words))
        answer = self._client.run_at_once(last.command, self._at_once)
        self._is_prompt = answer is not None and time.monotonic() - began < self._at_once
        self._last = None if answer is None else last  # one that was refused is put anew
        return None if answer is None else _changes(*self._learned(known, answer))

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        return chunks(keys)

    def facts(self) -> ServerFacts:
        save, info, moment = self._client.ask(("CONFIG", "GET", "save"), ("INFO",), ("TIME",))
        return _facts(save, info, moment)

    def close(self) -> None:
        self._client.close()

    def _run(self, script: Script, *arguments: Any, replicas: int = 0) -> tuple[str, int, list[Any]]:
        """Return the store's generation and revision, and what else the script answered."""
        known = self._generations.known
        words = self._words(known, *arguments)
        answer = self._client.run(script, words, again=script is not _COMMIT, replicas=replicas)
        return self._learned(known, answer)

    def _words(self, known: Known, *arguments: Any) -> list[Any]:
        """Return what a script is sent: its keys, what generation.lua goes by, and its own arguments."""
        fresh = "" if self._reads_only else self._new_generation()
        trust = [EPOCH, fresh, known.generation, known.rev, " ".join(known.over)]
        return [len(self._keys), *self._keys, *trust, *arguments]

    def _learned(self, known: Known, answer: list[Any]) -> tuple[str, int, list[Any]]:
        generation, rev = answer[0].decode(), int(answer[1])
        self._generations.learn(known, generation, rev)
        return generation, rev, answer[2:]


def open_store(url: str, *, reads_only: bool = False) -> RedisStore:
    """Return the store of this URL. Raises SettingsError."""
    return RedisStore(parse(url), reads_only=reads_only)


def _facts(save: Any, info: Any, moment: Any) -> ServerFacts:
    """Return what these answers tell; None: the user may not ask that."""
    lines = (info or b"").decode(errors="replace").splitlines()
    told = {key: value for key, _, value in (line.partition(":") for line in lines)}
    appends = told.get("aof_enabled") == "1"
    snapshots = None if save is None else bool(save[1:] and save[1].strip())
    refused = [name for name, answer in (("INFO", info), ("TIME", moment)) if answer is None]
    refused += ["CONFIG GET save"] if save is None and not appends else []
    return ServerFacts(
        version=told.get("redis_version", ""),
        eviction=told.get("maxmemory_policy", ""),
        persistent=True if appends else snapshots,
        clock=None if moment is None else int(moment[0]) + int(moment[1]) / 1e6,
        unknown=tuple(f"the user in the store's URL may not use {command}" for command in refused),
    )


def _since(since: Cursor | None) -> tuple[str, str | int]:
    """Return what feed.lua takes for a cursor; for one that was never given, what makes it tell all."""
    generation, _, seen = (since or "").partition(".")
    return generation, seen if seen.isdecimal() else -1


def _changes(generation: str, rev: int, changed: list[Any]) -> Changes:
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


def _document(generation: str, value: bytes) -> Document:
    rev, _, body = value.partition(b" ")
    return Document(f"{generation}.{rev.decode()}", body)
