"""Adopt running pods that hold units without a claim: first install, lost ledger, new Pool, bound by others.
It makes no room and asks for none: a pod that runs holds what it requests, whatever the capacity."""

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from berth.cluster import Cluster
from berth.documents import NAMESPACE, Claim
from berth.ledger import Ledger
from berth.objects import Pod
from berth.policy.demand import might_ask
from berth.room import STRIPE
from berth.steps.claims import claim_of
from berth.steps.keeping import release_ended
from berth.steps.notes import with_notes
from berth.steps.terms import Asked, Terms


def adopt(
    ledger: Ledger,
    cluster: Cluster,
    pods: Iterable[Pod],
    terms: Terms,
    now: float,
    known: Collection[str] = (),
) -> int:
    """How many of these pods were adopted, by these terms; whose UID is `known` is left alone.

    Call it before new Pools are applied: once the ledger has a Pool, any node event gives out its capacity.
    """
    unknown = (pod for pod in pods if pod.metadata.uid not in known)
    claims = [claim for pod in unknown if (claim := held_by(pod, terms, now)) is not None]
    ledger.prepare(_large_limits(claims, terms))
    adopted = ledger.adopt_all(claims) if claims else set()
    if adopted:
        # A pod may have gone between the list and its adoption, with its event: look once more.
        there = {pod.metadata.uid: pod for pod in cluster.pods()}
        for claim in claims:
            pod = there.get(claim.uid)
            if claim.uid in adopted and (pod is None or held_by(pod, terms, now) is None):
                release_ended(ledger, cluster, [claim], claim.uid, pod, now, also=claim.holdings)
    return len(adopted)


def _large_limits(claims: Iterable[Claim], terms: Terms) -> dict[tuple[str, str], int]:
    """The limits of these claims' namespaces that are too large for one document."""
    bounds = {each for claim in claims for each in claim.holdings if each.domain.startswith(NAMESPACE)}
    limits = {(each.pool, each.domain): terms.pools[each.pool].limit(each.domain[1:]) or 0 for each in bounds}
    return {which: limit for which, limit in limits.items() if limit > STRIPE}


def held_by(pod: Pod, terms: Terms, now: float, attempt: str = "") -> Claim | None:
    """What a pod holds that runs, or whose units stay held until it is deleted; None if nothing."""
    node = pod.spec.node_name
    if not node or not might_ask(pod):
        return None
    asked = terms.asked(pod)
    if pod.finished:
        asked = _until_deleted(asked, terms)
    if not asked.units:
        return None
    return with_notes(claim_of(pod, node, terms, asked, attempt, now), pod, terms.pools)


def _until_deleted(asked: Asked, terms: Terms) -> Asked:
    units = {
        pool: count for pool, count in asked.units.items() if terms.pools[pool].spec.release_on == "Deleted"
    }
    return replace(asked, units=units, claims=tuple(each for each in asked.claims if each[1] in units))
