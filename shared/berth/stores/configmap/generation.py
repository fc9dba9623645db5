"""The life of a ledger in ConfigMaps: its head, its shards, and a new one where any of them was lost.

Lost is a ConfigMap that was deleted, deleted and made again, damaged, or put back to what it held before. A
new life is begun by a write to the head, which only one process can make; whoever meets it half made helps
to finish it. Put back by hand without a deletion is noticed only by who has seen more.
"""

import random
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from berth.coalesce import SharedLook
from berth.errors import StoreUnavailableError
from berth.stores.base import Document, Version
from berth.stores.configmap.client import Item, Objects, Seen
from berth.stores.configmap.content import UNREADABLE, Content, Life, replaced
from berth.stores.configmap.url import SHARDS

T = TypeVar("T")

_GIVEN = 10_000  # documents remembered as read
_TRIES = 20  # of a call that meets one loss after the other


class LostError(Exception):
    """A ConfigMap of the life that was taken for the present one is not there, or not the one that was."""


class _NoLifeError(Exception):
    """There is no whole life, and none is to be begun here."""


class Lives:
    """What is known of the present life; what it gives out was there, whole and of that life."""

    def __init__(
        self,
        objects: Objects,
        new_life: Callable[[], str],
        new_key: Callable[[], str],
        *,
        begins: bool = True,
    ) -> None:
        """With `begins` False it makes no ConfigMap and begins no life."""
        self.objects, self._new_life, self._new_key = objects, new_life, new_key
        self._begins = begins
        self.head_name = objects.location.name
        self._known: dict[str, Item] = {}
        self._looks: dict[str, SharedLook[Item]] = {}
        self._head = SharedLook(self._look_at_head)
        self._lock = threading.Lock()
        self._beginning = threading.Lock()
        self._given: set[tuple[str, Version]] = set()

    def run(self, work: Callable[[Life], T], without: T) -> T:
        """The work's result, in the life that is known; begun anew where that has proved lost, or, if no life
        is to be begun here, what is so `without` one."""
        for _ in range(_TRIES):
            try:
                life = self.life()
                try:
                    return work(life)
                except LostError:
                    self._replace(life)
            except _NoLifeError:
                self._forget()
                return without
        raise self.objects.busy()

    def life(self) -> Life:
        known = self.known(self.head_name)
        return life_of(known if known is not None else self.head())

    def part(self, name: str, life: Life) -> str:
        """What the ConfigMap is called in every life: there are only so many."""
        return name.removeprefix(f"{self.head_name}-{life.id}")

    def known(self, name: str) -> Item | None:
        """As last seen."""
        return self._known.get(name)

    def give(self, documents: Mapping[str, Document]) -> Mapping[str, Document]:
        """Remember that these have been read here."""
        if len(self._given) > _GIVEN:
            self._given = set()
        self._given.update((key, document.version) for key, document in documents.items())
        return documents

    def is_over(self, key: str, version: Version | None, item: Item) -> bool:
        """Whether the document had this version when it was read here, and has it no more: `item`, of what is
        known, can't be older than what was read."""
        found = item.content.documents.get(key)
        return (key, version) in self._given and (found is None or found[0] != version)

    def newest(self) -> int:
        """The highest resourceVersion seen."""
        return max((item.version for item in list(self._known.values())), default=0)

    def fetch(self, name: str, life: Life) -> Item:
        """A ConfigMap of this life as it is now. Raises LostError."""
        if name == self.head_name:
            head = self.head()
            if life_of(head).id != life.id:
                raise LostError
            return head
        look = self._looks.get(name) or self._looks.setdefault(
            name, SharedLook(lambda: self._look_at(name, life))
        )
        return look()

    def head(self) -> Item:
        """The head as it is now, of a life that is made whole."""
        return self._head()

    def _look_at(self, name: str, life: Life) -> Item:
        before = self.known(name)
        found = self.objects.get(name)
        if (
            found is None
            or found.content is UNREADABLE
            or found.uid != life.uid(self.head_name, name)
            or _went_back(before, found)
        ):
            raise LostError
        return self._remember(found)

    def _look_at_head(self) -> Item:
        for _ in range(_TRIES):
            before = self.known(self.head_name)
            found = self.objects.get(self.head_name)
            if found is not None and (life := found.content.life) is not None:
                if life.uids and life.head == found.uid and not _went_back(before, found):
                    return self._remember(found)
                if not life.uids:
                    self._finish(life)
                    continue
            self._begin(found)
        raise self.objects.busy()

    def _forget(self) -> None:
        with self._lock:
            self._known, self._looks = {}, {}

    def put(self, before: Item, content: Content, *, must: bool = False) -> Item | None:
        """None if it has changed since, or is gone."""
        after = self.objects.put(before, content, must=must)
        return None if after is None else self._remember(after)

    def listed(self, newest: int | None) -> dict[str, Seen]:
        return self.objects.listed(newest)

    def _remember(self, found: Item) -> Item:
        with self._lock:
            known = self._known.get(found.name)
            # Answers come out of order. Another head is another life: what is known of the last one is void.
            if known is not None and found.name == self.head_name and life_of(known).id != life_of(found).id:
                if known.version > found.version and known.uid == found.uid:
                    return found
                self._known, self._looks = {found.name: found}, {}
            elif known is None or found.version > known.version:
                self._known[found.name] = found
        return found

    def _replace(self, life: Life) -> None:
        """Something of this life is lost: begin another, unless that has been done meanwhile."""
        with self._beginning:
            head = self.head()
            if life_of(head).id == life.id:
                self._begin(head)

    def _begin(self, head: Item | None) -> None:
        """Say in the head that a new life is in the making; then, or if another was first, look again."""
        if not self._begins:
            raise _NoLifeError
        before = head.content.life if head is not None else None
        number = self.objects.location.shards or (SHARDS if before is None else before.shards)
        content = Content(life=Life(self._new_life(), number, key=self._new_key()))
        if head is None:
            self.objects.create(self.head_name, content)
        else:
            self.objects.put(head, content, must=True)

    def _finish(self, life: Life) -> None:
        """Make its shards, once nothing is left of other lives that a late commit could land in; then open
        it. Others may be at it: each step may be done twice, and in another order shares the work."""
        if not self._begins:
            raise _NoLifeError
        head = self.objects.get(self.head_name)
        if head is None or head.content.life != life:
            return
        names = life.names(self.head_name)
        there = self.objects.listed()
        for name in _shuffled(there.keys() - {*names, self.head_name}):
            self.objects.delete(name)
        for name in _shuffled(set(names) - there.keys()):
            self.objects.create(name, Content())
        there = self.objects.listed()
        if not there.keys() >= set(names):
            raise StoreUnavailableError(
                f"berth's ledger is busy ({self.objects.location}, ConfigMaps went while it was made)"
            )
        whole = replace(life, head=head.uid, uids=tuple(there[name].uid for name in names))
        content = replaced(head.content, life=whole)
        if self.objects.put(head, content, must=True) is None:
            self._tidy(life, names)

    def _tidy(self, life: Life, names: list[str]) -> None:
        """Another was first: with this life, or with another one, and then what was made is in nobody's way
        but an operator's."""
        head = self.objects.get(self.head_name)
        if head is not None and head.content.life is not None and head.content.life.id != life.id:
            for name in names:
                self.objects.delete(name)


def life_of(head: Item) -> Life:
    assert head.content.life is not None
    return head.content.life


def _went_back(before: Item | None, now: Item) -> bool:
    """Whether it is older than what was seen before it was asked for."""
    if before is None or before.uid != now.uid:
        return False
    lives = [each.content.life.id if each.content.life is not None else "" for each in (before, now)]
    return now.version < before.version or (lives[0] == lives[1] and now.content.rev < before.content.rev)


def _shuffled(names: set[str]) -> list[str]:
    return random.sample(sorted(names), len(names))
