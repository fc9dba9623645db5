"""A pod's claim on a node, the annotation for a claim, and how a reservation in doubt ends.
A claim says what the ledger gave. Whether the pod runs there, only the API server knows."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from berth.api.gang import gang_label
from berth.api.pool import Pool
from berth.api.run_time import ends_at, grace_of
from berth.controller.annotation import ALLOCATED, merged, pools_annotations
from berth.controller.capacity_sync import follow_node
from berth.controller.fencing import fence_claim
from berth.controller.retention import release_ended
from berth.deadline import Deadline
from berth.errors import BerthError
from berth.kube.cluster import Cluster
from berth.kube.types import EndedPod, Node, Pod
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding, in_order
from berth.scheduling.demand import Demand, Terms, owner_of, terms_of

log = logging.getLogger("berth.claims")

BIND_SECONDS = 4.0
"""Bind's deadline over all it does; below 5 s, the least kube-scheduler waits for a bind by default."""


class Settled(NamedTuple):
    """The pod as it was after the fence (None: gone), and the units that settling freed."""

    pod: Pod | None
    freed: tuple[Holding, ...] = ()


def claim_of(pod: Pod, node: str, terms: Terms, demand: Demand, attempt: str, since: float) -> Claim:
    """Return the claim for what the pod requests, on that node; without an attempt it was bound before."""
    bound_at = None if attempt else pod.bound_at
    evictable = any(terms.pools[pool].spec.preemption == "Native" for pool in demand.units)
    return Claim(
        uid=pod.metadata.uid,
        namespace=pod.namespace,
        name=pod.metadata.name,
        node=node,
        holdings=terms.holdings(pod, node, demand),
        attempt=attempt,
        since=since,
        owner=owner_of(pod),
        grace=grace_of(pod),
        made=pod.made_at or 0.0,
        began=bound_at or 0.0,
        ends=ends_at(pod, since if bound_at is None else bound_at),
        gang=gang_label(pod).partition("/")[2],
        priority=(pod.spec.priority or 0) if evictable else None,
    )


def allocated(claim: Claim, pools: Mapping[str, Pool]) -> dict[str, str]:
    """Return the annotations by which a pod sees what it got: Berth's own, by which a lost ledger is rebuilt
    (promise 8), and those that the Pools say."""
    units = (holding for holding in claim.holdings if not holding.is_quota)
    parts = merged(replace(holding, domain=holding.whole) for holding in units)
    return {**pools_annotations(claim, pools), ALLOCATED: msgspec.json.encode(parts).decode()}


def settle(ledger: Ledger, cluster: Cluster, claim: Claim, now: float, deadline: Deadline) -> Settled:
    """End a reservation whose bind is in doubt: fence the pod, then confirm, move or cancel by what it is.

    The deadline is for all requests together; they are tried also after it. Raises the fence's error when a
    waiting pod can't be fenced: then the claim stands, and reconcile or the next bind settles it.
    """

    def node_now(name: str) -> Node | None:
        return cluster.node(name, deadline.timeout())

    def ended_pod(pod: Pod) -> EndedPod | None:
        return cluster.ended_pod(pod, deadline.timeout())

    pod = fence_claim(cluster, claim, now, deadline)
    if pod is None or pod.finished:
        freed = release_ended(ledger, claim, pod, node_now, ended_pod, now, also=claim.holdings)
        return Settled(pod, freed)
    node = pod.spec.node_name
    if not node:
        return Settled(pod, ledger.cancel(claim))
    try:
        ledger = ledger.beside_looks()
        view = ledger.view()
        # The claim as it stands now: a change of Pools may have moved it to others since it was made.
        latest = min([*view.claims_of(claim.uid), claim], key=lambda known: known.node != node)
        there = replace(moved(latest, node, terms_of(view)), state="bound")
        freed = ledger.adopt(there, anew=False, also=claim.holdings) or ()
        return Settled(pod, (*freed, *follow_node(ledger, claim.uid)))
    except BerthError as error:
        # The pod is bound: that is the answer. Reconcile brings the ledger up to date.
        log.warning("pod %s is on %s, and its claim waits for reconcile: %s", claim.label, node, error)
        return Settled(pod)


def moved(claim: Claim, node: str, terms: Terms) -> Claim:
    """Return the claim with its units on another node. Units with names stay where they are listed."""
    if claim.node == node:
        return claim
    holdings = (
        replace(holding, domain=holding.name.at(terms.place(holding.pool, node)))
        if holding.name.place == terms.place(holding.pool, claim.node)
        else holding
        for holding in claim.logical()
    )
    return replace(claim, node=node, holdings=in_order(holdings))
