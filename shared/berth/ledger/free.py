"""A pool's domains with the units free and the capacity of each, and what is asked of all of them at once.
Such answers are kept with it and follow each change."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Self, TypeVar

import msgspec

from berth.ledger.overlay import Members, Overlay

T = TypeVar("T")

Share = tuple[int, int]
"""Units free and capacity."""

_ANSWERS = 16  # numbers of units asked that are kept in mind


class Free(Overlay[Share]):
    """Units free and capacity by domain; never changed: `with_changes` makes another one.

    With 5,000 domains one look at each, for each call, would be most of what the call costs. Answers that are
    kept are replaced, never changed, because other threads read them; one that is lost so is made anew.
    """

    def __init__(self, shares: Mapping[str, Share] | None = None) -> None:
        super().__init__(shares)
        self._enough: Mapping[int, Members] = {}
        self._by_domain: Mapping[Callable[[str, Share], Any], Overlay[Any]] = {}

    def with_changes(self, changes: Mapping[str, Share | None]) -> Self:
        """Return these domains as they are now; None: there is no such domain any more."""
        changed = super().with_changes(changes)
        changed._enough = {
            asked: domains.with_changes(
                {name: share is not None and share[0] >= asked for name, share in changes.items()}
            )
            for asked, domains in self._enough.items()
        }
        changed._by_domain = {
            make: values.with_changes(
                {name: None if share is None else make(name, share) for name, share in changes.items()}
            )
            for make, values in self._by_domain.items()
        }
        return changed

    def enough(self, asked: int) -> frozenset[str]:
        """Return the domains with at least so many units free; `lacking` costs less."""
        return self._with(asked).whole()

    def lacking(self, names: Collection[str], asked: int) -> Iterable[str]:
        """Return those of these domains that have not as many units free."""
        return self._with(asked).missing(names)

    def by_domain(self, make: Callable[[str, Share], T]) -> Overlay[T]:
        """Return what `make` says of each domain and its share; the values of each `make` are kept."""
        values = self._by_domain.get(make)
        if values is None:
            names = _side_by_side(self)
            values = Overlay(dict(zip(names, map(make, names, self.values()), strict=True)))
            self._by_domain = {**self._by_domain, make: values}
        return values

    def _with(self, asked: int) -> Members:
        domains = self._enough.get(asked)
        if domains is None:
            names = _side_by_side(name for name, (units, _) in self.items() if units >= asked)
            domains = Members(frozenset(names))
            self._enough = {asked: domains, **dict(list(self._enough.items())[: _ANSWERS - 1])}
        return domains


def _side_by_side(names: Iterable[str]) -> list[str]:
    """Return copies that lie next to each other in memory; to look thousands of them up takes half the time
    then."""
    return msgspec.json.decode(msgspec.json.encode(list(names)), type=list[str])
