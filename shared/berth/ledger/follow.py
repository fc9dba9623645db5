"""A View of a store's documents that follows its changes; threads that ask at the same time share one look.
Whoever asks sees what the store tells of when they asked, but not that nothing has changed since."""

import time
from collections.abc import Callable

from berth.coalesce import Coalesced
from berth.ledger.view import View
from berth.stores.base import Changes, Cursor


class Follower:
    """The View of one store, which is known by its `changes`, for any number of threads."""

    def __init__(
        self, changes: Callable[[Cursor | None], Changes], clock: Callable[[], float] = time.time
    ) -> None:
        self._changes, self._clock = changes, clock
        self.last = View()  # as the last look found it
        self._cursor: Cursor | None = None
        self._shared = Coalesced(self._look)

    def view(self) -> View:
        """The View after a look that began after the call. Raises the store's errors."""
        return self._shared()

    def _look(self) -> View:
        changes = self._changes(self._cursor)
        # Whoever waited for the last look may take the View only now: it must not be one that is half read.
        view, now = View() if changes.snapshot else self.last, self._clock()
        view.update(changes.documents, now)
        view.refresh(now)
        self.last, self._cursor = view, changes.cursor
        return view
