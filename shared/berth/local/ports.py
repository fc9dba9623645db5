"""Free ports of 127.0.0.1, for processes started here; BERTH_PORTS (such as 20000-25999) narrows the choice.
They are free at that moment: another program may take one before its process does. This process gives the
same port again only after many others."""

import os
import random
import socket
from collections import deque
from itertools import islice

from berth.errors import SettingsError

FIRST, LAST = 20000, 31999  # below the kernel's own choices, one of which could be some client's
_given: deque[int] = deque(maxlen=500)  # lately; who was given one may not listen there yet


def is_free(port: int) -> bool:
    """Whether a server could listen on it now."""
    with socket.socket() as probe:
        # As servers do: a connection in TIME_WAIT does not hold a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a free port. Raises SettingsError where there is none."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return so many different free ports. Raises SettingsError where there are fewer."""
    allowed = _allowed()
    shuffled = random.SystemRandom().sample(allowed, len(allowed))
    given = set(_given)
    free = list(islice(filter(is_free, sorted(shuffled, key=given.__contains__)), count))
    if len(free) < count:
        raise SettingsError(
            f"fewer than {count} ports from {allowed[0]} to {allowed[-1]} of 127.0.0.1 are free"
        )
    _given.extend(free)
    return free


def _allowed() -> range:
    text = os.environ.get("BERTH_PORTS", f"{FIRST}-{LAST}")
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 65536):
        raise SettingsError(f"BERTH_PORTS: {text!r} should be two ports, such as {FIRST}-{LAST}")
    return range(int(first), int(last) + 1)
