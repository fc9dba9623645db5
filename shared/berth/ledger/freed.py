"""How long units that have just come free are left to the pods that are woken for them (decision 0063)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

MOMENT_SECONDS = 0.35
_EACH_SECONDS = 0.01
_LONGEST_SECONDS = 3.0


def moment(waiting: int) -> float:
    """Return for how many seconds, where so many pods wait: kube-scheduler may try all of them before it
    tries the first in line once more."""
    return min(_LONGEST_SECONDS, MOMENT_SECONDS + _EACH_SECONDS * waiting)


class Waiters(NamedTuple):
    """How many pods wait for units, by pool, and when that was.

    That is by the machine's own clock (Unix seconds), as filter has it: the API server's time is known to
    about a second, which is longer than the moment.
    """

    at: float = 0.0
    pods: Mapping[str, int] = MappingProxyType({})


NO_WAITERS = Waiters()
