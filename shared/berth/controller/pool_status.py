"""A Pool's status: totals, and the domains with least free, for `kubectl get pools`.
It is for people: nothing is decided by it, and between two looks it is as old as the last one."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from berth.api.pool import parse
from berth.controller.waiting import listed
from berth.errors import BadInputError
from berth.kube.cluster import Cluster
from berth.kube.writes import StatusWrites
from berth.ledger.holders import UnitRow, held_rows
from berth.ledger.ledger import Ledger
from berth.ledger.report import DomainRow, PoolRow, natural, pool_rows
from berth.ledger.view import View

_DOMAINS = 50  # the most that a status names, as infra/base/crds/pool.yaml says
_UNITS = 100


def publish(ledger: Ledger, cluster: Cluster, schedulers: Iterable[str]) -> list[str]:
    """Write each Pool object's status where it differs; problems, a line each.

    Raises store errors, and cluster errors where the Pools or the waiting pods can't be read.

    A status that is what it should be is not written: each write is an event to everybody who watches Pools.
    """
    pools = cluster.pools() or ()  # first: what is counted then is newer than what stands there
    view = ledger.view()
    rows = {row.name: row for row in pool_rows(view, listed(cluster, schedulers, view.resources))}
    writes = StatusWrites("Pools")
    for pool in pools:
        row = rows.get(pool["metadata"]["name"])
        if row is None or pool.get("status") == (status := {**_observed(pool, view), **status_of(row, view)}):
            continue
        what = f"the status of Pool {row.name} was not written"
        writes.attempt(what, partial(cluster.set_pool_status, pool, status))
    return writes.problems


def status_of(row: PoolRow, view: View) -> Mapping[str, Any]:
    """As a Pool's status has it, but for the generation."""
    shown = sorted(row.domains, key=lambda domain: (domain.free, natural(domain.name)))[:_DOMAINS]
    domains, left = [], _UNITS
    for each in shown:
        units = [_unit(held) for held in held_rows(view, row.name, each.name) if held.unit][:left]
        domains.append({**_counts(each), **({"units": units} if units else {})})
        left -= len(units)
    return {
        "capacity": row.capacity,
        "used": row.used,
        "free": row.free,
        "waiting": row.waiting or 0,
        "overCommitted": row.over_committed,
        "domains": domains,
    }


def _observed(pool: Mapping[str, Any], view: View) -> Mapping[str, int]:
    """The Pool's generation if the ledger has taken it over, else the one before: by it inventory knows
    which events of Pools are news."""
    meta = pool["metadata"]
    try:
        taken = parse([pool], "the cluster")[meta["name"]] == view.pools.get(meta["name"])
    except BadInputError:
        taken = False  # what reconcile says as well
    found = meta.get("generation") if taken else (pool.get("status") or {}).get("observedGeneration")
    return {} if found is None else {"observedGeneration": found}


def _counts(domain: DomainRow) -> dict[str, Any]:
    return {
        "name": domain.name,
        "capacity": domain.capacity or 0,
        "used": domain.used,
        "free": domain.free,
    }


def _unit(held: UnitRow) -> dict[str, str]:
    return {"name": held.unit, "state": held.state, "pod": held.holder}
