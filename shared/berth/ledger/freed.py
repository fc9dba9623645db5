"""How long units that have just come free are left to the pods that are woken for them (decision 0063)."""

MOMENT_SECONDS = 0.35
_EACH_SECONDS = 0.01
_LONGEST_SECONDS = 3.0


def moment(waiting: int) -> float:
    """Return for how many seconds, where so many pods wait: kube-scheduler may try all of them before it
    tries the first in line once more."""
    return min(_LONGEST_SECONDS, MOMENT_SECONDS + _EACH_SECONDS * waiting)
