"""What stands in the bench's ledger: its pool, how many units each node holds, and a PoolClaim.
It uses none of Berth's code: what is filled in and what is expected of answers both come from here."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

POOL = "underlay-ip"
RESOURCE = f"berth.dev/{POOL}"
CAPACITY = 10
POOL_CLAIM = "kept-ip"  # it is there, and no pod has it
NO_POOL_CLAIM = "k80-erc"  # of the recorded calls; it is not there

_HIGHEST = 10  # extender/v1 MaxExtenderPriority
_STEP = 11


def node_names(count: int) -> list[str]:
    return [f"node-{number:05}" for number in range(count)]


def number_of(name: str) -> int:
    """The number in a node's name."""
    return int(name.rpartition("-")[2])


def units_held(name: str) -> int:
    """From 0 to all 10 units at the beginning, as many nodes of each: 5 on average."""
    return number_of(name) * 7 % (CAPACITY + 1)


@dataclass(frozen=True, eq=False)
class Contents:
    """The units held on each node at one moment, and what follows from them for a pod that asks for one."""

    held: Mapping[str, int]

    @functools.cached_property
    def refused(self) -> Mapping[str, str]:
        """The reason of each node that is full."""
        text = f"{POOL}: 0 of {CAPACITY} free, 1 asked"
        return {name: text for name, units in self.held.items() if units >= CAPACITY}

    @functools.cached_property
    def scores(self) -> Mapping[str, int]:
        """The free share of each node, in tenths: the default of a Pool is Spread."""
        return {name: _HIGHEST * max(0, CAPACITY - units) // CAPACITY for name, units in self.held.items()}


class Stock:
    """The bench's own account of one ledger while claims come and go: `now` is what it should contain."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._turn = names, 0
        self.now = Contents({name: units_held(name) for name in names})

    def change(self) -> tuple[str, int]:
        """The next change: a node, and how many units more it holds. A claim comes, the next time it goes."""
        turn, gone = divmod(self._turn, 2)
        self._turn += 1
        name, more = self._names[turn * _STEP % len(self._names)], -1 if gone else 1
        self.now = Contents({**self.now.held, name: self.now.held[name] + more})
        return name, more
