"""Nodes' status shows kube-scheduler the capacity of Pools with preemption Native, and no less than pods hold
of it (docs/decisions/0016, 0028). That group of resources is Berth's: other entries of it are removed."""

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
    """Write into each node's status what the ledger has for it, where that differs. Return the problems, a
    line each. Raises store errors."""
    view = ledger.view()
    native = [pool for pool in view.pools.values() if pool.spec.preemption == "Native"]
    wrong = {node.metadata.name: change for node in nodes if (change := _change(view, native, node))}
    if not wrong:
        return []
    writes = StatusWrites("nodes")

    def write(name: str) -> None:
        # The scheduler reads allocatable, which a kubelet computes anew from capacity.
        status = {"capacity": wrong[name], "allocatable": wrong[name]}
        what = f"node {name}: what preemption counts was not written into its status"
        writes.attempt(what, lambda: cluster.set_node_status(name, status))

    with ThreadPoolExecutor(_AT_ONCE) as writers:
        list(writers.map(write, wrong))
    return writes.problems


def _change(view: View, pools: Collection[Pool], node: Node) -> dict[str, str | None]:
    """Return what has to change in the node's status for these Pools; None takes a resource away."""
    capacity, allocatable = _shown(node.status.capacity), _shown(node.status.allocatable)
    there = {*capacity, *allocatable}
    right = {**_gone(view, node.metadata.name, there), **_right(view, pools, node.metadata.name)}
    return {
        name: str(right[name]) if name in right else None
        for name in sorted({*right, *there})
        if not capacity.get(name) == allocatable.get(name) == right.get(name)
    }


def _right(view: View, pools: Iterable[Pool], node: str) -> _Amounts:
    """Return the capacity of these Pools on the node, and no less than what its pods hold.

    A kubelet that starts again admits its pods anew, and rejects those for which its node has no room."""
    amounts = {}
    for pool in pools:
        size, held = view.capacity(pool.name, node), _held(view, pool.name, node)
        if size is not None or held:
            amounts[pool.resource] = max(held, amount(size))
    return amounts


def _gone(view: View, node: str, resources: Iterable[str]) -> _Amounts:
    """Return what the node's pods hold of Pools that no longer have the resource of the Pool's own name."""
    amounts = {name: _held(view, name.removeprefix(f"{NATIVE}/"), node) for name in resources}
    return {name: held for name, held in amounts.items() if held}


def _held(view: View, pool: str, node: str) -> int:
    """Return the units that the node's pods hold, or are about to. A lost claim's pod will not come back."""
    claims = view.at(domain_key(pool, node)).claims.values()
    holdings = (holding for claim in claims if claim.state != "lost" for holding in claim.holdings)
    return sum(holding.count for holding in holdings if (holding.pool, holding.domain) == (pool, node))


def _shown(status: Mapping[str, Quantity] | None) -> _Amounts:
    quantities = (status or {}).items()
    return {name: _whole(quantity) for name, quantity in quantities if name.startswith(f"{NATIVE}/")}


def _whole(quantity: Quantity) -> int:
    try:
        return units(quantity)
    except ValueError:
        return -1
