"""The `berth` command: run functions locally, apply Pools, reconcile, show or copy the ledger, play a demo.
It adds nothing to what the functions do: each subcommand runs them or what they are made of."""

import os
import signal
from collections.abc import Sequence
from types import FrameType

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code: 0 done, 1 failed, 2 wrong usage, 130 Ctrl-C.

    Without `arguments` it takes the process's own, and Ctrl-C ends it quietly even during imports.
    """
    if arguments is None:
        _leave_at_ctrl_c()
    # Only now: to import it takes most of the time until a subcommand runs.
    from berth.cli import arguments as command

    try:
        return command.main(arguments)
    finally:
        if arguments is None:
            _leave_at_ctrl_c()


def _leave_at_ctrl_c() -> None:
    """Let Ctrl-C end the process at once, unless its parent had it ignored: there is nothing to clean up."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)


def _leave(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)


def raise_at_ctrl_c() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, so that what was begun can be ended in order."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
