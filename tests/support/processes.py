"""Whether processes that a test started, or that they started, are still there. One that has ended and that
nobody has waited for counts as there."""

import os


def is_alive(pid: int) -> bool:
    """Whether there is a process with this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def group_is_alive(group: int) -> bool:
    """Whether any process of this group is there."""
    return is_alive(-group)  # kill(2): a negative number means the group
