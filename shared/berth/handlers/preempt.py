"""preempt: where evicting the pods that kube-scheduler chose would really make room for the one that waits.
It only drops candidates; while what was freed for the pod is being settled, all of them.

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
"""A victim's claim outlasts it no longer: what its lost event left, reconcile mends within a minute."""

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
    lost: then the nomination alone tells, and the pod waits anew.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.time) -> None:
        self._ledger, self._clock = ledger, clock
        self._since: dict[tuple[str, str, bool], float] = {}
        self._made: dict[str, Made] = {}

    def run(self, call: extender_v1.PreemptionCall) -> VictimsByNode:
        """Return those of the candidates, as they came, where the pod fits once their victims are gone."""
        if not might_ask(call.pod):
            return call.victims
        view = self._ledger.view()
        demand = terms_of(view).demand(call.pod)
        if demand.refusal is not None:
            return {}
        if not demand.units:
            return call.victims
        gang = gang_or_none(call.pod)
        if gang is not None and gang.size > 1:
            return {}  # what is freed for one of them may be too little for all: nobody is evicted in vain
        evictions = Evictions(call.pod, demand, view, self._clock())
        rest = max(view.pools[name].spec.reuse_after_seconds for name in demand.units)
        if self._settling(call, evictions, rest):
            return {}
        fitting = {
            node: victims
            for node, victims in call.victims.items()
            if evictions.short(node, victims.uids) == []
        }
        if fitting:
            self._note(call.pod, {node: victims.uids for node, victims in fitting.items()})
        return fitting

    def _settling(self, call: extender_v1.PreemptionCall, evictions: Evictions, rest: float) -> bool:
        """Whether pods were evicted for this one already, on a node that only its claims keep it from.

        kube-scheduler sees no more need to evict there, and would do it elsewhere: one more pod at each try.
        """
        if nominated := call.pod.status.nominated_node_name:
            self._note(call.pod, {nominated: ()})
        made = self._made.get(call.pod.metadata.uid, {})
        return any(
            self._settles(call.pod, node, victims, evictions, rest)
            for node, victims in made.items()
            if node not in call.victims
        )

    def _settles(
        self, pod: Pod, node: str, victims: Collection[str], evictions: Evictions, rest: float
    ) -> bool:
        short = evictions.short(node)
        if short is None or (short and victims and not evictions.held(victims)):
            return False
        # Not for ever: the units may have gone to a pod that was more important, or the node been closed.
        patience = _SETTLE_SECONDS + rest if short else _GRACE_SECONDS
        return self._clock() - self._first(pod.metadata.uid, node, bool(short)) < patience

    def _note(self, pod: Pod, made: Made) -> None:
        if len(self._made) >= _KEPT:
            self._made = dict([*self._made.items()][_KEPT // 2 :])
        self._made[pod.metadata.uid] = made

    def _first(self, uid: str, node: str, short: bool) -> float:
        if len(self._since) >= _KEPT:
            self._since = dict(sorted(self._since.items(), key=lambda item: item[1])[_KEPT // 2 :])
        return self._since.setdefault((uid, node, short), self._clock())


def _tell(call: extender_v1.PreemptionCall, fitting: int) -> None:
    pod, offered = call.pod, len(call.victims)
    calls.about(pod=pod.label, uid=pod.metadata.uid)
    facts: Facts = {"offered": offered, "fitting": fitting}
    said = "pod %s: evictions on %d of %d nodes would make room for it"
    calls.decided(log, "preempted", facts, said, pod.label, fitting, offered, level=logging.DEBUG)


def endpoint(settings: Settings, ledger: Ledger | None = None, *, metrics: Metrics = UNCOUNTED) -> Endpoint:
    """Return the function's endpoint; on a ledger of its own if it is given none."""
    ledger = ledger or wiring.ledger_to_read(settings, metrics.of("preempt"))
    preempt = Preempt(ledger)

    def answer(body: Content) -> bytes:
        call = extender_v1.preemption(body)
        fitting = preempt.run(call)
        if calls.tells(log):
            _tell(call, len(fitting))
        return extender_v1.preemption_answer(fitting)

    return wiring.verb("preempt", ledger, settings, answer)
