"""A View of a store's documents that follows its changes; threads that ask at the same time share one look.
Whoever asks sees what the store tells of when they asked, but not that nothing has changed since."""

import threading
from collections.abc import Callable

from berth.documents import View
from berth.stores.base import Changes, Cursor


class Follower:
    """The View of one store, which is known by its `changes`, for any number of threads."""

    def __init__(self, changes: Callable[[Cursor | None], Changes]) -> None:
        self._changes = changes
        self._view = View()
        self._cursor: Cursor | None = None
        self._turn = threading.Condition()
        self._begun = self._ended = 0  # looks, counted
        self._error: Exception | None = None

    def view(self) -> View:
        """The View after a look that began after the call. Raises the store's errors."""
        with self._turn:
            # One look at a time; the next one is for all who came while this one was under way. With a look
            # for each of them a burst of binds would queue up, and a store that hangs cost each its time-out.
            needed = self._begun + 1
            while self._ended < needed and self._begun != self._ended:
                self._turn.wait()
            if self._ended >= needed:
                return self._outcome()
            self._begun += 1
        error: Exception | None = None
        try:
            self._look()
        except Exception as raised:  # noqa: BLE001 - it is raised for each of those who wait
            error = raised
        finally:
            with self._turn:
                self._ended, self._error = self._begun, error
                self._turn.notify_all()
        return self._outcome()

    def _outcome(self) -> View:
        if self._error is not None:
            raise self._error
        return self._view

    def _look(self) -> None:
        changes = self._changes(self._cursor)
        # Whoever waited for the last look may take the View only now: it must not be one that is half read.
        view = View() if changes.snapshot else self._view
        view.update(changes.documents)
        self._view, self._cursor = view, changes.cursor
