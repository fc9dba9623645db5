"""Set the ledger's capacities by the Pools and by the nodes as they are.
It frees no claim and wakes no pod; it returns what changed."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from berth.api.pool import Pool
from berth.api.units import Units
from berth.controller.annotation import with_own
from berth.kube.types import Node
from berth.ledger import capacity
from berth.ledger.capacity import Capacity, CapacityChange
from berth.ledger.keys import PoolDomain, parse_domain, unreserved_quota
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Places, in_order
from berth.ledger.transaction import OutdatedError
from berth.ledger.view import View
from berth.retry import retry
from berth.scheduling.demand import Terms, terms_of

_TRIES = 5


class Stock(NamedTuple):
    """What nodes give to Pools: capacities by pool and domain, nodes' places by node and pool, and which
    domains are in stripes."""

    capacities: dict[PoolDomain, Capacity]
    places: dict[str, dict[str, str]]
    stripes: set[PoolDomain]

    def by_pool(self) -> dict[str, dict[str, str]]:
        """Nodes' places by pool and node."""
        found: dict[str, dict[str, str]] = {}
        for node, places in self.places.items():
            for pool, domain in places.items():
                found.setdefault(pool, {})[node] = domain
        return found


def stock_of(pools: Mapping[str, Pool], nodes: Iterable[Node]) -> Stock:
    """What there is, by these nodes as they are."""
    found = Stock({}, {}, set())
    for pool in pools.values():
        for domain in pool.domains_without_nodes():
            _add(found, pool, domain, pool.capacity_of(domain))
    for node in nodes:
        found.places[node.metadata.name] = {}
        for pool in pools.values():
            _add_node(found, pool, node)
    return found


def withdraw(ledger: Ledger, pools: Mapping[str, Pool]) -> list[CapacityChange]:
    """Take away the capacity of Pools that are gone, and of those whose domains, or resource, are others now,
    or whose units have names now, or none any more.

    It is the first thing to do in a look: what their pods hold is counted elsewhere then, and must not be
    given to whom is bound by the Pools of before meanwhile.
    """
    if _gone(ledger.view().pools, pools):
        # By a View that lags behind, what a look before this one gave would be taken away.
        ledger.snapshot()
    view = ledger.view()
    known, gone = view.capacities(), _gone(view.pools, pools)
    wanted: dict[PoolDomain, Capacity] = {
        which: None for which in known if which[0] in gone and parse_domain(which[1]).place
    }
    changes = ledger.set_capacities(wanted, known)
    if gone:
        ledger.snapshot()  # with all claims that were made by the Pools of before
    return changes


def _gone(before: Mapping[str, Pool], pools: Mapping[str, Pool]) -> set[str]:
    return {name for name in before if name not in pools or pools[name].shape != before[name].shape}


def take_stock(
    ledger: Ledger, pools: Mapping[str, Pool], nodes: Callable[[], Iterable[Node]]
) -> list[CapacityChange]:
    """Set every domain's capacity by all nodes, which are asked for only once it is known what the ledger
    has: so a later look of somebody else's is not undone. A domain whose node is gone loses its capacity."""
    view = ledger.view()
    known, before = view.capacities(), view.nodes
    found = stock_of(pools, nodes())
    moved = ledger.set_places({**{node: {} for node in before}, **found.places}, before)
    wanted: dict[PoolDomain, Capacity] = {
        which: None for which in known if parse_domain(which[1]).kind != "poolclaim"
    }
    names = ((pool, parse_domain(domain)) for pool, domain in known if pool in pools)
    wanted |= {
        (pool, name.text): pools[pool].limit(name.namespace)
        for pool, name in names
        if name.kind == "namespace"
    }
    changes = ledger.set_capacities({**wanted, **found.capacities}, known, found.stripes)
    _follow(ledger, {node: found.places.get(node, {}) for node in moved})
    for which in closed(ledger.view()):
        ledger.reopen(which)
    return changes


def take_stock_of(ledger: Ledger, name: str, node: Callable[[], Node | None]) -> list[CapacityChange]:
    """The same for one node, by the ledger's Pools; None: it is gone. Domains of several nodes may gain by
    it; that one has lost its last node, a look at all nodes finds.

    Where the Pools change meanwhile, it begins again: what it found was by those of before.
    """
    was = ledger.view().nodes.get(name, {})
    return retry(lambda: _stock_of_node(ledger.beside_looks(), name, was, node), OutdatedError, tries=_TRIES)


def _stock_of_node(
    ledger: Ledger, name: str, was: Mapping[str, str], node: Callable[[], Node | None]
) -> list[CapacityChange]:
    """`was`: where the node's pods are counted until now. A try before may have moved the node alone."""
    pools, view = ledger.pools(), ledger.view()
    known, places = view.capacities(), view.nodes.get(name, {})  # before the look at the node
    found = node()
    stock = stock_of(pools, [] if found is None else [found])
    own = [which for which in known if _is_of_node(which, name, pools)]
    now = stock.places.get(name, {})
    moved = ledger.set_places({name: now}, {name: places})
    changes = ledger.set_capacities({**dict.fromkeys(own), **stock.capacities}, known, stock.stripes)
    if now != was and (moved or now == places):
        _follow(ledger, {name: now})
    return changes


def closed(view: View) -> list[PoolDomain]:
    """Domains that give less than they have: nothing, because more of them was used than there is, or not all
    of it, because a stripe has room without units."""
    found = {
        (pool, parse_domain(name).whole)
        for pool, domains in view.domains.items()
        for name, domain in domains.items()
        if domain.closed or (parse_domain(name).stripe and capacity.uneven(pool, name, domain))
    }
    return sorted(found)


def _follow(ledger: Ledger, moves: Mapping[str, Places]) -> None:
    """Let what pods use move with these nodes, which are given with their places now."""
    if not moves:
        return
    view = ledger.view()
    terms = terms_of(view)
    for claim in view.claims():
        if claim.node in moves and claim.state == "bound":
            there = _moved(claim, moves[claim.node], terms)
            if there.logical() != claim.logical():
                ledger.adopt(there, anew=False)


def _moved(claim: Claim, places: Places, terms: Terms) -> Claim:
    """The claim as adoption would have it now that its node is in these places: a unit whose name is known
    stays where that is listed, whatever else it holds of these Pools comes along."""
    pools = {pool for pool, place in places.items() if place and pool in terms.pools}
    mine = replace(claim, holdings=tuple(each for each in claim.holdings if each.pool in pools))
    here = (replace(each, domain=each.name.at(places[each.pool])) for each in mine.holdings)
    moved = replace(mine, holdings=replace(mine, holdings=tuple(here)).logical())
    if moved.holdings == mine.logical():
        return claim
    others = (each for each in claim.holdings if each.pool not in pools)
    return replace(claim, holdings=in_order((*with_own(moved, mine, terms).holdings, *others)))


def _add_node(found: Stock, pool: Pool, node: Node) -> None:
    place = pool.domain_of(node)
    if place is None:
        return
    if pool.spec.scope != "Node":
        found.places[node.metadata.name][pool.name] = place
    if place:
        _add(found, pool, place, pool.capacity_of(place, node))


def _add(found: Stock, pool: Pool, domain: str, units: int | None) -> None:
    if units is None:
        return
    which = (pool.name, domain)
    found.capacities[which] = Units.parse(pool.spec.units.get(domain, ())).entries() if pool.named else units
    unreserved = (pool.name, unreserved_quota(domain))
    if pool.spec.reserved is not None:
        found.capacities[unreserved] = max(0, units - pool.spec.reserved.units)
    if pool.spec.scope != "Node":
        found.stripes.update({which, unreserved} & found.capacities.keys())


def _is_of_node(which: PoolDomain, node: str, pools: Mapping[str, Pool]) -> bool:
    """Whether it is the node's own share of a pool: a rack may bear the same name."""
    pool = pools.get(which[0])
    return pool is not None and pool.spec.scope == "Node" and parse_domain(which[1]).place == node


def problems(pools: Iterable[Pool], nodes: Iterable[Node]) -> list[str]:
    """What is wrong with nodes' annotations, a line each."""
    nodes = list(nodes)
    return [
        problem for pool in pools for node in nodes if (problem := pool.annotation_problem(node)) is not None
    ]
