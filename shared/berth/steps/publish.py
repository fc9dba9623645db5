"""A Pool's status: totals, and the domains with least free, for `kubectl get pools`.
It is for people: nothing is decided by it, and between two looks it is as old as the last one."""

from collections.abc import Iterable, Mapping
from typing import Any

from berth.cluster import Cluster
from berth.errors import ClusterRefusedError
from berth.ledger import Ledger
from berth.steps.summary import PoolRow, natural, pool_rows
from berth.steps.waiting import listed

_DOMAINS = 50  # the most that a status names (design 3)


def publish(ledger: Ledger, cluster: Cluster, schedulers: Iterable[str]) -> list[str]:
    """Write each Pool object's status where it differs; problems, a line each. Raises store and
    cluster errors.

    A status that is what it should be is not written: each write is an event to everybody who watches Pools.
    """
    pools = cluster.pools() or ()  # first: what is counted then is newer than what stands there
    view = ledger.view()
    rows = {row.name: row for row in pool_rows(view, listed(cluster, schedulers, view.resources))}
    found = []
    for pool in pools:
        row = rows.get(pool["metadata"]["name"])
        if row is None or pool.get("status") == (status := status_of(row)):
            continue
        try:
            cluster.set_pool_status(pool, status)
        except ClusterRefusedError as error:
            if error.status not in (404, 409):  # gone; or another has written since: the next look mends it
                found.append(f"the status of Pool {row.name} was not written: {error}")
    return found


def status_of(row: PoolRow) -> Mapping[str, Any]:
    """As a Pool's status has it."""
    shown = sorted(row.domains, key=lambda domain: (domain.free, natural(domain.name)))[:_DOMAINS]
    return {
        "capacity": row.capacity,
        "used": row.used,
        "free": row.free,
        "waiting": row.waiting or 0,
        "overCommitted": row.over_committed,
        "domains": [
            {"name": each.name, "capacity": each.capacity or 0, "used": each.used, "free": each.free}
            for each in shown
        ],
    }
