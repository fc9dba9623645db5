"""Writes to the status of many objects: where one fails, the others are still written.
Nothing is decided by these writes; a write that must not fail is none of them."""

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from berth.deadline import NO_DEADLINE, Deadline
from berth.errors import BerthError, ClusterRefusedError, ClusterUnavailableError
from berth.kube.cluster import Cluster

T = TypeVar("T")

log = logging.getLogger("berth.writes")

FAILING_SECONDS = 15.0
"""How long all failures together may take: a webhook that hangs costs each of its objects a time-out."""

READ_SECONDS = 2.0
_SHOWN = 10  # failures that `problems` lists; all are in the log


class _Writes:
    """The writes of one call. Failures are in the log and in `problems`. Safe to use from many threads."""

    def __init__(
        self,
        objects: str,
        monotonic: Callable[[], float] = time.monotonic,
        most_seconds: float = math.inf,
    ) -> None:
        """`objects` names them in messages; `most_seconds` are for all writes together, failed or not."""
        self._objects, self._monotonic = objects, monotonic
        self._until = monotonic() + most_seconds
        self._lock = threading.Lock()
        self._seconds = 0.0
        self._failed: list[str] = []
        self._untried = 0

    def spent(self) -> bool:
        """Whether failures, or all writes, took so long that the next object is not tried; it is counted."""
        with self._lock:
            over = self._seconds >= FAILING_SECONDS or self._monotonic() >= self._until
            self._untried += over
        return over

    @property
    def problems(self) -> list[str]:
        """Return a line for each failure, up to ten, and how many more there were."""
        more, what = len(self._failed) - _SHOWN, self._objects
        lines = [f"{more} {what} more could not be written to (see the log)"] if more > 0 else []
        lines += [f"{self._untried} {what} were not tried: others took too long"] if self._untried else []
        return self._failed[:_SHOWN] + lines

    def _add_failure(self, what: str, error: BerthError, began: float) -> None:
        with self._lock:
            self._seconds += self._monotonic() - began
            self._failed.append(f"{what}: {error}")
        log.warning("%s: %s", what, error)


class PodWrites(_Writes):
    """Writes to pods' status. After a failure the pod is read, to learn whether the API server is away: no
    webhook can refuse a read."""

    def __init__(self, cluster: Cluster, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__("pods", monotonic)
        self._cluster = cluster

    def attempt(
        self,
        namespace: str,
        name: str,
        what: str,
        write: Callable[[], T],
        deadline: Deadline = NO_DEADLINE,
    ) -> T | None:
        """Return what `write` returns, None if it failed for this pod; `what` says in messages what did not
        happen then. Raises ClusterUnavailableError where the pod can't be read either, as far as there is
        time before the deadline.
        """
        began = self._monotonic()
        try:
            return write()
        except (ClusterRefusedError, ClusterUnavailableError) as error:
            if isinstance(error, ClusterUnavailableError) and (seconds := deadline.left()) > 0:
                self._cluster.pod(namespace, name, min(seconds, READ_SECONDS))
            self._add_failure(what, error, began)
            return None


class StatusWrites(_Writes):
    """Writes of status that only people read. The next tick writes it again."""

    def attempt(self, what: str, write: Callable[[], object]) -> None:
        """Call `write`; if it fails, add `what` to `problems`. An object that is gone, or that somebody else
        wrote meanwhile, is no failure: the next tick reads it again."""
        if self.spent():
            return
        began = self._monotonic()
        try:
            write()
        except (ClusterRefusedError, ClusterUnavailableError) as error:
            if not isinstance(error, ClusterRefusedError) or error.status not in (404, 409):
                self._add_failure(what, error, began)
