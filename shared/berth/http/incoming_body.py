"""A request's body while it comes. What it takes grows with what has come, whatever was announced.
It counts no bytes and knows no limit; connection.py does.

A long body is written by the system straight to where it stays. It lies in large pages where the system has
them: 48 MB of full nodes are 12,000 small ones, and to be given these costs more than all else of the call.
"""

import contextlib
import io
import mmap
import sys

GROWS = sys.platform == "linux"
"""Whether memory that the system writes to can grow. Elsewhere bodies come by `add` alone."""

_FIRST = 1024 * 1024  # bytes
_LARGE_PAGES_FROM = 4 * 1024 * 1024  # bytes that have come; a large page, which one byte takes whole, is half


class IncomingBody:
    """What has come of one body."""

    def __init__(self) -> None:
        self._parts = io.BytesIO()
        self._memory: mmap.mmap | None = None  # of a long one
        self._room, self._size = memoryview(b""), 0

    def add(self, part: bytes) -> None:
        """Add what came by another way than `room`, which it can't after it."""
        self._size += self._parts.write(part)

    def room(self, most: int) -> memoryview:
        """Return where the next bytes may be written, so many at most; `fill` says how many were."""
        self._room.release()
        memory = self._memory or self._begin()
        if self._size + most > len(memory):
            memory.resize(2 * max(len(memory), most))
            if len(memory) > _LARGE_PAGES_FROM:
                _advise(memory, mmap.MADV_HUGEPAGE)
        self._room = memoryview(memory)[self._size : self._size + most]
        return self._room

    def fill(self, size: int) -> None:
        """Add the bytes that were written to `room`."""
        self._room.release()
        self._size += size

    def whole(self) -> bytes | memoryview:
        """Return all that has come; its memory is given back with the last that refers to it."""
        if self._memory is None:
            return self._parts.getvalue()
        return memoryview(self._memory)[: self._size]

    def _begin(self) -> mmap.mmap:
        before = self._parts.getvalue()
        self._parts = io.BytesIO()
        self._memory = mmap.mmap(-1, max(_FIRST, 2 * len(before)), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # A system that gives large pages unasked gives one for the first byte.
        _advise(self._memory, mmap.MADV_NOHUGEPAGE)
        self._memory.write(before)
        return self._memory


def _advise(memory: mmap.mmap, what: int) -> None:
    with contextlib.suppress(OSError):  # it has no large pages
        memory.madvise(what)
