"""Nodes' status tells kube-scheduler the capacity of Pools with preemption Native, and no less than pods hold
of it (docs/decisions/0016, 0028). Their group of resources is Berth's: what else stands there is removed."""

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from berth.api.names import NATIVE
from berth.api.pool import Pool
from berth.api.quantity import units
from berth.kube.cluster import Cluster
from berth.kube.types import Node, Quantity
from berth.kube.writes import StatusWrites
from berth.ledger.capacity import amount
from berth.ledger.keys import domain_key
from berth.ledger.ledger import Ledger
from berth.ledger.view import View

_AT_ONCE = 8
"""Writes under way: a new Pool is published on thousands of nodes."""

_Amounts = Mapping[str, int]


def publish_native(ledger: Ledger, cluster: Cluster, nodes: Iterable[Node]) -> list[str]:
    """Write into each node's status what the ledger says of it, where it differs; problems, a line each.
    Raises store errors."""
    view = ledger.view()
    native = [pool for pool in view.pools.values() if pool.spec.preemption == "Native"]
    wrong = {node.metadata.name: change for node in nodes if (change := _change(view, native, node))}
    if not wrong:
        return []
    writes = StatusWrites("nodes")

    def write(name: str) -> None:
        # The scheduler reads allocatable, which a kubelet reckons anew from capacity.
        status = {"capacity": wrong[name], "allocatable": wrong[name]}
        what = f"node {name}: what preemption counts was not written into its status"
        writes.attempt(what, lambda: cluster.set_node_status(name, status))

    with ThreadPoolExecutor(_AT_ONCE) as writers:
        list(writers.map(write, wrong))
    return writes.problems


def _change(view: View, pools: Collection[Pool], node: Node) -> dict[str, str | None]:
    """What the node's status should say of these Pools and does not."""
    there = [_shown(each) for each in (node.status.capacity, node.status.allocatable)]
    wanted = {
        **_gone(view, node.metadata.name, {*there[0], *there[1]}),
        **_wanted(view, pools, node.metadata.name),
    }
    named = {*wanted, *there[0], *there[1]}
    return {
        name: str(wanted[name]) if name in wanted else None
        for name in sorted(named)
        if any(each.get(name) != wanted.get(name) for each in there)
    }


def _wanted(view: View, pools: Iterable[Pool], node: str) -> _Amounts:
    """The capacity of these Pools, and no less than what pods of the node hold.

    A kubelet that starts again admits its pods anew, and rejects those that its node has no room for."""
    found = {}
    for pool in pools:
        size, held = view.capacity(pool.name, node), _held(view, pool.name, node)
        if size is not None or held:
            found[pool.resource] = max(held, 0 if size is None else amount(size))
    return found


def _gone(view: View, node: str, resources: Iterable[str]) -> _Amounts:
    """What pods of the node hold of Pools that have such a resource no more, where it has the Pool's name."""
    amounts = {name: _held(view, name.removeprefix(f"{NATIVE}/"), node) for name in resources}
    return {name: held for name, held in amounts.items() if held}


def _held(view: View, pool: str, node: str) -> int:
    """Units that pods of the node hold, or are about to. A lost claim's pod is gone: no kubelet admits it."""
    claims = view.at(domain_key(pool, node)).claims.values()
    holdings = (each for claim in claims if claim.state != "lost" for each in claim.holdings)
    return sum(each.count for each in holdings if (each.pool, each.domain) == (pool, node))


def _shown(status: Mapping[str, Quantity] | None) -> _Amounts:
    ours = {name: found for name, found in (status or {}).items() if name.startswith(f"{NATIVE}/")}
    return {name: _whole(found) for name, found in ours.items()}


def _whole(quantity: Quantity) -> int:
    try:
        return units(quantity)
    except ValueError:
        return -1
