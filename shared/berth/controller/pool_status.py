"""A Pool's status: totals, and the domains with least free, for `kubectl get pools`.
It is for people: nothing is decided by it. It is as old as the last reconcile, or a Pool's last event."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from berth.api.pool import Pool, parse
from berth.errors import BadInputError
from berth.kube.cluster import Cluster, list_waiting
from berth.kube.types import Pod
from berth.kube.writes import StatusWrites
from berth.ledger.holders import held_rows
from berth.ledger.ledger import Ledger
from berth.ledger.report import PoolRow, natural, pool_rows
from berth.ledger.view import View
from berth.scheduling.demand import demand_of

_DOMAINS = 50  # the most that a status names, as infra/base/crds/pool.yaml says
_UNITS = 100
_LIST_SECONDS = 5.0  # for each list of waiting pods: `berth status` makes a person wait for it


def publish(ledger: Ledger, cluster: Cluster, schedulers: Iterable[str]) -> list[str]:
    """Write each Pool object's status where it differs. Return the problems, a line each.

    Raises store errors, and cluster errors where the Pools or the waiting pods can't be read. A status that
    is right is not written again: each write is an event for everybody who watches Pools.
    """
    pools = cluster.pools() or ()  # first: what is counted then is newer than what stands there
    view = ledger.view()
    rows = {row.name: row for row in pool_rows(view, waiting_now(cluster, schedulers, view.resources))}
    writes = StatusWrites("Pools")
    for pool in pools:
        row = rows.get(pool["metadata"]["name"])
        if row is None or pool.get("status") == (status := {**_observed(pool, view), **status_of(row, view)}):
            continue
        what = f"the status of Pool {row.name} was not written"
        writes.attempt(what, partial(cluster.set_pool_status, pool, status))
    return writes.problems


def status_of(row: PoolRow, view: View) -> Mapping[str, Any]:
    """Return a Pool's status, without the generation."""
    shown = sorted(row.domains, key=lambda domain: (domain.free, natural(domain.name)))[:_DOMAINS]
    domains, units_left = [], _UNITS
    for domain in shown:
        held = [held for held in held_rows(view, row.name, domain.name) if held.unit][:units_left]
        units = [{"name": unit.unit, "state": unit.state, "pod": unit.holder} for unit in held]
        counts = {"capacity": domain.capacity or 0, "used": domain.used, "free": domain.free}
        domains.append({"name": domain.name, **counts, **({"units": units} if units else {})})
        units_left -= len(units)
    return {
        "capacity": row.capacity,
        "used": row.used,
        "free": row.free,
        "waiting": row.waiting or 0,
        "overCommitted": row.over_committed,
        "domains": domains,
    }


def waiting_pods(pods: Iterable[Pod], resources: Mapping[str, Pool]) -> dict[str, int]:
    """Return how many of these pods wait for each pool by its name; `resources` are Pools by resource."""
    counts = Counter(pool for pod in pods if pod.waiting for pool in demand_of(pod, resources).units)
    return dict(counts)


def waiting_now(cluster: Cluster, schedulers: Iterable[str], resources: Mapping[str, Pool]) -> dict[str, int]:
    """Return how many pods of these schedulers wait for each pool, as the API server lists them now."""
    return waiting_pods(list_waiting(cluster, schedulers, most=_LIST_SECONDS), resources)


def _observed(pool: Mapping[str, Any], view: View) -> Mapping[str, int]:
    """Return the Pool's generation if the ledger has this Pool, else the one that its status has: inventory
    skips events of Pools whose generation was observed."""
    meta = pool["metadata"]
    try:
        taken = parse([pool], "the cluster")[meta["name"]] == view.pools.get(meta["name"])
    except BadInputError:
        taken = False  # reconcile reports it
    generation = meta.get("generation") if taken else (pool.get("status") or {}).get("observedGeneration")
    return {} if generation is None else {"observedGeneration": generation}
