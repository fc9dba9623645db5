"""Coalesces concurrent reads: threads of a process that read the same thing at the same time share one read.
A caller gets the result of a read that began after its call; nothing is cached for later calls."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Coalesced(Generic[T]):
    """One read at a time: the callers that come meanwhile share the next one, and its error."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._turn = threading.Condition()
        self._begun = self._ended = 0  # reads, counted
        self._result: list[T] = []
        self._error: BaseException | None = None

    def __call__(self) -> T:
        """Return the result of a read that began after the call. Raises what the read raises."""
        with self._turn:
            # The next read is for all who came while this one was under way. With a read for each of them
            # a burst of binds would queue up, and a store that hangs cost each its time-out.
            needed = self._begun + 1
            while self._ended < needed and self._begun != self._ended:
                self._turn.wait()
            if self._ended >= needed:
                return self._outcome()
            self._begun += 1
        result, error = list[T](), None
        try:
            result.append(self._read())
        except BaseException as raised:
            error = raised
            raise
        finally:
            with self._turn:
                self._ended, self._result, self._error = self._begun, result, error
                self._turn.notify_all()
        return result[0]

    def _outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]
