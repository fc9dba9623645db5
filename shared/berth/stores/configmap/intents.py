"""Intents in the way: those of commits that still run, and those that a process left behind when it died.

A commit that is not decided yet writes its primary again at least every SHOWN_SECONDS, to show that it still
runs. A writer that sees a primary unchanged for UNDECIDED_SECONDS, by its own clock, takes the intent out. If
the process was only slow, it finds its intent gone, and begins again. An intent that was left behind stays
until a writer needs that ConfigMap.
"""

from collections.abc import Callable, Collection

from berth.stores.configmap.client import Item
from berth.stores.configmap.content import Generation, Intent, applied, replaced
from berth.stores.configmap.generation import Generations

UNDECIDED_SECONDS = 2.0
SHOWN_SECONDS = 0.5


class Intents:
    """What one process has seen of others' intents."""

    def __init__(self, generations: Generations, monotonic: Callable[[], float]) -> None:
        self._generations, self._monotonic = generations, monotonic
        self._met: dict[str, tuple[str, int, float]] = {}

    def meet(self, primary: Item, generation: Generation) -> float:
        """Return since when its intent has been seen as it is now; a later caller need not begin to wait
        anew."""
        intent, part = primary.content.intent, self._generations.part(primary.name, generation)
        assert intent is not None
        # A primary has one intent at a time: there is only that to remember.
        tx, version, since = self._met.get(part, ("", 0, 0.0))
        if (tx, version) != (intent.tx, primary.version):
            since = self._monotonic()
            self._met[part] = intent.tx, primary.version, since
        return since

    def settle(self, item: Item, generation: Generation) -> Item | None:
        """Return the ConfigMap after one step towards having no intent; None while that may still be
        decided."""
        intent = item.content.intent
        assert intent is not None
        primary = item if intent.primary == item.name else self._generations.fetch(intent.primary, generation)
        waits = is_of(primary, intent.tx)
        if waits and self._monotonic() - self.meet(primary, generation) < UNDECIDED_SECONDS:
            return None
        if waits and primary is not item and self.end(primary) is None:
            return self._generations.fetch(item.name, generation)
        decided = intent.tx in primary.content.committed
        after = self._generations.put(item, applied(item.content), must=True) if decided else self.end(item)
        return after or self._generations.fetch(item.name, generation)

    def carry_out(self, decided: Collection[str], name: str, generation: Generation) -> None:
        item: Item | None = self._generations.fetch(name, generation)
        while item is not None and (intent := item.content.intent) is not None and intent.tx in decided:
            item = self.settle(item, generation)

    def end(self, item: Item) -> Item | None:
        """Take the intent out; None if the ConfigMap has changed."""
        return self._generations.put(item, replaced(item.content, intent=None), must=True)


def is_of(item: Item, tx: str) -> bool:
    """Whether the intent in the ConfigMap is this commit's."""
    return item.content.intent is not None and item.content.intent.tx == tx


def knows(primary: Item, intent: Intent) -> bool:
    """Whether the intent's commit is decided, or may still be. If it is not, and the intent was there
    before, it was taken out for ever, or carried out everywhere."""
    return intent.tx in primary.content.committed or is_of(primary, intent.tx)
