"""Lines for who runs a command: what was asked for on standard output, anything else on standard error."""

import contextlib
import sys


def say(line: str) -> None:
    """Print a line at once, for a person who waits for it."""
    print(line, flush=True)


def note(text: str) -> None:
    """Write a line to standard error, which may be closed."""
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"berth: {text}\n")
