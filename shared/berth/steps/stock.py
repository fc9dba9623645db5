"""Take stock: Pools from their active source, capacities from the nodes as they are, both into the ledger.
It frees and wakes nobody; it returns what changed."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from berth.cluster import Cluster
from berth.decisions import CapacityChange
from berth.errors import BadInputError, SettingsError
from berth.ledger import Ledger
from berth.objects import Node
from berth.policy import pools as policy
from berth.policy.pools import Pool


def read_pools(path: Path | None, cluster: Cluster) -> dict[str, Pool]:
    """Pools by name from the file if there is one, else Pool objects from the cluster; never both.

    Raises SettingsError where there is no source, BadInputError for a document that is wrong.
    """
    if path is not None:
        pools = policy.parse(documents(path), str(path))
        if not pools:
            # An editor that empties a file before it writes must not withdraw all Pools for a moment.
            raise BadInputError(f"{path} holds no Pool; to withdraw the last one, set its capacity to 0")
        return pools
    found = cluster.pools()
    if found is None:
        raise SettingsError(
            "no Pools: set BERTH_POOLS to a file of them, or install the Pool CRD in the cluster"
        )
    return policy.parse((_known(document) for document in found), "the cluster")


def documents(path: Path) -> list[Any]:
    """The YAML documents of a file. Raises BadInputError naming the file and line."""
    try:
        return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadInputError(f"can't read the Pools in {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise BadInputError(f"{path} is not YAML: {' '.join(str(error).split())}") from error


def take_stock(ledger: Ledger, nodes: Callable[[], Iterable[Node]]) -> list[CapacityChange]:
    """Set every domain's capacity by all nodes, which are asked for only once it is known what the ledger
    has: so a later look of somebody else's is not undone. A domain whose node is gone loses its capacity."""
    view = ledger.view()
    known = view.capacities()
    wanted: dict[tuple[str, str], int | None] = dict.fromkeys(known)
    for node in nodes():
        wanted |= {(pool.name, node.metadata.name): pool.capacity(node) for pool in view.pools.values()}
    return ledger.set_capacities(wanted, known)


def take_stock_of(ledger: Ledger, name: str, node: Callable[[], Node | None]) -> list[CapacityChange]:
    """The same for one node; None: it is gone."""
    view = ledger.view()
    known = {(pool, name): view.capacities().get((pool, name)) for pool in {*view.pools, *view.domains}}
    found = node()
    wanted = {
        (pool, name): view.pools[pool].capacity(found) if found is not None and pool in view.pools else None
        for pool, _ in known
    }
    return ledger.set_capacities(wanted, known)


def problems(pools: Iterable[Pool], nodes: Iterable[Node]) -> list[str]:
    """What is wrong with nodes' annotations, a line each."""
    nodes = list(nodes)
    return [problem for pool in pools for node in nodes if (problem := pool.problem(node)) is not None]


def _known(document: dict[str, Any]) -> dict[str, Any]:
    return {key: document.get(key) for key in ("apiVersion", "kind", "metadata", "spec")}
