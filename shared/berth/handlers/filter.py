"""filter: which of the offered nodes can take the pod, and why the others can't.
It advises: near the last unit several pods are told yes, and bind's reservation decides."""

import logging
import time
from collections.abc import Callable

from berth.handlers import wiring
from berth.http import extender_v1
from berth.http.endpoint import Content, Endpoint, LongList
from berth.http.extender_v1 import Refused
from berth.kube.types import Pod
from berth.kube.woken import woken_at
from berth.ledger.ledger import Ledger
from berth.ledger.refusals import KEPT
from berth.metrics import UNCOUNTED, Metrics
from berth.scheduling.assumed import AssumedPods
from berth.scheduling.demand import might_ask
from berth.scheduling.fit import evaluate
from berth.scheduling.fresh import left_to_others
from berth.settings import Settings
from berth.telemetry import calls
from berth.telemetry.traces import Facts

log = logging.getLogger("berth.filter")

_PODS = 1000  # pods whose nominated node was refused last that are kept in mind


class Nominations:
    """The pods whose nominated node, offered alone, was refused in the call before; it may be lost.

    kube-scheduler offers a pod's nominated node alone, and all nodes when that is refused, in one attempt
    (source: findNodesThatFitPod). So a pod whose units are kept elsewhere loses nothing by a refusal; but if
    its node comes alone again, no other is to be had, and the pod must not starve (docs/decisions/0019).
    """

    def __init__(self) -> None:
        self._refused: dict[str, str] = {}

    def forget(self, pod: Pod) -> None:
        """Forget the pod: other nodes are offered for it."""
        self._refused.pop(pod.metadata.uid, None)

    def refuse(self, pod: Pod) -> bool:
        """Return whether to refuse the pod's nominated node, and note it: not if that was done just now."""
        uid, node = pod.metadata.uid, pod.status.nominated_node_name or ""
        if self._refused.pop(uid, None) == node:
            return False
        if len(self._refused) >= _PODS:
            self._refused = dict(list(self._refused.items())[_PODS // 2 :])
        self._refused[uid] = node
        return True


def run(
    look: wiring.Look,
    call: extender_v1.Candidates,
    clock: Callable[[], float] = time.time,
    nominations: Nominations | None = None,
    metrics: Metrics = UNCOUNTED,
    assumed: AssumedPods | None = None,
) -> Refused:
    """Return why offered nodes can't take the pod. Without `assumed` it knows of no other call."""
    if not might_ask(call.pod):
        return Refused()  # pods that ask nothing of us are served even while the ledger is away
    view, now = look(), clock()
    nominations, assumed = nominations or Nominations(), assumed or AssumedPods()
    assumed.forget(view, now)
    fit = evaluate(call.pod, call.names, view, now)
    if len(fit.reasons) < len(call.names):
        left = left_to_others(call.pod, call.names, view, woken_at(call.pod), now)
        left = {**assumed.taken(call.pod, fit.asked, call.names, view, now), **left}
        fit = fit._replace(reasons={**left, **fit.reasons}) if left else fit
    for pool, rule in dict.fromkeys(fit.rules):
        metrics.refused(pool, rule)
    if fit.nowhere:
        return Refused(fit.reasons)  # it says nothing of which nodes are to be had
    if call.names != [call.pod.status.nominated_node_name]:
        nominations.forget(call.pod)
    elif fit.kept_elsewhere and nominations.refuse(call.pod):
        return Refused(dict.fromkeys(call.names, KEPT))
    passed = [name for name in call.names if name not in fit.reasons] if fit.reasons else call.names
    assumed.assume(call.pod, fit.asked, passed, view, now)
    return Refused(fit.reasons, fit.resolvable)


def _tell(call: extender_v1.Candidates, refused: int) -> None:
    pod, offered = call.pod, len(call.names)
    calls.about(pod=pod.label, uid=pod.metadata.uid)
    facts: Facts = {"offered": offered, "refused": refused}
    said = "pod %s: %d of %d nodes can take it"
    calls.decided(log, "filtered", facts, said, pod.label, offered - refused, offered, level=logging.DEBUG)


def endpoint(settings: Settings, ledger: Ledger | None = None, *, metrics: Metrics = UNCOUNTED) -> Endpoint:
    """Return the function's endpoint; on a ledger of its own if it is given none."""
    ledger = ledger or wiring.ledger_to_read(settings, metrics.of("filter"))
    nominations, assumed = Nominations(), AssumedPods()

    def answer(look: wiring.Look, body: Content) -> bytes | LongList:
        call = extender_v1.candidates(body)
        refused = run(look, call, nominations=nominations, metrics=metrics, assumed=assumed)
        if calls.tells(log):
            _tell(call, len(refused.reasons))
        return extender_v1.filter_answer(call, refused)

    return wiring.advice("filter", ledger, settings, answer, extender_v1.filter_error)
