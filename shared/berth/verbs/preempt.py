"""preempt: where evicting the pods that kube-scheduler chose would really make room for the one that waits.
It only drops candidates; while what was freed for the pod is being settled, all of them.

An error is an answer other than 200: then kube-scheduler evicts nobody, unless its entry for this function is
`ignorable` (source: framework/preemption, callExtenders).
"""

import time
from collections.abc import Callable, Mapping

from berth import callers, wire
from berth.http import Endpoint, Reply
from berth.ledger import Ledger
from berth.policy.demand import might_ask
from berth.settings import Settings
from berth.steps.preemption import Evictions
from berth.steps.terms import terms_of
from berth.stores import open_store

_SETTLE_SECONDS = 90.0
"""A victim's claim outlasts it no longer: what its lost event left, reconcile mends within a minute."""

_GRACE_SECONDS = 5.0
"""Room that filter did not find may have been made since it looked, a moment ago in the same attempt."""

_KEPT = 1000  # nominations that are kept in mind

Found = Mapping[str, wire.Victims]


class Preempt:
    """The preempt verb on one ledger; safe for many calls at once.

    It keeps in mind since when a pod waits for its nominated node. That may be lost: then it waits anew.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.time) -> None:
        self._ledger, self._clock = ledger, clock
        self._since: dict[tuple[str, str, bool], float] = {}

    def run(self, call: wire.PreemptionCall) -> Found:
        """Those of the candidates where the pod fits once their victims are gone, each as it came."""
        if not might_ask(call.pod):
            return call.victims
        view = self._ledger.view()
        asked = terms_of(view).asked(call.pod)
        if asked.refusal is not None:
            return {}
        if not asked.units:
            return call.victims
        found = Evictions(call.pod, asked, view, self._clock())
        rest = max(view.pools[name].spec.reuse_after_seconds for name in asked.units)
        if self._settling(call, found, rest):
            return {}
        return {
            node: victims for node, victims in call.victims.items() if found.short(node, victims.uids) == []
        }

    def _settling(self, call: wire.PreemptionCall, found: Evictions, rest: float) -> bool:
        """Whether pods were evicted for this one already, on a node that only its claims keep it from.

        kube-scheduler sees no more need to evict there, and would do it elsewhere: one more pod at each try.
        """
        node = call.pod.status.nominated_node_name
        if not node or node in call.victims:
            return False
        short = found.short(node)
        if short is None:
            return False
        # Not for ever: the units may have gone to a pod that was more important, or the node been closed.
        patience = _SETTLE_SECONDS + rest if short else _GRACE_SECONDS
        return self._clock() - self._first(call.pod.metadata.uid, node, bool(short)) < patience

    def _first(self, uid: str, node: str, short: bool) -> float:
        if len(self._since) >= _KEPT:
            self._since = dict(sorted(self._since.items(), key=lambda item: item[1])[_KEPT // 2 :])
        return self._since.setdefault((uid, node, short), self._clock())


def endpoint(settings: Settings) -> Endpoint:
    return on(Ledger(open_store(settings.store, reads_only=True)), settings)


def on(ledger: Ledger, settings: Settings) -> Endpoint:
    """The endpoint on a ledger that others may use too."""
    verb = Preempt(ledger)

    def answer(_: Mapping[str, str], body: bytes) -> Reply:
        return Reply(200, wire.preemption_answer(verb.run(wire.preemption(body))))

    return Endpoint(
        name="preempt",
        answer=answer,
        failed=lambda message, _: Reply(503, wire.error_answer(message)),
        health=ledger.check,
        body_limit=settings.body_limit,
        door=callers.door(settings.admission),
    )
