"""What Berth says of a pod by Kubernetes Events: what it was given, what failed, what was freed or adopted.
Equal things have equal words, without time or holder, so that events are counted and not repeated."""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from berth.api.pool import EVERYWHERE
from berth.errors import few
from berth.kube.event_queue import PodEvent
from berth.kube.types import Pod
from berth.ledger.model import Claim, Holding, by_whole
from berth.scheduling.demand import Terms

UNITS_ALLOCATED, FAILED_CLAIM = "UnitsAllocated", "FailedClaim"
CLAIM_RELEASED, ADOPTED = "ClaimReleased", "Adopted"

REASONS = (UNITS_ALLOCATED, FAILED_CLAIM, CLAIM_RELEASED, ADOPTED)
"""All reasons; infra's admission policy lets the functions' accounts say no other."""

FINISHED = "the pod has finished"
BY_HAND = "by hand (berth release)"

_MOST_POOLS, _MOST_UNITS = 6, 8
_LONGEST = 200  # characters of a name, or of a text that comes from elsewhere

Record = Callable[[PodEvent], None]
"""Takes an event that is to be sent. It costs the caller nothing, and does not fail."""


class Subject(NamedTuple):
    """The pod that an event is about."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of_claim(cls, claim: Claim) -> "Subject":
        return cls(claim.namespace, claim.name, claim.uid)

    @classmethod
    def of_pod(cls, pod: Pod) -> "Subject":
        return cls(pod.namespace, pod.metadata.name, pod.metadata.uid)


class Teller:
    """Tells of pods, to whoever records it; nobody: all is off, and costs nothing."""

    def __init__(self, record: Record | None = None) -> None:
        self._record = record

    def allocated(self, claim: Claim) -> None:
        """Tell that the pod is bound and has its units."""
        if self._record is not None:
            note = f"Has {units(claim.holdings, claim.node)} on {_short(claim.node)}"
            self._tell(Subject.of_claim(claim), UNITS_ALLOCATED, "Binding", note)

    def failed(self, pod: Subject, why: str) -> None:
        """Tell what is wrong with the pod's claim where kube-scheduler's own events don't."""
        if self._record is not None:
            self._tell(pod, FAILED_CLAIM, "Claiming", _short(why, 3 * _LONGEST), warning=True)

    def released(self, pod: Subject, freed: Iterable[Holding], node: str, why: str) -> None:
        """Tell that units of a pod were freed that is there still, or that a person freed."""
        if self._record is not None and (given := units(freed, node)):
            self._tell(pod, CLAIM_RELEASED, "Releasing", f"Freed {given}: {why}")

    def adopted(self, claim: Claim) -> None:
        """Tell that a pod that runs, and had no claim, has one now."""
        if self._record is not None:
            given = units(claim.holdings, claim.node)
            note = f"Runs on {_short(claim.node)}; what it uses counts as its own from now on: {given}"
            self._tell(Subject.of_claim(claim), ADOPTED, "Adopting", note)

    def adopted_all(self, claims: Collection[Claim], pods: Iterable[Pod], terms: Terms) -> None:
        """Tell of pods that run and had no claim; also what is wrong with what they ask for."""
        if self._record is None or not claims:
            return
        by_uid = {claim.uid: claim for claim in claims}
        for pod in pods:
            claim = by_uid.get(pod.metadata.uid)
            if claim is not None:
                self.adopted(claim)
                if (refusal := terms.demand(pod).refusal) is not None:
                    self.failed(Subject.of_claim(claim), f"runs all the same: {refusal}")

    def _tell(self, pod: Subject, reason: str, action: str, note: str, *, warning: bool = False) -> None:
        assert self._record is not None
        self._record(PodEvent(pod.namespace, pod.name, pod.uid, reason, action, note, warning))


SILENT = Teller()
"""Tells nothing."""


def units(holdings: Iterable[Holding], node: str) -> str:
    """Return what these holdings are, for a person: `2 ip (10.0.0.7, 10.0.0.8) of rack-1, 1 licence`.

    The domain is left out where it is the node itself or the whole cluster. Empty: there are none.
    """
    held = [holding for holding in by_whole(holdings) if not holding.is_quota]
    return few((_one(holding, node) for holding in held), _MOST_POOLS)


def _one(holding: Holding, node: str) -> str:
    named = f" ({few(map(_short, holding.units), _MOST_UNITS)})" if holding.units else ""
    place = "" if holding.whole in (node, EVERYWHERE) else f" of {_short(holding.whole)}"
    giver = f" by PoolClaim {_short(holding.claim)}" if holding.claim else ""
    return f"{holding.count} {_short(holding.pool)}{named}{place}{giver}"


def _short(text: str, most: int = _LONGEST) -> str:
    """Return the text in one line of what can be printed, and not more of it than a person reads."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
