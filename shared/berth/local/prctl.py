"""What Linux' prctl does for a process: it ends with its parent, and has a name.
On other systems nothing happens: there children of a killed process must be ended by hand."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
# Loaded before any fork: in a new child, a lock of the loader may be held by a thread that is not there.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def when_parent_dies(number: signal.Signals) -> Callable[[], None]:
    """Return the preexec_fn for Popen with which the child gets this signal when its parent dies.

    The thread that starts the child counts as its parent: the child ends with that thread.
    """
    parent = os.getpid()

    def ask() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, number)
            if os.getppid() != parent:  # it died before it was asked for
                os.kill(os.getpid(), number)

    return ask


def name_process(name: str) -> None:
    """Give this process the name that `ps -o comm` and `top` show, 15 bytes of it."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_NAME, name.encode())
