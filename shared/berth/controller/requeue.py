"""Wake waiting pods when room was made (promise 6): kube-scheduler retries a pod whose status was patched.
A woken pod may not fit for reasons that Berth does not know, so more are woken than there is room for."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from math import inf
from typing import NamedTuple

from berth.coalesce import Coalesced
from berth.controller.fencing import condition
from berth.controller.line import in_line, own_claim
from berth.deadline import NO_DEADLINE, Deadline
from berth.kube.cluster import Cluster, list_waiting
from berth.kube.types import Pod
from berth.kube.woken import WOKEN
from berth.kube.writes import PodWrites
from berth.ledger.capacity import CapacityChange
from berth.ledger.freed import moment
from berth.ledger.ledger import Ledger
from berth.ledger.model import Holding
from berth.ledger.view import View
from berth.scheduling.demand import terms_of
from berth.scheduling.fit import Fit, kind_of

FIRST_IN_LINE = 100
NEXT_IN_LINE = 400
"""The most pods that reconcile wakes, however much is free: of the first in line, and of those behind them. A
handler of an event that was overtaken by a change of Pools wakes so many, too."""

_LATER_SECONDS = 0.1  # than filter leaves what came free to the first in line
_BOUND_SECONDS = 0.25
"""How long the first in line have where filter leaves them nothing: kube-scheduler binds a woken pod some
0.1 s later."""

_LISTED_SECONDS = 0.1
_MADE = "room was made"
_PATCH_SECONDS = 3.0
_MOST_LEFT = 64
"""Nodes that are remembered until a wake succeeds; pods may be woken for the others in vain."""


class Again:
    """What a process has in mind for all its wakes: who waits, and who was woken just now.

    `turns` are the pods that were woken, by UID, with until when the units are left to them.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.turns: dict[str, float] = {}
        self._clock = clock
        self._listed, self._pods = -inf, list[Pod]()
        self._counted, self._counts = list[Pod](), Counter[str]()
        self._closed: tuple[float, Collection[str], Collection[str]] = (-inf, (), ())

    def closed(self, nodes: Collection[str], read: Callable[[], Collection[str]]) -> Collection[str]:
        """Return those of these nodes that take no pods, as it was a moment ago."""
        now, (at, names, closed) = self._clock(), self._closed
        if names != nodes or not 0 <= now - at < _LISTED_SECONDS:
            closed = read()
            self._closed = (now, nodes, closed)
        return closed

    def waiting(self, read: Callable[[], list[Pod]]) -> list[Pod]:
        """Return the pods that wait, in line, as they were a moment ago: a hundred pods may go at once, and
        one list of those that wait does for many of them."""
        now = self._clock()
        if not 0 <= now - self._listed < _LISTED_SECONDS:
            self._pods = in_line(read())
            self._listed = now
        return self._pods

    def counts(self, read: Callable[[], list[Pod]], view: View) -> Mapping[str, int]:
        """Return how many pods wait for units, by pool."""
        pods, terms = self.waiting(read), terms_of(view)
        if self._counted is not pods:
            waiting = (pod for pod in pods if own_claim(pod, view) is None)
            self._counts = Counter(pool for pod in waiting for pool in terms.demand(pod).units)
            self._counted = pods
        return self._counts

    def went(self, uid: str) -> None:
        """Note that this pod waits no more, and leave nothing to it."""
        self._pods = [pod for pod in self._pods if pod.metadata.uid != uid]
        self.turns.pop(uid, None)

    def forget(self) -> None:
        """Forget who waits: it is not so any more."""
        self._listed = -inf


class Staged(NamedTuple):
    """How pods are woken in two stages: `call` takes the room (units by pool) and when to wake once more, in
    Unix seconds, if it is free still.

    Where `a_pod_went` kube-scheduler tries all that wait, and filter leaves what came free to those that are
    woken.
    """

    call: Callable[[Mapping[str, int], float], object]
    again: Again
    a_pod_went: bool = False


def room_in(made: Iterable[Holding | CapacityChange]) -> dict[str, int]:
    """Return units of room by pool, from what was freed or gained."""
    room: dict[str, int] = {}
    for part in made:
        units = part.count if isinstance(part, Holding) else part.gained
        if units > 0:
            room[part.pool] = room.get(part.pool, 0) + units
    return room


def free_in(view: View, pools: Iterable[str], now: float) -> dict[str, int]:
    """Return the units free in these pools as filter counts them, also those free for one owner only, or for
    the first in line."""
    room = {}
    for pool in pools:
        free = sum(units for units, _ in view.free.get(pool, {}).values())
        room[pool] = free + view.kept(pool, now) + view.held_in_line(pool, now)
    return {pool: units for pool, units in room.items() if units}


def _free_up_to(most: int, view: View, pool: str, now: float) -> int:
    """Return what is free in a pool as in `free_in`, but `most` at most: one of its first domains may have as
    many, and there may be thousands."""
    free = 0
    for units, _ in view.free.get(pool, {}).values():
        free += units
        if free >= most:
            return most
    return min(most, free + view.kept(pool, now) + view.held_in_line(pool, now))


def wake(
    ledger: Ledger,
    cluster: Cluster,
    schedulers: Iterable[str],
    room: Mapping[str, int],
    now: float,
    *,
    rotate: bool = False,
    shut: Callable[[], Collection[str]] = frozenset,
    deadline: Deadline = NO_DEADLINE,
    writes: PodWrites | None = None,
    staged: Staged | None = None,
) -> int:
    """Wake pods that could use the room made in these pools (units by pool). Return how many were woken.

    Call it after the commit that made the room. It wakes 2 n + 8 pods for n units: the first in line may not
    fit the node for lack of CPU, and must not keep the unit from the next. With `rotate` it also wakes some
    of those behind, for the first in line are the same each time. `shut` returns the nodes that take no pods;
    it is called only when a pod could use the room. Reconcile wakes those that are left when the `deadline`
    is over. `writes` notes the pods that can't be written to.

    Where it is `staged` only as many pods are woken as there are units for, in line, and this is to be called
    once more a moment later, when it is not. kube-scheduler takes pods that are woken together in an order of
    its own, and those for which nothing is left would be in back-off (docs/decisions/0062).
    """
    if not room:
        return 0
    view = ledger.view()
    room = {pool: _free_up_to(units, view, pool, now) for pool, units in room.items()}
    room = {pool: units for pool, units in room.items() if units}
    if not room:
        return 0  # taken meanwhile: no pods need to be listed
    if staged is not None:
        woken = _wake_first(ledger, cluster, schedulers, room, now, staged, shut, deadline, writes)
    else:
        waiting = in_line(list_waiting(cluster, schedulers, deadline))
        fitting = _fitting(waiting, room, view, now, shut)
        first = 2 * sum(room.values()) + 8
        pods = _queue(fitting, first, now) if rotate else islice(fitting, first)
        woken = wake_these(cluster, pods, _MADE, now, deadline, writes)
    ledger.metrics.changed("woken", woken)
    return woken


def _wake_first(
    ledger: Ledger,
    cluster: Cluster,
    schedulers: Iterable[str],
    room: Mapping[str, int],
    now: float,
    staged: Staged,
    shut: Callable[[], Collection[str]],
    deadline: Deadline,
    writes: PodWrites | None,
) -> int:
    """Wake as many of the first in line as there are units for, and have others woken later. Return how many
    were woken."""
    again, view, woken = staged.again, ledger.view(), 0
    for _ in range(2):
        waiting = again.waiting(lambda: list_waiting(cluster, schedulers, deadline))
        lasts = moment(len(waiting)) + _LATER_SECONDS if staged.a_pod_went else _BOUND_SECONDS
        pods = _first(_fitting(waiting, room, view, now, shut), room, view, again.turns, now + lasts, now)
        written = wake_these(cluster, pods, _MADE, now, deadline, writes)
        woken += written
        if written == len(pods):
            break
        again.forget()  # some are gone, and their turns are others'
    staged.call(room, now + lasts)
    return woken


def wake_these(
    cluster: Cluster,
    pods: Iterable[Pod],
    why: str,
    now: float,
    deadline: Deadline = NO_DEADLINE,
    writes: PodWrites | None = None,
) -> int:
    """Have kube-scheduler try these pods again. Return how many were woken; arguments are as in `wake`."""
    writes = writes or PodWrites(cluster)
    woken = 0
    for pod in pods:
        if (seconds := deadline.left()) <= 0:
            break
        if not writes.spent():
            note = condition(WOKEN, f"{why}; the pod is tried again", now)
            write = partial(cluster.set_condition, pod, note, min(seconds, _PATCH_SECONDS))
            what = f"pod {pod.label} was not woken"
            written = writes.attempt(pod.namespace, pod.metadata.name, what, write, deadline)
            woken += written is not None
    return woken


class SharedWake:
    """Coalesces wakes: one runs at a time, calls meanwhile share the next one.

    Of a hundred pods that go at once each frees units, and an event that freed nothing was delivered twice,
    or is forged, and anybody may send many of those. `wake` gets the room of all calls that share it, and the
    nodes that their pods left.
    """

    def __init__(self, wake: Callable[[Mapping[str, int], Collection[str]], int]) -> None:
        self._wake, self._lock = wake, threading.Lock()
        self._freed: Counter[str] = Counter()
        self._again: dict[str, int] = {}
        self._left: set[str] = set()
        self._shared = Coalesced(self._wake_noted)

    def freed(self, room: Mapping[str, int], left: str) -> int:
        """Return how many were woken, also for the calls that share it. Raises what `wake` raises."""
        self._note(room, {}, [left])
        return self._shared()

    def again(self, room: Mapping[str, int], left: str) -> int:
        """Do so for an event that freed nothing: as much room as it names may have come free before."""
        self._note({}, room, [left])
        return self._shared()

    def _note(self, freed: Mapping[str, int], again: Mapping[str, int], left: Iterable[str]) -> None:
        with self._lock:
            self._freed.update(freed)
            for pool, units in again.items():
                self._again[pool] = max(units, self._again.get(pool, 0))
            self._left.update(islice(left, _MOST_LEFT - len(self._left)))

    def _wake_noted(self) -> int:
        with self._lock:
            freed, self._freed = self._freed, Counter()
            again, self._again = self._again, {}
            left, self._left = self._left, set()
        try:
            room = {pool: max(freed[pool], again.get(pool, 0)) for pool in {**freed, **again}}
            return self._wake(room, left)
        except BaseException:
            # For the calls that share the next wake: some of this room may be theirs.
            self._note(freed, again, left)
            raise


def _first(
    fitting: Iterable[Pod],
    room: Mapping[str, int],
    view: View,
    turns: dict[str, float],
    until: float,
    now: float,
) -> list[Pod]:
    """Return the first in line, as many as there are units for, and give each of them a turn. Who asks for
    more than came free may have the rest where other units are free."""
    terms, unclaimed, first = terms_of(view), dict(room), list[Pod]()
    for pod in fitting:
        units = {pool: count for pool, count in terms.demand(pod).units.items() if pool in room}
        if (
            own_claim(pod, view) is None
            and all(unclaimed[pool] > 0 for pool in units)
            and turns.get(pod.metadata.uid, 0.0) <= now
        ):
            first.append(pod)
            turns[pod.metadata.uid] = until
            for pool, count in units.items():
                unclaimed[pool] -= count
        if len(first) >= FIRST_IN_LINE or all(count <= 0 for count in unclaimed.values()):
            break
    for uid in [uid for uid, over in list(turns.items()) if over <= now]:
        turns.pop(uid, None)
    return first


def _queue(fitting: Iterable[Pod], first: int, now: float) -> list[Pod]:
    """Return the first in line, and NEXT_IN_LINE of the others: each minute these begin further back, by half
    of NEXT_IN_LINE at most, so that none is left out when a tick is late."""
    pods = list(fitting)
    first = min(first, FIRST_IN_LINE)
    others = pods[first:]
    # A power of two: the place where they begin must not jump when one pod comes or goes.
    minutes = max(16, 1 << (2 * len(others) // NEXT_IN_LINE).bit_length())
    start = int(now / 60 % minutes / minutes * len(others))
    return pods[:first] + [*others[start:], *others[:start]][:NEXT_IN_LINE]


def _fitting(
    pods: Iterable[Pod], room: Mapping[str, int], view: View, now: float, shut: Callable[[], Collection[str]]
) -> Iterator[Pod]:
    """Yield the pods that request a pool with room, and could go to some node now."""
    terms = terms_of(view)
    fits: dict[Hashable, bool] = {}  # a thousand waiters often request the same
    closed: Collection[str] | None = None
    for pod in pods:
        demand = terms.demand(pod)
        if demand.refusal is not None or not any(pool in room for pool in demand.units):
            continue
        # It is being bound, or has a seat: a write would refuse its Binding.
        if own_claim(pod, view) is not None:
            continue
        closed = shut() if closed is None else closed
        kind = kind_of(pod, demand, view, now)
        if kind not in fits:
            fits[kind] = Fit(pod, demand, view, now).anywhere(() if pod.goes_to_unschedulable else closed)
        if fits[kind]:
            yield pod
