"""prioritize: how well each offered node suits the pod, from 0 to 10.
It refuses nothing; kube-scheduler ignores its failures."""

from collections.abc import Mapping

from berth import wire
from berth.http import Endpoint, Reply
from berth.ledger import Ledger
from berth.policy.demand import demand, might_ask
from berth.policy.score import scores
from berth.settings import Settings
from berth.stores import open_store


def run(ledger: Ledger, call: wire.Candidates) -> list[tuple[str, int]]:
    """Each offered node with its score, in the order they came."""
    if not might_ask(call.pod):
        return [(name, 0) for name in call.names]
    view = ledger.view()
    units = demand(call.pod, view.resources).units
    return scores(call.names, units, view.free_for(call.pod.metadata.uid, units), view.pools)


def endpoint(settings: Settings) -> Endpoint:
    ledger = Ledger(open_store(settings.store))

    def answer(_: Mapping[str, str], body: bytes) -> Reply:
        return Reply(200, wire.priorities(run(ledger, wire.candidates(body))))

    return Endpoint(
        name="prioritize",
        answer=answer,
        failed=lambda message, _: Reply(503, wire.error_answer(message)),
        health=ledger.check,
        body_limit=settings.body_limit,
        token=settings.token,
    )
