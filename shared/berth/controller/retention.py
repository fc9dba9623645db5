"""What stays held though its pod has ended: by `releaseOn: Deleted`, or because a lost node may still use it.
That the pod has ended, the caller knows from the API server. `berth release` may override what stays held."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from berth.api.pool import Pool
from berth.kube.types import EndedPod, Node, Pod
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.telemetry import calls
from berth.telemetry.traces import Facts

log = logging.getLogger("berth.claims")

RECONNECT_SECONDS = 60.0
"""How long a kubelet may take to list its pods after its node is ready.

Twice the 30 s that its watch waits at most to connect again
(source: k8s.io/client-go/tools/cache/reflector.go).
"""


class StillHeld(NamedTuple):
    """The pools whose units an ended pod still holds, and the state of the claim that holds them; of claims
    on the nodes `elsewhere` it holds nothing."""

    pools: frozenset[str]
    state: Literal["bound", "lost"]
    elsewhere: frozenset[str] = frozenset()


def still_held(
    claims: Collection[Claim],
    pod: Pod | None,
    pools: Mapping[str, Pool],
    node: Callable[[str], Node | None],
    now: float,
) -> StillHeld:
    """Return what a finished pod, or one that is gone (None), still holds. `node` is called where it matters.

    A pod of a lost node is failed and deleted while it may still run (source: pkg/controller/podgc), so its
    end proves nothing.
    """
    ran = _where_it_ran([claim for claim in claims if not claim.is_seat], pod)  # who has a seat never ran
    by_pod = frozenset[str]() if pod is None else until_deleted(ran, pools)
    by_node = frozenset(name for claim in ran for name in _pools(claim, pools) if pools[name].holds_lost)
    lost = {
        claim.node
        for claim in ran
        if _pools(claim, pools) & by_node and may_run(claim, node(claim.node), now)
    }
    nodes = {claim.node for claim in claims}
    if lost:
        holding = lost if not by_pod else {claim.node for claim in ran}
        return StillHeld(by_node | by_pod, "lost" if pod is None else "bound", frozenset(nodes - holding))
    return StillHeld(by_pod, "bound", frozenset(nodes - {claim.node for claim in ran}))


def _where_it_ran(claims: Sequence[Claim], pod: Pod | None) -> Sequence[Claim]:
    """Return those of a pod's claims by which it may have run. It has more than one where two binds, to two
    nodes, did not see each other's claim.

    It ran on the node that it names. Of one that is gone (None) a bound claim tells it, for a claim is bound
    after the Binding; as long as all are reserved, each of them may be the one.
    """
    if pod is not None:
        return [claim for claim in claims if claim.node == pod.spec.node_name] or claims
    return [claim for claim in claims if claim.state != "reserved"] or claims


def may_run(claim: Claim, node: Node | None, now: float) -> bool:
    """Whether containers of the claim's pod may still run on this node though the API server has no such pod.
    None: the node is deleted.

    A kubelet that was cut off learns of the pod's deletion some time after its node is ready again, and then
    gives the pod its grace period. Of a pod that was bound after the node became ready, it learns at once.
    When it became ready, its own clock says: that may be 30 s off, which is half of RECONNECT_SECONDS, and
    less than the time after which a silent node is lost.
    """
    if node is None or node.lost:
        return True
    knows = node.ready_since + RECONNECT_SECONDS
    return claim.since < node.ready_since and now < knows + claim.grace


def until_deleted(claims: Iterable[Claim], pools: Mapping[str, Pool]) -> frozenset[str]:
    """Return the pools whose units stay held because the pod, which has finished, is not deleted yet."""
    held = {name for claim in claims for name in _pools(claim, pools)}
    return frozenset(name for name in held if pools[name].spec.release_on == "Deleted")


def has_rest(
    claims: Iterable[Claim],
    pod: Pod | None,
    pools: Mapping[str, Pool],
    read: Callable[[Pod], EndedPod | None],
) -> bool:
    """Whether the units of a finished pod, or of one that is gone (None), rest. Those of a pod of which
    nothing ever ran do not; that is what the API server says, for events may be forged. `read` is called
    where it matters."""
    if pod is None or pod.status.phase != "Failed":
        return True
    if not any(pools[name].spec.reuse_after_seconds for claim in claims for name in _pools(claim, pools)):
        return True
    ended = read(pod)
    return ended is None or not ended.never_ran


def release_ended(
    ledger: Ledger,
    claim: Claim,
    pod: Pod | None,
    node: Callable[[str], Node | None],
    read: Callable[[Pod], EndedPod | None],
    now: float,
    *,
    also: Iterable[Holding] = (),
    pools: Mapping[str, Pool] | None = None,
) -> tuple[Holding, ...]:
    """Release what the claim's pod holds, which is finished or gone (None), except what stays held. Return
    what was freed. `node` and `read` ask the API server; `pools` decide in place of the ledger's; `also` is
    as in Ledger.release.
    """
    view = ledger.view()
    rules = view.pools if pools is None else pools
    claims = [claim, *view.claims_of(claim.uid)]
    held, rests = still_held(claims, pod, rules, node, now), has_rest(claims, pod, rules, read)
    ended, bound = (None, False) if pod is None else (pod.finished_at, bool(pod.spec.node_name))
    freed = ledger.release(
        claim.uid,
        also=also,
        hold=held.pools,
        hold_as=held.state,
        elsewhere=held.elsewhere,
        ended=ended,
        bound=bound,
        rests=rests,
    )
    if freed:
        why = "is gone" if pod is None else "has finished"
        facts = claim_told(claim) | holdings_told(freed)
        calls.decided(log, "released", facts, "pod %s %s, and its units are free", claim.label, why)
    return freed


def claim_told(claim: Claim) -> Facts:
    """Return what the log tells of a claim."""
    about: Facts = {"pod": claim.label, "uid": claim.uid, "node": claim.node}
    return about | holdings_told(claim.holdings)


def holdings_told(holdings: Iterable[Holding]) -> Facts:
    """Return what the log tells of units that were given or freed."""
    units = [holding for holding in holdings if not holding.is_quota]
    pools = ",".join(sorted({holding.pool for holding in units}))
    return {"pool": pools, "units": sum(holding.count for holding in units)} if units else {}


def _pools(claim: Claim, pools: Mapping[str, Pool]) -> frozenset[str]:
    """Return those of these Pools that the claim draws from."""
    return frozenset(holding.pool for holding in claim.holdings if holding.pool in pools)
