"""Whether processes that a test started, or that they started, are still there, and what memory they had."""

import os
from collections.abc import Iterator
from contextlib import suppress
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


def group_peaks(group: int) -> int:
    """What the processes of this group have had in memory at most, each at its worst, in MiB (Linux)."""
    return sum(peak_bytes(pid) for pid in _members(group)) // 1024**2


def _members(group: int) -> Iterator[int]:
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end meanwhile
            if os.getpgid(int(each.name)) == group:
                yield int(each.name)


def peak_bytes(pid: int) -> int:
    """What the process has had in memory at most; 0 once it is gone (Linux)."""
    with suppress(OSError):  # it may end meanwhile
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return 0
