"""Deadlines, on a clock that never goes back.
A deadline stops nothing: who works asks how much time is left."""

import math
import time
from collections.abc import Callable
from typing import NamedTuple, Self

LEAST_SECONDS = 0.1
"""For a request that must be tried though its deadline is over."""


class Deadline(NamedTuple):
    """A time by a clock, in seconds; it never changes."""

    at: float
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Self:
        """Return the deadline so many seconds from now."""
        return cls(clock() + seconds, clock)

    def left(self) -> float:
        """Return the seconds left; 0 or less once the deadline is over."""
        return self.at - self.clock()

    def timeout(self, most: float = math.inf) -> float:
        """Return the seconds for a request that must be tried: what is left, and `most` at most."""
        return max(LEAST_SECONDS, min(most, self.left()))

    def within(self, seconds: float) -> Self:
        """Return the deadline so many seconds from now, or this one if it is sooner."""
        return self._replace(at=min(self.at, self.clock() + seconds))

    def later(self, seconds: float) -> Self:
        """Return the deadline so many seconds after this one; before it, if they are negative."""
        return self._replace(at=self.at + seconds)


NO_DEADLINE = Deadline(math.inf)
