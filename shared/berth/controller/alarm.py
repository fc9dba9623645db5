"""Wake pods later: when units come free by time alone, and once more where the first in line took nothing.
It may be lost with its process, or be late where that is frozen: then reconcile wakes who fits."""

import atexit
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from berth.controller.requeue import Again, Staged, wake
from berth.errors import BerthError
from berth.kube.cluster import Cluster
from berth.ledger.keys import parse_domain
from berth.ledger.ledger import Ledger
from berth.ledger.view import View

log = logging.getLogger("berth.claims")

HORIZON_SECONDS = 90.0
"""What is due later is armed later: by the next event, or by the next reconcile."""

REST_SECONDS = 0.25
"""An alarm rings no more often, however many units come free one after another: a ring may list all pods that
wait."""

APART_SECONDS = (0.5, 1.2)
"""So much later it rings again for what came free by time: filter goes by another clock, and refuses a pod
that is woken before the rest is over by that."""

_LATER_SECONDS = 0.01  # than what is due: the ledger's own clock may be read a little earlier
_MOST_NODES = 64  # nodes that are looked at in one ring

Cancel = Callable[[], None]
Timer = Callable[[float, Callable[[], None]], Cancel]
"""Calls something once, after so many seconds, in a thread of its own, unless it is cancelled before."""


def timer(seconds: float, call: Callable[[], None]) -> Cancel:
    """Start a thread that keeps no process from ending."""
    thread = threading.Timer(seconds, call)
    thread.daemon = True
    thread.start()
    return thread.cancel


class Room(NamedTuple):
    """Units that came free, by pool, and the nodes where that was, as far as they are known. With `rotate`
    some of those behind the first in line are woken, too."""

    units: Mapping[str, int]
    nodes: Collection[str] = ()
    rotate: bool = False


class _Later(NamedTuple):
    at: float
    room: Room


class Alarm:
    """One alarm of a process; safe for many threads. It has one timer at most, and none while nothing is due.

    `wake` wakes who can use what came free, and is called by one thread at a time.
    """

    def __init__(
        self,
        look: Callable[[], View],
        wake: Callable[[Room], object],
        *,
        clock: Callable[[], float] = time.time,
        start: Timer = timer,
        delay: float = 0.0,
        apart: Sequence[float] = APART_SECONDS,
    ) -> None:
        """It rings `delay` seconds after what is due. Where others ring first, nothing is free by then, and
        this one does nothing. It rings again so many seconds `apart`."""
        self._look, self._wake, self._clock, self._start, self._delay = look, wake, clock, start, delay
        self.known, self._apart = Again(clock), apart
        self._lock = threading.Lock()
        self._due: dict[tuple[str, str], float] = {}  # documents, as (pool, name), of which more comes free
        self._later: list[_Later] = []
        self._cancel: Cancel | None = None
        self._at = inf  # when the timer ends
        self._quiet_until = 0.0
        self._rings = self._closed = False

    def arm(self, view: View) -> None:
        """See to what comes free by time alone soon, by this View."""
        now = self._clock()
        due = view.due(now + HORIZON_SECONDS)
        with self._lock:
            passed = {key: at for key, at in self._due.items() if at <= now}  # the View knows them no more
            self._due = {**due, **passed}
            self._set(now)

    def later(self, nodes: Collection[str] = (), *, rotate: bool = False, a_pod_went: bool = False) -> Staged:
        """Return what has pods woken again, for room on these nodes, for `wake`."""

        def again(units: Mapping[str, int], at: float) -> None:
            with self._lock:
                self._later.append(_Later(at, Room(units, nodes, rotate)))
                self._set(self._clock())

        return Staged(again, self.known, a_pod_went)

    def rings_soon(self, pools: Collection[str]) -> bool:
        """Whether pods that ask for these pools are to be woken within a second, if they fit."""
        soon = self._clock() + 1.0
        with self._lock:
            rooms = [later.room.units for later in self._later if later.at <= soon]
        return all(any(pool in units for units in rooms) for pool in pools)

    def close(self) -> None:
        """Ring no more."""
        with self._lock:
            self._closed = True
            self._stop()

    def _set(self, now: float) -> None:
        """Let the timer end when the next one is due."""
        times = [at + self._delay + _LATER_SECONDS for at in self._due.values()]
        at = min([*times, *(later.at for later in self._later)], default=inf)
        at = max(at, self._quiet_until)
        if self._closed or self._rings or at == self._at:
            return
        self._stop()
        if at < inf:
            self._at, self._cancel = at, self._start(max(0.0, at - now), self._ring)

    def _stop(self) -> None:
        if self._cancel is not None:
            self._cancel()
        self._at, self._cancel = inf, None

    def _ring(self) -> None:
        now = self._clock()
        with self._lock:
            if self._closed or self._rings:
                return
            self._at, self._cancel, self._rings = inf, None, True
            due = {key: at for key, at in self._due.items() if at + self._delay <= now}
            later = [one for one in self._later if one.at <= now]
            self._due = {key: at for key, at in self._due.items() if key not in due}
            self._later = [one for one in self._later if one.at > now]
        try:
            if due or later:
                view = self._look()
                now = self._clock()  # more may have come free until the look
                soon = view.due(now + HORIZON_SECONDS)
                with self._lock:
                    self._due = {**soon, **self._due}
                room = room_of(view, due, now)
                if room.units:
                    with self._lock:
                        self._later += [_Later(now + seconds, room) for seconds in self._apart]
                self._wake(_together([room, *(one.room for one in later)]))
        except BerthError as error:
            log.warning("waiting pods were not woken, reconcile will: %s", error)
        finally:
            with self._lock:
                self._rings = False
                now = self._clock()
                self._quiet_until = now + REST_SECONDS
                self._set(now)


def room_of(view: View, due: Mapping[tuple[str, str], float], now: float) -> Room:
    """Return what came free by time alone in documents, as (pool, name), that were due at these times."""
    places: dict[str, int] = {}
    quotas: dict[str, int] = {}
    nodes = set[str]()
    for (pool, name), at in due.items():
        units, parsed = view.document(pool, name).came_free(at, now), parse_domain(name)
        counts = quotas if parsed.is_quota else places
        if units and pool in view.pools:
            counts[pool] = counts.get(pool, 0) + units
            if not parsed.is_quota and view.pools[pool].spec.scope == "Node":
                nodes.add(parsed.whole)
    # A limit that counts units while they rest stands beside the places where they are.
    return Room({pool: max(places.get(pool, 0), quotas.get(pool, 0)) for pool in {**places, **quotas}}, nodes)


def _together(rooms: Collection[Room]) -> Room:
    units: dict[str, int] = {}
    for room in rooms:
        for pool, count in room.units.items():
            units[pool] = units.get(pool, 0) + count
    nodes = dict.fromkeys(node for room in rooms for node in room.nodes)
    return Room(units, list(nodes)[:_MOST_NODES], any(room.rotate for room in rooms))


def alarm_of(
    ledger: Ledger,
    cluster: Cluster,
    schedulers: Iterable[str],
    *,
    clock: Callable[[], float] = time.time,
    start: Timer = timer,
    delay: float = 0.0,
) -> Alarm:
    """Return an alarm that wakes the pods of these schedulers, until the process ends."""

    def ring(room: Room) -> int:
        return wake(
            ledger,
            cluster,
            schedulers,
            room.units,
            clock(),
            rotate=room.rotate,
            shut=lambda: cordoned(cluster, room.nodes),
        )

    alarm = Alarm(ledger.view, ring, clock=clock, start=start, delay=delay)
    atexit.register(alarm.close)
    return alarm


def cordoned(cluster: Cluster, names: Iterable[str]) -> set[str]:
    """Return those of these nodes that take no pods."""
    nodes = {name: cluster.node(name) for name in names if name}
    return {name for name, node in nodes.items() if node is not None and node.spec.unschedulable}
