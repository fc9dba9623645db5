"""Reserve a pod's units with those of the rest of its gang, all or none, when the first of them is bound.
The others get seats, which their own binds take. Which pods there are, the API server says."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple, Never

import msgspec
from msgspec.structs import replace

from berth.api.gang import (
    LARGEST_GANG,
    Gang,
    gang_label,
    gang_or_none,
    label_before,
    name_of,
    size_of,
    sized,
)
from berth.api.run_time import ends_at
from berth.controller.gang_roll import Roll, names_gang, roll_of
from berth.controller.line import AnyPod
from berth.controller.notices import Subject, Teller
from berth.controller.requeue import wake_these
from berth.controller.settle import claim_of
from berth.deadline import NO_DEADLINE, Deadline
from berth.errors import BerthError, RefusedError
from berth.kube.cluster import Cluster
from berth.kube.types import Node, Pod, PodInFull
from berth.ledger import refusals
from berth.ledger.gang_note import BELIEVED_SECONDS, LONGEST_REST, GangMember, GangNote, GangSeen
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim
from berth.ledger.seats import GangLargeError, Member, NoSeatError
from berth.ledger.transaction import OvertakenError
from berth.ledger.transitions import ElsewhereError
from berth.ledger.view import View
from berth.scheduling.demand import Demand, Terms, rank_of, terms_of
from berth.scheduling.fit import Fit, kind_of
from berth.scheduling.gang import free_for
from berth.scheduling.node_fit import why_not
from berth.skew import MOST_APART
from berth.telemetry import calls
from berth.telemetry.traces import Facts

log = logging.getLogger("berth.claims")

COMPLETE = "what its gang lacked is there"
"""Why pods are woken that waited for others of their gang, or for what these ask for."""

_LIST_SECONDS = 10.0

_MOST_NOTED = 100
"""Gangs of which reconcile notes at a time that they wait; bind notes the others as their pods are tried."""

_LOOKS = 5
"""So often a bind looks at a gang while other binds of its pods are first."""


class Seats(NamedTuple):
    """The pod's claim, and the pods of its gang for which seats were reserved with it."""

    claim: Claim
    others: Sequence[Pod] = ()


class GangRefusedError(RefusedError):
    """Its gang can't be had, and that was not known until now.

    Filter may have refused others for the units that were to be the pod's own (`wanted`). `others` are the
    rest of its gang, where none of them will be had as long as they are as they are.
    """

    def __init__(self, message: str, wanted: Claim, others: Sequence[Pod]) -> None:
        super().__init__(message)
        self.wanted, self.others = wanted, others


class _SlowError(RefusedError):
    """Its pods are too different to look in time where all of them may go."""


class GangBinding:
    """Reserves for one pod of a gang, in a bind that has until the deadline."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        schedulers: Collection[str],
        clock: Callable[[], float],
        deadline: Deadline,
    ) -> None:
        self._ledger, self._cluster, self._schedulers = ledger, cluster, schedulers
        self._clock, self._deadline = clock, deadline
        self._listed: Sequence[Node] = ()

    def reserve(self, pod: Pod, gang: Gang, wanted: Claim, after: str | None) -> Seats:
        """Hold what is wanted for the pod: as its seat, or with what the rest of its gang asks for. Raises as
        Ledger.reserve; `after` is as there."""
        for _ in range(_LOOKS):
            seen = self._ledger.gang(gang.label)
            mine = seen.claims.get(wanted.uid)
            view = self._ledger.view()
            if mine is None and (other := _other_claim(pod, gang, view)) is not None:
                raise ElsewhereError(other)
            rank = rank_of(pod, view, self._clock())
            try:
                if mine is not None and mine.is_seat:
                    return Seats(self._ledger.take_seat(wanted, mine, rank, seen))
                roll = self._rolled(pod, gang, seen) if mine is None else Roll(())
                if mine is None and (gang.size > 1 or roll.refusal):
                    return self._together(pod, gang, wanted, seen, roll)
                if mine is not None and mine.seat_until:
                    wanted = replace(wanted, seat_until=mine.seat_until, seated=mine.held_since)
                return Seats(self._ledger.reserve(wanted, after=after, rank=rank))
            except OvertakenError:
                continue
        raise RefusedError(f"gang {gang.name}: other pods of it are being bound; it will be tried again")

    def _together(self, pod: Pod, gang: Gang, wanted: Claim, seen: GangSeen, roll: Roll[PodInFull]) -> Seats:
        """Reserve for the pod and the rest of its gang, all or none."""
        view, uid = self._ledger.view(), pod.metadata.uid
        terms = terms_of(view)
        rest = [other for other in roll.waiting if other.metadata.uid != uid]
        everybody: list[Pod] = [pod, *rest]
        note = note_of(Roll(everybody, *roll[1:]), terms, self._clock())
        if roll.needed > 1 and seen.note.rests(self._clock()):
            self._ledger.note_gang(seen, note)
            raise RefusedError(refusals.gang_rests(gang.name))
        if roll.refusal:
            self._ledger.note_gang(seen, note)
            if _is_news(note, seen.note):
                asking = [other for other in rest if (asks := terms.demand(other)).units and not asks.refusal]
                raise GangRefusedError(roll.refusal, wanted, () if roll.absent else asking)
            raise RefusedError(roll.refusal)
        demands = ((other, terms.demand(other)) for other in rest[: max(0, roll.needed - 1)])
        others = [(other, demand) for other, demand in demands if demand.units]
        others.sort(key=lambda other: -sum(other[1].units.values()))
        try:
            claim, *_ = self._seated(pod, gang, wanted, seen, others, view)
        except NoSeatError as error:
            seatless = (pod, *(other for other, _ in others))[error.number]
            why = str(error) or self._obstacles(seatless, view)
            text = refusals.gang_seatless(gang.name, len(others) + 1, seatless.metadata.name, why)
            self._stuck(seen, note, text, view, wanted)
        except (GangLargeError, _SlowError) as error:
            self._stuck(seen, note, str(error), view, wanted)
        self._end_turn(claim, gang)
        if others:
            facts: Facts = {"seats": len(others)}
            text = "pod %s is first of its gang: %d of its other pods have seats"
            calls.decided(log, "seated", facts, text, pod.label, len(others))
        return Seats(claim, [other for other, _ in others])

    def _seated(
        self,
        pod: Pod,
        gang: Gang,
        wanted: Claim,
        seen: GangSeen,
        others: Sequence[tuple[PodInFull, Demand]],
        view: View,
    ) -> list[Claim]:
        """Return claims for the pod and these others, the pod's first. Raises as Ledger.reserve_gang."""
        terms, now = terms_of(view), self._clock()
        pools = {
            pool for demand in (terms.demand(pod), *(demand for _, demand in others)) for pool in demand.units
        }
        seconds = max(terms.pools[pool].gang_seconds for pool in pools)
        until = now + seconds if others else 0.0
        own = replace(wanted, seat_until=until)
        seating = _Seating(terms, view, now, until, own.node, partial(self._nodes, gang))
        members = [Member([own.node], lambda _: own, own.uid, rank_of(pod, view, now))]
        members += [seating.member(other, demand) for other, demand in others]
        return self._ledger.reserve_gang(seen, members)

    def _obstacles(self, pod: Pod, view: View) -> str:
        """Return what keeps the pod from all nodes, whatever they have; empty: nothing that is known."""
        demand = terms_of(view).demand(pod)
        return "; ".join(item.text for item in Fit(pod, demand, view, self._clock()).own_obstacles())

    def _stuck(self, seen: GangSeen, note: GangNote, why: str, view: View, wanted: Claim) -> Never:
        """Refuse, and have filter refuse for a while: each of many pods would list pods and nodes again."""
        namespace = seen.label.partition("/")[0]
        free = free_for(namespace, note.members.values(), view, self._clock())
        self._ledger.note_gang(seen, replace(note, why=why, free=free))
        raise RefusedError(why) if seen.note.why else GangRefusedError(why, wanted, ())

    def _end_turn(self, claim: Claim, gang: Gang) -> None:
        """Hold nothing for the gang in line any more, which has its units."""
        try:
            self._ledger.drop_line_hold(claim.uid, gang=gang.label)
        except BerthError as error:
            log.warning("what is held in line for gang %s waits for reconcile: %s", gang.label, error)

    def _rolled(self, pod: Pod, gang: Gang, seen: GangSeen) -> Roll[PodInFull]:
        timeout, uid = self._deadline.timeout(), pod.metadata.uid
        pods = self._cluster.pods_in(pod.namespace, partial(names_gang, gang.name), timeout)
        view = self._ledger.view()  # after the list: what it has of a pod is no older
        pods = [
            sized(other, gang.size)
            for other in pods
            if other.metadata.uid == uid or not other.waiting or _other_claim(other, gang, view) is None
        ]
        roll = roll_of(pod, gang, pods, self._schedulers, lambda other: other.metadata.uid in seen.claims)
        return _judged(roll, gang, terms_of(view))

    def _nodes(self, gang: Gang) -> Sequence[Node]:
        """Return all nodes, which are listed once. Each of many pods that select or tolerate different things
        needs a look at all of them: that must not go on for longer than bind may."""
        if self._deadline.left() <= 0:
            raise _SlowError(refusals.gang_slow(gang.name))
        self._listed = self._listed or self._cluster.nodes(self._deadline.timeout())
        return self._listed


class _Seating:
    """Finds where the others of a gang may go, at one time (Unix seconds)."""

    def __init__(
        self,
        terms: Terms,
        view: View,
        now: float,
        until: float,
        first: str,
        nodes: Callable[[], Sequence[Node]],
    ) -> None:
        """`first` is the node of the pod that is being bound. `nodes` returns all, as long as there is time
        to look at them."""
        self._terms, self._view, self._now, self._until = terms, view, now, until
        self._first, self._nodes = first, nodes
        self._allowed: dict[bytes, Sequence[str]] = {}  # by what pods select and tolerate
        self._known: dict[Hashable, Sequence[str]] = {}

    def member(self, pod: PodInFull, demand: Demand) -> Member:
        """Return the pod as one for which a seat is looked for."""
        spec = pod.spec
        rules = msgspec.json.encode((spec.node_selector, spec.affinity, spec.tolerations))
        kind = kind_of(pod, demand, self._view, self._now), rules
        if kind not in self._known:
            self._known[kind] = self._open_to(pod, demand, rules)

        def on(node: str) -> Claim:
            claim = claim_of(pod, node, self._terms, demand, "", self._now)
            return replace(claim, seat_until=self._until, ends=ends_at(pod, self._until))

        # Nothing is lent to a seat: its pod may begin much later.
        rank = rank_of(pod, self._view, self._now)._replace(ends=0.0)
        return Member(self._known[kind], on, kind, rank)

    def _open_to(self, pod: PodInFull, demand: Demand, rules: bytes) -> list[str]:
        """Return the nodes that the pod may have, the one of the first pod before the others."""
        fit = Fit(pod, demand, self._view, self._now)
        names = set() if fit.own_obstacles() else fit.nodes()
        if all(self._terms.pools[pool].spec.scope == "Cluster" for pool in demand.units):
            return sorted(names, key=self._place)[:1]  # they have the same units
        if rules not in self._allowed:
            self._allowed[rules] = self._allowed_to(pod)
        return [name for name in self._allowed[rules] if name in names]

    def _allowed_to(self, pod: PodInFull) -> list[str]:
        """Return the nodes where kube-scheduler may put the pod, whatever room they have."""
        allowed = (node.metadata.name for node in self._nodes() if why_not(pod, node) is None)
        return sorted(allowed, key=self._place)

    def _place(self, name: str) -> tuple[bool, str]:
        return name != self._first, name


def _other_claim(pod: Pod, gang: Gang, view: View) -> Claim | None:
    """Return what the pod got before it named this gang: annotations may be changed. Its own bind settles
    that, and until then it is none of the gang."""
    labels = gang.label, label_before(gang.label)
    claims = view.claims_of(pod.metadata.uid)
    return next((claim for claim in claims if claim.gang_label not in labels), None)


def _judged(roll: Roll[AnyPod], gang: Gang, terms: Terms) -> Roll[AnyPod]:
    """Return the roll, refused also where a pod that is to be served with others can be served nowhere."""
    if roll.refusal or roll.needed <= 1:
        return roll
    for pod in roll.waiting[: roll.needed]:
        if (refusal := terms.demand(pod).refusal) is not None:
            return roll._replace(refusal=refusals.gang_refused(gang.name, pod.metadata.name, refusal))
    return roll


def note_of(roll: Roll[AnyPod], terms: Terms, now: float) -> GangNote:
    """Return what is to be noted of a gang with this roll that can't be had."""
    pods = roll.waiting[:LARGEST_GANG]  # more may bear its name than a document takes
    members = {
        pod.metadata.uid: GangMember(pod.metadata.name, terms.demand(pod).units, size_of(pod)) for pod in pods
    }
    more = len(roll.waiting) - len(pods)
    return GangNote(now, members, max(1, roll.needed), roll.absent, more, roll.refusal)


def _is_news(note: GangNote, before: GangNote) -> bool:
    """Whether the gang was not refused before; one whose pods come one by one only once."""
    return not before.refusal or (note.refusal != before.refusal and not note.absent)


def note_refusal(ledger: Ledger, gang: Gang, refusal: str, now: float) -> None:
    """Note why no pod of the gang can be had, whatever is free and whichever there are."""
    with suppress(OvertakenError):
        ledger.note_gang(ledger.gang(gang.label), GangNote(now, together=1, more=1, refusal=refusal))


def revised(
    ledger: Ledger, label: str, pods: Collection[AnyPod], schedulers: Collection[str], now: float
) -> Sequence[AnyPod]:
    """Look anew at a gang that was refused because of which pods there were, or because one of them asks for
    what there is not, by all pods of its namespace that name it. Return those that may be tried again: now it
    may be had. Else all of them are refused for as long as before."""
    view = ledger.view()
    note, first = view.gangs.get(label), next((pod for pod in pods if _waits_in(pod, label)), None)
    if note is None or first is None or not note.lacks_pods or (gang := gang_or_none(first)) is None:
        return ()
    if not gang.size:
        return ()  # who reads its PodGroup will see
    pods = [pod for pod in pods if not pod.waiting or _other_claim(pod, gang, view) is None]
    terms = terms_of(view)
    roll = roll_of(first, gang, pods, schedulers, lambda pod: bool(view.keys_of(pod.metadata.uid)))
    roll = _judged(roll, gang, terms)
    with suppress(OvertakenError):
        seen = ledger.gang(label)
        ledger.note_gang(seen, note_of(roll, terms, now) if roll.refusal else GangNote(now))
    return () if roll.refusal else [pod for pod in roll.waiting if terms.demand(pod).units]


def _waits_in(pod: Pod, label: str) -> bool:
    return pod.waiting and gang_label(pod) == label


def came_or_went(
    ledger: Ledger,
    cluster: Cluster,
    pod: Pod,
    schedulers: Collection[str],
    now: float,
    *,
    went: bool = False,
    deadline: Deadline = NO_DEADLINE,
) -> int:
    """Wake the pods of a gang that waited for this one to come, where it asks for nothing and no bind of its
    own reserves for them, or to go (`went`), where it said another size. Return how many were woken."""
    gang = gang_or_none(pod)
    note = None if gang is None else ledger.view().gangs.get(gang.label)
    if gang is None or note is None or not note.lacks_pods or (went and note.absent):
        return 0
    timeout = deadline.timeout(_LIST_SECONDS)
    listed = cluster.pods_in(pod.namespace, partial(names_gang, gang.name), timeout)
    pods = [sized(other, note.size) for other in listed]
    tried = revised(ledger, gang.label, pods, schedulers, now)
    return wake_these(cluster, tried, COMPLETE, now, deadline)


def pools_changed(ledger: Ledger, cluster: Cluster, schedulers: Collection[str], now: float) -> int:
    """Wake the pods of gangs that waited for a Pool or PoolClaim that one of them asks for and that is
    there now. Return how many were woken."""
    notes = {label: note for label, note in ledger.view().gangs.items() if note.lacks_pods}
    if not notes:
        return 0
    names = {label_before(label) for label in notes}
    listed = cluster.pods(lambda pod: label_before(gang_label(pod)) in names)
    pods = [sized(pod, notes.get(gang_label(pod), GangNote()).size) for pod in listed]
    return wake_these(cluster, all_revised(ledger, pods, schedulers, now), COMPLETE, now)


def all_revised(
    ledger: Ledger, pods: Iterable[AnyPod], schedulers: Collection[str], now: float, but: Collection[str] = ()
) -> list[AnyPod]:
    """Return the pods of gangs that may be tried again, by all pods that name one: an event was lost, say.
    None of those with the labels `but` may be."""
    labels = {label for label, note in ledger.view().gangs.items() if note.lacks_pods and label not in but}
    by_name: dict[str, list[AnyPod]] = {}
    for pod in pods if labels else ():
        if label := gang_label(pod):
            by_name.setdefault(label_before(label), []).append(pod)
    tried: list[AnyPod] = []
    for label in sorted(labels):
        tried += revised(ledger, label, by_name.get(label_before(label), ()), schedulers, now)
    return tried


def note_waiting(
    ledger: Ledger, pods: Iterable[AnyPod], schedulers: Collection[str], now: float, but: Collection[str] = ()
) -> None:
    """Note the gangs that are there whole and wait, by all pods that name one: filter refuses their pods for
    as long as there is not enough for all, and none is woken because it fits by itself.

    Not those with the labels `but`, nor those that are noted well enough. Gangs that lack pods bind notes
    alone: reconcile's list of pods is older than its own."""
    view = ledger.view()
    terms, by_label = terms_of(view), dict[str, list[AnyPod]]()
    waiting: dict[str, AnyPod] = {}
    for pod in pods:
        if not (label := gang_label(pod)) or label in but:
            continue
        by_label.setdefault(label, []).append(pod)
        is_ours = pod.waiting and pod.spec.scheduler_name in schedulers
        if (
            is_ours
            and label not in waiting
            and not view.keys_of(pod.metadata.uid)
            and terms.demand(pod).units
        ):
            waiting[label] = pod

    def notes() -> Iterator[tuple[str, GangNote, GangNote]]:
        for label in sorted(waiting, key=lambda label: view.gangs.get(label, GangNote()).at):
            gang, before = gang_or_none(waiting[label]), view.gangs.get(label, GangNote())
            if gang is None or not gang.size or before.lacks_pods or not before.ages(now):
                continue
            there = [pod for pod in by_label[label] if not pod.waiting or not view.keys_of(pod.metadata.uid)]
            roll = roll_of(waiting[label], gang, there, schedulers, lambda _: False)
            if not _judged(roll, gang, terms).refusal and roll.needed > 1:
                yield label, before, note_of(roll, terms, now)

    for label, before, note in islice(notes(), _MOST_NOTED):
        with suppress(OvertakenError):
            seen = ledger.gang(label)
            if seen.note == before:
                ledger.note_gang(seen, note)


def is_over(seat: Claim, now: float) -> bool:
    """Whether the seat has waited long enough for its pod; one that is stamped much later than now has, too:
    a wrong clock must not keep it."""
    return not seat.since - MOST_APART <= now < seat.seat_until


def tell_given_back(seats: Collection[Claim], view: View, teller: Teller) -> None:
    """Tell the pods of gangs whose seats were given back, those too that are bound without the others."""
    for label, count in Counter(seat.gang_label for seat in seats).items():
        bound = [claim for claim in view.gang(label) if claim.state == "bound"]
        why = (
            f"gang {name_of(label)}: {count} of its pods were not bound in time, and their units "
            f"are given back; {len(bound)} of it {'is' if len(bound) == 1 else 'are'} bound"
        )
        calls.decided(log, "unseated", {"seats": count}, "%s", f"{label}: {why}")
        for claim in (*bound, *(seat for seat in seats if seat.gang_label == label)):
            teller.failed(Subject.of_claim(claim), why)


def let_rest(ledger: Ledger, seats: Collection[Claim], now: float) -> None:
    """Reserve nothing for the gangs of these seats, which were given back, for a while: twice as long each
    time, so that gangs that can't run leave units to others for most of the time."""
    for label in {seat.gang_label for seat in seats}:
        held_for = max(seat.seat_until - seat.since for seat in seats if seat.gang_label == label)
        with suppress(OvertakenError):
            seen = ledger.gang(label)
            pause = min(LONGEST_REST, held_for * 2.0 ** min(seen.note.vain, 20))
            note = GangNote(now, vain=seen.note.vain + 1, rests_until=now + pause)
            ledger.note_gang(seen, note)


def drop_notes(ledger: Ledger, pods: Iterable[Pod], now: float) -> None:
    """Forget what is noted of gangs of which none of these pods waits."""
    waiting = {gang_label(pod) for pod in pods if pod.waiting}
    for label, note in ledger.view().gangs.items():
        if label not in waiting and abs(now - note.at) > BELIEVED_SECONDS:
            with suppress(OvertakenError):
                seen = ledger.gang(label)
                if seen.note == note:  # what was noted since, names where seats are
                    ledger.note_gang(seen, None)
