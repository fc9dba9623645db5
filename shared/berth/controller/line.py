"""The line in which pods wait: by priority, then by age, then by name (ledger.model.place_in_line).
It knows no store and no cluster. A place says who is woken first, and is no promise: see `lines`."""

from collections.abc import Iterable
from math import inf
from typing import TypeVar

from berth.kube.types import Pod
from berth.ledger.model import Claim, place_in_line
from berth.ledger.view import View
from berth.scheduling.demand import terms_of

AnyPod = TypeVar("AnyPod", bound=Pod)


def in_line(pods: Iterable[AnyPod]) -> list[AnyPod]:
    """Return the pods in the order in which they are woken: the most important first, then the oldest. It is
    the order in which holds bar (LineHold.bars), too."""
    return sorted(pods, key=_place)


def _place(pod: Pod) -> tuple[int, float, str]:
    made = pod.made_at
    return place_in_line(pod.spec.priority or 0, inf if made is None else made, pod.label)


def own_claim(pod: Pod, view: View) -> Claim | None:
    """Return the claim of a pod that was given its units already; None while it waits for them."""
    claims = view.claims_of(pod.metadata.uid)
    return next((claim for claim in claims if claim.state != "lost"), None)


def has_seat(pod: Pod, view: View) -> bool:
    """Whether the pod has a seat with its gang: it needs no room, and is only to be tried."""
    return any(claim.is_seat for claim in view.claims_of(pod.metadata.uid))


def lines(pods: Iterable[AnyPod], view: View) -> dict[str, list[AnyPod]]:
    """Return the line of each pool: the pods that wait for units of it, the first in line first. Pods that
    demand what no Pool can give, and those that are being bound, are in no line.

    The order of Bindings is that of the places when units come one by one, no back-off is left and no two
    pods are bound at once (tests/e2e/test_waiting.py). Else it may differ, for kube-scheduler decides:

    - Among equal priorities it takes the one whose last attempt is the longest ago, not the oldest pod
      (source: plugins/queuesort, QueuedPodInfo.Timestamp, which each attempt that fails sets anew).
    - A pod whose back-off is not over (1 s, doubling to 10 s by its attempts; it ends at a whole second)
      comes after those that may be tried at once, and then the one whose back-off ends first, whatever its
      priority. A bind that failed begins one, too.
    - When a pod is deleted kube-scheduler tries all waiters at the moment in which release frees the units.
      filter leaves them to those that are woken for them (scheduling/fresh.py), for a moment.
    - Else several pods are told by filter of the last unit, and whose bind comes through first has it.
    """
    lines: dict[str, list[AnyPod]] = {}
    terms = terms_of(view)
    for pod in in_line(pod for pod in pods if pod.waiting and own_claim(pod, view) is None):
        demand = terms.demand(pod)
        for pool in demand.units if demand.refusal is None else ():
            lines.setdefault(pool, []).append(pod)
    return lines
