"""preempt: where evicting the pods that kube-scheduler chose would really make room for the one that waits.
It drops candidates, and chooses pods to evict where the call names none; while what was freed for the pod is
being settled, it drops all of them.

An error is an answer other than 200: then kube-scheduler evicts nobody, unless its entry for this function is
`ignorable` (source: framework/preemption, callExtenders).
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping

from berth.api.gang import gang_or_none
from berth.handlers import wiring
from berth.http import extender_v1
from berth.http.endpoint import Content, Endpoint
from berth.kube.types import Pod
from berth.ledger.ledger import Ledger
from berth.metrics import UNCOUNTED, Metrics
from berth.scheduling.demand import might_ask, terms_of
from berth.scheduling.preemption import Evictions
from berth.settings import Settings
from berth.telemetry import calls
from berth.telemetry.traces import Facts

log = logging.getLogger("berth.preempt")

_SETTLE_SECONDS = 90.0
"""A victim's claim outlasts it no longer: what its lost event left, reconcile mends within a minute. It wakes
pods that have a nomination, too: then the time is looked at again."""

_GRACE_SECONDS = 5.0
"""Room that filter did not find may have been made since it looked, a moment ago in the same attempt."""

_KEPT = 1000  # nominations, and pods, that are kept in mind

VictimsByNode = Mapping[str, extender_v1.Victims]
Made = Mapping[str, tuple[str, ...]]
"""Nodes where pods may have been evicted for one, and their UIDs; none: they are not known."""


class Preempt:
    """The preempt verb on one ledger; safe for many calls at once.

    It keeps in mind where room may have been made for a pod, and since when the pod waits for that: with each
    error of filter or bind kube-scheduler forgets the nomination (docs/kubernetes.md#victims). That may be
    lost: then the nomination alone tells, where the claims on its node bear it out, and the pod waits anew.
    """

    def __init__(
        self,
        ledger: Ledger,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self._ledger, self._clock, self._monotonic = ledger, clock, monotonic or clock
        self._since: dict[tuple[str, str, bool], float] = {}
        self._made: dict[str, Made] = {}

    def run(self, call: extender_v1.PreemptionCall) -> VictimsByNode:
        """Return those of the candidates, as they came, where the pod fits once their victims are gone; with
        victims where they came without any. None has none: kube-scheduler would evict nobody at all."""
        if not might_ask(call.pod):
            return _with_victims(call.victims)
        view = self._ledger.view()
        demand = terms_of(view).demand(call.pod)
        if demand.refusal is not None:
            return {}
        if not demand.units:
            return _with_victims(call.victims)
        gang = gang_or_none(call.pod)
        if gang is not None and gang.size != 1:
            return {}  # what is freed for one of them may be too little for all: nobody is evicted in vain
        evictions = Evictions(call.pod, demand, view, self._clock())
        rest = max(view.pools[name].spec.reuse_after_seconds for name in demand.units)
        if self._settling(call, evictions, rest):
            return {}
        fitting = {node: self._judged(node, victims, evictions) for node, victims in call.victims.items()}
        answer = {node: victims for node, victims in fitting.items() if victims is not None}
        if answer:
            self._note(call.pod, {node: victims.uids for node, victims in answer.items()})
        return answer

    def _judged(
        self, node: str, victims: extender_v1.Victims, evictions: Evictions
    ) -> extender_v1.Victims | None:
        """Return the victims to evict on a node; None where that would be in vain. From 1.38 on
        kube-scheduler leaves the choice to extenders where it has no need to evict anybody."""
        if victims.uids:
            return victims if evictions.short(node, victims.uids) == [] else None
        chosen = evictions.chosen(node)
        return extender_v1.Victims(chosen) if chosen else None

    def _settling(self, call: extender_v1.PreemptionCall, evictions: Evictions, rest: float) -> bool:
        """Whether pods were evicted for this one already, on a node that only its claims keep it from.

        kube-scheduler sees no more need to evict there, and would do it elsewhere: one more pod at each try.
        """
        made = self._made.get(call.pod.metadata.uid, {})
        if (nominated := call.pod.status.nominated_node_name) and nominated not in made:
            # Another process may have answered, or somebody else have nominated it.
            made = {**{node: victims for node, victims in made.items() if victims}, nominated: ()}
            self._made_for(call.pod, made)
        waits = (
            self._settles(call.pod, node, victims, evictions, rest)
            for node, victims in made.items()
            if node not in call.victims or not call.victims[node].uids
        )
        return any(waits) or any(
            evictions.short(node) == [] and self._waits(call.pod, node, False, _GRACE_SECONDS)
            for node, victims in call.victims.items()
            if not victims.uids and node not in made
        )

    def _settles(
        self, pod: Pod, node: str, victims: Collection[str], evictions: Evictions, rest: float
    ) -> bool:
        """Whether to wait for what is being freed on the node, or was freed since filter looked."""
        short = evictions.short(node)
        if short is None or (short and not evictions.would_be_whole(node, victims)):
            return False
        # Not for ever: nobody may have been evicted there, or the node have been closed.
        patience = _SETTLE_SECONDS + rest if short else _GRACE_SECONDS
        if not pod.status.nominated_node_name:
            # Else kube-scheduler waits by itself until the victims have ended.
            patience += evictions.grace(victims)
        return self._waits(pod, node, bool(short), patience)

    def _waits(self, pod: Pod, node: str, short: bool, patience: float) -> bool:
        """Whether the pod has not waited for so long yet for what the node is to have, or has."""
        return self._monotonic() - self._first(pod.metadata.uid, node, short) < patience

    def _note(self, pod: Pod, made: Made) -> None:
        """Note where pods may be evicted by this answer: for what these leave the pod waits anew."""
        for node in made:
            for short in (True, False):
                self._since.pop((pod.metadata.uid, node, short), None)
        self._made_for(pod, made)

    def _made_for(self, pod: Pod, made: Made) -> None:
        if len(self._made) >= _KEPT:
            self._made = dict([*self._made.items()][_KEPT // 2 :])
        self._made[pod.metadata.uid] = made

    def _first(self, uid: str, node: str, short: bool) -> float:
        if len(self._since) >= _KEPT:
            self._since = dict(sorted(self._since.items(), key=lambda item: item[1])[_KEPT // 2 :])
        return self._since.setdefault((uid, node, short), self._monotonic())


def _with_victims(victims: VictimsByNode) -> VictimsByNode:
    """Return those of the candidates that have victims."""
    return {node: on_node for node, on_node in victims.items() if on_node.uids}


def _tell(call: extender_v1.PreemptionCall, fitting: int) -> None:
    pod, offered = call.pod, len(call.victims)
    calls.about(pod=pod.label, uid=pod.metadata.uid)
    facts: Facts = {"offered": offered, "fitting": fitting}
    said = "pod %s: evictions on %d of %d nodes would make room for it"
    calls.decided(log, "preempted", facts, said, pod.label, fitting, offered, level=logging.DEBUG)


def endpoint(settings: Settings, ledger: Ledger | None = None, *, metrics: Metrics = UNCOUNTED) -> Endpoint:
    """Return the function's endpoint; on a ledger of its own if it is given none."""
    ledger = ledger or wiring.ledger_to_read(settings, metrics.of("preempt"))
    preempt = Preempt(ledger, monotonic=time.monotonic)

    def answer(body: Content) -> bytes:
        call = extender_v1.preemption(body)
        fitting = preempt.run(call)
        if calls.tells(log):
            _tell(call, len(fitting))
        return extender_v1.preemption_answer(fitting)

    return wiring.verb("preempt", ledger, settings, answer)
