"""What stays held though its pod has ended: by `releaseOn: Deleted`, or because a lost node may use it still.
Whether the pod has ended the caller asks the API server; a person's word (`berth release`) goes over this."""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from berth.api.pool import Pool
from berth.kube.types import Node, Pod
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding

RECONNECT_SECONDS = 60.0
"""How long a kubelet may take to list its pods after its node is ready.

Twice the 30 s that its watch waits at most to connect again
(source: k8s.io/client-go/tools/cache/reflector.go).
"""


class Kept(NamedTuple):
    """Pools whose units stay held, and the state of the claim that holds them."""

    pools: frozenset[str] = frozenset()
    state: Literal["bound", "lost"] = "lost"


def kept(
    claims: Iterable[Claim],
    pod: Pod | None,
    pools: Mapping[str, Pool],
    node: Callable[[str], Node | None],
    now: float,
) -> Kept:
    """What stays held of a pod that is finished, or gone (None). `node` is asked only where it matters.

    A pod of a lost node is failed and deleted while it may still run (source: pkg/controller/podgc), so its
    end proves nothing.
    """
    known = [(claim, _pools(claim, pools)) for claim in claims]
    held = {pool for _, names in known for pool in names}
    holding = frozenset(pool for pool in held if pools[pool].holds_lost)
    if any(names & holding and may_run(claim, node(claim.node), now) for claim, names in known):
        return Kept(holding | _until_deleted(held, pod, pools), "lost" if pod is None else "bound")
    return Kept(_until_deleted(held, pod, pools), "bound")


def may_run(claim: Claim, node: Node | None, now: float) -> bool:
    """Whether containers of the claim's pod may still run on this node though the API server knows no more of
    them. None: the node is deleted.

    A kubelet that was cut off learns of the pod's deletion some time after its node is ready again, and then
    gives the pod its grace period. A pod that was bound since then was known to it all the time.
    """
    if node is None or node.lost:
        return True
    told = node.ready_since + RECONNECT_SECONDS
    return claim.since < node.ready_since and now < told + claim.grace


def until_deleted(claims: Iterable[Claim], pools: Mapping[str, Pool]) -> frozenset[str]:
    """Pools whose units stay held because the pod, which has finished, is there still."""
    held = {pool for claim in claims for pool in _pools(claim, pools)}
    return frozenset(pool for pool in held if pools[pool].spec.release_on == "Deleted")


def release_ended(
    ledger: Ledger,
    node: Callable[[str], Node | None],
    claims: Iterable[Claim],
    uid: str,
    pod: Pod | None,
    now: float,
    label: str | None = None,
    also: Iterable[Holding] = (),
    pools: Mapping[str, Pool] | None = None,
) -> tuple[Holding, ...]:
    """Release what the pod holds, but for what stays held; what was freed. `claims` are those known of it,
    `node` as in `kept`, `pools` by which it is judged if not by the ledger's, the rest as in Ledger.release.
    """
    view = ledger.view()
    judges = view.pools if pools is None else pools
    keep = kept([*claims, *view.claims_of(uid)], pod, judges, node, now)
    return ledger.release(uid, label, also, keep.pools, keep.state)


def _until_deleted(held: Iterable[str], pod: Pod | None, pools: Mapping[str, Pool]) -> frozenset[str]:
    if pod is None:
        return frozenset()
    return frozenset(pool for pool in held if pools[pool].spec.release_on == "Deleted")


def _pools(claim: Claim, pools: Mapping[str, Pool]) -> frozenset[str]:
    """Those of these Pools that the claim draws from."""
    return frozenset(each.pool for each in claim.holdings if each.pool in pools)
