"""A View of a store's documents that follows its changes; threads that ask at the same time share one look.
Whoever asks sees what the store tells of when they asked, but not that nothing has changed since."""

from collections.abc import Callable

from berth.documents import View
from berth.looks import SharedLook
from berth.stores.base import Changes, Cursor


class Follower:
    """The View of one store, which is known by its `changes`, for any number of threads."""

    def __init__(self, changes: Callable[[Cursor | None], Changes]) -> None:
        self._changes = changes
        self._view = View()
        self._cursor: Cursor | None = None
        self._shared = SharedLook(self._look)

    def view(self) -> View:
        """The View after a look that began after the call. Raises the store's errors."""
        return self._shared()

    def _look(self) -> View:
        changes = self._changes(self._cursor)
        # Whoever waited for the last look may take the View only now: it must not be one that is half read.
        view = View() if changes.snapshot else self._view
        view.update(changes.documents)
        self._view, self._cursor = view, changes.cursor
        return view
