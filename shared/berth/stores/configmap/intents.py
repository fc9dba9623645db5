"""Intents in the way: those of commits that go on, and those that a process left behind when it died.

A commit shows that it goes on: until it is decided, its primary is written again every SHOWN_SECONDS, at the
least. What a writer has seen stand still for UNDECIDED_SECONDS, it takes out; no clock but its own
counts. Who commits may have stood still and be alive: it finds its intent gone, and begins again. Nobody is
promised that what others left behind is taken out before he needs a ConfigMap where it lies.
"""

from collections.abc import Callable, Collection

from berth.stores.configmap.client import Item
from berth.stores.configmap.content import Intent, Life, applied, replaced
from berth.stores.configmap.generation import Lives

UNDECIDED_SECONDS = 2.0
SHOWN_SECONDS = 0.5


class Intents:
    """What is seen of others' intents in one process."""

    def __init__(self, lives: Lives, monotonic: Callable[[], float]) -> None:
        self._lives, self._monotonic = lives, monotonic
        self._met: dict[str, tuple[str, int, float]] = {}

    def meet(self, primary: Item, life: Life) -> float:
        """Since when its intent has been seen as it is now. Who waits for it later need not begin anew."""
        intent, part = primary.content.intent, self._lives.part(primary.name, life)
        assert intent is not None
        # A primary waits for one at a time: there is only that to remember.
        tx, version, since = self._met.get(part, ("", 0, 0.0))
        if (tx, version) != (intent.tx, primary.version):
            since = self._monotonic()
            self._met[part] = intent.tx, primary.version, since
        return since

    def settle(self, item: Item, life: Life) -> Item | None:
        """One step towards a ConfigMap without its intent; None while that may still be decided."""
        intent = item.content.intent
        assert intent is not None
        primary = item if intent.primary == item.name else self._lives.fetch(intent.primary, life)
        waits = is_of(primary, intent.tx)
        if waits and self._monotonic() - self.meet(primary, life) < UNDECIDED_SECONDS:
            return None
        if waits and primary is not item and self.end(primary) is None:
            return self._lives.fetch(item.name, life)
        decided = intent.tx in primary.content.committed
        after = self._lives.put(item, applied(item.content), must=True) if decided else self.end(item)
        return after or self._lives.fetch(item.name, life)

    def carry_out(self, decided: Collection[str], name: str, life: Life) -> None:
        item: Item | None = self._lives.fetch(name, life)
        while item is not None and (intent := item.content.intent) is not None and intent.tx in decided:
            item = self.settle(item, life)

    def end(self, item: Item) -> Item | None:
        """Without its intent, unless it has changed."""
        return self._lives.put(item, replaced(item.content, intent=None), must=True)


def is_of(item: Item, tx: str) -> bool:
    """Whether the intent in the ConfigMap is this commit's."""
    return item.content.intent is not None and item.content.intent.tx == tx


def knows(primary: Item, intent: Intent) -> bool:
    """Whether the intent's commit is decided, or may be yet. If not, and the intent was there before: it was
    taken out for ever, or carried out everywhere."""
    return intent.tx in primary.content.committed or is_of(primary, intent.tx)
