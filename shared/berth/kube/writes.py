"""Writes to many objects: one that fails is that object's trouble, and the others go on.
They never decide anything: what must not fail is no write of this kind."""

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from berth.errors import BerthError, ClusterRefusedError, ClusterUnavailableError
from berth.kube.cluster import Cluster

T = TypeVar("T")

log = logging.getLogger("berth.writes")

FAILING_SECONDS = 15.0
"""So long failures may take in all: a webhook that hangs costs each of its objects a time-out."""

LOOK_SECONDS = 2.0
_TOLD = 10  # objects that are named in `problems`; all are in the log


class _Writes:
    """The writes of one call; a failed one is in the log, and in `problems`. Safe for several threads."""

    def __init__(self, objects: str, monotonic: Callable[[], float], most_seconds: float = math.inf) -> None:
        """`objects` names them in messages; `most_seconds` are for all writes together, failed or not."""
        self._objects, self._monotonic = objects, monotonic
        self._until = monotonic() + most_seconds
        self._lock = threading.Lock()
        self._seconds = 0.0
        self._failed: list[str] = []
        self._untried = 0

    def spent(self) -> bool:
        """Whether failures, or all writes, took so long that the next object, which is counted, is not to be
        tried."""
        with self._lock:
            over = self._seconds >= FAILING_SECONDS or self._monotonic() >= self._until
            self._untried += over
        return over

    @property
    def problems(self) -> list[str]:
        """A line for each failure, up to ten, and how many there were besides."""
        more, what = len(self._failed) - _TOLD, self._objects
        lines = [f"{more} {what} more could not be written to (see the log)"] if more > 0 else []
        lines += [f"{self._untried} {what} were not tried: others took too long"] if self._untried else []
        return self._failed[:_TOLD] + lines

    def _note(self, what: str, error: BerthError, began: float) -> None:
        with self._lock:
            self._seconds += self._monotonic() - began
            self._failed.append(f"{what}: {error}")
        log.warning("%s: %s", what, error)


class PodWrites(_Writes):
    """Writes to pods' status. Whether the API server is away is told by a look at the pod: no webhook stands
    in the way of a look."""

    def __init__(self, cluster: Cluster, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__("pods", monotonic)
        self._cluster = cluster

    def attempt(
        self,
        namespace: str,
        name: str,
        what: str,
        write: Callable[[], T],
        left: Callable[[], float] = lambda: LOOK_SECONDS,
    ) -> T | None:
        """What `write` returns, None if it failed for this pod; `what` did not happen then. Raises
        ClusterUnavailableError where the API server does not even let the pod be read, in the seconds that
        are `left` for that; with none left it is not asked.
        """
        began = self._monotonic()
        try:
            return write()
        except (ClusterRefusedError, ClusterUnavailableError) as error:
            if isinstance(error, ClusterUnavailableError) and (seconds := left()) > 0:
                self._cluster.pod(namespace, name, min(seconds, LOOK_SECONDS))
            self._note(what, error, began)
            return None


class StatusWrites(_Writes):
    """Writes of what objects' status tells. Nothing is decided by it, and the next tick writes it again."""

    def __init__(
        self,
        objects: str,
        monotonic: Callable[[], float] = time.monotonic,
        most_seconds: float = math.inf,
    ) -> None:
        super().__init__(objects, monotonic, most_seconds)

    def attempt(self, what: str, write: Callable[[], object]) -> None:
        """Call `write`; if it fails, note that `what` did not happen. An object that is gone, or was written
        by another meanwhile, is no failure: the next look tells."""
        if self.spent():
            return
        began = self._monotonic()
        try:
            write()
        except ClusterRefusedError as error:
            if error.status not in (404, 409):
                self._note(what, error, began)
        except ClusterUnavailableError as error:
            self._note(what, error, began)
