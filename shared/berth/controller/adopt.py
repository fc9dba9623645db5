"""Bring the claims of running pods to what they ask for by the Pools as they are, also where there is none
yet (first install, lost ledger, new Pool, bound by others).
It makes no room and asks for none: a pod that runs holds what it requests, whatever the capacity."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from berth.api.pool import EVERYWHERE, Pool
from berth.controller.annotation import listed, merged, parts_of, with_notes, with_own
from berth.controller.retention import release_ended
from berth.controller.settle import claim_of, moved
from berth.kube.cluster import Cluster
from berth.kube.types import Pod
from berth.ledger.allocation import STRIPE
from berth.ledger.keys import NOWHERE, parse_domain
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding, in_order
from berth.ledger.view import View
from berth.scheduling.demand import Demand, Terms, might_ask


class Adopted(NamedTuple):
    """How many pods had a claim that was changed, and how many had none."""

    settled: int
    adopted: int


def adopt(
    ledger: Ledger,
    cluster: Cluster,
    pods: Iterable[Pod],
    terms: Terms,
    now: float,
    go_on: Callable[[], object] = lambda: None,
) -> Adopted:
    """Bring these pods' claims to what they are to be by these terms. `go_on` as in Ledger.adopt_all.

    Call it before new Pools are applied: once the ledger has a Pool, any node event gives out its capacity.
    """
    view = ledger.view()
    asking = [pod for pod in pods if might_ask(pod)]
    # The first that names a unit has it. Users may write that, but not when a pod was made.
    asking.sort(key=lambda pod: pod.metadata.creation_timestamp or "")
    known = ((pod.metadata.uid, view.claims_of(pod.metadata.uid)) for pod in asking)
    standing = {uid: held for uid, held in known if held}
    running = [*(pod for pod in asking if pod.spec.node_name), *_about_to_run(asking, standing, terms)]
    # Units that a pod's own claim names are its own, whatever others have written into their annotations.
    mine = [
        agreed(pod, standing[pod.metadata.uid], terms, told=False)
        for pod in running
        if _had_names(standing.get(pod.metadata.uid, ()), terms)
    ]
    changed = _adopt_all(ledger, mine, view, terms, go_on)
    wanted = (wanted_by(pod, standing.get(pod.metadata.uid, ()), terms, now) for pod in running)
    claims = list(_one_holder_each((claim for claim in wanted if claim is not None), standing))
    changed |= _adopt_all(ledger, claims, ledger.view() if changed else view, terms, go_on)
    if terms.before != terms.pools:
        view = ledger.view()
        _adopt_all(ledger, (_handed_on(claim, terms) for claim in view.lost()), view, terms, go_on)
    if changed:
        _look_again(ledger, cluster, [claim for claim in claims if claim.uid in changed], terms, now)
    return Adopted(len(changed & standing.keys()), len(changed - standing.keys()))


def _one_holder_each(claims: Iterable[Claim], standing: Mapping[str, Sequence[Claim]]) -> Iterator[Claim]:
    """The claims, where those of pods that have none yet name only units that no claim before them names.

    The order in which they are adopted is the ledger's, by what lies together in the store."""
    holders: dict[tuple[str, str], str] = {}
    for claim in claims:
        if claim.uid in standing:
            yield claim
            continue
        holdings = []
        for each in claim.holdings:
            named = ((unit, holders.setdefault((each.pool, unit), claim.uid)) for unit in each.units)
            mine = [unit for unit, holder in named if holder == claim.uid]
            holdings.append(each if len(mine) == len(each.units) else replace(each, units=tuple(mine)))
        yield replace(claim, holdings=tuple(holdings))


def agreed(pod: Pod, standing: Sequence[Claim], terms: Terms, *, told: bool = True) -> Claim:
    """What a running pod is to hold that has a claim: what it asks for by the Pools as they are, and, beside
    that, what it has of Pools and PoolClaims that are gone. A Pool that comes back finds it counted.

    What it has of a Pool that counts something else now stays as well, unless another Pool counts it instead.
    Names of units are those of its claim; with `told` also those that its annotations say.
    """
    node = pod.spec.node_name or ""
    had = moved(_first(standing, node), node, terms)
    had = _handed_on(had, terms) if pod.finished else had
    asked = _asked(pod, terms, had.since, had.attempt)
    if asked is None:
        return replace(had, state="bound")
    placed = with_own(_placed(asked, had, terms), had, terms)
    now = with_notes(placed, pod, terms.pools) if told else placed
    pools = {each.pool for each in now.holdings}
    quotas = {each.key for each in now.holdings if each.is_quota}
    gone = [
        each
        for each in had.holdings
        if not terms.handed_on(each.pool)
        and (each.pool not in pools or (each.name.kind == "poolclaim" and each.key not in quotas))
    ]
    return replace(now, state="bound", holdings=in_order((*now.holdings, *gone)))


def wanted_by(pod: Pod, standing: Sequence[Claim], terms: Terms, now: float) -> Claim | None:
    """What a bound pod is to hold, whoever bound it; None if nothing.

    A pod that has finished and still has a claim has what `releaseOn` and `onLostNode` left it.
    """
    if not standing:
        return held_by(pod, terms, now)
    if pod.finished and _asked(pod, terms, now, "") is None:
        had = _first(standing, pod.spec.node_name or "")
        there = _handed_on(had, terms)
        return None if there == had else there
    return agreed(pod, standing, terms)


def held_by(pod: Pod, terms: Terms, now: float, attempt: str = "") -> Claim | None:
    """What a pod holds that runs, or whose units stay held until it is deleted; None if nothing."""
    claim = _asked(pod, terms, now, attempt)
    return None if claim is None else with_notes(claim, pod, terms.pools)


def _handed_on(claim: Claim, terms: Terms) -> Claim:
    """The claim of a pod that has ended, whose units stay held, by the Pools that count them now."""
    found: list[Holding] = []
    stays: list[Holding] = []
    for each in claim.holdings:
        pool = terms.heir(each.pool)
        if pool is None or (pool.name == each.pool and not terms.reshaped(each.pool)):
            stays.append(each)
        else:
            found += _inherited(each, claim, pool, terms)
    return replace(claim, holdings=in_order((*stays, *merged(found)))) if found else claim


def _inherited(holding: Holding, claim: Claim, pool: Pool, terms: Terms) -> Iterator[Holding]:
    """What a claim holds of a Pool that is gone, or of another shape, by the Pool that counts it now."""
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
    """The holding by the domains in which this Pool counts its units."""
    places = {unit: domain for domain, unit in listed(pool, holding.units)}
    others = next(iter(places.values()), None) or _place_of(holding, node, pool, terms)
    there = replace(holding, pool=pool.name, domain=others, units=())
    return parts_of(there, ((places.get(unit, others), unit) for unit in holding.units))


def _place_of(holding: Holding, node: str, pool: Pool, terms: Terms) -> str:
    """Where this Pool counts units that it does not list."""
    before = terms.before.get(holding.pool)
    if before is not None and before.counts[1:] == pool.counts[1:]:
        return holding.whole
    place = terms.place(pool.name, node)
    return EVERYWHERE if place == NOWHERE and pool.spec.scope == "Cluster" else place


def _asked(pod: Pod, terms: Terms, now: float, attempt: str) -> Claim | None:
    """The same without the names of units."""
    node = pod.spec.node_name
    if not node or not might_ask(pod):
        return None
    asked = terms.demand(pod)
    if pod.finished:
        asked = _until_deleted(asked, terms)
    return _everywhere(claim_of(pod, node, terms, asked, attempt, now), terms) if asked.units else None


def _everywhere(claim: Claim, terms: Terms) -> Claim:
    """The claim of a pod that runs, with its units of Pools of scope Cluster counted for the whole cluster.

    What became of its node does not matter: a licence in use is in use.
    """
    cluster = {name for name, pool in terms.pools.items() if pool.spec.scope == "Cluster"}
    holdings = (
        replace(each, domain=each.name.at(EVERYWHERE))
        if each.pool in cluster and each.name.place == NOWHERE
        else each
        for each in claim.holdings
    )
    return replace(claim, holdings=in_order(holdings))


def _adopt_all(
    ledger: Ledger, claims: Iterable[Claim], view: View, terms: Terms, go_on: Callable[[], object]
) -> set[str]:
    """The UIDs of those for which something changed."""
    different = [claim for claim in claims if not stands(claim, view)]
    ledger.prepare(_large_limits(different, terms))
    return ledger.adopt_all(different, terms.pools, go_on) if different else set()


def stands(claim: Claim, view: View) -> bool:
    """Whether it is the pod's one claim, in all its documents and no other.

    A pod may have two where the store's changes lag: two callers that did not see each other's.
    """
    found = view.claims_of(claim.uid)
    if len(found) != 1 or view.keys_of(claim.uid) != {each.key for each in found[0].holdings}:
        return False
    (there,) = found
    state = "lost" if claim.state == "lost" else "bound"
    same = (there.node, there.state, there.logical()) == (claim.node, state, claim.logical())
    return same and claim.units <= there.units


def _look_again(ledger: Ledger, cluster: Cluster, claims: Iterable[Claim], terms: Terms, now: float) -> None:
    """A pod may have gone between the list and its adoption, with its event."""
    there = {pod.metadata.uid: pod for pod in cluster.pods()}
    for claim in claims:
        pod = there.get(claim.uid)
        if pod is None or (pod.finished and held_by(pod, terms, now) is None):
            ended = ledger, cluster.node, [claim], claim.uid, pod, now
            release_ended(*ended, also=claim.holdings, pools=terms.judged_by())


def _about_to_run(
    pods: Iterable[Pod], standing: Mapping[str, Sequence[Claim]], terms: Terms
) -> Iterator[Pod]:
    """Waiting pods that binds under way hold units for by Pools that are others now, as if they ran: their
    Bindings may land, and must find them counted. What comes to nothing, reconcile settles."""
    changed = terms.before != terms.pools
    for pod in pods if changed else ():
        held = standing.get(pod.metadata.uid)
        if pod.waiting and held:
            mine = _first(held, "")
            there = replace(pod, spec=replace(pod.spec, node_name=mine.node))
            if agreed(there, held, terms, told=False).logical() != mine.logical():
                yield there


def _first(standing: Sequence[Claim], node: str) -> Claim:
    """The claim by which the pod holds what it has: that on its node, and rather a confirmed one."""
    return min(standing, key=lambda claim: (claim.node != node, claim.state != "bound"))


def _had_names(standing: Sequence[Claim], terms: Terms) -> bool:
    """Whether a claim names units of a Pool that is gone, or is counted anew: they may stand elsewhere."""
    held = {each.pool for claim in standing for each in claim.holdings if each.units}
    return any(pool not in terms.pools or terms.reshaped(pool) for pool in held)


def _placed(asked: Claim, had: Claim, terms: Terms) -> Claim:
    """Where the pod's node is away, or has lost its label, what it holds stays where it was."""
    places = [each for each in had.holdings if not each.is_quota and terms.same(each.pool)]
    # Of several places the last: units with names are where they are listed, what has none is where it ran.
    places.sort(key=lambda each: len(each.units) < each.count)
    stays = {each.pool: each.whole for each in places}
    holdings = (
        replace(each, domain=each.name.at(stays[each.pool]))
        if each.name.place == NOWHERE and each.pool in stays
        else each
        for each in asked.holdings
    )
    return replace(asked, holdings=in_order(holdings))


def _large_limits(claims: Collection[Claim], terms: Terms) -> dict[tuple[str, str], int]:
    """The limits of these claims' namespaces that are too large for one document."""
    held = {(each.pool, each.whole, each.name.namespace) for claim in claims for each in claim.holdings}
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
    return replace(asked, units=units, claims=tuple(each for each in asked.claims if each[1] in units))
