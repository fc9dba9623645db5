"""Free ports of 127.0.0.1, for processes started here; BERTH_PORTS (such as 20000-25999) narrows them.
Free when looked at: it can't promise that nobody takes one before its process does."""

import os
import random
import socket
from collections.abc import Iterator

from berth.errors import SettingsError

FIRST, LAST = 20000, 31999  # below the kernel's own choices, one of which could be some client's


def is_free(port: int) -> bool:
    """Whether a server could listen on it now."""
    with socket.socket() as probe:
        # As servers do: a connection that only waits for its end does not hold a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """One free port. Raises SettingsError where there is none."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many different free ports. Raises SettingsError where there are fewer."""
    some = _choice()
    found = _first(filter(is_free, random.SystemRandom().sample(some, len(some))), count)
    if len(found) < count:
        raise SettingsError(f"fewer than {count} ports from {some[0]} to {some[-1]} of 127.0.0.1 are free")
    return found


def _choice() -> range:
    told = os.environ.get("BERTH_PORTS", f"{FIRST}-{LAST}")
    first, _, last = told.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 65536):
        raise SettingsError(f"BERTH_PORTS: {told!r} should be two ports, such as {FIRST}-{LAST}")
    return range(int(first), int(last) + 1)


def _first(ports: Iterator[int], count: int) -> list[int]:
    return [port for _, port in zip(range(count), ports, strict=False)]
