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
    _by_domain: Mapping[Callable[[str, Share], Any], Mapping[str, Any]] = {}

    def with_changes(self, changes: Mapping[str, Share | None]) -> Self:
        """Return these domains as they are now; None: there is no such domain any more."""
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
        changed._by_domain = {
            make: _merged(values, {name: make(name, share) for name, share in there.items()}, gone)
            for make, values in self._by_domain.items()
        }
        return changed

    def enough(self, asked: int) -> frozenset[str]:
        """Return the domains with at least so many units free."""
        domains = self._enough.get(asked)
        if domains is None:
            domains = frozenset(_side_by_side(name for name, (units, _) in self.items() if units >= asked))
            self._enough = {asked: domains, **dict(list(self._enough.items())[: _ANSWERS - 1])}
        return domains

    def by_domain(self, make: Callable[[str, Share], T]) -> Mapping[str, T]:
        """Return what `make` says of each domain and its share; the values of each `make` are kept."""
        values = self._by_domain.get(make)
        if values is None:
            names = _side_by_side(self)
            values = dict(zip(names, map(make, names, self.values()), strict=True))
            self._by_domain = {**self._by_domain, make: values}
        return values


def _enough(before: frozenset[str], now: set[str], changes: Mapping[str, object]) -> frozenset[str]:
    gone, more = {name for name in changes if name in before} - now, now - before
    after = before - gone if gone else before  # each makes a copy: with 50,000 domains a millisecond
    return after | more if more else after


def _side_by_side(names: Iterable[str]) -> list[str]:
    """Return copies that lie next to each other in memory; to look thousands of them up takes half the time
    then."""
    return msgspec.json.decode(msgspec.json.encode(list(names)), type=list[str])


def _merged(values: Mapping[str, T], changed: Mapping[str, T], gone: set[str]) -> dict[str, T]:
    merged = {**values, **changed}
    for name in gone:
        merged.pop(name, None)
    return merged
