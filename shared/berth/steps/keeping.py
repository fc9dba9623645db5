"""What stays held though its pod has ended: by `releaseOn: Deleted`, or because a lost node may use it still.
Whether the pod has ended the caller asks the API server; a person's word (`berth release`) goes over this."""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from berth.cluster import Cluster
from berth.documents import Claim, Holding
from berth.ledger import Ledger
from berth.objects import Node, Pod
from berth.policy.pools import Pool


class Kept(NamedTuple):
    """Pools whose units stay held, and the state of the claim that holds them."""

    pools: frozenset[str] = frozenset()
    state: Literal["bound", "lost"] = "lost"


def kept(
    claims: Iterable[Claim], pod: Pod | None, pools: Mapping[str, Pool], node: Callable[[str], Node | None]
) -> Kept:
    """Of a pod that is finished, or gone (None). `node` is asked only where it matters.

    A pod of a lost node is failed and deleted while it may still run (facts, 5), so its end proves nothing.
    """
    held = {each.pool: claim.node for claim in claims for each in claim.holdings if each.pool in pools}
    holding = frozenset(pool for pool in held if pools[pool].holds_lost)
    if holding and any(_lost(node(name)) for name in {held[pool] for pool in holding}):
        return Kept(holding | _until_deleted(held, pod, pools), "lost" if pod is None else "bound")
    return Kept(_until_deleted(held, pod, pools), "bound")


def until_deleted(claims: Iterable[Claim], pools: Mapping[str, Pool]) -> frozenset[str]:
    """Pools whose units stay held because the pod, which has finished, is there still."""
    held = {each.pool for claim in claims for each in claim.holdings if each.pool in pools}
    return frozenset(pool for pool in held if pools[pool].spec.release_on == "Deleted")


def release_ended(
    ledger: Ledger,
    cluster: Cluster,
    claims: Iterable[Claim],
    uid: str,
    pod: Pod | None,
    label: str | None = None,
    also: Iterable[Holding] = (),
) -> tuple[Holding, ...]:
    """Release what the pod holds, but for what stays held; what was freed. `claims` are those known of it,
    the rest as in Ledger.release."""
    view = ledger.view()
    keep = kept([*claims, *view.claims_of(uid)], pod, view.pools, cluster.node)
    return ledger.release(uid, label, also, keep.pools, keep.state)


def _until_deleted(held: Iterable[str], pod: Pod | None, pools: Mapping[str, Pool]) -> frozenset[str]:
    if pod is None:
        return frozenset()
    return frozenset(pool for pool in held if pools[pool].spec.release_on == "Deleted")


def _lost(node: Node | None) -> bool:
    return node is None or node.lost
