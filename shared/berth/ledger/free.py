"""A pool's domains with the units free and the capacity of each, and what is asked of all of them at once.
Such answers are kept with it and follow each change; whoever changes the dict itself breaks them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, TypeVar

import msgspec

T = TypeVar("T")

Share = tuple[int, int]
"""Units free and capacity."""

_ANSWERS = 16  # numbers of units asked that are kept in mind


class Free(dict[str, Share]):
    """Units free and capacity by domain; never changed: `with_changes` makes another one.

    With 5,000 domains one look at each, for each call, would be most of what the call costs. Answers that are
    kept are replaced, never changed, because other threads read them; one that is lost so is found anew.
    """

    _enough: Mapping[int, frozenset[str]] = {}
    _each: Mapping[Callable[[str, Share], Any], Mapping[str, Any]] = {}

    def with_changes(self, changes: Mapping[str, Share | None]) -> Self:
        """These domains as they are now; None: there is no such domain any more."""
        there = {name: share for name, share in changes.items() if share is not None}
        gone = changes.keys() - there.keys()
        changed = type(self)(self)
        changed.update(there)
        for name in gone:
            changed.pop(name, None)
        changed._enough = {
            asked: _enough(names, {name for name, (units, _) in there.items() if units >= asked}, changes)
            for asked, names in self._enough.items()
        }
        changed._each = {
            make: _merged(values, {name: make(name, share) for name, share in there.items()}, gone)
            for make, values in self._each.items()
        }
        return changed

    def enough(self, asked: int) -> frozenset[str]:
        """The domains with at least so many units free."""
        found = self._enough.get(asked)
        if found is None:
            found = frozenset(_side_by_side(name for name, (units, _) in self.items() if units >= asked))
            self._enough = {asked: found, **dict(list(self._enough.items())[: _ANSWERS - 1])}
        return found

    def each(self, make: Callable[[str, Share], T]) -> Mapping[str, T]:
        """What `make` says of each domain and its share; for a few functions, as each is kept in mind."""
        found = self._each.get(make)
        if found is None:
            names = _side_by_side(self)
            found = dict(zip(names, map(make, names, self.values()), strict=True))
            self._each = {**self._each, make: found}
        return found


def _enough(before: frozenset[str], now: set[str], changes: Mapping[str, object]) -> frozenset[str]:
    gone = {name for name in changes if name in before} - now
    return before - gone | now if gone or not now <= before else before


def _side_by_side(names: Iterable[str]) -> list[str]:
    """Copies that lie next to each other in memory; to look thousands of them up takes half the time then."""
    return msgspec.json.decode(msgspec.json.encode(list(names)), type=list[str])


def _merged(values: Mapping[str, T], changed: Mapping[str, T], gone: set[str]) -> dict[str, T]:
    merged = {**values, **changed}
    for name in gone:
        merged.pop(name, None)
    return merged
