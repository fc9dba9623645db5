"""The ledger in ConfigMaps of the cluster itself: a head, and shards by the last segment of a document's key.
Commits: transaction.py; losses: generation.py.

`changes` may lag behind `read` by CONSISTENT_SECONDS (feed.py), mostly by milliseconds. A write to documents
in the head (the epoch, the cluster) takes long, since it holds all shards.
"""

import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from berth.kube.client import ApiServer, connect
from berth.stores.base import NOTHING, Changes, Cursor, Document, Version, as_expected, chunks, only_read
from berth.stores.configmap.client import Client, Item
from berth.stores.configmap.content import Documents, Generation, applied
from berth.stores.configmap.errors import busy
from berth.stores.configmap.feed import Feed
from berth.stores.configmap.generation import Generations
from berth.stores.configmap.intents import Intents
from berth.stores.configmap.transaction import Transactions
from berth.stores.configmap.url import ConfigMapUrl, parse


class ConfigMapStore:
    """See `berth.stores.base.Store`. Nothing is sent before the first call."""

    def __init__(
        self,
        url: ConfigMapUrl,
        server: ApiServer,
        *,
        new_generation: Callable[[], str] = lambda: os.urandom(4).hex(),
        new_key: Callable[[], str] = lambda: secrets.token_hex(16),
        new_id: Callable[[], str] = lambda: secrets.token_urlsafe(8),
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        reads_only: bool = False,
    ) -> None:
        self._reads_only = reads_only
        self._client = Client(url, server, reads_only=reads_only)
        self._generations = Generations(self._client, new_generation, new_key, begins=not reads_only)
        intents = Intents(self._generations, monotonic)
        self._transactions = Transactions(self._generations, intents, new_id, clock, monotonic, sleep)
        self._feed = Feed(self._generations, intents, monotonic)
        self._monotonic, self._patience = monotonic, url.timeout

    def is_there(self) -> bool:
        return self._client.get(self._generations.head_name) is not None

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        return self._generations.run(lambda generation: self._read(generation, keys), {}) if keys else {}

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        if not writes:
            return as_expected(self.read(expected.keys()), expected)
        if self._reads_only:
            raise only_read()
        return self._generations.run(
            lambda generation: self._transactions.commit(generation, writes, expected), False
        )

    def changes(self, since: Cursor | None) -> Changes:
        return self._generations.run(lambda generation: self._feed.changes(generation, since), NOTHING)

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        """Return parts whose documents are in one ConfigMap."""
        generation, parts = self._generations.current(), dict[str, list[str]]()
        for key in keys:
            parts.setdefault(generation.place(self._generations.head_name, key), []).append(key)
        for part in parts.values():
            yield from chunks(part)

    def close(self) -> None:
        self._client.close()

    def _read(self, generation: Generation, keys: Collection[str]) -> Mapping[str, Document]:
        head = self._generations.head_name
        places = {key: generation.place(head, key) for key in keys}
        items = self._at_one_moment(generation, sorted({*places.values()} - {head}))
        documents = {key: _documents(items[name], items).get(key) for key, name in places.items()}
        present = {key: Document(*document) for key, document in documents.items() if document is not None}
        return self._generations.give(present)

    def _at_one_moment(self, generation: Generation, shards: list[str]) -> dict[str, Item]:
        """Return these shards, the head, and the primaries of intents in them, as of one moment: when the
        first was asked for, since no other changed between a read before that and a read after it."""
        # Not berth.retry: a try needs what the one before has read, and takes a round trip, so it need not
        # wait.
        until = self._monotonic() + self._patience
        head = self._generations.head_name
        before: Mapping[str, Item | None] = {name: self._generations.known(name) for name in (*shards, head)}
        while True:
            names = [*shards, head]
            items = {name: self._generations.fetch(name, generation) for name in names}
            shards = sorted({*shards, *_primaries(items.values())} - {head})
            still = all(_same(before.get(name), items[name]) for name in names[1:])
            if still and items.keys() >= set(shards):
                return items
            if self._monotonic() >= until:
                raise busy(self._client.url)
            before = items


def open_store(url: str, *, reads_only: bool = False) -> ConfigMapStore:
    """Return the store of this URL, in the cluster that KUBECONFIG or the pod names. Raises SettingsError."""
    return ConfigMapStore(parse(url), connect(), reads_only=reads_only)


def _same(before: Item | None, now: Item) -> bool:
    return before is not None and (before.uid, before.version) == (now.uid, now.version)


def _primaries(items: Iterable[Item]) -> set[str]:
    return {item.content.intent.primary for item in items if item.content.intent is not None}


def _documents(item: Item, items: Mapping[str, Item]) -> Documents:
    intent = item.content.intent
    if intent is None or intent.tx not in items[intent.primary].content.committed:
        return item.content.documents
    return applied(item.content).documents
