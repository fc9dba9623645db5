"""Coalesces what threads of a process do at the same time: one read for all who want the same, one piece of
work for all who would be in each other's way. Nothing is kept for later calls."""

import threading
from collections.abc import Callable, Sequence, Set
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

    def at_once(self, read: Callable[[], T | None]) -> T | None:
        """Return the result of `read`, which waits for nobody; None: it gave none, or another one is under
        way. Raises what `read` raises."""
        with self._turn:
            if self._begun != self._ended:
                return None
            self._begun += 1
        result = None
        try:
            result = read()
        finally:
            with self._turn:
                if result is None:
                    self._begun -= 1  # it was no read: whoever came meanwhile makes one
                else:
                    self._ended, self._result, self._error = self._begun, [result], None
                self._turn.notify_all()
        return result

    def _outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]


class _Waiting(Generic[T]):
    """One caller's item, and how its thread learns that its turn has come, or that it need do nothing."""

    def __init__(self, item: T, wants: Set[str], beside: Set[str]) -> None:
        self.item, self.wants, self.beside = item, wants, beside
        self.group: _Group[T] | None = None  # what its thread is to do
        self.error: BaseException | None = None
        self._turn = threading.Lock()
        self._turn.acquire()

    def wait(self, seconds: float = -1) -> bool:
        """Whether its turn came, or the work was done, within so many seconds; -1: however long it takes."""
        return self._turn.acquire(timeout=seconds)

    def go_on(self) -> None:
        self._turn.release()


class _Group(Generic[T]):
    """Items that are done together, the first of them by its own thread."""

    def __init__(self, first: _Waiting[T]) -> None:
        self.members, self.wants, self._all = [first], {*first.wants}, {*first.wants, *first.beside}

    def joined(self, other: _Waiting[T], most: int) -> bool:
        """Take another one in, if that makes no more than so many things."""
        everything = self._all.union(other.wants, other.beside)
        if len(everything) > most:
            return False
        self.members.append(other)
        self.wants |= other.wants
        self._all = everything
        return True


class Grouped(Generic[T]):
    """Does items that want the same things one after another, and those that had to wait for it together.

    The thread that came first does the work for all of them. Nobody waits for items that want other things.
    """

    def __init__(self, work: Callable[[Sequence[T]], None], most: int) -> None:
        """`work` does a group of items, which want `most` things at most, or is one that wants more."""
        self._work, self._most = work, most
        self._guard = threading.Lock()
        self._taken = set[str]()
        self._waiting: list[_Waiting[T]] = []

    def do(self, item: T, seconds: float, wants: Set[str], beside: Set[str] = frozenset()) -> None:
        """Return once the work on the item is done. `beside` are things that it needs, and others may have
        as well. Raises what the work raised, also where that was about another item of the group, and
        TimeoutError if the work has not begun within so many seconds: then it is left."""
        mine = _Waiting(item, wants, beside)
        with self._guard:
            self._waiting.append(mine)
            self._give_turns()
        if not mine.wait(seconds):
            with self._guard:
                if mine in self._waiting:
                    self._waiting.remove(mine)
                    self._give_turns()  # somebody may have waited for this one alone
                    raise TimeoutError
            mine.wait()
        group, mine.group = mine.group, None  # it holds us
        if group is not None:
            self._do(group)
        if mine.error is not None:
            raise mine.error

    def _do(self, group: _Group[T]) -> None:
        error = None
        try:
            self._work([member.item for member in group.members])
        except BaseException as raised:  # noqa: BLE001 - each caller raises it
            error = raised
        with self._guard:
            self._taken -= group.wants
            self._give_turns()
        for member in group.members:
            member.error = error
        for member in group.members[1:]:
            member.go_on()

    def _give_turns(self) -> None:
        """Let those go on whose things are free: who came first comes first, with those who want the same."""
        groups, blocked, left = list[_Group[T]](), set(self._taken), list[_Waiting[T]]()
        for waiting in self._waiting:
            if blocked.isdisjoint(waiting.wants):
                near = [group for group in groups if not group.wants.isdisjoint(waiting.wants)]
                if not near:
                    groups.append(_Group(waiting))
                    continue
                if len(near) == 1 and near[0].joined(waiting, self._most):
                    continue
            blocked |= waiting.wants
            left.append(waiting)
        self._waiting = left
        for group in groups:
            self._taken |= group.wants
            first = group.members[0]
            first.group = group
            first.go_on()
