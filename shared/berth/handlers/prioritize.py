"""prioritize: how well each offered node suits the pod, from 0 to 10.
It refuses nothing; kube-scheduler ignores its failures."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import cast

from berth.handlers import wiring
from berth.http import extender_v1
from berth.http.endpoint import Content, Endpoint
from berth.ledger.free import Share
from berth.ledger.ledger import Ledger
from berth.metrics import UNCOUNTED, Metrics
from berth.scheduling.demand import might_ask, terms_of
from berth.scheduling.fit import Fit
from berth.scheduling.score import ScoredPool, pack, rule, scores, spread
from berth.settings import Settings
from berth.telemetry import calls

log = logging.getLogger("berth.prioritize")


def run(
    look: wiring.Look, call: extender_v1.Candidates, clock: Callable[[], float] = time.time
) -> list[bytes]:
    """Return each offered node with its score, as JSON, in the order they came."""
    names = call.names
    if not might_ask(call.pod):
        return [extender_v1.priority(name, 0) for name in names]
    view = look()
    pools = Fit(call.pod, terms_of(view).demand(call.pod), view, clock()).scored()
    return _quick(names, pools) or list(map(extender_v1.priority, names, scores(names, pools)))


def _quick(names: Sequence[str], pools: Sequence[ScoredPool]) -> list[bytes] | None:
    """Return the answer where one pool scores, by nodes: each node's answer is kept in mind."""
    by_share = rule(pools[0].pool) if len(pools) == 1 and pools[0].places is None else None
    if by_share is None:
        return None
    known = pools[0].free.by_domain(_packed if by_share is pack else _spread).pick(names)
    if all(known):
        return cast(list[bytes], known)
    return [answer or extender_v1.priority(name, 0) for name, answer in zip(names, known, strict=True)]


def _spread(name: str, share: Share) -> bytes:
    return extender_v1.priority(name, spread(name, share))


def _packed(name: str, share: Share) -> bytes:
    return extender_v1.priority(name, pack(name, share))


def _tell(call: extender_v1.Candidates) -> None:
    pod, offered = call.pod, len(call.names)
    calls.about(pod=pod.label, uid=pod.metadata.uid)
    said = "pod %s: %d nodes are scored"
    calls.decided(log, "prioritized", {"offered": offered}, said, pod.label, offered, level=logging.DEBUG)


def endpoint(settings: Settings, ledger: Ledger | None = None, *, metrics: Metrics = UNCOUNTED) -> Endpoint:
    """Return the function's endpoint; on a ledger of its own if it is given none."""
    ledger = ledger or wiring.ledger_to_read(settings, metrics.of("prioritize"))

    def answer(look: wiring.Look, body: Content) -> bytes:
        call = extender_v1.candidates(body)
        if calls.tells(log):
            _tell(call)
        return extender_v1.priorities(run(look, call))

    return wiring.advice("prioritize", ledger, settings, answer)
