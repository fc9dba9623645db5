"""Writes to pods, one after the other: one that fails is that pod's trouble, and the others go on.
Whether the API server is away is told by a look at the pod: no webhook stands in the way of a look."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from berth.cluster import Cluster
from berth.errors import ClusterRefusedError, ClusterUnavailableError

T = TypeVar("T")

log = logging.getLogger("berth.writes")

FAILING_SECONDS = 15.0
"""So long failures may take in all: a webhook that hangs costs each of its pods a time-out."""

_LOOK_SECONDS = 2.0
_TOLD = 10  # pods that are named in `problems`; all are in the log


class PodWrites:
    """The writes of one call; a failed one is in the log, and in `problems`."""

    def __init__(self, cluster: Cluster, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._monotonic = cluster, monotonic
        self._seconds = 0.0
        self._failed: list[str] = []
        self._untried = 0

    def attempt(self, namespace: str, name: str, what: str, write: Callable[[], T]) -> T | None:
        """What `write` returns, None if it failed for this pod; `what` did not happen then. Raises
        ClusterUnavailableError where the API server does not even let the pod be read."""
        began = self._monotonic()
        try:
            return write()
        except (ClusterRefusedError, ClusterUnavailableError) as error:
            if isinstance(error, ClusterUnavailableError):
                self._cluster.pod(namespace, name, _LOOK_SECONDS)
            self._seconds += self._monotonic() - began
            self._failed.append(f"{what}: {error}")
            log.warning("%s", self._failed[-1])
            return None

    def spent(self) -> bool:
        """Whether failures took so long that the next pod, which is counted, is not to be tried."""
        over = self._seconds >= FAILING_SECONDS
        self._untried += over
        return over

    @property
    def problems(self) -> list[str]:
        """A line for each failure, up to ten, and how many there were besides."""
        more = len(self._failed) - _TOLD
        lines = [f"{more} pods more could not be written to (see the log)"] if more > 0 else []
        lines += [f"{self._untried} pods were not tried: others took too long"] if self._untried else []
        return self._failed[:_TOLD] + lines
