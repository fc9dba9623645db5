"""What tests/support/builders/steps.py does at which step, and when it is through."""

from functools import partial

import pytest

from tests.support.builders.steps import each_step


def made_at(steps: int, every: int = 1, most: int = 10) -> list[int]:
    """At which of its steps a call had something done in it, one call after the other."""
    found = []
    for step in each_step(most, every):
        seen: list[str] = []
        do = step.doing(partial(seen.append, "something"))
        for _ in range(steps):
            do()
            seen.append("a step")
        assert step.reached == ("something" in seen)
        found += [seen.index("something") + 1] if step.reached else []
    return found


@pytest.mark.parametrize(("every", "at"), [(1, [1, 2, 3, 4, 5]), (2, [1, 3, 5]), (4, [1, 5])])
def test_something_is_done_once_in_each_call_one_step_later_than_in_the_last(
    every: int, at: list[int]
) -> None:
    assert made_at(5, every) == at


def test_a_call_without_steps_is_told() -> None:
    with pytest.raises(AssertionError, match="no step was made"):
        made_at(0)


def test_a_call_with_more_steps_than_are_tried_is_told() -> None:
    with pytest.raises(pytest.fail.Exception, match="there are more than 4 steps"):
        made_at(4, most=4)
