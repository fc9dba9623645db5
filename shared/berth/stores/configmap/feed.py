"""What changed in a ledger of ConfigMaps since a cursor, by a list of their resourceVersions.

The list comes from the API server's cache: it may lag, mostly by milliseconds, behind what others wrote, but
not behind what this store has read or written itself, and every CONSISTENT_SECONDS it does not lag at all.

The head is looked at before the shards, and these by a list that is no older than that: whoever is told of an
epoch is told of all that was committed before it. A look only reads. It shows the documents of a commit that
is not decided as they were before it.
"""

from collections.abc import Callable, Iterator, Mapping

from berth.stores.base import Changes, Cursor
from berth.stores.configmap.client import Item, Seen
from berth.stores.configmap.content import Documents, Intent, Life, applied
from berth.stores.configmap.generation import Lives
from berth.stores.configmap.intents import Intents, is_of, knows

CONSISTENT_SECONDS = 5.0

Marks = dict[str, str]
"""What was told of each ConfigMap: its resourceVersion, and "?" if another one may decide the intent there,
"!" if one was decided and told, but not yet carried out."""

Primaries = dict[str, Item]
"""Those that a call has asked for."""


class Feed:
    """Changes for any number of readers; what was told last is kept, to tell what is new."""

    def __init__(self, lives: Lives, intents: Intents, monotonic: Callable[[], float]) -> None:
        self._lives, self._intents, self._monotonic = lives, intents, monotonic
        self._patience = lives.objects.location.timeout
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
        primaries: Primaries = {}
        told = {name: self._look(name, life, None, primaries) for name in self._names(life)}
        self._told = told
        documents = {key: body for _, found in told.values() for key, (_, body) in found.items()}
        return Changes(documents, _cursor(life, {name: mark for name, (mark, _) in told.items()}), True)

    def _delta(self, life: Life, marks: Marks) -> dict[str, bytes | None] | None:
        """What changed since the marks, which are moved on; None if that can't be told."""
        told, primaries = self._told, Primaries()
        documents: dict[str, bytes | None] = {}
        looked: dict[str, tuple[str, Documents]] = {}
        for name, version in self._to_look_at(life, marks):
            before = told.get(name)
            if before is None or before[0] != marks[name]:
                return None
            looked[name] = self._look(name, life, version, primaries)
            documents |= _difference(before[1], looked[name][1])
            marks[name] = looked[name][0]
        if looked:
            self._told = {**self._told, **looked}
        return documents

    def _to_look_at(self, life: Life, marks: Marks) -> Iterator[tuple[str, int | None]]:
        """What has changed, each with the resourceVersion it was listed with: the head, whose mark is moved
        on before the others are asked for, and these by a list that is as new as that."""
        head, changed = self._lives.head_name, self._changed(life, marks)
        if head in changed:
            yield head, changed[head]
            if _version(marks[head]) != changed[head]:
                changed = self._changed(life, marks)
        yield from ((name, version) for name, version in changed.items() if name != head)

    def _changed(self, life: Life, marks: Marks) -> dict[str, int | None]:
        """Those that may hold more than the marks say."""
        versions = {name: _version(mark) for name, mark in marks.items()}
        found, lags = self._list(max(self._lives.newest(), *versions.values()))
        changed: dict[str, int | None] = {}
        for name, mark in marks.items():
            seen = found.get(name)
            if seen is None or self._is_other(life, name, seen):
                self._lives.fetch(name, life)  # which tells a loss
                changed[name] = None
            elif mark.endswith("?") or _differs(seen.version, versions[name], lags):
                changed[name] = seen.version
        return changed

    def _list(self, newest: int) -> tuple[Mapping[str, Seen], bool]:
        """The list, and whether it may lag."""
        now = self._monotonic()
        if now - self._listed < CONSISTENT_SECONDS:
            return self._lives.listed(newest), True
        found = self._lives.listed(None)
        self._listed = now
        return found, False

    def _is_other(self, life: Life, name: str, seen: Seen) -> bool:
        head = name == self._lives.head_name
        return seen.uid != (life.head if head else life.uid(self._lives.head_name, name))

    def _look(
        self, name: str, life: Life, version: int | None, primaries: Primaries
    ) -> tuple[str, Documents]:
        """The ConfigMap's mark and documents. What is known will do if it is what was listed."""
        known = self._lives.known(name)
        item = known if known is not None and known.version == version else self._lives.fetch(name, life)
        until = self._monotonic() + self._patience
        while (intent := item.content.intent) is not None:
            if intent.primary == name:
                self._intents.meet(item, life)
            if intent.primary == name or not intent.writes:
                break
            primary = self._primary(intent, life, primaries)
            if intent.tx in primary.content.committed:
                return f"{item.version}!", applied(item.content).documents
            if is_of(primary, intent.tx):
                return f"{item.version}?", item.content.documents
            # Its commit was over when the primary was asked: carried out here before that, or never.
            before, item = item, self._lives.fetch(name, life)
            if item.version == before.version:
                break
            if self._monotonic() >= until:
                raise self._lives.objects.busy()
        return str(item.version), item.content.documents

    def _primary(self, intent: Intent, life: Life, primaries: Primaries) -> Item:
        """As it was in this call, or as it is now if that was before there was this intent."""
        found = primaries.get(intent.primary)
        if found is None or not knows(found, intent):
            found = primaries[intent.primary] = self._lives.fetch(intent.primary, life)
        return found

    def _names(self, life: Life) -> list[str]:
        return [self._lives.head_name, *life.names(self._lives.head_name)]


def _difference(before: Documents, now: Documents) -> dict[str, bytes | None]:
    changed: dict[str, bytes | None] = {
        key: body for key, (stamp, body) in now.items() if key not in before or before[key][0] != stamp
    }
    return changed | {key: None for key in before if key not in now}


def _cursor(life: Life, marks: Marks) -> Cursor:
    return f"{life.id}.{','.join(marks.values())}"


def _differs(listed: int, told: int, lags: bool) -> bool:
    return listed > told or (listed < told and not lags)


def _version(mark: str) -> int:
    return int(mark.rstrip("?!"))
