"""The `berth` command: run the functions locally, apply Pools, reconcile now, look into the ledger,
copy it to another store, see a demo.
It adds nothing to what the functions do: each subcommand runs them or their verbs."""

import os
import signal
from collections.abc import Sequence
from types import FrameType

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit code: 0 done, 1 it could not or found problems, 2 wrong usage, 130 Ctrl-C.

    Without `arguments` it runs the process's own, and Ctrl-C ends it quietly even while modules are imported.
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
    """While there is nothing to clean up. Who was started to ignore Ctrl-C goes on to."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)


def _leave(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)


def raise_at_ctrl_c() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt again, so that what was begun can be ended in order."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
