"""The one loop that tries again: how often, for how long, and with which pauses."""

from collections.abc import Callable

import pytest

from berth.deadline import Deadline
from berth.retry import retry
from tests.support.builders.ledgers import Time


class AgainError(Exception):
    """Try again."""


def failing(times: int, seen: list[int]) -> Callable[[], str]:
    """Return a call that fails so often, and notes each."""

    def call() -> str:
        seen.append(len(seen))
        if len(seen) <= times:
            raise AgainError(len(seen))
        return "done"

    return call


@pytest.mark.parametrize("times", [0, 1, 4])
def test_a_call_is_made_once_more_than_it_fails_with_a_pause_after_each_failure(times: int) -> None:
    calls: list[int] = []
    pauses: list[float] = []
    done = retry(failing(times, calls), AgainError, pauses=(0.002, 0.1), sleep=pauses.append)
    assert (done, len(calls), len(pauses)) == ("done", times + 1, times)
    assert all(0 <= pause <= 0.002 * 2**number for number, pause in enumerate(pauses))


@pytest.mark.parametrize("tries", [1, 2, 3])
def test_the_last_try_s_error_is_raised_after_so_many_tries(tries: int) -> None:
    calls: list[int] = []
    with pytest.raises(AgainError) as caught:
        retry(failing(9, calls), AgainError, tries=tries, sleep=lambda _: None)
    assert (caught.value.args, len(calls)) == ((tries,), tries)


@pytest.mark.parametrize(("seconds", "tries"), [(0.0, 1), (1.0, 2)])
def test_no_try_begins_once_the_deadline_is_over(seconds: float, tries: int) -> None:
    time, calls = Time(), list[int]()
    deadline = Deadline.after(seconds, time)
    with pytest.raises(AgainError):
        retry(failing(9, calls), AgainError, deadline=deadline, sleep=lambda _: time.advance(1.0))
    assert len(calls) == tries


def test_any_other_error_ends_it_at_once() -> None:
    calls: list[int] = []

    def call() -> None:
        calls.append(1)
        raise AgainError if len(calls) == 1 else KeyError

    with pytest.raises(KeyError):
        retry(call, AgainError, sleep=lambda _: None)
    assert len(calls) == 2
