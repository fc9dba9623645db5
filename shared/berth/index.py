"""Which documents belong to whom: keys by pod, or by owner, as the ledger's View keeps them.
One thread changes it while others read: sets are replaced, never changed."""

from collections.abc import Iterable, Iterator

_NONE: frozenset[str] = frozenset()


class Index:
    """Sets of keys by who they are of; who has none is not in it."""

    def __init__(self) -> None:
        self._keys: dict[str, frozenset[str]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._keys))

    def of(self, who: str) -> frozenset[str]:
        """The very same object as long as nothing changes."""
        return self._keys.get(who, _NONE)

    def add(self, pairs: Iterable[tuple[str, str]]) -> None:
        for who, key in pairs:
            self._keys[who] = self.of(who) | {key}

    def remove(self, pairs: Iterable[tuple[str, str]]) -> None:
        for who, key in pairs:
            left = self.of(who) - {key}
            if left:
                self._keys[who] = left
            else:
                self._keys.pop(who, None)
