"""Threads of a process that want the same at the same time share one look at it.
Each gets what a look found that began after it asked; nothing is kept for later."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedLook(Generic[T]):
    """One look at a time: whoever asks meanwhile shares the next one, and its error."""

    def __init__(self, look: Callable[[], T]) -> None:
        self._look = look
        self._turn = threading.Condition()
        self._begun = self._ended = 0  # looks, counted
        self._found: list[T] = []
        self._error: BaseException | None = None

    def __call__(self) -> T:
        """What a look found that began after the call. Raises what the look raises."""
        with self._turn:
            # The next look is for all who came while this one was under way. With a look for each of them
            # a burst of binds would queue up, and a store that hangs cost each its time-out.
            needed = self._begun + 1
            while self._ended < needed and self._begun != self._ended:
                self._turn.wait()
            if self._ended >= needed:
                return self._outcome()
            self._begun += 1
        found, error = list[T](), None
        try:
            found.append(self._look())
        except BaseException as raised:
            error = raised
            raise
        finally:
            with self._turn:
                self._ended, self._found, self._error = self._begun, found, error
                self._turn.notify_all()
        return found[0]

    def _outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._found[0]
