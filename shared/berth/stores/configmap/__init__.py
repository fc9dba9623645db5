"""The ledger in ConfigMaps of the cluster itself: a head, and shards by the last segment of a document's key.
Commits: transaction.py; losses: generation.py.

`changes` may lag behind `read` by CONSISTENT_SECONDS (feed.py), mostly by milliseconds. To write what stands
in the head (the epoch, the cluster) takes long, since it holds all shards.
"""

import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from berth.kube.client import ApiServer
from berth.stores.base import NOTHING, Changes, Cursor, Document, Version, chunks, only_read
from berth.stores.configmap.client import Item, Objects
from berth.stores.configmap.content import Documents, Life, applied
from berth.stores.configmap.feed import Feed
from berth.stores.configmap.generation import Lives
from berth.stores.configmap.intents import Intents
from berth.stores.configmap.transaction import Transactions
from berth.stores.configmap.url import Location


class ConfigMapStore:
    """See `berth.stores.base.Store`. Nothing is sent before the first call."""

    def __init__(
        self,
        location: Location,
        server: ApiServer,
        *,
        new_life: Callable[[], str] = lambda: os.urandom(4).hex(),
        new_key: Callable[[], str] = lambda: secrets.token_hex(16),
        new_id: Callable[[], str] = lambda: secrets.token_urlsafe(8),
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        reads_only: bool = False,
    ) -> None:
        self._reads_only = reads_only
        self._objects = Objects(location, server, reads_only=reads_only)
        self._lives = Lives(self._objects, new_life, new_key, begins=not reads_only)
        intents = Intents(self._lives, monotonic)
        self._transactions = Transactions(self._lives, intents, new_id, clock, monotonic, sleep)
        self._feed = Feed(self._lives, intents, monotonic)
        self._monotonic, self._patience = monotonic, location.timeout

    def is_there(self) -> bool:
        return self._objects.get(self._lives.head_name) is not None

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        return self._lives.run(lambda life: self._read(life, keys), {}) if keys else {}

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        if not writes:
            found = self.read(expected.keys())
            return all(
                (found[key].version if key in found else None) == version for key, version in expected.items()
            )
        if self._reads_only:
            raise only_read()
        return self._lives.run(lambda life: self._transactions.commit(life, writes, expected), False)

    def changes(self, since: Cursor | None) -> Changes:
        return self._lives.run(lambda life: self._feed.changes(life, since), NOTHING)

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        """Parts that lie in one ConfigMap each."""
        life, parts = self._lives.life(), dict[str, list[str]]()
        for key in keys:
            parts.setdefault(life.place(self._lives.head_name, key), []).append(key)
        for part in parts.values():
            yield from chunks(part)

    def close(self) -> None:
        self._objects.close()

    def _read(self, life: Life, keys: Collection[str]) -> Mapping[str, Document]:
        head = self._lives.head_name
        places = {key: life.place(head, key) for key in keys}
        items = self._at_one_moment(life, sorted({*places.values()} - {head}))
        found: dict[str, Document] = {}
        for key, name in places.items():
            document = _documents(items[name], items).get(key)
            if document is not None:
                found[key] = Document(*document)
        return self._lives.give(found)

    def _at_one_moment(self, life: Life, shards: list[str]) -> dict[str, Item]:
        """These, the head, and the primaries of intents in them, as of the moment the first was asked for:
        none of the others has changed between a look before that and one after it."""
        until = self._monotonic() + self._patience
        before = {name: known for name in shards if (known := self._lives.known(name)) is not None}
        if (known := self._lives.known(self._lives.head_name)) is not None:
            before[known.name] = known
        while True:
            names = [*shards, self._lives.head_name]
            items = {name: self._lives.fetch(name, life) for name in names}
            shards = sorted({*shards, *_primaries(items.values())} - {self._lives.head_name})
            still = all(_same(before.get(name), items[name]) for name in names[1:])
            if still and items.keys() >= set(shards):
                return items
            if self._monotonic() >= until:
                raise self._objects.busy()
            before = items


def _same(before: Item | None, now: Item) -> bool:
    return before is not None and (before.uid, before.version) == (now.uid, now.version)


def _primaries(items: Iterable[Item]) -> set[str]:
    return {item.content.intent.primary for item in items if item.content.intent is not None}


def _documents(item: Item, items: Mapping[str, Item]) -> Documents:
    intent = item.content.intent
    if intent is None or intent.tx not in items[intent.primary].content.committed:
        return item.content.documents
    return applied(item.content).documents
