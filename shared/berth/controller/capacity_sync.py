"""Set the ledger's capacities by the Pools and by the nodes as they are.
It frees no claim and wakes no pod; it returns what changed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from berth.api.pool import EVERYWHERE, Pool
from berth.controller.annotation import with_own
from berth.kube.types import Node
from berth.ledger import capacity
from berth.ledger.capacity import Capacity, CapacityChange
from berth.ledger.keys import PoolDomain, parse_domain, unreserved_quota
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding, Places, in_order
from berth.ledger.transaction import OutdatedError
from berth.ledger.view import View
from berth.retry import retry
from berth.scheduling.demand import Terms, terms_of

_TRIES = 5


class Supply(NamedTuple):
    """What Pools have by the nodes as they are: capacities by pool and domain, the nodes' domains by node and
    pool (of Pools whose domains are not nodes), and which domains are in stripes."""

    capacities: dict[PoolDomain, Capacity]
    places: dict[str, dict[str, str]]
    stripes: set[PoolDomain]


def supply_of(pools: Mapping[str, Pool], nodes: Iterable[Node]) -> Supply:
    """Return what these Pools have by these nodes."""
    supply = Supply({}, {}, set())
    for pool in pools.values():
        for domain in pool.domains_without_nodes():
            _add(supply, pool, domain, pool.capacity_of(domain))
    for node in nodes:
        places = supply.places[node.metadata.name] = {}
        for pool in pools.values():
            place = pool.domain_of(node)
            if place is not None and pool.spec.scope != "Node":
                places[pool.name] = place
            if place:
                _add(supply, pool, place, pool.capacity_of(place, node))
    return supply


def _supply(pools: Mapping[str, Pool], nodes: Iterable[Node], known: Mapping[PoolDomain, Capacity]) -> Supply:
    """Return what these Pools have by these nodes, and as the ledger knows it where it is read elsewhere."""
    supply = supply_of(pools, nodes)
    for pool in (pool for pool in pools.values() if pool.capacity_is_read):
        units = capacity.amount(known.get((pool.name, EVERYWHERE)))
        supply.capacities.update(capacities_of(pool, units))
    return supply


def capacities_of(pool: Pool, units: int) -> dict[PoolDomain, Capacity]:
    """Return the capacities of a pool of scope Cluster that has so many units, by pool and domain."""
    supply = Supply({}, {}, set())
    _add(supply, pool, EVERYWHERE, units)
    return supply.capacities


def prepare_domains(
    ledger: Ledger, pools: Mapping[str, Pool], nodes: Iterable[Node]
) -> dict[str, dict[str, str]]:
    """Prepare these Pools' domains for claims, as Ledger.prepare does, without giving out their capacity.
    Return the nodes' domains by pool and node."""
    supply = supply_of(pools, nodes)
    ledger.prepare({which: supply.capacities[which] for which in supply.stripes})
    by_pool: dict[str, dict[str, str]] = {}
    for node, places in supply.places.items():
        for pool, domain in places.items():
            by_pool.setdefault(pool, {})[node] = domain
    return by_pool


def withdraw(ledger: Ledger, pools: Mapping[str, Pool]) -> list[CapacityChange]:
    """Take away the capacity of Pools that are gone, and of those that count by other domains or another
    resource now, or whose units have names now, or none any more.

    This comes first when Pools were read: what their pods hold will be counted elsewhere, and binds that know
    the Pools of before must not get those units meanwhile.
    """
    if _gone(ledger.view().pools, pools):
        # By a View that lags behind, capacity would be taken away that was set after it.
        ledger.snapshot()
    view = ledger.view()
    known, gone = view.capacities(), _gone(view.pools, pools)
    none: dict[PoolDomain, Capacity] = {
        which: None for which in known if which[0] in gone and parse_domain(which[1]).place
    }
    changes = ledger.set_capacities(none, known)
    if gone:
        ledger.snapshot()  # with all claims that were made by the Pools of before
    return changes


def _gone(before: Mapping[str, Pool], pools: Mapping[str, Pool]) -> set[str]:
    return {name for name in before if name not in pools or pools[name].shape != before[name].shape}


def sync_all(
    ledger: Ledger, pools: Mapping[str, Pool], list_nodes: Callable[[], list[Node]]
) -> tuple[list[CapacityChange], list[Node]]:
    """Set all domains' capacities by all nodes. Return what changed, and the nodes.

    These are listed after the ledger was read, so that what others set by a later list is not undone. A
    domain whose node is gone loses its capacity.
    """
    view = ledger.view()
    known, before, nodes = view.capacities(), view.nodes, list_nodes()
    supply = _supply(pools, nodes, known)
    moved = ledger.set_places({**{node: {} for node in before}, **supply.places}, before)
    capacities: dict[PoolDomain, Capacity] = {
        which: None for which in known if parse_domain(which[1]).kind != "poolclaim"
    }
    names = ((pool, parse_domain(domain)) for pool, domain in known if pool in pools)
    capacities |= {
        (pool, name.text): pools[pool].limit(name.namespace)
        for pool, name in names
        if name.kind == "namespace"
    }
    changes = ledger.set_capacities({**capacities, **supply.capacities}, known, supply.stripes)
    _follow(ledger, {node: supply.places.get(node, {}) for node in moved})
    for which in closed(ledger.view()):
        ledger.reopen(which)
    return changes, nodes


def sync_node(ledger: Ledger, name: str, node: Callable[[], Node | None]) -> list[CapacityChange]:
    """Set the capacities of one node's domains by the ledger's Pools; `node` returns None if it is gone.
    Domains of several nodes may gain by it; that one has lost its last node, `sync_all` detects.

    It starts again where the Pools change meanwhile.
    """
    was = ledger.view().nodes.get(name, {})
    return retry(lambda: _sync_node(ledger.beside_looks(), name, was, node), OutdatedError, tries=_TRIES)


def _sync_node(
    ledger: Ledger, name: str, was: Mapping[str, str], node: Callable[[], Node | None]
) -> list[CapacityChange]:
    """Do one try of `sync_node`. `was`: where the node's pods count until now; a try before may have moved
    the node, but not what its pods hold."""
    pools, view = ledger.pools(), ledger.view()
    known, places = view.capacities(), view.nodes.get(name, {})  # before the node is read
    there = node()
    supply = _supply(pools, [] if there is None else [there], known)
    own = [which for which in known if _is_of_node(which, name, pools)]
    now = supply.places.get(name, {})
    moved = ledger.set_places({name: now}, {name: places})
    changes = ledger.set_capacities({**dict.fromkeys(own), **supply.capacities}, known, supply.stripes)
    if now != was and (moved or now == places):
        _follow(ledger, {name: now})
    return changes


def closed(view: View) -> list[PoolDomain]:
    """Return the domains that give less than they have: nothing, because more was used than there is, or not
    all, because a stripe has room without units. And those whose stripes have more or fewer units together:
    a stripe's document was lost, or changed by hand."""
    closed = {
        (pool, parse_domain(name).whole)
        for pool, domains in view.domains.items()
        for name, domain in domains.items()
        if domain.closed
        or (parse_domain(name).stripe and capacity.uneven(pool, name, domain))
        or (domain.stripes and in_stripes(view, pool, name) != domain.capacity)
    }
    return sorted(closed)


def in_stripes(view: View, pool: str, name: str) -> int | None:
    """Return how many units a domain's stripes have together; None where it has no share of the pool."""
    if view.document(pool, name).capacity is None:
        return None
    return sum(part.capacity or 0 for part in view.parts(pool, name).values())


def follow_node(ledger: Ledger, uid: str) -> tuple[Holding, ...]:
    """Move what a pod uses if its node came to other domains before its claim was bound; what this freed.

    Who moves a node moves only what is bound there. Who has confirmed a claim calls this, so one of the two
    sees what the other wrote.
    """

    def astray(ledger: Ledger) -> Iterator[Claim]:
        view = ledger.view()
        return _astray(view, view.claims_of(uid), view.nodes)

    if not any(astray(ledger)):
        return ()
    beside = ledger.beside_looks()
    return tuple(chain.from_iterable(beside.adopt(there, anew=False) or () for there in astray(beside)))


def _astray(view: View, claims: Iterable[Claim], moves: Mapping[str, Places]) -> Iterator[Claim]:
    """Yield those of these claims that are bound where their node is no more, as they should be."""
    terms = terms_of(view)
    for claim in (claim for claim in claims if claim.state == "bound"):
        there = _moved(claim, moves.get(claim.node, {}), terms)
        if there.logical() != claim.logical():
            yield there


def _follow(ledger: Ledger, moves: Mapping[str, Places]) -> None:
    """Move what pods use with these nodes, which come with their domains now."""
    if not moves:
        return
    view = ledger.view()
    for there in _astray(view, (claim for claim in view.claims() if claim.node in moves), moves):
        ledger.adopt(there, anew=False)


def _moved(claim: Claim, places: Places, terms: Terms) -> Claim:
    """Return the claim as adoption would set it now that its node is in these domains: units with names stay
    where they are listed, whatever else it holds of these Pools moves."""
    pools = {pool for pool, place in places.items() if place and pool in terms.pools}
    mine = replace(claim, holdings=tuple(holding for holding in claim.holdings if holding.pool in pools))
    here = (replace(part, domain=part.name.at(places[part.pool])) for part in mine.holdings)
    moved = replace(mine, holdings=replace(mine, holdings=tuple(here)).logical())
    if moved.holdings == mine.logical():
        return claim
    others = (holding for holding in claim.holdings if holding.pool not in pools)
    return replace(claim, holdings=in_order((*with_own(moved, mine, terms).holdings, *others)))


def _add(supply: Supply, pool: Pool, domain: str, units: int | None) -> None:
    if units is None:
        return
    which = (pool.name, domain)
    supply.capacities[which] = pool.units_of(domain).entries() if pool.named else units
    unreserved = (pool.name, unreserved_quota(domain))
    if pool.spec.reserved is not None:
        supply.capacities[unreserved] = max(0, units - pool.spec.reserved.units)
    if pool.spec.scope != "Node":
        supply.stripes.update({which, unreserved} & supply.capacities.keys())


def _is_of_node(which: PoolDomain, node: str, pools: Mapping[str, Pool]) -> bool:
    """Whether it is the node's own domain, or its quota: a rack may have the same name."""
    pool = pools.get(which[0])
    return pool is not None and pool.spec.scope == "Node" and parse_domain(which[1]).place == node


def problems(pools: Iterable[Pool], nodes: Sequence[Node]) -> list[str]:
    """Return what is wrong with nodes' annotations, one a line."""
    return [
        problem for pool in pools for node in nodes if (problem := pool.annotation_problem(node)) is not None
    ]
