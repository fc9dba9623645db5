"""filter: which of the offered nodes can take the pod, and why the others can't.
It advises: near the last unit several pods are told yes, and bind's reservation decides."""

from collections.abc import Mapping

from berth import wire
from berth.http import Endpoint, Reply, for_the_event
from berth.ledger import Ledger
from berth.policy.demand import demand, might_ask
from berth.policy.fit import refusals
from berth.settings import Settings
from berth.stores import open_store


def run(ledger: Ledger, call: wire.Candidates) -> dict[str, str]:
    """The reason for each offered node that can't take the pod."""
    if not might_ask(call.pod):
        return {}  # pods that ask nothing of us are served even while the ledger is away
    view = ledger.view()
    asked = demand(call.pod, view.resources)
    if asked.refusal is not None:
        return dict.fromkeys(call.names, asked.refusal)
    return refusals(call.names, asked.units, view.free_for(call.pod.metadata.uid, asked.units))


def endpoint(settings: Settings) -> Endpoint:
    return on(Ledger(open_store(settings.store)), settings)


def on(ledger: Ledger, settings: Settings) -> Endpoint:
    """The endpoint on a ledger that others may use too."""

    def answer(_: Mapping[str, str], body: bytes) -> Reply:
        call = wire.candidates(body)
        return Reply(200, wire.filter_answer(call, run(ledger, call)))

    return Endpoint(
        name="filter",
        answer=answer,
        # Only Error in a 200 answer reaches the pod's event (facts, 1).
        failed=lambda *error: Reply(200, wire.filter_error(for_the_event(*error))),
        health=ledger.check,
        body_limit=settings.body_limit,
        token=settings.token,
    )
