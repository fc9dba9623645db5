"""May a pod go to a node, as far as the ledger's View knows: filter's answer, and whom it pays to wake.
It advises: near the last unit several pods are told yes, and bind's reservation decides."""

from collections.abc import Collection
from typing import NamedTuple

from berth.kube.types import Pod
from berth.ledger import refusals as fit
from berth.ledger.refusals import Want
from berth.ledger.view import View
from berth.scheduling.demand import Demand
from berth.scheduling.wants import Wanted


class Judgement(NamedTuple):
    """One pod's: `nowhere` says why no node can take it, whatever that node has; else it is empty."""

    nowhere: str
    wanted: Wanted | None = None
    wants: Collection[Want] = ()

    def refusals(self, names: Collection[str]) -> dict[str, str]:
        """Why each of these nodes can't take the pod; nodes that can are left out."""
        if self.wanted is None:
            return dict.fromkeys(names, self.nowhere)
        refused = fit.refusals(names, self.wants)
        kept = self.wanted.keeps_to(name for name in names if name not in refused)
        if kept is None:
            return refused
        return {name: refused.get(name, fit.KEPT) for name in names if name not in kept}

    def fits(self, shut: Collection[str] = ()) -> bool:
        """Whether any node that the ledger knows can take the pod; none of those that are `shut`."""
        if self.wanted is None:
            return False
        # Where units are kept for the pod, it keeps to some of these: that takes the last one from nobody.
        return bool(frozenset.intersection(*(want.nodes() for want in self.wants)).difference(shut))


def judge(pod: Pod, asked: Demand, view: View, now: float) -> Judgement:
    """Of a pod that asks for this, at this time (Unix seconds)."""
    if asked.refusal is not None:
        return Judgement(asked.refusal)
    wanted = Wanted(pod, asked, view, now)
    texts = wanted.nowhere()
    return Judgement("; ".join(texts)) if texts else Judgement("", wanted, wanted.wants())
