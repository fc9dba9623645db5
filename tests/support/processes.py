"""Whether processes that a test started, or that they started, are still there."""

import os
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether there is a process with this number, be it a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def group_is_alive(group: int) -> bool:
    """Whether any process of this group is there."""
    return is_alive(-group)  # kill(2): a negative number means the group


def is_running(pid: int) -> bool:
    """Whether there is such a process and it has not ended: a zombie has (Linux)."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
