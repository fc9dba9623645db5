"""filter: which of the offered nodes can take the pod, and why the others can't.
It advises: near the last unit several pods are told yes, and bind's reservation decides."""

import time
from collections.abc import Callable, Mapping

from berth import wire
from berth.http import Endpoint, Reply, for_the_event
from berth.ledger import Ledger
from berth.policy import fit
from berth.policy.demand import might_ask
from berth.settings import Settings
from berth.steps.preemption import resolvable
from berth.steps.terms import terms_of
from berth.steps.wants import Wanted
from berth.stores import open_store
from berth.wire import Refused


def run(ledger: Ledger, call: wire.Candidates, clock: Callable[[], float] = time.time) -> Refused:
    """The reason for each offered node that can't take the pod."""
    if not might_ask(call.pod):
        return Refused()  # pods that ask nothing of us are served even while the ledger is away
    view = ledger.view()
    asked = terms_of(view).asked(call.pod)
    if asked.refusal is not None:
        return Refused(dict.fromkeys(call.names, asked.refusal))
    wanted = Wanted(call.pod, asked, view, clock())
    if texts := wanted.nowhere():
        return Refused(dict.fromkeys(call.names, "; ".join(texts)))
    wants = wanted.wants()
    refused = fit.refusals(call.names, wants)
    # Only that node: for it the pod keeps its nomination. Others are free by kube-scheduler's own count, so
    # it finds nobody to evict there, says so in an order that varies, and tries without end (decisions/0016).
    nominated = {call.pod.status.nominated_node_name or ""} & refused.keys()
    mendable = resolvable(nominated, wants, view.pools) if nominated else frozenset()
    kept = wanted.keeps_to(name for name in call.names if name not in refused)
    if kept is None:
        return Refused(refused, mendable)
    return Refused({name: refused.get(name, fit.KEPT) for name in call.names if name not in kept}, mendable)


def endpoint(settings: Settings) -> Endpoint:
    return on(Ledger(open_store(settings.store)), settings)


def on(ledger: Ledger, settings: Settings) -> Endpoint:
    """The endpoint on a ledger that others may use too."""

    def answer(_: Mapping[str, str], body: bytes) -> Reply:
        call = wire.candidates(body)
        refused = run(ledger, call)
        return Reply(200, wire.filter_answer(call, refused, refused.resolvable))

    return Endpoint(
        name="filter",
        answer=answer,
        # Only Error in a 200 answer reaches the pod's event (facts, 1).
        failed=lambda *error: Reply(200, wire.filter_error(for_the_event(*error))),
        health=ledger.check,
        body_limit=settings.body_limit,
        token=settings.token,
    )
