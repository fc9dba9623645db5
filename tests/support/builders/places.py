"""Where a test's ledger lives, one entry a store; the suites that every store must pass run on each.
The fixture `place` (fixtures.py) makes one for a test, empty, and takes it away again."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """`url` is its BERTH_STORE; `lose` takes away everything that is in it, as an operator's `rm` or
    FLUSHALL would, while stores may have it open."""

    name: str
    url: str
    lose: Callable[[], None]
