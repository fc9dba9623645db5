"""Free ports of 127.0.0.1, for processes that are started here.
Free when looked at: it can't promise that nobody takes one before its process does."""

import random
import socket
from collections.abc import Iterator

from berth.errors import SettingsError

_FIRST, _LAST = 20000, 31999


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
    # Below the kernel's own choices: while its server is away, one of those can become some client's own.
    tried = random.SystemRandom().sample(range(_FIRST, _LAST + 1), _LAST + 1 - _FIRST)
    found = _first(filter(is_free, tried), count)
    if len(found) < count:
        raise SettingsError(f"fewer than {count} ports from {_FIRST} to {_LAST} of 127.0.0.1 are free")
    return found


def _first(ports: Iterator[int], count: int) -> list[int]:
    return [port for _, port in zip(range(count), ports, strict=False)]
