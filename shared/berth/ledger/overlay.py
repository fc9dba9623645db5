"""Dicts and sets that are never changed, so that threads may read them; a changed one costs what was changed.
Changes lie over a large dict or set that many versions share; now and then both are made one again."""

from collections.abc import Collection, ItemsView, Iterable, Iterator, KeysView, Mapping, Sized, ValuesView
from itertools import filterfalse
from typing import Self, TypeVar, overload

T = TypeVar("T")
D = TypeVar("D")

MOST = 256
"""Changes that lie over thousands of names at most: each further one copies them, which takes 1 µs or two. To
make 50,000 names one again takes as long as some hundreds of such copies."""

SHARE = 16
"""At most one in so many names has a change that lies over it, else both are made one again."""

PASSES = 8
"""How often all names may be looked up, each of which costs a little more with changes laid over, before both
are made one again, which costs as much as a few such times."""

_NOBODY: frozenset[str] = frozenset()


class Overlay(Mapping[str, T]):
    """A dict that is never changed: `with_changes` makes another one. No value is None.

    Whoever goes through all of it makes it one dict again, which takes time where there are thousands: where
    a few are wanted, look them up.
    """

    def __init__(self, values: Mapping[str, T] | None = None) -> None:
        # None in the second one: there is no such name any more. Replaced together, for threads read them.
        self._layers: tuple[dict[str, T], dict[str, T | None]] = dict(values or {}), {}
        self._passed = 0

    def with_changes(self, changes: Mapping[str, T | None]) -> Self:
        """Return what there is after these changes; None: there is no such name any more."""
        base, over = self._layers
        changed = type(self)()
        changed._layers, changed._passed = (base, {**over, **changes}), self._passed
        if _are_many(len(over) + len(changes), base):
            changed.whole()
        return changed

    def whole(self) -> dict[str, T]:
        """Return all as one dict, which is kept: leave it as it is."""
        base, over = self._layers
        if over:
            base = {**base, **{name: value for name, value in over.items() if value is not None}}
            for name, value in over.items():
                if value is None:
                    base.pop(name, None)
            self._layers, self._passed = (base, {}), 0
        return base

    def pick(self, names: Collection[str]) -> list[T | None]:
        """Return what each of these names has."""
        base, over = self._layers
        if over:
            self._passed += len(names)
            if self._passed <= PASSES * len(base):
                return [over[name] if name in over else base.get(name) for name in names]
            base = self.whole()
        return list(map(base.get, names))

    @overload
    def get(self, name: str, /) -> T | None: ...

    @overload
    def get(self, name: str, /, default: T | D) -> T | D: ...

    def get(self, name: str, /, default: T | D | None = None) -> T | D | None:
        base, over = self._layers
        value = over[name] if name in over else base.get(name)
        return default if value is None else value

    def __getitem__(self, name: str) -> T:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.whole())

    def __len__(self) -> int:
        return len(self.whole())

    def keys(self) -> KeysView[str]:
        return self.whole().keys()

    def values(self) -> ValuesView[T]:
        return self.whole().values()

    def items(self) -> ItemsView[str, T]:
        return self.whole().items()


class Members:
    """A set that is never changed: `with_changes` makes another one."""

    def __init__(self, names: frozenset[str] = _NOBODY) -> None:
        # The shared set, what is gone from it, and what is there besides. Replaced together.
        self._layers = names, _NOBODY, _NOBODY
        self._passed = 0

    def with_changes(self, changes: Mapping[str, bool]) -> "Members":
        """Return what there is after these changes, which say of each name whether it is in."""
        flipped = {name for name, is_in in changes.items() if is_in != (name in self)}
        if not flipped:
            return self
        base, gone, more = self._layers
        changed = Members()
        changed._layers, changed._passed = (
            (base, gone ^ (flipped & base), more ^ (flipped - base)),
            self._passed,
        )
        if _are_many(len(gone) + len(more) + len(flipped), base):
            changed.whole()
        return changed

    def whole(self) -> frozenset[str]:
        """Return all as one set, which is kept."""
        base, gone, more = self._layers
        if gone or more:
            base = base - gone if gone else base  # each makes a copy: with 50,000 names a millisecond
            base = base | more if more else base
            self._layers, self._passed = (base, _NOBODY, _NOBODY), 0
        return base

    def missing(self, names: Collection[str]) -> Iterable[str]:
        """Return those of these names that are not in."""
        base, gone, more = self._layers
        if gone or more:
            self._passed += len(names)
            if self._passed > PASSES * len(base):
                base, gone, more = self.whole(), _NOBODY, _NOBODY
        missing = filterfalse(base.__contains__, names)
        if more:
            missing = filterfalse(more.__contains__, missing)
        return [*missing, *filter(gone.__contains__, names)] if gone else missing

    def __contains__(self, name: str) -> bool:
        base, gone, more = self._layers
        return name in more or (name in base and name not in gone)


def _are_many(changes: int, base: Sized) -> bool:
    return changes > min(MOST, len(base) // SHARE)
