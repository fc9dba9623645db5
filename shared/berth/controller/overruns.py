"""Notes pods that run longer than they said: what their owner's pods say is not believed for a day.
It ends no pod; with `activeDeadlineSeconds` the kubelet does."""

import logging
from collections.abc import Iterable

from berth.api.run_time import RUNS_FOR
from berth.controller.notices import Subject, Teller
from berth.kube.types import Pod
from berth.ledger.ledger import Ledger
from berth.telemetry import calls

log = logging.getLogger("berth.claims")

_TOLD = (
    f"runs longer than it said ({RUNS_FOR}, activeDeadlineSeconds): what is held for the first in line is "
    "lent to no pod of its owner until a day after it has ended"
)


def note_overruns(ledger: Ledger, pods: Iterable[Pod], looked: float, teller: Teller) -> None:
    """Disbelieve the owners of those of these pods, as they were listed at that time (Unix seconds) or later,
    that should have been gone by then. Tell of the pods once an hour."""
    late = {claim.uid: claim for claim in ledger.view().claims() if 0.0 < claim.ends < looked}
    if not late and not ledger.view().overruns:
        return
    there = [
        late[pod.metadata.uid]
        for pod in pods
        if pod.metadata.uid in late and pod.spec.node_name and not pod.finished
    ]
    news = ledger.note_overruns({claim.debtor: looked for claim in there})
    for claim in (claim for claim in there if claim.debtor in news):
        teller.failed(Subject.of_claim(claim), _TOLD)
        said = "pod %s runs longer than it said: %s is not believed for a day"
        calls.decided(log, "overran", {}, said, claim.label, claim.debtor)
