"""Hold units for the first in line: what comes free is kept for it until it is as much as it asks for.
Without that, pods that ask for less take each unit as it comes, and a large ask waits for ever.

One pod of a pool's line has a turn at a time, by priority, then by age. A turn that nothing comes of ends, so
that a pod that can't run keeps no units idle (docs/decisions/0054).
"""

import logging
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from berth.api.gang import Gang, gang_or_none
from berth.controller.line import in_line
from berth.kube.cluster import Cluster
from berth.kube.types import Node, Pod, PodInFull
from berth.ledger.keys import domain_key, domain_of, parse_domain, unreserved_quota
from berth.ledger.last_reconcile import MOST_NOTES, LineNote, LineNotes
from berth.ledger.ledger import Ledger
from berth.ledger.model import LineHold
from berth.ledger.transaction import MOST_KEYS
from berth.scheduling.demand import Demand, is_unreserved, terms_of
from berth.scheduling.fit import Fit, kind_of
from berth.scheduling.node_fit import why_not
from berth.telemetry import calls

log = logging.getLogger("berth.claims")

LONGEST_PAUSE = 3600.0
"""Seconds that a pod has no turn after one that nothing came of, at most: twice as long after each."""

MOST_READ = 50
"""Pods without a turn that are read in a reconcile to see where they may go; those behind are in the next."""

MOST_BEFORE = 10
"""Pods of a pool that are looked at in a reconcile: does one wait that is before the first in line?"""

NOWHERE_SECONDS = 300.0
"""How long a pod is left that may go to no node: labels and taints seldom change."""

_NOTHING = Demand({})

Held = Mapping[str, LineHold]
"""What is held for one pod, by the documents' keys."""


Place = frozenset[tuple[str, str]]
"""The domains of one node in the pools that a pod asks for, as (pool, domain)."""


class LineHolds:
    """Gives the turns in the lines of all pools, at one time (Unix seconds)."""

    def __init__(
        self, ledger: Ledger, cluster: Cluster, nodes: Sequence[Node], now: float, before: LineNotes
    ) -> None:
        """`before` is what the reconcile before remembers."""
        self._ledger, self._cluster, self._nodes, self._now = ledger, cluster, nodes, now
        self._view = ledger.view()
        self._notes = before.pods
        self._rests = {pool: until for pool, until in before.rests.items() if until > now}
        self._lacks: dict[Hashable, Mapping[str, Mapping[tuple[str, str], int]]] = {}
        self._before: dict[str, list[tuple[Pod, Demand]]] = {}  # by pool, who is before the first of a turn
        self._waited_for: dict[str, bool] = {}
        self._read = 0

    def give(self, waiting: Iterable[Pod]) -> LineNotes:
        """Place, keep and drop what is held for these pods of our schedulers. Return what is to be remembered
        of them.

        One of whose turn nothing came is as if it had come when its pause ends: there may be many that can't
        run, and behind them one that can."""
        line = sorted(in_line(waiting), key=self._place_in_line)
        self._drop_others({pod.metadata.uid for pod in line if not self._is_bound(pod)})
        notes: dict[str, LineNote] = {}
        busy = {*self._rests}  # pools in whose line nobody else has a turn
        together = self._together(line)
        for pod in line:
            uid, note = pod.metadata.uid, self._note(pod)
            demand = together[uid] if uid in together else terms_of(self._view).demand(pod)
            if not demand.units.keys() <= self._view.pools.keys():
                demand = _NOTHING  # a Pool went since it was known what the gang asks for
            if self._is_bound(pod):
                continue
            if demand.refusal is None and self._is_served(demand):
                if busy.isdisjoint(demand.units):
                    note, has = self._served(pod, demand, note)
                    busy |= demand.units.keys() if has else set()
                    self._note_before(pod, demand, note, busy)
                elif self._held(uid):
                    self._drop(uid, "another is before it in line")
                    note = replace(note, whole=0.0)
            elif self._held(uid):
                self._drop(uid, "nothing is to be held for it")
            elif demand.refusal is None:
                self._note_before(pod, demand, note, busy)
            if note != LineNote():
                notes[uid] = note
        latest = sorted(notes.items(), key=lambda item: (-item[1].whole, -item[1].until))
        return LineNotes(dict(latest[:MOST_NOTES]), self._rests)

    def _together(self, line: Iterable[Pod]) -> dict[str, Demand]:
        """Return what pods of gangs ask for in line, by UID: one of a gang for all of it (who has the
        turn, or had the last one, else the first), and the others for nothing."""
        gangs: dict[Gang, list[Pod]] = {}
        for pod in line:
            if (gang := gang_or_none(pod)) is not None and gang.size != 1:
                gangs.setdefault(gang, []).append(pod)
        asked: dict[str, Demand] = {}
        for gang, pods in gangs.items():
            asked |= dict.fromkeys((pod.metadata.uid for pod in pods), _NOTHING)
            waiting = [pod for pod in pods if not self._view.keys_of(pod.metadata.uid)]
            if waiting:
                first = max(waiting, key=self._had_turn)
                asked[first.metadata.uid] = self._all_of(gang, waiting)
        return asked

    def _had_turn(self, pod: Pod) -> tuple[bool, int]:
        """Return what is largest for the pod that has its gang's turn, or had most of its turns in vain. That
        is noted of this one: others would have a turn at once."""
        return bool(self._held(pod.metadata.uid)), self._note(pod).vain

    def _all_of(self, gang: Gang, waiting: Sequence[Pod]) -> Demand:
        """Return what the rest of a gang asks for together; nothing where it is not there or rests, or where
        units are not all in one place: there is no telling on which nodes they are to be held."""
        note = self._view.gangs.get(gang.label)
        if not gang.size or (note is not None and note.rests(self._now)):
            return _NOTHING
        missing = gang.size - len(self._view.gang(gang.label))
        demands = [terms_of(self._view).demand(pod) for pod in waiting[:missing]]
        pools = {pool for demand in demands for pool in demand.units}
        in_one_place = all(self._view.pools[pool].spec.scope == "Cluster" for pool in pools)
        served = all(demand.refusal is None and not demand.claims for demand in demands)
        if len(waiting) < missing or not (in_one_place and served):
            return _NOTHING
        return Demand({pool: sum(demand.units.get(pool, 0) for demand in demands) for pool in sorted(pools)})

    def _note_before(self, pod: Pod, demand: Demand, note: LineNote, busy: Collection[str]) -> None:
        """Note a pod that has no turn and is before whoever gets one; not one that can't run for a while."""
        for pool in demand.units.keys() - {*busy} if self._now >= note.until else ():
            before = self._before.setdefault(pool, [])
            if len(before) < MOST_BEFORE:
                before.append((pod, demand))

    def _waits_before(self, pool: str) -> bool:
        """Whether a pod waits for units of the pool that is before whoever has its turn: one that could go
        somewhere if it had them. If they are free for it, it lacks something else, or is being bound."""
        if pool not in self._waited_for:
            read = self._read
            places = (self._places(pod, demand).values() for pod, demand in self._before.get(pool, ()))
            self._waited_for[pool] = any(min(missing) > 0 for missing in places if missing)
            self._read = read  # these are few
        return self._waited_for[pool]

    def _place_in_line(self, pod: Pod) -> tuple[int, float]:
        note = self._note(pod)
        return -(pod.spec.priority or 0), max(pod.made_at or 0.0, note.until if note.vain else 0.0)

    def _note(self, pod: Pod) -> LineNote:
        return self._notes.get(pod.metadata.uid, LineNote())

    def _is_bound(self, pod: Pod) -> bool:
        """Whether it was bound since it was listed."""
        return any(claim.state == "bound" for claim in self._view.claims_of(pod.metadata.uid))

    def _served(self, pod: Pod, demand: Demand, note: LineNote) -> tuple[LineNote, bool]:
        """Return what is to be remembered of a pod before which nobody has a turn, and whether it has one."""
        held = self._held(pod.metadata.uid)
        if any(claim.state == "reserved" for claim in self._view.claims_of(pod.metadata.uid)):
            return note, bool(held)  # it is being bound: what comes of that is not known yet
        is_due = self._now >= note.until and self._waited(pod) >= self._after(demand)
        if is_due and not held and self._read >= MOST_READ:
            return note, False
        read = self._read
        places = self._places(pod, demand) if is_due else {}
        if held and _place_of(held) in places and self._is_current(held):
            self._lend(pod.metadata.uid, held)
            return self._judged(pod, demand, note, missing=places[_place_of(held)])
        self._drop(pod.metadata.uid, "it may not go there now")
        if self._placed(pod, demand, places, note.vain):
            return replace(note, whole=0.0), True
        if self._read > read and not places:
            return replace(note, whole=0.0, until=self._now + NOWHERE_SECONDS), False
        return replace(note, whole=0.0), False

    def _judged(self, pod: Pod, demand: Demand, note: LineNote, missing: int) -> tuple[LineNote, bool]:
        """Do as `_served` for a pod that has its turn: it is over where nothing was missing long enough."""
        if missing:
            return replace(note, whole=0.0), True
        whole, stays = note.whole or self._now, self._while(demand)
        if self._now - whole < stays:
            return replace(note, whole=whole), True
        held = self._held(pod.metadata.uid).values()
        lasted = self._now - min(hold.since for hold in held)
        self._rests |= dict.fromkeys(demand.units, self._now + lasted)
        self._drop(pod.metadata.uid, f"all of it was held for {stays} s, and the pod was not bound")
        pause = min(LONGEST_PAUSE, stays * 2.0 ** min(note.vain, 20))
        return LineNote(vain=note.vain + 1, until=self._now + pause), True

    def _placed(self, pod: Pod, demand: Demand, places: Mapping[Place, int], vain: int) -> bool:
        """Hold units for the pod where the fewest are missing, or elsewhere after so many in vain. Return
        whether they are."""
        holds = self._view.line_holds.items()
        behind = {hold.uid for key, hold in holds if domain_of(key)[0] in demand.units}
        ordered = sorted(places, key=lambda place: (places[place], sorted(place)))
        start = vain % len(ordered) if ordered else 0
        for place in (*ordered[start:], *ordered[:start]):
            if not demand.units.keys() <= self._view.pools.keys():
                return False  # a Pool of these went since the pod's demand was read
            wanted = dict(self._wanted(pod, demand, place))
            if len(wanted) > MOST_KEYS:
                continue
            for other in behind:
                self._drop(other, f"pod {pod.label} is before it in line")
            if self._ledger.hold_in_line(wanted):
                where = ", ".join(f"{pool} in {domain}" for pool, domain in sorted(place))
                said = "pod %s is first in line: what comes free of %s is held for it"
                calls.decided(log, "held", {"missing": places[place]}, said, pod.label, where)
                self._look()
                return True
        return False

    def _wanted(self, pod: Pod, demand: Demand, place: Place) -> Iterator[tuple[str, LineHold]]:
        """Yield what is to be held for the pod, by the documents' keys."""
        for pool, domain in place:
            names = [domain]
            if is_unreserved(self._view.pools[pool], pod):
                names.append(unreserved_quota(domain))
            for name in names:
                yield from self._parts(pod, pool, name, demand.units[pool])

    def _parts(self, pod: Pod, pool: str, domain: str, count: int) -> Iterator[tuple[str, LineHold]]:
        """Yield what is to be held in each document of a domain: in as few as can be, those first in which
        the fewest units are missing."""
        left = count
        parts = self._view.parts(pool, domain)
        rooms = {name: part.room(pool, name, (), self._now) for name, part in parts.items()}
        for name in sorted(parts, key=lambda name: (-rooms[name], name)):
            here = min(left, parts[name].capacity or 0)
            if here:
                left -= here
                priority, made = pod.spec.priority or 0, pod.made_at or self._now
                rests = self._returns_after(pool)
                uid, gang = pod.metadata.uid, gang_or_none(pod)
                of = "" if gang is None else gang.label
                hold = LineHold(uid, pod.label, here, priority, made, self._now, rests, of)
                yield domain_key(pool, name), hold

    def _lend(self, uid: str, held: Held) -> None:
        """Lend what is held for the pod, or lend it no more, where that has changed."""
        after = {key: self._returns_after(domain_of(key)[0]) for key in held}
        if any(hold.rests != after[key] for key, hold in held.items()):
            self._ledger.lend_line_hold(uid, after)
            self._look()

    def _returns_after(self, pool: str) -> int | None:
        """Return how long units rest in the pool after a loan; None: none are lent. Who is before the first
        in line gets what comes free: a loan would make it later, and the first in line with it."""
        return None if self._waits_before(pool) else self._view.pools[pool].returns_after

    def _places(self, pod: Pod, demand: Demand) -> dict[Place, int]:
        """Return where units could be held for the pod, by kube-scheduler's rules too, and how many are
        missing there."""
        kind = kind_of(pod, demand, self._view, self._now)
        if kind not in self._lacks:  # a thousand waiters often ask for the same
            fit, names = Fit(pod, demand, self._view, self._now), (node.metadata.name for node in self._nodes)
            self._lacks[kind] = {} if fit.own_obstacles() else fit.missing(names)
        lacks, places = self._lacks[kind], dict[Place, int]()
        if not lacks or (full := self._in_full(pod)) is None:
            return places
        for node in self._nodes:
            missing = lacks.get(node.metadata.name)
            if missing is not None and why_not(full, node) is None:
                places[frozenset(missing)] = sum(missing.values())
        return places

    def _in_full(self, pod: Pod) -> PodInFull | None:
        """Return the pod with what kube-scheduler goes by; None where it waits no more."""
        self._read += 1
        full = self._cluster.pod_with_conditions(pod.namespace, pod.metadata.name)
        waits = full is not None and full.metadata.uid == pod.metadata.uid and full.waiting
        return full if waits else None

    def _is_current(self, held: Held) -> bool:
        """Whether the documents of what is held are those of their domains still, and large enough."""
        for key, hold in held.items():
            pool, name = domain_of(key)
            part = self._view.parts(pool, parse_domain(name).whole).get(name)
            if part is None or (part.capacity or 0) < hold.count:
                return False
        return True

    def _is_served(self, demand: Demand) -> bool:
        """Whether such pods have turns. One that asks for a single unit has none: whatever comes free is
        enough for it."""
        on = all(self._view.pools[pool].line.holds == "FirstInLine" for pool in demand.units)
        return on and sum(demand.units.values()) > 1

    def _after(self, demand: Demand) -> int:
        return max(self._view.pools[pool].line.hold_after_seconds for pool in demand.units)

    def _while(self, demand: Demand) -> int:
        return max(self._view.pools[pool].line.while_held_seconds for pool in demand.units)

    def _waited(self, pod: Pod) -> float:
        return 0.0 if pod.made_at is None else self._now - pod.made_at

    def _held(self, uid: str) -> Held:
        return {key: hold for key, hold in self._view.line_holds.items() if hold.uid == uid}

    def _drop_others(self, uids: Collection[str]) -> None:
        """Drop what is held for pods that wait no more."""
        for uid in {hold.uid for hold in self._view.line_holds.values()} - {*uids}:
            self._drop(uid, "it waits no more")

    def _drop(self, uid: str, why: str) -> None:
        if held := self._held(uid):
            label = next(iter(held.values())).label
            self._ledger.drop_line_hold(uid)
            calls.decided(log, "dropped", {}, "nothing is held for pod %s any more: %s", label, why)
            self._look()

    def _look(self) -> None:
        self._view, self._lacks = self._ledger.view(), {}


def _place_of(held: Held) -> Place:
    names = ((pool, parse_domain(name)) for pool, name in map(domain_of, held))
    return frozenset((pool, name.whole) for pool, name in names if not name.is_quota)
