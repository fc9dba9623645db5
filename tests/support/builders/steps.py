"""One thing that happens in the middle of another: at its first step, at its second, and so on to its last.
What a step is, the caller decides, who calls what `doing` returns."""

from collections.abc import Callable, Iterator

import pytest


class Step:
    """One step of a call, by its number; `reached` says whether the call came to it."""

    def __init__(self, number: int) -> None:
        self.number, self._made = number, 0

    @property
    def reached(self) -> bool:
        return self._made >= self.number

    def doing(self, action: Callable[[], object]) -> Callable[[], None]:
        """Return what the call is to make at each of its steps: it does the action at this one alone."""

        def step() -> None:
            self._made += 1
            if self._made == self.number:
                action()

        return step


def each_step(most: int = 400, every: int = 1) -> Iterator[Step]:
    """Yield one step after the other, up to the first that was not reached.

    A call without any step fails the test, and so does one with more than `most`."""
    for number in range(1, most + 1, every):
        step = Step(number)
        yield step
        if not step.reached:
            assert number > 1, "no step was made"
            return
    pytest.fail(f"there are more than {most} steps")
