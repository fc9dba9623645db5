"""From a pod to its claim on a node, from a claim to the pod's annotation, and settling a claim in doubt.
A claim says what the ledger gave; whether the pod runs there, only the API server knows."""

import logging
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from berth.controller.annotation import ALLOCATED, merged
from berth.controller.retention import release_ended
from berth.deadline import Deadline
from berth.errors import BerthError, ClusterRefusedError, ClusterUnavailableError
from berth.kube.cluster import Cluster
from berth.kube.types import Meta, Node, Pod
from berth.ledger.ledger import Ledger
from berth.ledger.model import UNRESERVED, Claim, Holding, in_order
from berth.scheduling.demand import Demand, Terms, owner_of, terms_of

log = logging.getLogger("berth.claims")

CONDITION = "berth.dev/Waiting"
_DEFAULT_GRACE = 30  # Kubernetes' own, where a pod says nothing
BIND_SECONDS = 4.0
"""Bind's deadline over all it does; below 5 s, the least kube-scheduler waits for a bind by default."""

# What settling keeps back of its time for the requests that come after the fence.
_LOOK_SECONDS = 0.5
_NODE_SECONDS = 0.2


class Settled(NamedTuple):
    """The pod as it was after the fence (None: gone), and the units that settling freed."""

    pod: Pod | None
    freed: tuple[Holding, ...] = ()


def claim_of(
    pod: Pod, node: str, terms: Terms, demand: Demand, attempt: str = "", since: float = 0.0
) -> Claim:
    """What the pod is to hold on that node."""
    grace = pod.spec.termination_grace_period_seconds
    return Claim(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace or "default",
        name=pod.metadata.name,
        node=node,
        holdings=terms.holdings(pod, node, demand),
        attempt=attempt,
        since=since,
        owner=owner_of(pod),
        grace=_DEFAULT_GRACE if grace is None else grace,
    )


def allocated(claim: Claim) -> dict[str, str]:
    """The annotation by which a pod sees what it got, and a lost ledger is rebuilt (promise 8)."""
    found = merged(replace(each, domain=each.place) for each in claim.holdings if not each.bound)
    return {ALLOCATED: msgspec.json.encode(found).decode()}


def condition(
    reason: str, message: str, now: float, unique: Callable[[], str] = lambda: uuid.uuid4().hex[:8]
) -> dict[str, str]:
    """The condition whose patch wakes or fences a pod.

    Each must differ from the last, or the API server writes nothing: nobody is woken, and a fence stops no
    Binding. So the message carries the time and, because clocks may stand still, something unique.
    """
    at = datetime.fromtimestamp(now, UTC)
    return {
        "type": CONDITION,
        "status": "False",
        "reason": reason,
        "message": f"{message} (at {at:%Y-%m-%dT%H:%M:%S}Z, {unique()})",
        "lastTransitionTime": f"{at:%Y-%m-%dT%H:%M:%SZ}",
    }


def fence(cluster: Cluster, claim_or_pod: Claim | Pod, now: float, timeout: float) -> Pod | None:
    """Write to the pod, so that no Binding sent before can land after; the pod then, None if gone."""
    if isinstance(claim_or_pod, Claim):
        claim = claim_or_pod
        pod = Pod(Meta(name=claim.name, namespace=claim.namespace, uid=claim.uid))
    else:
        pod = claim_or_pod
    return cluster.set_condition(pod, condition("Fenced", "an unfinished bind was stopped", now), timeout)


def settle(ledger: Ledger, cluster: Cluster, claim: Claim, now: float, deadline: Deadline) -> Settled:
    """End a reservation whose bind is in doubt: by the pod as it is after a fence, confirm, move or cancel.

    The deadline is for all requests together; each is tried though it is over. Raises the fence's error when
    a pod that waits can't be fenced: then the claim stands, and reconcile or the next bind settles it.
    """

    def look(node: str) -> Node | None:
        return cluster.node(node, deadline.timeout())

    pod = _fenced(cluster, claim, now, deadline)
    if pod is None or pod.finished:
        return Settled(pod, release_ended(ledger, look, [claim], claim.uid, pod, now, also=claim.holdings))
    node = pod.spec.node_name
    if not node:
        return Settled(pod, ledger.cancel(claim))
    try:
        ledger = ledger.beside_looks()
        view = ledger.view()
        # As it stands now: a look at the Pools may have brought it to others since it was made.
        mine = min([*view.claims_of(claim.uid), claim], key=lambda each: each.node != node)
        there = moved(mine, node, terms_of(view))
        return Settled(pod, ledger.adopt(there, anew=False, also=claim.holdings) or ())
    except BerthError as error:
        # The pod is bound: that is the answer, and the ledger follows.
        log.warning("pod %s is on %s, and its claim waits for reconcile: %s", claim.label, node, error)
        return Settled(pod)


def _fenced(cluster: Cluster, claim: Claim, now: float, deadline: Deadline) -> Pod | None:
    """The pod after a fence, None if it is gone. One that can't be written to needs none if it is bound, has
    finished or is gone: no Binding can land on it any more."""
    try:
        return fence(cluster, claim, now, deadline.later(-_LOOK_SECONDS).timeout())
    except (ClusterRefusedError, ClusterUnavailableError) as error:
        # No webhook stands in the way of a look.
        try:
            pod = cluster.pod(claim.namespace, claim.name, deadline.later(-_NODE_SECONDS).timeout())
        except (ClusterRefusedError, ClusterUnavailableError):
            raise error from None
        if pod is None or pod.metadata.uid != claim.uid:
            return None
        if pod.finished or pod.spec.node_name:
            return pod
        raise


def moved(claim: Claim, node: str, terms: Terms) -> Claim:
    """The same units on another node; names are of the place where they are."""
    if claim.node == node:
        return claim
    found = claim.logical()
    holdings = (replace(each, domain=_moved(each.domain, each.pool, claim, node, terms)) for each in found)
    return replace(claim, node=node, holdings=in_order(holdings))


def _moved(domain: str, pool: str, claim: Claim, node: str, terms: Terms) -> str:
    before, after = terms.place(pool, claim.node), terms.place(pool, node)
    if domain == before:
        return after
    return f"{after}{UNRESERVED}" if domain == f"{before}{UNRESERVED}" else domain
