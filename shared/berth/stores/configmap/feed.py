"""What changed in a ledger of ConfigMaps since a cursor, by a list of their resourceVersions.

The list comes from the API server's cache: it may lag, mostly by milliseconds, behind what others wrote, but
not behind what this store has read or written itself, and every CONSISTENT_SECONDS it does not lag at all.

The head is read before the shards, and these by a list that is no older than the head: a reader that gets an
epoch gets all that was committed before it. Nothing is written here. Of a commit that is not decided, the
documents are shown as they were before it.
"""

from collections.abc import Callable, Iterator, Mapping

from berth.stores.base import Changes, Cursor
from berth.stores.configmap.client import Item, Listed
from berth.stores.configmap.content import Documents, Generation, Intent, applied
from berth.stores.configmap.errors import busy
from berth.stores.configmap.generation import Generations
from berth.stores.configmap.intents import Intents, is_of, knows

CONSISTENT_SECONDS = 5.0

Marks = dict[str, str]
"""What a reader has got of each ConfigMap: its resourceVersion, and "?" if another one may decide the intent
there, "!" if that was decided and shown, but not yet carried out."""

Primaries = dict[str, Item]
"""Primaries that a call has read, by name."""


class Feed:
    """Changes for any number of readers; what the last one got is remembered, to find what is new."""

    def __init__(self, generations: Generations, intents: Intents, monotonic: Callable[[], float]) -> None:
        self._generations, self._intents, self._monotonic = generations, intents, monotonic
        self._patience = generations.client.url.timeout
        self._shown: Mapping[str, tuple[str, Documents]] = {}
        self._listed = float("-inf")

    def changes(self, generation: Generation, since: Cursor | None) -> Changes:
        """Raises LostError."""
        known, _, rest = (since or "").partition(".")
        names = self._names(generation)
        marks = dict(zip(names, rest.split(","), strict=False))
        if known == generation.id and len(marks) == len(names):
            documents = self._delta(generation, marks)
            if documents is not None:
                return Changes(documents, _cursor(generation, marks), False)
        return self._snapshot(generation)

    def _snapshot(self, generation: Generation) -> Changes:
        self._listed = self._monotonic()
        primaries: Primaries = {}
        shown = {name: self._read(name, generation, None, primaries) for name in self._names(generation)}
        self._shown = shown
        documents = {key: body for _, docs in shown.values() for key, (_, body) in docs.items()}
        return Changes(
            documents, _cursor(generation, {name: mark for name, (mark, _) in shown.items()}), True
        )

    def _delta(self, generation: Generation, marks: Marks) -> dict[str, bytes | None] | None:
        """Return what changed since the marks, which are moved on; None if that is not known."""
        shown, primaries = self._shown, Primaries()
        documents: dict[str, bytes | None] = {}
        read: dict[str, tuple[str, Documents]] = {}
        for name, version in self._to_read(generation, marks):
            before = shown.get(name)
            if before is None or before[0] != marks[name]:
                return None
            read[name] = self._read(name, generation, version, primaries)
            documents |= _difference(before[1], read[name][1])
            marks[name] = read[name][0]
        if read:
            self._shown = {**self._shown, **read}
        return documents

    def _to_read(self, generation: Generation, marks: Marks) -> Iterator[tuple[str, int | None]]:
        """Yield what has changed, with the resourceVersion of the list: first the head, whose mark the caller
        moves on before it asks for the shards, and these by a list that is as new as that."""
        head, changed = self._generations.head_name, self._changed(generation, marks)
        if head in changed:
            yield head, changed[head]
            if _version(marks[head]) != changed[head]:
                changed = self._changed(generation, marks)
        yield from ((name, version) for name, version in changed.items() if name != head)

    def _changed(self, generation: Generation, marks: Marks) -> dict[str, int | None]:
        """Return the ConfigMaps that may hold more than the marks say."""
        versions = {name: _version(mark) for name, mark in marks.items()}
        there, lags = self._list(max(self._generations.newest(), *versions.values()))
        changed: dict[str, int | None] = {}
        for name, mark in marks.items():
            listed = there.get(name)
            if listed is None or self._is_other(generation, name, listed):
                self._generations.fetch(name, generation)  # which notices a loss
                changed[name] = None
            elif mark.endswith("?") or _differs(listed.version, versions[name], lags):
                changed[name] = listed.version
        return changed

    def _list(self, newest: int) -> tuple[Mapping[str, Listed], bool]:
        """Return the list, and whether it may lag."""
        now = self._monotonic()
        if now - self._listed < CONSISTENT_SECONDS:
            return self._generations.client.list_all(newest), True
        self._listed, there = now, self._generations.client.list_all()
        return there, False

    def _is_other(self, generation: Generation, name: str, listed: Listed) -> bool:
        head = name == self._generations.head_name
        return listed.uid != (generation.head if head else generation.uid(self._generations.head_name, name))

    def _read(
        self, name: str, generation: Generation, version: int | None, primaries: Primaries
    ) -> tuple[str, Documents]:
        """Return the ConfigMap's mark and documents; it is not read again if the known one is the listed
        one."""
        # Not berth.retry: a try follows the intent that the one before has met.
        item = self._generations.known(name)
        if item is None or item.version != version:
            item = self._generations.fetch(name, generation)
        until = self._monotonic() + self._patience
        while (intent := item.content.intent) is not None:
            if intent.primary == name:
                self._intents.meet(item, generation)
            if intent.primary == name or not intent.writes:
                break
            primary = self._primary(intent, generation, primaries)
            if intent.tx in primary.content.committed:
                return f"{item.version}!", applied(item.content).documents
            if is_of(primary, intent.tx):
                return f"{item.version}?", item.content.documents
            # Its commit was over when the primary was read: it was carried out here before that, or never.
            before, item = item, self._generations.fetch(name, generation)
            if item.version == before.version:
                break
            if self._monotonic() >= until:
                raise busy(self._generations.client.url)
        return str(item.version), item.content.documents

    def _primary(self, intent: Intent, generation: Generation, primaries: Primaries) -> Item:
        """Return the primary as this call has read it, or as it is now if that was before there was this
        intent."""
        primary = primaries.get(intent.primary)
        if primary is None or not knows(primary, intent):
            primary = primaries[intent.primary] = self._generations.fetch(intent.primary, generation)
        return primary

    def _names(self, generation: Generation) -> list[str]:
        return [self._generations.head_name, *generation.names(self._generations.head_name)]


def _difference(before: Documents, now: Documents) -> dict[str, bytes | None]:
    changed: dict[str, bytes | None] = {
        key: body for key, (stamp, body) in now.items() if key not in before or before[key][0] != stamp
    }
    return changed | {key: None for key in before if key not in now}


def _cursor(generation: Generation, marks: Marks) -> Cursor:
    return f"{generation.id}.{','.join(marks.values())}"


def _differs(listed: int, shown: int, lags: bool) -> bool:
    return listed > shown or (listed < shown and not lags)


def _version(mark: str) -> int:
    return int(mark.rstrip("?!"))
