"""Hold units for the first in line: what comes free is kept for it until it is as much as it asks for.
Without that, pods that ask for less take each unit as it comes, and a large ask waits for ever.

One pod of a pool's line has a turn at a time, by priority, then by age. A turn ends when its units have been
idle for as long as the Pool says, so that no ask keeps them from others (docs/decisions/0054, 0058).
"""

import logging
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from math import ceil, log2
from typing import NamedTuple

from msgspec.structs import replace

from berth.api.gang import Gang, gang_or_none
from berth.controller.idle_line import IdleLine
from berth.controller.line import in_line
from berth.controller.line_budget import LineBudget
from berth.kube.cluster import Cluster
from berth.kube.types import Node, Pod, PodInFull
from berth.ledger import forecast
from berth.ledger.keys import domain_of, namespace_quota, parse_domain, unreserved_quota
from berth.ledger.last_reconcile import MOST_NOTES, LineNote, LineNotes
from berth.ledger.ledger import Ledger
from berth.ledger.model import Holding, LineHold
from berth.ledger.transaction import MOST_KEYS
from berth.scheduling.demand import Demand, is_unreserved, terms_of
from berth.scheduling.fit import Fit, kind_of
from berth.scheduling.node_fit import why_not
from berth.telemetry import calls

log = logging.getLogger("berth.claims")

LONGEST_PAUSE = 3600.0
"""Seconds that a pod has no turn after one that nothing came of, at most: twice as long after each. Where
units may be idle for longer than that, it is as long as they were."""

MOST_BEFORE = 10
"""Pods of a pool that are looked at in a reconcile: does one wait that is before the first in line?"""

NOWHERE_SECONDS = 300.0
"""How long a pod is left that may go to no node: labels and taints seldom change."""

SOON_SECONDS = 60.0
"""Units that are expected within this time are expected at once: ticks of reconcile are no finer."""

SOONER_GRADES = 2
"""A turn moves to where units are expected four times as soon."""

_NOTHING = Demand({})

Held = Mapping[str, LineHold]
"""What is held for one pod, by the documents' keys."""


Place = frozenset[tuple[str, str]]
"""The domains of one node in the pools that a pod asks for, as (pool, domain)."""


class Site(NamedTuple):
    """A place where units could be held: how soon they are expected, as a power of two of SOON_SECONDS, how
    many are missing now, the place, and how many in which documents."""

    grade: int
    missing: int
    place: Place
    parts: Mapping[str, int]

    @property
    def order(self) -> tuple[int, int, list[tuple[str, str]]]:
        return self.grade, self.missing, sorted(self.place)


class LineHolds:
    """Gives the turns in the lines of all pools, at one time (Unix seconds)."""

    def __init__(
        self, ledger: Ledger, cluster: Cluster, nodes: Sequence[Node], now: float, before: LineNotes
    ) -> None:
        """`before` is what the reconcile before remembers."""
        self._ledger, self._cluster, self._nodes, self._now = ledger, cluster, nodes, now
        self._view = ledger.view()
        self._notes = before.pods
        self._idle = IdleLine(before, now)
        self._budget = LineBudget(before.pods, now)
        self._lacks: dict[Hashable, Mapping[str, Mapping[tuple[str, str], int]]] = {}
        self._outlooks: dict[tuple[str, str, int], forecast.Outlook | None] = {}
        self._expected_at: dict[Hashable, list[Site]] = {}
        self._before: dict[str, list[tuple[Pod, Demand]]] = {}  # by pool, who is before the first of a turn
        self._waited_for: dict[str, bool] = {}

    def give(self, waiting: Iterable[Pod]) -> LineNotes:
        """Place, keep and drop what is held for these pods of our schedulers. Return what is to be remembered
        of them.

        One of whose turn nothing came is as if it had come when its pause ends: there may be many that can't
        run, and behind them one that can."""
        line = [pod for pod in sorted(in_line(waiting), key=self._place_in_line) if not self._is_bound(pod)]
        uids = {pod.metadata.uid for pod in line}
        self._idle.end_turns(self._view, uids)
        self._drop_others(uids)
        notes: dict[str, LineNote] = {}
        busy = {*self._idle.rests}  # pools in whose line nobody else has a turn
        together = self._together(line)
        demands = {pod.metadata.uid: self._demand(pod, together) for pod in line}
        self._budget.share_out((pod, demands[pod.metadata.uid]) for pod in line)
        for pod in line:
            uid, note = pod.metadata.uid, self._idle.noted(self._note(pod))
            demand = demands[uid]
            if not demand.units.keys() <= self._view.pools.keys():
                demand = _NOTHING  # a Pool went since it was read
            if demand.refusal is None and self._is_served(demand):
                if busy.isdisjoint(demand.units):
                    note, has = self._served(pod, demand, note)
                    busy |= demand.units.keys() if has else set()
                    self._note_before(pod, demand, note, busy)
                elif self._held(uid):
                    self._drop(uid, "another is before it in line")
                    note = replace(note, is_whole=False)
            elif self._held(uid):
                self._drop(uid, "nothing is to be held for it")
            elif demand.refusal is None:
                self._note_before(pod, demand, note, busy)
            if note != LineNote():
                notes[uid] = note
        latest = sorted(notes.items(), key=lambda item: (-item[1].whole_seconds, -item[1].until))
        turns = self._idle.turns(self._view)
        return LineNotes(dict(latest[:MOST_NOTES]), self._idle.rests, turns, self._now)

    def _demand(self, pod: Pod, together: Mapping[str, Demand]) -> Demand:
        uid = pod.metadata.uid
        return together[uid] if uid in together else terms_of(self._view).demand(pod)

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
            places = (self._places(pod, demand).values() for pod, demand in self._before.get(pool, ()))
            self._waited_for[pool] = any(min(missing) > 0 for missing in places if missing)
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
        if is_due and not held and not self._budget.allows(pod, demand):
            return note, False
        sites = self._sites(pod, demand) if is_due else []
        if held and self._is_current(held) and (site := _site_of(held, sites)) is not None:
            self._lend(pod.metadata.uid, held)
            if why := self._over(demand, note):
                return self._ended(pod, demand, note, why), True
            if not self._moves(held, site, sites, note):
                return replace(note, is_whole=not site.missing), True
        self._drop(pod.metadata.uid, "it may not go there now, or units are expected sooner elsewhere")
        note = replace(note, is_whole=False)
        if sites and self._placed(pod, demand, sites, note.vain):
            return note, True
        if is_due and not sites and self._budget.was_read(pod):
            self._budget.goes_nowhere(pod)
            return replace(note, looked=self._now, until=self._now + NOWHERE_SECONDS), False
        return note, False

    def _over(self, demand: Demand, note: LineNote) -> str:
        """Return why a turn is over though its pod waits; empty if it goes on."""
        stays = self._while(demand)
        if note.whole_seconds >= stays:
            return f"all of it was held for {stays} s, and the pod was not bound"
        if pool := self._idle.worn(demand.units, self._view):
            seconds = self._view.pools[pool].line.idle_seconds
            return f"units of {pool} were idle for {seconds} s before all that it asks for came free"
        return ""

    def _ended(self, pod: Pod, demand: Demand, note: LineNote, why: str) -> LineNote:
        """End the turn of a pod, which came to nothing. Return what is to be remembered of it."""
        idle = self._idle.end_in_vain(demand.units)
        self._drop(pod.metadata.uid, why)
        longest, pause = max(LONGEST_PAUSE, idle), max(self._while(demand), idle)
        until = self._now + min(longest, pause * 2.0 ** min(note.vain, 20))
        return LineNote(vain=note.vain + 1, until=until)

    def _moves(self, held: Held, site: Site, sites: Sequence[Site], note: LineNote) -> bool:
        """Whether what is missing is expected much sooner elsewhere, and has not come here for a while.

        After a turn in vain, a place where nothing is missing is none to move to: the pod could be bound
        there now, and lacks something else."""
        others = [other for other in sites if other.missing or not note.vain]
        waited = self._now - min(hold.since for hold in held.values())
        if not (site.missing and others) or waited < SOON_SECONDS:
            return False
        times = [self._expected(key, hold.count) for key, hold in held.items()]
        latest = max((time for time in times if time is not None), default=self._now)
        never = None in times
        return never or others[0].grade + SOONER_GRADES <= _grade(latest - self._now)

    def _expected(self, key: str, count: int) -> float | None:
        pool, name = domain_of(key)
        return forecast.held_by(self._view, pool, name, count, self._now)

    def _placed(self, pod: Pod, demand: Demand, sites: Sequence[Site], vain: int) -> bool:
        """Hold units for the pod where they are expected first, or elsewhere after so many turns in vain.
        Return whether they are held."""
        holds = self._view.line_holds.items()
        behind = {hold.uid for key, hold in holds if domain_of(key)[0] in demand.units}
        start = vain % len(sites)
        for site in (*sites[start:], *sites[:start]):
            if not demand.units.keys() <= self._view.pools.keys():
                return False  # a Pool of these went since the pod's demand was read
            if len(site.parts) > MOST_KEYS:
                continue
            for other in behind:
                self._drop(other, f"pod {pod.label} is before it in line")
            if self._ledger.hold_in_line(dict(self._holds(pod, site))):
                where = ", ".join(f"{pool} in {domain}" for pool, domain in sorted(site.place))
                message = "pod %s is first in line: what comes free of %s is held for it"
                calls.decided(log, "held", {"missing": site.missing}, message, pod.label, where)
                self._look()
                return True
        return False

    def _holds(self, pod: Pod, site: Site) -> Iterator[tuple[str, LineHold]]:
        """Yield what is to be held for the pod, by the documents' keys."""
        priority, made, gang = pod.spec.priority or 0, pod.made_at or self._now, gang_or_none(pod)
        for key, count in site.parts.items():
            rests = self._returns_after(domain_of(key)[0])
            of = "" if gang is None else gang.label
            uid = pod.metadata.uid
            yield key, LineHold(uid, pod.label, count, priority, made, self._now, rests, of)

    def _sites(self, pod: Pod, demand: Demand) -> list[Site]:
        """Return where units could be held for the pod and are expected to come free, the best first."""
        self._make_limits(pod, demand)
        kind = kind_of(pod, demand, self._view, self._now)
        if kind not in self._expected_at:
            self._expected_at[kind] = self._all_sites(pod, demand)
        sites = self._expected_at[kind]
        if not sites:
            return []
        self._budget.count(pod, demand)
        places = self._places(pod, demand)
        return [site for site in sites if site.place in places]

    def _all_sites(self, pod: Pod, demand: Demand) -> list[Site]:
        """Return as `_sites` does, also where kube-scheduler's rules don't let the pod go."""
        sites: list[Site] = []
        missing = {_place(lacks): sum(lacks.values()) for lacks in self._lacking(pod, demand).values()}
        for place, count in missing.items():
            shares = [
                self._outlook(pool, name, demand.units[pool])
                for pool, name in self._shares(pod, demand, place)
            ]
            expected = [share for share in shares if share is not None]
            if len(expected) == len(shares):
                latest = max((share.by for share in expected), default=self._now)
                parts = {key: units for share in expected for key, units in share.parts.items()}
                sites.append(Site(_grade(latest - self._now), count, place, parts))
        return sorted(sites, key=lambda site: site.order)

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

    def _shares(self, pod: Pod, demand: Demand, place: Place) -> Iterator[tuple[str, str]]:
        """Yield the domains and quotas in which units are to be held for the pod, as (pool, name)."""
        for pool, domain in place:
            yield pool, domain
            if is_unreserved(self._view.pools[pool], pod):
                yield pool, unreserved_quota(domain)
        for pool in demand.units:
            if self._view.pools[pool].limit(pod.namespace) is not None:
                yield pool, namespace_quota(pod.namespace)

    def _outlook(self, pool: str, name: str, count: int) -> forecast.Outlook | None:
        """Return when so many units are expected; computed once for all pods that ask for as many."""
        which = pool, name, count
        if which not in self._outlooks:
            self._outlooks[which] = forecast.outlook(self._view, pool, name, count, self._now)
        return self._outlooks[which]

    def _make_limits(self, pod: Pod, demand: Demand) -> None:
        """Make the documents of its namespace's limits, which are absent while its pods hold nothing."""
        quota = namespace_quota(pod.namespace)
        holdings = [Holding(pool, quota, count) for pool, count in demand.units.items()]
        if self._ledger.make_limits(holdings):
            self._look()

    def _lacking(self, pod: Pod, demand: Demand) -> Mapping[str, Mapping[tuple[str, str], int]]:
        """Return what such a pod lacks, by node; a thousand waiters often ask for the same."""
        kind = kind_of(pod, demand, self._view, self._now)
        if kind not in self._lacks:
            fit, names = Fit(pod, demand, self._view, self._now), (node.metadata.name for node in self._nodes)
            self._lacks[kind] = fit.missing(names)
        return self._lacks[kind]

    def _places(self, pod: Pod, demand: Demand) -> dict[Place, int]:
        """Return where units could be held for the pod, by kube-scheduler's rules too, and how many are
        missing there."""
        lacks, places = self._lacking(pod, demand), dict[Place, int]()
        if not lacks or (full := self._in_full(pod)) is None:
            return places
        for node in self._nodes:
            missing = lacks.get(node.metadata.name)
            if missing is not None and why_not(full, node) is None:
                places[_place(missing)] = sum(missing.values())
        return places

    def _in_full(self, pod: Pod) -> PodInFull | None:
        """Return the pod with what kube-scheduler goes by; None where it waits no more."""
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
        self._view = self._ledger.view()
        self._lacks, self._outlooks, self._expected_at = {}, {}, {}


def _place(where: Iterable[tuple[str, str]]) -> Place:
    """Return the place that these domains are, whole or in stripes, and quotas are of."""
    names = ((pool, parse_domain(name)) for pool, name in where)
    return frozenset((pool, name.whole) for pool, name in names if not name.is_quota)


def _site_of(held: Held, sites: Iterable[Site]) -> Site | None:
    """Return the place where these units are held; None where it is none of these."""
    place = _place(map(domain_of, held))
    return next((site for site in sites if site.place == place), None)


def _grade(seconds: float) -> int:
    """Return how long a time is, as a power of two of SOON_SECONDS; 0 for what is shorter."""
    return max(0, ceil(log2(max(seconds, 1.0) / SOON_SECONDS)))
