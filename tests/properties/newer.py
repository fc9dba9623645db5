"""An older look at Pools and nodes never undoes what a newer one has found.
It looks at what commits write of Pools, capacities and use outside the cluster, not at claims."""

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from tests.properties import pools
from tests.properties.api import Api
from tests.properties.calls import Call
from tests.properties.kept import Kept
from tests.properties.model import Model
from tests.properties.pools import CLAIMED, LIMIT
from tests.properties.rest import right_size


class Newer:
    """Told of each change of the cluster, of each call that begins, and of each commit."""

    def __init__(self, api: Api, model: Model, keep: Callable[[int, bool, str], None]) -> None:
        self._api, self._model, self._keep = api, model, keep
        self._moment = self._changed = 0
        self._begun: dict[Call, int] = {}
        self._right: dict[Hashable, tuple[int, Call]] = {}  # when, and by whose commit, it came to be right

    def changed(self) -> None:
        self._moment += 1
        self._changed = self._moment

    def begun(self, call: Call) -> None:
        self._moment += 1
        self._begun[call] = self._moment

    def committed(self, call: Call, before: Kept, after: Kept) -> None:
        self._moment += 1
        if not (before.open and after.open):
            self._right.clear()
            return
        for number, what, was, now in self._written(before, after):
            if now:
                self._right[what] = self._moment, call
            elif was:
                when, who = self._right.get(what, (0, call))
                older = self._begun[call] >= self._changed or (when > self._begun[call] and who is not call)
                self._keep(
                    number, not older, f"{call.kind} undid what the ledger has of {what} by a newer look"
                )

    def _written(self, before: Kept, after: Kept) -> Iterator[tuple[int, Hashable, bool, bool]]:
        """What the commit changed: the promise, what it is, whether it was right, and whether it is."""
        for name in before.applied.keys() | after.applied.keys():
            had, has = before.applied.get(name), after.applied.get(name)
            if had != has:
                spec = self._model.pools.get(name)
                wanted = None if spec is None else pools.as_pool(name, spec)
                yield 1, f"Pool {name}", had == wanted, has == wanted
        known = [name for name, pool in before.applied.items() if self._is(name, pool)]
        for name in known:
            external = int(self._model.pools[name].get("external", 0))
            used = before.external(name), after.external(name)
            if used[0] != used[1]:
                number = 1 if used[1] < external else 6
                yield number, f"use of {name} outside", used[0] == external, used[1] == external
        there = self._model.there(self._api.nodes())
        for where in before.wholes.keys() | after.wholes.keys():
            sizes = before.size(where), after.size(where)
            if where[0] not in known or where == CLAIMED or sizes[0] == sizes[1]:
                continue
            if where[1].startswith(LIMIT) and None in sizes:
                continue  # it is there only while it is needed
            right = [right_size(where, ledger, self._model, there) for ledger in (before, after)]
            more = _amount(sizes[1]) > _amount(right[1])
            yield 1 if more else 6, where, sizes[0] == right[0], sizes[1] == right[1]

    def _is(self, name: str, pool: Any) -> bool:
        """Whether the ledger has the Pool as it is."""
        spec = self._model.pools.get(name)
        return spec is not None and pools.as_pool(name, spec) == pool


def _amount(size: int | frozenset[str] | None) -> int:
    return len(size) if isinstance(size, frozenset) else size or 0
