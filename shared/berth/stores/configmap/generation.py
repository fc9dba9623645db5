"""The generation of a ledger in ConfigMaps: its head and shards, and a new one where any of these was lost.

Lost is a ConfigMap that was deleted, deleted and made again, damaged, or put back to what it held before. A
new generation begins with a write to the head, which only one process can make. A process that meets a half
made one helps to finish it. A ConfigMap that was put back by hand, and not deleted before, is noticed only by
a process that has seen more.
"""

import random
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from berth.coalesce import Coalesced
from berth.stores.base import Document, Version
from berth.stores.configmap.client import Client, Item
from berth.stores.configmap.content import UNREADABLE, Content, Generation, replaced
from berth.stores.configmap.errors import busy
from berth.stores.configmap.url import SHARDS

T = TypeVar("T")

_GIVEN = 10_000  # documents remembered as read
_TRIES = 20  # of a call that meets one loss after the other


class LostError(Exception):
    """A ConfigMap of the generation that was taken for the present one is not there, or is another one."""


class _NoGenerationError(Exception):
    """There is no whole generation, and none is to be begun here."""


class Generations:
    """What this process knows of the present generation; all that it returns was there, and of that."""

    def __init__(
        self,
        client: Client,
        new_generation: Callable[[], str],
        new_key: Callable[[], str],
        *,
        begins: bool = True,
    ) -> None:
        """With `begins` False it makes no ConfigMap and begins no generation."""
        self.client, self._new_generation, self._new_key = client, new_generation, new_key
        self._begins = begins
        self.head_name = client.url.name
        self._known: dict[str, Item] = {}
        self._reads: dict[str, Coalesced[Item]] = {}
        self.head = Coalesced(self._read_head)  # called: the head as it is now, of a whole generation
        self._lock = threading.Lock()
        self._beginning = threading.Lock()
        self._given: set[tuple[str, Version]] = set()

    def run(self, work: Callable[[Generation], T], without: T) -> T:
        """Return what `work` returns of the present generation. Where that is lost, begin a new one, or
        return `without` if none is to be begun here."""
        for _ in range(_TRIES):
            try:
                generation = self.current()
                try:
                    return work(generation)
                except LostError:
                    self._replace(generation)
            except _NoGenerationError:
                self._forget()
                return without
        raise busy(self.client.url)

    def current(self) -> Generation:
        """Return the generation that is known, or else read it."""
        return generation_of(self.known(self.head_name) or self.head())

    def part(self, name: str, generation: Generation) -> str:
        """Return what the ConfigMap is called in every generation: there are only so many."""
        return name.removeprefix(f"{self.head_name}-{generation.id}")

    def known(self, name: str) -> Item | None:
        """Return the ConfigMap as last seen."""
        return self._known.get(name)

    def give(self, documents: Mapping[str, Document]) -> Mapping[str, Document]:
        """Remember that these have been read here, and return them."""
        if len(self._given) > _GIVEN:
            self._given = set()
        self._given.update((key, document.version) for key, document in documents.items())
        return documents

    def is_over(self, key: str, version: Version | None, item: Item) -> bool:
        """Whether the document had this version when it was read here, and no longer has it: the known `item`
        can't be older than what was read."""
        document = item.content.documents.get(key)
        return (key, version) in self._given and (document is None or document[0] != version)

    def newest(self) -> int:
        """Return the highest resourceVersion seen."""
        return max((item.version for item in list(self._known.values())), default=0)

    def fetch(self, name: str, generation: Generation) -> Item:
        """Return a ConfigMap of this generation as it is now. Raises LostError."""
        if name == self.head_name:
            head = self.head()
            if generation_of(head).id != generation.id:
                raise LostError
            return head
        read = self._reads.get(name) or self._reads.setdefault(
            name, Coalesced(lambda: self._read(name, generation))
        )
        return read()

    def put(self, before: Item, content: Content, *, must: bool = False) -> Item | None:
        """Write a ConfigMap; None if it has changed since `before`, or is gone."""
        after = self.client.put(before, content, must=must)
        return None if after is None else self._remember(after)

    def _read(self, name: str, generation: Generation) -> Item:
        before = self.known(name)
        item = self.client.get(name)
        if (
            item is None
            or item.content is UNREADABLE
            or item.uid != generation.uid(self.head_name, name)
            or _went_back(before, item)
        ):
            raise LostError
        return self._remember(item)

    def _read_head(self) -> Item:
        for _ in range(_TRIES):
            before = self.known(self.head_name)
            head = self.client.get(self.head_name)
            if head is not None and (generation := head.content.generation) is not None:
                if generation.uids and generation.head == head.uid and not _went_back(before, head):
                    return self._remember(head)
                if not generation.uids:
                    self._finish(generation)
                    continue
            self._begin(head)
        raise busy(self.client.url)

    def _forget(self) -> None:
        with self._lock:
            self._known, self._reads = {}, {}

    def _remember(self, item: Item) -> Item:
        with self._lock:
            known = self._known.get(item.name)
            # Answers come out of order. With another generation in the head, nothing known is true any more.
            if known is not None and item.name == self.head_name and _id_in(known) != _id_in(item):
                if known.version > item.version and known.uid == item.uid:
                    return item
                self._known, self._reads = {item.name: item}, {}
            elif known is None or item.version > known.version:
                self._known[item.name] = item
        return item

    def _replace(self, generation: Generation) -> None:
        """Begin another generation, since a part of this one is lost, unless that was done meanwhile."""
        with self._beginning:
            head = self.head()
            if generation_of(head).id == generation.id:
                self._begin(head)

    def _begin(self, head: Item | None) -> None:
        """Write into the head that a new generation is in the making. The caller reads the head again then:
        another process may have been first."""
        if not self._begins:
            raise _NoGenerationError
        before = head.content.generation if head is not None else None
        number = self.client.url.shards or (SHARDS if before is None else before.shards)
        content = Content(generation=Generation(self._new_generation(), number, key=self._new_key()))
        if head is None:
            self.client.create(self.head_name, content)
        else:
            self.client.put(head, content, must=True)

    def _finish(self, generation: Generation) -> None:
        """Make its shards, once no shards of other generations are left where a late commit could land; then
        open it. Others may do the same: each step may be done twice, and a random order shares the work."""
        if not self._begins:
            raise _NoGenerationError
        head = self.client.get(self.head_name)
        if head is None or head.content.generation != generation:
            return
        names = generation.names(self.head_name)
        there = self.client.list_all()
        for name in _shuffled(there.keys() - {*names, self.head_name}):
            self.client.delete(name)
        for name in _shuffled(set(names) - there.keys()):
            self.client.create(name, Content())
        there = self.client.list_all()
        if not there.keys() >= set(names):
            raise busy(self.client.url, "ConfigMaps went while it was made")
        whole = replace(generation, head=head.uid, uids=tuple(there[name].uid for name in names))
        if self.client.put(head, replaced(head.content, generation=whole), must=True) is None:
            self._tidy(generation, names)

    def _tidy(self, generation: Generation, names: list[str]) -> None:
        """Delete what was made here if another process has begun another generation: it would only be in an
        operator's way."""
        head = self.client.get(self.head_name)
        if head is not None and _id_in(head) not in ("", generation.id):
            for name in names:
                self.client.delete(name)


def generation_of(head: Item) -> Generation:
    assert head.content.generation is not None
    return head.content.generation


def _id_in(item: Item) -> str:
    """Return the id of the generation that stands in a head; empty in a shard."""
    return "" if item.content.generation is None else item.content.generation.id


def _went_back(before: Item | None, now: Item) -> bool:
    """Whether `now` is older than what was seen before it was asked for."""
    if before is None or before.uid != now.uid:
        return False
    return now.version < before.version or (
        _id_in(before) == _id_in(now) and now.content.rev < before.content.rev
    )


def _shuffled(names: set[str]) -> list[str]:
    return random.sample(sorted(names), len(names))
