"""Reserve a pod's units with those of the rest of its gang, all or none, when the first of them is bound.
The others get seats, which their own binds take. Which pods there are, the API server says."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Never

import msgspec
from msgspec.structs import replace

from berth.api.gang import LARGEST_GANG, Gang, gang_name, gang_or_none
from berth.api.run_time import ends_at
from berth.controller.line import in_line
from berth.controller.notices import Subject, Teller
from berth.controller.settle import claim_of
from berth.deadline import Deadline
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

_LOOKS = 5
"""So often a bind looks at a gang while other binds of its pods are first."""


class Seats(NamedTuple):
    """The pod's claim, and the pods of its gang for which seats were reserved with it."""

    claim: Claim
    others: Sequence[Pod] = ()


class _Rest(NamedTuple):
    """The pods of a gang that wait without a claim, as they are in line: how many of these are to be had with
    the pod that is being bound, and how many are not there that should be."""

    waiting: Sequence[PodInFull]
    together: int
    absent: int


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
                    return Seats(self._ledger.take_seat(wanted, mine, rank))
                if mine is None and gang.size > 1:
                    return self._together(pod, gang, wanted, seen)
                until = 0.0 if mine is None else mine.seat_until
                wanted = replace(wanted, seat_until=until)
                return Seats(self._ledger.reserve(wanted, after=after, rank=rank))
            except OvertakenError:
                continue
        raise RefusedError(f"gang {gang.name}: other pods of it are being bound; it will be tried again")

    def _together(self, pod: Pod, gang: Gang, wanted: Claim, seen: GangSeen) -> Seats:
        """Reserve for the pod and the rest of its gang, all or none."""
        rest, view = self._rest(pod, gang, seen), self._ledger.view()
        terms = terms_of(view)
        demands = {one.metadata.uid: terms.demand(one) for one in (pod, *rest.waiting)}
        note = self._noted(pod, rest, demands)
        if rest.together and seen.note.rests(self._clock()):
            raise RefusedError(refusals.gang_rests(gang.name))
        if rest.absent:
            self._ledger.note_gang(seen, note)
            raise RefusedError(refusals.gang_absent(gang.name, gang.size - rest.absent, gang.size))
        others = [one for one in rest.waiting[: rest.together] if demands[one.metadata.uid].units]
        for one in (pod, *others):
            if (refusal := demands[one.metadata.uid].refusal) is not None:
                self._stuck(seen, note, refusals.gang_refused(gang.name, one.metadata.name, refusal), view)
        others.sort(key=lambda one: -sum(demands[one.metadata.uid].units.values()))
        pools = {pool for one in (pod, *others) for pool in demands[one.metadata.uid].units}
        seconds = max(terms.pools[pool].gang_seconds for pool in pools)
        until = self._clock() + seconds if others else 0.0
        own = replace(wanted, seat_until=until)
        seating = _Seating(terms, view, self._clock(), until, own.node, partial(self._nodes, gang))
        members = [Member([own.node], lambda _: own, own.uid, rank_of(pod, view, self._clock()))]
        members += [seating.member(one, demands[one.metadata.uid]) for one in others]
        try:
            claim, *_ = self._ledger.reserve_gang(seen, members)
        except NoSeatError as error:
            name = (pod, *others)[error.number].metadata.name
            self._stuck(seen, note, refusals.gang_seatless(gang.name, len(members), name, str(error)), view)
        except GangLargeError as error:
            self._stuck(seen, note, str(error), view)
        said = "pod %s is first of its gang: %d of its other pods have seats"
        self._end_turn(claim, gang)
        if others:
            facts: Facts = {"seats": len(others)}
            calls.decided(log, "seated", facts, said, pod.label, len(others))
        return Seats(claim, others)

    def _stuck(self, seen: GangSeen, note: GangNote, why: str, view: View) -> Never:
        """Refuse, and have filter refuse for a while: each of many pods would list pods and nodes again."""
        namespace = seen.label.partition("/")[0]
        free = free_for(namespace, note.members.values(), view, self._clock())
        self._ledger.note_gang(seen, replace(note, why=why, free=free))
        raise RefusedError(why)

    def _end_turn(self, claim: Claim, gang: Gang) -> None:
        """Hold nothing for the gang in line any more, which has its units."""
        try:
            self._ledger.drop_line_hold(claim.uid, gang=gang.label)
        except BerthError as error:
            log.warning("what is held in line for gang %s waits for reconcile: %s", gang.label, error)

    def _rest(self, pod: Pod, gang: Gang, seen: GangSeen) -> _Rest:
        uid, timeout = pod.metadata.uid, self._deadline.timeout()
        pods = self._cluster.pods_in(pod.namespace, lambda one: gang_or_none(one) == gang, timeout)
        view = self._ledger.view()
        others = [one for one in pods if one.metadata.uid != uid and self._is_there(one)]
        others = [one for one in others if not (one.waiting and _other_claim(one, gang, view))]
        waiting = [one for one in others if one.waiting and one.metadata.uid not in seen.claims]
        served = len(others) - len(waiting)
        together = max(0, gang.size - 1 - served)
        return _Rest(in_line(waiting), together, max(0, together - len(waiting)))

    def _is_there(self, pod: Pod) -> bool:
        """Whether it counts as one of its gang: it has succeeded, runs, or could be bound by us."""
        if pod.finished:
            return pod.status.phase == "Succeeded"
        is_ours = pod.waiting and pod.spec.scheduler_name in self._schedulers
        return is_ours or (bool(pod.spec.node_name) and pod.metadata.deletion_timestamp is None)

    def _noted(self, pod: Pod, rest: _Rest, demands: Mapping[str, Demand]) -> GangNote:
        pods = (pod, *rest.waiting[: LARGEST_GANG - 1])  # more may bear its name than a document takes
        members = {
            one.metadata.uid: GangMember(one.metadata.name, demands[one.metadata.uid].units) for one in pods
        }
        return GangNote(self._clock(), members, rest.together + 1, rest.absent)

    def _nodes(self, gang: Gang) -> Sequence[Node]:
        """Return all nodes, which are listed once. Each of many pods that select or tolerate different things
        needs a look at all of them: that must not go on for longer than bind may."""
        if self._deadline.left() <= 0:
            raise RefusedError(refusals.gang_slow(gang.name))
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
    claims = view.claims_of(pod.metadata.uid)
    return next((claim for claim in claims if claim.gang_label != gang.label), None)


def is_over(seat: Claim, now: float) -> bool:
    """Whether the seat has waited long enough for its pod; one that is stamped much later than now has, too:
    a wrong clock must not keep it."""
    return not seat.since - MOST_APART <= now < seat.seat_until


def tell_given_back(seats: Collection[Claim], view: View, teller: Teller) -> None:
    """Tell the pods of gangs whose seats were given back, those too that are bound without the others."""
    for label, count in Counter(seat.gang_label for seat in seats).items():
        bound = [claim for claim in view.gang(label) if claim.state == "bound"]
        why = (
            f"gang {label.partition('/')[2]}: {count} of its pods were not bound in time, and their units "
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
    waiting = {f"{pod.namespace}/{gang_name(pod)}" for pod in pods if pod.waiting}
    for label, note in ledger.view().gangs.items():
        if label not in waiting and abs(now - note.at) > BELIEVED_SECONDS:
            with suppress(OvertakenError):
                seen = ledger.gang(label)
                if seen.note == note:  # what was noted since, names where seats are
                    ledger.note_gang(seen, None)
