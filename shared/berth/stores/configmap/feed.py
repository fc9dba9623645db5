"""What changed in a ledger of ConfigMaps since a cursor, by a list of their resourceVersions.

The list comes from the API server's cache: it may lag, mostly by milliseconds, behind what others wrote, but
not behind what this store has read or written itself, and every CONSISTENT_SECONDS it does not lag at all.
"""

from collections.abc import Callable, Mapping

from berth.stores.base import Changes, Cursor
from berth.stores.configmap.content import Documents, Life, applied
from berth.stores.configmap.lives import Lives
from berth.stores.configmap.objects import Item, Seen
from berth.stores.configmap.transactions import Transactions

CONSISTENT_SECONDS = 5.0

Marks = dict[str, str]
"""What was told of each ConfigMap: its resourceVersion, and "?" if an intent there was undecided, "!" if one
was decided and told, but not yet carried out."""


class Feed:
    """Changes for any number of readers; what was told last is kept, to tell what is new."""

    def __init__(self, lives: Lives, transactions: Transactions, monotonic: Callable[[], float]) -> None:
        self._lives, self._transactions, self._monotonic = lives, transactions, monotonic
        self._told: Mapping[str, tuple[str, Documents]] = {}
        self._listed = float("-inf")

    def changes(self, life: Life, since: Cursor | None) -> Changes:
        """Raises LostError."""
        known, _, rest = (since or "").partition(".")
        names = self._names(life)
        marks = dict(zip(names, rest.split(","), strict=False))
        if known == life.id and len(marks) == len(names):
            documents = self._delta(life, marks)
            if documents is not None:
                return Changes(documents, _cursor(life, marks), False)
        return self._snapshot(life)

    def _snapshot(self, life: Life) -> Changes:
        self._listed = self._monotonic()
        told = {name: self._look(name, life) for name in self._names(life)}
        self._told = told
        documents = {key: body for _, found in told.values() for key, (_, body) in found.items()}
        return Changes(documents, _cursor(life, {name: mark for name, (mark, _) in told.items()}), True)

    def _delta(self, life: Life, marks: Marks) -> dict[str, bytes | None] | None:
        """What changed since the marks, which are moved on; None if that can't be told."""
        told = self._told
        documents: dict[str, bytes | None] = {}
        looked: dict[str, tuple[str, Documents]] = {}
        for name, version in self._changed(life, marks).items():
            before = told.get(name)
            if before is None or before[0] != marks[name]:
                return None
            looked[name] = self._look(name, life, version)
            documents |= _difference(before[1], looked[name][1])
            marks[name] = looked[name][0]
        if looked:
            self._told = {**self._told, **looked}
        return documents

    def _changed(self, life: Life, marks: Marks) -> dict[str, int | None]:
        """Those that may hold more than the marks say, each with the resourceVersion it was listed with."""
        versions = {name: _version(mark) for name, mark in marks.items()}
        found = self._list(max(self._lives.newest(), *versions.values()))
        changed: dict[str, int | None] = {}
        for name, mark in marks.items():
            seen = found.get(name)
            if seen is None or self._is_other(life, name, seen):
                self._lives.fetch(name, life)  # which tells a loss
                changed[name] = None
            elif seen.version > versions[name] or mark.endswith("?"):
                changed[name] = seen.version
        return changed

    def _list(self, newest: int) -> Mapping[str, Seen]:
        now = self._monotonic()
        if now - self._listed < CONSISTENT_SECONDS:
            return self._lives.listed(newest)
        found = self._lives.listed(None)
        self._listed = now
        return found

    def _is_other(self, life: Life, name: str, seen: Seen) -> bool:
        head = name == self._lives.head_name
        return seen.uid != (life.head if head else life.uid(self._lives.head_name, name))

    def _look(self, name: str, life: Life, version: int | None = None) -> tuple[str, Documents]:
        """The ConfigMap's mark and documents. What others left undecided is settled by the way."""
        known = self._lives.known(name)
        if known is not None and known.version == version and known.content.intent is None:
            return str(version), known.content.documents
        item = self._transactions.tidied(self._lives.fetch(name, life), life)
        while True:
            found = self._resolved(item, life)
            if found is not None:
                return found
            item = self._lives.fetch(name, life)

    def _resolved(self, item: Item, life: Life) -> tuple[str, Documents] | None:
        """None if an intent was settled meanwhile."""
        intent = item.content.intent
        if intent is None:
            return str(item.version), item.content.documents
        primary = item if intent.primary == item.name else self._lives.fetch(intent.primary, life)
        if intent.tx in primary.content.committed:
            return f"{item.version}!", applied(item.content).documents
        if primary.content.intent is not None and primary.content.intent.tx == intent.tx:
            return f"{item.version}?", item.content.documents
        return None

    def _names(self, life: Life) -> list[str]:
        return [self._lives.head_name, *life.names(self._lives.head_name)]


def _difference(before: Documents, now: Documents) -> dict[str, bytes | None]:
    changed: dict[str, bytes | None] = {
        key: body for key, (stamp, body) in now.items() if key not in before or before[key][0] != stamp
    }
    return changed | {key: None for key in before if key not in now}


def _cursor(life: Life, marks: Marks) -> Cursor:
    return f"{life.id}.{','.join(marks.values())}"


def _version(mark: str) -> int:
    return int(mark.rstrip("?!"))
