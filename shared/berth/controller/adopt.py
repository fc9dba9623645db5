"""Set running pods' claims to what the pods request by the Pools as they are, also where there is none yet
(first install, lost ledger, new Pool, bound by another scheduler).
It frees no units and refuses none: a pod that runs holds what it requests, whatever the capacity."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from berth.api.pool import EVERYWHERE, Pool
from berth.controller.annotation import listed, merged, parts_of, with_annotated_units, with_own
from berth.controller.retention import claim_told, release_ended
from berth.controller.settle import claim_of, moved
from berth.kube.cluster import Cluster
from berth.kube.types import Pod
from berth.ledger.allocation import STRIPE
from berth.ledger.keys import NOWHERE, parse_domain
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding, in_order
from berth.ledger.view import View
from berth.scheduling.demand import Demand, Terms, might_ask
from berth.telemetry import calls

log = logging.getLogger("berth.claims")

MOST_TOLD = 1000
"""Claims of which one look tells in the log, each in a line of its own."""

_FEW = 100  # pods that are asked for one by one: a list of 50,000 pods takes as many requests


class Adopted(NamedTuple):
    """How many pods had a claim that was changed, and the claims of those that had none before."""

    settled: int
    claims: list[Claim]


def adopt(
    ledger: Ledger,
    cluster: Cluster,
    pods: Iterable[Pod],
    terms: Terms,
    now: float,
    go_on: Callable[[], object] = lambda: None,
) -> Adopted:
    """Set these pods' claims to what they should be by these terms. `go_on` as in Ledger.adopt_all.

    Call it before new Pools are applied: once the ledger has a Pool, any node event gives out its capacity.
    """
    view = ledger.view()
    asking = [pod for pod in pods if might_ask(pod)]
    # The first that names a unit has it. Users may write that, but not when a pod was made.
    asking.sort(key=lambda pod: pod.metadata.creation_timestamp or "")
    known = ((pod.metadata.uid, view.claims_of(pod.metadata.uid)) for pod in asking)
    standing = {uid: held for uid, held in known if held}
    running = [*(pod for pod in asking if pod.spec.node_name), *_about_to_run(asking, standing, terms)]
    waiting = {pod.metadata.uid for pod in asking if pod.waiting}
    # Units that a pod's own claim names are its own, whatever others have written into their annotations.
    mine = [
        _as_it_waits(updated(pod, standing[pod.metadata.uid], terms, annotations=False), standing, waiting)
        for pod in running
        if _had_names(standing.get(pod.metadata.uid, ()), terms)
    ]
    changed = _adopt_all(ledger, mine, view, terms, go_on)
    due = (claim_due(pod, standing.get(pod.metadata.uid, ()), terms, now) for pod in running)
    held = (_as_it_waits(claim, standing, waiting) for claim in due if claim is not None)
    claims = list(_one_holder_a_unit(held, standing))
    changed |= _adopt_all(ledger, claims, ledger.view() if changed else view, terms, go_on)
    if terms.before != terms.pools:
        view = ledger.view()
        _adopt_all(ledger, (_handed_on(claim, terms) for claim in view.lost()), view, terms, go_on)
    if changed:
        _drop_ended(ledger, cluster, [claim for claim in claims if claim.uid in changed], terms, now)
    new = changed - standing.keys()
    return Adopted(len(changed & standing.keys()), [claim for claim in claims if claim.uid in new])


def _one_holder_a_unit(claims: Iterable[Claim], standing: Mapping[str, Sequence[Claim]]) -> Iterator[Claim]:
    """Yield the claims; one of a pod that had none before keeps only names that no claim before it has.

    The ledger can't do this: it adopts claims in another order, by what lies together in the store."""
    holders: dict[tuple[str, str], str] = {}
    for claim in claims:
        if claim.uid in standing:
            yield claim
            continue
        holdings = []
        for holding in claim.holdings:
            first = ((unit, holders.setdefault((holding.pool, unit), claim.uid)) for unit in holding.units)
            mine = [unit for unit, holder in first if holder == claim.uid]
            holdings.append(replace(holding, units=tuple(mine)))
        yield replace(claim, holdings=tuple(holdings))


def _as_it_waits(claim: Claim, standing: Mapping[str, Sequence[Claim]], waiting: Collection[str]) -> Claim:
    """Return the claim; as a seat where it is one, whose pod waits: it follows its Pools as a bound one does,
    and the others of its gang go on to wait with it."""
    seat = next((held for held in standing.get(claim.uid, ()) if held.is_seat), None)
    if seat is None or claim.uid not in waiting:
        return claim
    times = {"since": seat.since, "seat_until": seat.seat_until, "seated": seat.seated}
    return replace(claim, state="reserved", attempt="", **times)


def updated(pod: Pod, standing: Sequence[Claim], terms: Terms, *, annotations: bool = True) -> Claim:
    """Return the claim for a running pod that has one already: what it requests by the Pools as they are, and
    what it holds of Pools and PoolClaims that are gone, so that this counts if they come back.

    What it holds of a Pool that counts something else now stays, unless another Pool counts it instead.
    Names of units are those of its claim; with `annotations` also those that its annotations have. When it
    said that it is gone is not put off: it may have been lent units by that.
    """
    node = pod.spec.node_name or ""
    had = moved(_first(standing, node), node, terms)
    had = _handed_on(had, terms) if pod.finished else had
    asked = _asked(pod, terms, had.since, had.attempt)
    if asked is None:
        return replace(had, state="bound")
    placed = with_own(_placed(asked, had, terms), had, terms)
    now = with_annotated_units(placed, pod, terms.pools) if annotations else placed
    pools = {holding.pool for holding in now.holdings}
    quotas = {holding.key for holding in now.holdings if holding.is_quota}
    gone = [
        holding
        for holding in had.holdings
        if not terms.handed_on(holding.pool)
        and (holding.pool not in pools or (holding.name.kind == "poolclaim" and holding.key not in quotas))
    ]
    seat = {"seat_until": had.seat_until, "seated": had.seated}
    return replace(now, state="bound", holdings=in_order((*now.holdings, *gone)), ends=had.ends, **seat)


def claim_due(pod: Pod, standing: Sequence[Claim], terms: Terms, now: float) -> Claim | None:
    """Return the claim that a bound pod should have, whoever bound it; None if it needs none, or no other.

    A pod that has finished and still has a claim has what `releaseOn` and `onLostNode` left it.
    """
    if not standing:
        return held_by(pod, terms, now)
    if pod.finished and _asked(pod, terms, now) is None:
        had = _first(standing, pod.spec.node_name or "")
        there = _handed_on(had, terms)
        return None if there == had else there
    return updated(pod, standing, terms)


def held_by(pod: Pod, terms: Terms, now: float) -> Claim | None:
    """Return what a pod holds that runs, or whose units stay held until it is deleted; None if nothing."""
    claim = _asked(pod, terms, now)
    return None if claim is None else with_annotated_units(claim, pod, terms.pools)


def _handed_on(claim: Claim, terms: Terms) -> Claim:
    """Return the claim of an ended pod, whose units stay held, by the Pools that count them now."""
    inherited: list[Holding] = []
    stays: list[Holding] = []
    for holding in claim.holdings:
        pool = terms.heir(holding.pool)
        if pool is None or (pool.name == holding.pool and not terms.reshaped(holding.pool)):
            stays.append(holding)
        else:
            inherited += _inherited(holding, claim, pool, terms)
    return replace(claim, holdings=in_order((*stays, *merged(inherited)))) if inherited else claim


def _inherited(holding: Holding, claim: Claim, pool: Pool, terms: Terms) -> Iterator[Holding]:
    """Yield what a claim holds of a Pool that is gone or reshaped, by the Pool that counts it now."""
    if holding.name.kind == "namespace":
        if pool.limit(claim.namespace) is not None:
            yield Holding(pool.name, holding.whole, holding.count)
    elif holding.name.kind == "poolclaim":
        yield replace(holding, pool=pool.name)
    elif not holding.is_quota:
        yield from _by_place(holding, claim.node, pool, terms)
    elif pool.spec.reserved is not None:
        yield replace(holding, pool=pool.name)


def _by_place(holding: Holding, node: str, pool: Pool, terms: Terms) -> list[Holding]:
    """Return the holding, divided into the domains in which this Pool counts its units."""
    places = {unit: domain for domain, unit in listed(pool, holding.units)}
    others = next(iter(places.values()), None) or _place_of(holding, node, pool, terms)
    there = replace(holding, pool=pool.name, domain=others, units=())
    return parts_of(there, ((places.get(unit, others), unit) for unit in holding.units))


def _place_of(holding: Holding, node: str, pool: Pool, terms: Terms) -> str:
    """Return the domain in which this Pool counts units that it does not list."""
    before = terms.before.get(holding.pool)
    if before is not None and before.counts[1:] == pool.counts[1:]:
        return holding.whole
    place = terms.place(pool.name, node)
    return EVERYWHERE if place == NOWHERE and pool.spec.scope == "Cluster" else place


def _asked(pod: Pod, terms: Terms, since: float, attempt: str = "") -> Claim | None:
    """Return what a pod holds that runs, or is held until it is deleted, without the names of units."""
    node = pod.spec.node_name
    if not node or not might_ask(pod):
        return None
    asked = terms.demand(pod)
    if pod.finished:
        asked = _until_deleted(asked, terms)
    return _everywhere(claim_of(pod, node, terms, asked, attempt, since), terms) if asked.units else None


def _everywhere(claim: Claim, terms: Terms) -> Claim:
    """Return a running pod's claim with its units of Pools of scope Cluster in the one domain of the cluster.

    What became of its node does not matter: a licence in use is in use.
    """
    cluster = (name for name, pool in terms.pools.items() if pool.spec.scope == "Cluster")
    return _with_places(claim, dict.fromkeys(cluster, EVERYWHERE))


def _adopt_all(
    ledger: Ledger, claims: Iterable[Claim], view: View, terms: Terms, go_on: Callable[[], object]
) -> set[str]:
    """Adopt the claims that the ledger has not got so. Return the UIDs for which something changed."""
    different = [claim for claim in claims if not stands(claim, view)]
    ledger.prepare(_large_limits(different, terms))
    changed = ledger.adopt_all(different, terms.pools, go_on) if different else set()
    if changed and log.isEnabledFor(logging.INFO):
        _tell([claim for claim in different if claim.uid in changed], view)
    return changed


def _tell(claims: Sequence[Claim], view: View) -> None:
    """Log a line for each claim that was set; after a lost ledger of a large cluster not for all of them."""
    for claim in claims[:MOST_TOLD]:
        told(claim, "settled" if view.claims_of(claim.uid) else "adopted")
    if len(claims) > MOST_TOLD:
        log.info("%d more claims are set to what their pods hold", len(claims) - MOST_TOLD)


def told(claim: Claim, decision: str) -> None:
    """Tell that a running pod's claim was set to what the pod holds."""
    said = "the claim of pod %s on %s is %s"
    calls.decided(log, decision, claim_told(claim), said, claim.label, claim.node, decision)


def stands(claim: Claim, view: View) -> bool:
    """Whether it is the pod's one claim, in all its documents and no other.

    A pod may have two where the store's changes lag: two callers that did not see each other's claim.
    """
    claims = view.claims_of(claim.uid)
    if len(claims) != 1 or view.keys_of(claim.uid) != {holding.key for holding in claims[0].holdings}:
        return False
    (there,) = claims
    state = claim.state if claim.state == "lost" or claim.is_awaited else "bound"
    due = claim.node, state, claim.priority, claim.logical()
    same = (there.node, there.state, there.priority, there.logical()) == due
    return same and claim.units <= there.units


def _drop_ended(
    ledger: Ledger, cluster: Cluster, claims: Collection[Claim], terms: Terms, now: float
) -> None:
    """Release what was adopted for pods that ended between the list and their adoption, with their events."""
    there = _as_they_are(cluster, claims)
    for claim in claims:
        pod = there.get(claim.uid)
        if pod is None or (pod.finished and held_by(pod, terms, now) is None):
            pools = terms.judged_by()
            reads = cluster.node, cluster.ended_pod
            release_ended(ledger, claim, pod, *reads, now, also=claim.holdings, pools=pools)


def _as_they_are(cluster: Cluster, claims: Collection[Claim]) -> dict[str, Pod]:
    """Return those of the claims' pods that are there now, by UID."""
    if len(claims) > _FEW:
        uids = {claim.uid for claim in claims}
        return {pod.metadata.uid: pod for pod in cluster.pods(lambda pod: pod.metadata.uid in uids)}
    pods = (cluster.pod(claim.namespace, claim.name, uid=claim.uid) for claim in claims)
    return {pod.metadata.uid: pod for pod in pods if pod is not None}


def _about_to_run(
    pods: Iterable[Pod], standing: Mapping[str, Sequence[Claim]], terms: Terms
) -> Iterator[Pod]:
    """Yield, as if they ran, the waiting pods for which a bind holds units by Pools that have changed: its
    Binding may succeed, and the units must count then. If it does not, reconcile settles the claim."""
    changed = terms.before != terms.pools
    for pod in pods if changed else ():
        held = standing.get(pod.metadata.uid)
        if pod.waiting and held:
            mine = _first(held, "")
            there = replace(pod, spec=replace(pod.spec, node_name=mine.node))
            if updated(there, held, terms, annotations=False).logical() != mine.logical():
                yield there


def _first(standing: Sequence[Claim], node: str) -> Claim:
    """Return the claim that counts for the pod: preferably the one on its node, then a confirmed one."""
    return min(standing, key=lambda claim: (claim.node != node, claim.state != "bound"))


def _had_names(standing: Sequence[Claim], terms: Terms) -> bool:
    """Whether a claim names units of a Pool that is gone, or counted anew: other domains may list them."""
    held = {holding.pool for claim in standing for holding in claim.holdings if holding.units}
    return any(pool not in terms.pools or terms.reshaped(pool) for pool in held)


def _placed(asked: Claim, had: Claim, terms: Terms) -> Claim:
    """Return the claim, but leave its units where they were if the pod's node is gone, or has no label."""
    places = [holding for holding in had.holdings if not holding.is_quota and terms.same(holding.pool)]
    # Of several places the last counts: units with names are where they are listed, others where the pod ran.
    places.sort(key=lambda holding: len(holding.units) < holding.count)
    return _with_places(asked, {holding.pool: holding.whole for holding in places})


def _with_places(claim: Claim, places: Mapping[str, str]) -> Claim:
    """Return the claim with what it holds nowhere of a pool in that pool's place."""
    holdings = (
        replace(holding, domain=holding.name.at(places[holding.pool]))
        if holding.name.place == NOWHERE and holding.pool in places
        else holding
        for holding in claim.holdings
    )
    return replace(claim, holdings=in_order(holdings))


def _large_limits(claims: Collection[Claim], terms: Terms) -> dict[tuple[str, str], int]:
    """Return the limits of these claims' namespaces that are too large for one document."""
    holdings = (holding for claim in claims for holding in claim.holdings)
    held = {(holding.pool, holding.whole, holding.name.namespace) for holding in holdings}
    limits = {
        (pool, domain): terms.pools[pool].limit(namespace) or 0
        for pool, domain, namespace in held
        if pool in terms.pools and parse_domain(domain).kind == "namespace"
    }
    return {which: limit for which, limit in limits.items() if limit > STRIPE}


def _until_deleted(asked: Demand, terms: Terms) -> Demand:
    units = {
        pool: count for pool, count in asked.units.items() if terms.pools[pool].spec.release_on == "Deleted"
    }
    return replace(asked, units=units, claims=tuple(claim for claim in asked.claims if claim[1] in units))
