"""A Pool's status: totals, and the domains with least free, for `kubectl get pools`.
It is for people: nothing is decided by it. It is as old as the last reconcile, or a Pool's last event."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from berth.api.pool import Pool
from berth.controller.conditions import Condition, merged, why_closed
from berth.controller.pool_source import Judged, judge
from berth.errors import few
from berth.kube.cluster import Cluster, list_waiting
from berth.kube.types import Pod
from berth.kube.writes import StatusWrites
from berth.ledger.holders import held_rows
from berth.ledger.ledger import Ledger
from berth.ledger.readings import head_key, reading_state
from berth.ledger.report import PoolRow, natural, pool_rows
from berth.ledger.view import View
from berth.scheduling.demand import demand_of

_DOMAINS = 50  # the most that a status names, as infra/base/crds/pool.yaml says
_UNITS = 100
_NAMED = 10  # domains that a condition names

CONDITIONS = ("Ready", "Suspended", "OverCommitted", "ExternalRead")
"""The types of a Pool's conditions; the last one only where what others use is read."""
INVALID = "Invalid"
"""The reason of Ready where the Pool object is wrong."""

_NO_DOMAINS = {
    "Node": "no node is in the Pool: see spec.nodeSelector, spec.includeControlPlane and the nodes' labels",
    "Topology": "no node in the Pool has the label spec.topologyKey, and the spec names no domain",
    "Cluster": "the ledger has not counted the Pool yet",
}
_LIST_SECONDS = 5.0  # for each list of waiting pods: an event, or the next minute's reconcile, waits for it


def publish(
    ledger: Ledger, cluster: Cluster, schedulers: Iterable[str], clock: Callable[[], float] = time.time
) -> list[str]:
    """Write each Pool object's status where it differs. Return the problems, a line each.

    Raises store errors, and cluster errors where the Pools or the waiting pods can't be read. A status that
    is right is not written again: each write is an event for everybody who watches Pools.
    """
    pools = cluster.pools() or ()  # first: what is counted then is newer than what stands there
    view = ledger.view()
    waiting = list_waiting(cluster, schedulers, most=_LIST_SECONDS)
    rows = {row.name: row for row in pool_rows(view, waiting_pods(waiting, view.resources))}
    judged, now, writes = judge(pools, lambda: view.pools), clock(), StatusWrites("Pools")
    for pool in pools:
        name, standing = pool["metadata"]["name"], pool.get("status") or {}
        row = rows.get(name)
        counted = standing if row is None else {**_observed(pool, judged, view), **status_of(row, view)}
        current = conditions_of(name, row, judged, view, now, counted.get("observedGeneration", 0))
        conditions = merged(current, CONDITIONS, pool, now)
        status = {**counted, "conditions": conditions}
        if standing != status:
            what = f"the status of Pool {name} was not written"
            writes.attempt(what, partial(cluster.set_pool_status, pool, status))
    return writes.problems


def conditions_of(
    name: str, row: PoolRow | None, judged: Judged, view: View, now: float, observed: int = 0
) -> list[Condition]:
    """Return the conditions of a Pool object: Ready alone where the ledger does not have the Pool.

    The others tell of the generation that the ledger has, `observed`, so that who waits for a new one waits.
    """
    ready, pool = _ready(name, row, judged, view), view.pools.get(name)
    if row is None or pool is None:
        return [ready]
    others = [_suspended(pool), _over_committed(row), *_external_read(pool, view, now)]
    return [ready, *(one._replace(generation=observed) for one in others)]


def _ready(name: str, row: PoolRow | None, judged: Judged, view: View) -> Condition:
    """Return whether the ledger counts the Pool as its spec says."""

    def no(reason: str, message: str) -> Condition:
        return Condition("Ready", "False", reason, message)

    pool = view.pools.get(name)
    if name in judged.wrong:
        kept = "" if pool is None else "; until it is put right the Pool stays as it was"
        return no(INVALID, f"{judged.wrong[name].removeprefix('the cluster: ')}{kept}")
    if (closed := why_closed(view)) is not None:
        return no("LedgerClosed", closed)
    if pool is None or pool != judged.right.get(name):
        return no("NotTaken", "the ledger does not have this Pool as it is now: reconcile takes it over")
    if row is None or all(domain.capacity is None for domain in row.domains):
        return no("NoDomains", _NO_DOMAINS[pool.spec.scope])
    return Condition("Ready", "True", "Counted", "the ledger counts the Pool as its spec says")


def _suspended(pool: Pool) -> Condition:
    if pool.spec.suspended is True:
        return Condition("Suspended", "True", "WholePool", "no new units are given")
    if domains := pool.spec.suspended_domains:
        where = _listed(sorted(domains, key=natural))
        return Condition("Suspended", "True", "SomeDomains", f"no new units are given in {where}")
    return Condition("Suspended", "False", "NotSuspended")


def _over_committed(row: PoolRow) -> Condition:
    if not row.over_committed:
        return Condition("OverCommitted", "False", "WithinCapacity")
    where = _listed([domain.name for domain in row.domains if domain.over])
    return Condition("OverCommitted", "True", "BeyondCapacity", f"by {row.over_committed} in {where}")


def _external_read(pool: Pool, view: View, now: float) -> Iterator[Condition]:
    """Yield whether it is known well enough what others use, where that is read. No time is in it: each write
    of a status is an event."""
    state, source = reading_state(pool, view.at(head_key(pool.name)), now), pool.external_from
    if state is None or source is None:
        return
    why = f": {state.failed}" if state.failed else ""
    limit = f"the last reading is older than {source.stale_after_seconds} s"
    match state.state:
        case "fresh":
            reason, said = ("Failing", f"the last try failed{why}") if why else ("Read", "")
            yield Condition("ExternalRead", "True", reason, said)
        case "ignored":
            yield Condition("ExternalRead", "False", "Ignored", f"{limit}, and stands{why}")
        case "stale":
            yield Condition("ExternalRead", "False", "Stale", f"{limit}: nothing new is given{why}")
        case "never":
            yield Condition("ExternalRead", "False", "NeverRead", f"nothing new is given{why}")


def _listed(domains: Sequence[str]) -> str:
    """Return these domains for a person, the first of them if they are many."""
    return f"domain{'s' if len(domains) > 1 else ''} {few(domains, _NAMED)}"


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


def waiting_in_all(pods: Iterable[Pod], resources: Mapping[str, Pool]) -> int:
    """Return how many of these pods wait for any pool: one that asks for two pools counts once."""
    return sum(pod.waiting and bool(demand_of(pod, resources).units) for pod in pods)


def _observed(pool: Mapping[str, Any], judged: Judged, view: View) -> Mapping[str, int]:
    """Return the Pool's generation if the ledger has this Pool, else the one that its status has: inventory
    skips events of Pools whose generation was observed."""
    meta = pool["metadata"]
    right = judged.right.get(meta["name"])
    taken = right is not None and right == view.pools.get(meta["name"])
    generation = meta.get("generation") if taken else (pool.get("status") or {}).get("observedGeneration")
    return {} if generation is None else {"observedGeneration": generation}
