"""A server's own time, learnt from the Date header of its answers; this machine's clock may be wrong.
The header is right to a second. Within that this machine's clock is believed, so that processes whose
clocks are right agree to the millisecond (docs/decisions/0065)."""

import threading
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

_DRIFT = 0.0005  # seconds by which two clocks may part in a second


def uptime() -> float:
    """Return seconds by a clock that runs while the machine sleeps, and that nobody sets."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class ServerClock:
    """The second of an answer's Date began while the request was under way, or within the second before. That
    is an interval for the difference of the clocks; the part that all answers allow is used."""

    def __init__(
        self, local: Callable[[], float] = uptime, wall: Callable[[], float] = lambda: time.time()
    ) -> None:
        self.local, self._wall = local, wall
        self._lock = threading.Lock()
        difference = wall() - local()  # until the first answer
        self._at, self._low, self._high = local(), difference, difference
        self._learnt = False

    def now(self) -> float:
        """Return the time in Unix seconds: this machine's where the server's answers allow it, else the
        nearest that they do."""
        with self._lock:
            local = self.local()
            difference = self._wall() - local if self._learnt else self._low
            return local + min(max(difference, self._low), self._high)

    def ahead(self) -> float | None:
        """Return how many seconds this machine's clock is ahead of the server's, below 0 where it is behind;
        None: the server has said no time. It is 0 where that is less than its answers can tell."""
        with self._lock:
            difference = self._wall() - self.local()
            if not self._learnt:
                return None
            return max(0.0, difference - self._high) or min(0.0, difference - self._low)

    def learn(self, date: str | None, sent: float, received: float) -> None:
        """Take in an answer's Date; `sent` and `received` are times of `local`."""
        try:
            begun = parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            return
        low, high = begun - received, begun + 1 - sent
        with self._lock:
            drift = _DRIFT * max(0.0, received - self._at)
            before = (self._low - drift, self._high + drift)
            if self._learnt and max(low, before[0]) <= min(high, before[1]):
                low, high = max(low, before[0]), min(high, before[1])
            # Else a clock was set: only the newest answer counts.
            self._at, self._low, self._high, self._learnt = received, low, high, True
