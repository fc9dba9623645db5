"""Which Kubernetes Event about a pod is sent next, and when: equal ones are one, and the rate is bounded.
It sends nothing itself. Where more happens than may be sent, it drops, and says so."""

import math
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Literal, NamedTuple

RATE, BURST = 10.0, 10
"""Events that a process sends: so many a second, and so many at once after a pause."""

MOST_NORMAL, MOST_WARNINGS = 1024, 256
"""Events that may wait to be sent. What comes while so many wait is dropped."""

REPEAT_SECONDS = 300.0
"""How long the repeats of an event are counted before one write tells their number."""

FORGET_SECONDS = 900.0
"""An event that was not repeated for so long is a new one when it comes again."""

PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
TRIES = 3
_SLIVER = 1e-6  # of a token, which adding up seconds may lose
_KNOWN = 4096  # events whose repeats are told from new ones

Outcome = Literal["queued", "aggregated", "dropped"]


class PodEvent(NamedTuple):
    """What is said of a pod. Two that are equal are one event, which happened twice."""

    namespace: str
    pod: str
    uid: str
    reason: str
    action: str
    note: str
    warning: bool = False


@dataclass
class Entry:
    """An event, how often it happened, and first and last when, in Unix seconds."""

    event: PodEvent
    first: float
    last: float
    seen: float
    """When it happened last, on the clock that only goes forward."""
    count: int = 1
    name: str = ""
    """That of the object in the cluster; empty: it was not made yet."""
    waits: bool = True
    """Whether there is something that the object in the cluster does not tell yet."""
    tries: int = 0


class TokenBucket:
    """Lets so many through a second, and so many at once after a pause."""

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate, self._burst = rate, float(burst)
        self._tokens, self._at = float(burst), now

    def wait(self, now: float) -> float:
        """Return the seconds until the next one may go; 0: now."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return 0.0 if self._tokens >= 1 - _SLIVER else (1 - self._tokens) / self._rate

    def take(self) -> None:
        """Let one through: `wait` said that it may go."""
        self._tokens -= 1


class EventQueue:
    """The events of one process. `now` is on a clock that only goes forward, `wall` in Unix seconds.

        happened ─► add ─┬─ new ─────► waits ─► next ─► sent ─► known ─┐
                         └─ a repeat ─► counted, waits REPEAT_SECONDS ◄┘

    Not safe for several threads: the recorder has a lock.
    """

    def __init__(self, now: float, rate: float = RATE, burst: int = BURST) -> None:
        self._bucket = TokenBucket(rate, burst, now)
        self._known: OrderedDict[PodEvent, Entry] = OrderedDict()
        self._normal, self._warnings = deque[Entry](), deque[Entry]()
        self._repeats = deque[tuple[float, Entry]]()  # in the order in which they are due
        self._failures, self._paused_until = 0, -math.inf

    def __len__(self) -> int:
        """Return how many wait."""
        return self.new + len(self._repeats)

    @property
    def new(self) -> int:
        """Return how many wait for nothing but the rate."""
        return len(self._normal) + len(self._warnings)

    def add(self, event: PodEvent, now: float, wall: float) -> Outcome:
        """Take an event that has just happened; return what becomes of it."""
        entry = self._known.get(event)
        if entry is not None and (entry.waits or now - entry.seen < FORGET_SECONDS):
            entry.count, entry.seen, entry.last = entry.count + 1, now, wall
            self._known.move_to_end(event)
            if not entry.waits:
                entry.waits = True
                self._repeats.append((now + REPEAT_SECONDS, entry))
            return "aggregated"
        line, most = (self._warnings, MOST_WARNINGS) if event.warning else (self._normal, MOST_NORMAL)
        if len(line) >= most:
            return "dropped"
        self._know(Entry(event, wall, wall, now))
        line.append(self._known[event])
        return "queued"

    def next(self, now: float, *, last: bool = False) -> Entry | float:
        """Return the event to send now; else the seconds until there may be one, infinite if none waits.

        `last`: at the end of the process, repeats are told at once.
        """
        if not len(self):
            return math.inf
        if (seconds := max(self._paused_until - now, self._bucket.wait(now))) > 0:
            return seconds
        if line := self._warnings or self._normal:
            self._bucket.take()
            return line.popleft()
        due, entry = self._repeats[0]
        if due > now and not last:
            return due - now
        self._repeats.popleft()
        self._bucket.take()
        return entry

    def sent(self, entry: Entry, name: str, told: int) -> None:
        """Note that the object of this name tells so many of the event."""
        entry.name, entry.tries, self._failures = name, 0, 0
        entry.waits = entry.count > told  # it came again while it was sent
        if entry.waits:
            self._repeats.append((entry.seen + REPEAT_SECONDS, entry))

    def failed(self, entry: Entry, now: float, *, again: bool) -> bool:
        """Note that it was not sent, and pause. Return whether it is given up; `again`: a retry may help."""
        self._paused_until = now + min(LONGEST_PAUSE_SECONDS, PAUSE_SECONDS * 2 ** min(self._failures, 10))
        self._failures += 1
        entry.tries += 1
        if again and entry.tries < TRIES:
            (self._warnings if entry.event.warning else self._normal).appendleft(entry)
            return False
        entry.waits = False
        if self._known.get(entry.event) is entry:
            del self._known[entry.event]
        return True

    def drop(self) -> list[PodEvent]:
        """Forget what waits, and return it."""
        waiting = [*self._warnings, *self._normal, *(entry for _, entry in self._repeats)]
        for line in (self._warnings, self._normal, self._repeats):
            line.clear()
        return [entry.event for entry in waiting]

    def _know(self, entry: Entry) -> None:
        self._known[entry.event] = entry
        self._known.move_to_end(entry.event)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
