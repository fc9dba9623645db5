"""Adopt running pods that hold units without a claim: first install, lost ledger, new Pool, bound by others.
It makes no room and asks for none: a pod that runs holds what it requests, whatever the capacity."""

from collections.abc import Collection, Iterable, Mapping

from berth.cluster import Cluster
from berth.documents import Claim
from berth.ledger import Ledger
from berth.objects import Pod
from berth.policy.demand import demand
from berth.policy.pools import Pool
from berth.steps.claims import claim_of


def adopt(
    ledger: Ledger,
    cluster: Cluster,
    pods: Iterable[Pod],
    resources: Mapping[str, Pool],
    now: float,
    known: Collection[str] = (),
) -> int:
    """How many of these pods were adopted, by the Pools in `resources`; whose UID is `known` is left alone.

    Call it before new Pools are applied: once the ledger has a Pool, any node event gives out its capacity.
    """
    unknown = (pod for pod in pods if pod.metadata.uid not in known)
    claims = [claim for pod in unknown if (claim := _claim(pod, resources, now)) is not None]
    adopted = ledger.adopt_all(claims) if claims else set()
    if adopted:
        # A pod may have gone between the list and its adoption, with its event: look once more.
        living = {pod.metadata.uid for pod in cluster.pods() if not pod.finished}
        for claim in claims:
            if claim.uid in adopted - living:
                ledger.release(claim.uid, also=claim.holdings)
    return len(adopted)


def _claim(pod: Pod, resources: Mapping[str, Pool], now: float) -> Claim | None:
    """What a running pod holds, None if nothing."""
    node = pod.spec.node_name
    if not node or pod.finished:
        return None
    units = demand(pod, resources).units
    return claim_of(pod, node, units, since=now) if units else None
