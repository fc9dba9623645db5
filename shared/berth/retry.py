"""The one loop that tries again: by an error's type alone, after random pauses that grow, within a limit.
It does not know what may be done twice: whoever raises the error does."""

import math
import time
from collections.abc import Callable
from typing import TypeVar

import tenacity

from berth.deadline import NO_DEADLINE, Deadline

T = TypeVar("T")


def retry(
    call: Callable[[], T],
    on: type[Exception] | tuple[type[Exception], ...],
    *,
    deadline: Deadline = NO_DEADLINE,
    tries: float = math.inf,
    pauses: tuple[float, float] = (0.0, 0.0),
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return what `call` returns, called again while it raises `on`.

    Raise that error once the deadline is over, or `call` was called `tries` times. `pauses` are the first and
    the longest, in seconds; the actual ones are random parts of those.
    """
    try:
        return call()  # most calls need no other try, and what tenacity makes for one takes longer than many
    except on as error:
        failed = [error]

    def again() -> T:
        if failed:
            raise failed.pop()
        return call()

    first, longest = pauses
    attempts = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(on),
        wait=tenacity.wait_random_exponential(multiplier=first, max=longest),
        stop=lambda state: state.attempt_number >= tries or deadline.left() <= 0,
        sleep=sleep,
        reraise=True,
    )
    result: T = attempts(again)
    return result
