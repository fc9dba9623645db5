"""The ledger as a whole in Prometheus' form, as it is at a scrape: for functions/status.
Pools and domains are bounded; namespaces, pods and units are no labels."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from berth.controller.board import Snapshot
from berth.ledger.report import DomainRow, PoolRow, natural

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

MOST_DOMAINS_OF_A_POOL = 50
"""Domains of a pool that are told apart: those with least free, as in a Pool's status."""

MOST_DOMAINS = 1000
"""Domains of all pools that are told apart."""

MOST_POOLS = 200
"""Pools that are told apart: first those that are over-committed, suspended or waited for."""

OTHER_POOLS = "_other"
"""The label of all other pools together, which no pool can have as its name."""


class Gauge(NamedTuple):
    """One gauge: its labels and what it tells."""

    labels: tuple[str, ...]
    help: str


GAUGES: Mapping[str, Gauge] = {
    "berth_pool_capacity_units": Gauge(("pool",), "Units that the pool has"),
    "berth_pool_used_units": Gauge(("pool",), "Units that pods hold, or that are used elsewhere"),
    "berth_pool_reserved_units": Gauge(("pool",), "Used units whose pods are not bound yet"),
    "berth_pool_free_units": Gauge(("pool",), "Units that are free"),
    "berth_pool_held_in_line_units": Gauge(
        ("pool",), "Units that nobody uses and that are held for a pod, the first in line"
    ),
    "berth_pool_over_committed_units": Gauge(("pool",), "Units that are used beyond a domain's capacity"),
    "berth_pool_suspended": Gauge(("pool",), "1 while nothing new is given of the pool, else 0"),
    "berth_pool_external_units": Gauge(
        ("pool",), "Units that are used outside the cluster, of a pool that has or reads some"
    ),
    "berth_pool_external_reading_age_seconds": Gauge(
        ("pool",), "Age of the last reading of what others use; of a pool that was never read, none"
    ),
    "berth_pool_external_unread": Gauge(
        ("pool",), "1 while nothing new is given for want of a reading of what others use, else 0"
    ),
    "berth_pool_domains": Gauge(("pool",), "Domains that the pool has"),
    "berth_pool_waiting_pods": Gauge(("pool",), "Pods that wait for units of the pool"),
    "berth_pool_oldest_waiting_seconds": Gauge(("pool",), "Age of the oldest pod that waits for the pool"),
    "berth_domain_capacity_units": Gauge(("pool", "domain"), "Units of the domains with least free"),
    "berth_domain_used_units": Gauge(("pool", "domain"), "Used units of the domains with least free"),
    "berth_claims": Gauge(("state",), "Claims of pods by state: reserved, bound, lost"),
    "berth_ledger_closed": Gauge((), "1 while nothing is given out of the ledger, else 0"),
    "berth_reconcile_last_success_timestamp_seconds": Gauge(
        (), "When a reconcile ended well last, in Unix seconds"
    ),
    "berth_reconcile_duration_seconds": Gauge((), "How long the last reconcile took"),
    "berth_reconcile_problems": Gauge((), "Problems that the last reconcile left"),
    "berth_reconcile_mended": Gauge(("kind",), "What the last reconcile mended, by kind"),
    "berth_reconcile_clock_ahead_seconds": Gauge(
        (), "How far the clock of the last reconcile's machine was ahead of the API server's; below 0: behind"
    ),
}


def page(seen: Snapshot) -> bytes:
    """Return a scrape's body."""
    from prometheus_client import CollectorRegistry, generate_latest

    class _Collector:
        def collect(self) -> "Iterator[GaugeMetricFamily]":
            return _families(seen)

    registry = CollectorRegistry()
    registry.register(_Collector())
    return generate_latest(registry)


def _families(seen: Snapshot) -> "Iterator[GaugeMetricFamily]":
    from prometheus_client.core import GaugeMetricFamily

    values: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in GAUGES}
    pools = _pools_told_apart(seen.pools)
    for row in seen.pools:
        label = _label(row.name, pools)
        for name, value in _OF_A_POOL.items():
            together = max if name == "berth_pool_suspended" else sum
            values[name][label] = together((values[name].get(label, 0), value(row)))
    for pool, domain in told_apart(list(pools.values())):
        values["berth_domain_capacity_units"][pool, domain.name] = domain.capacity or 0
        values["berth_domain_used_units"][pool, domain.name] = domain.used
    for name, more in (*_waiting(seen, pools), *_states(seen), *_read(seen, pools), *_reconciled(seen)):
        values[name].update(more)
    for name, gauge in GAUGES.items():
        family = GaugeMetricFamily(name, gauge.help, labels=gauge.labels)
        for labels, number in values[name].items():
            family.add_metric(labels, number)
        if values[name]:
            yield family


_OF_A_POOL: Mapping[str, Callable[[PoolRow], float]] = {
    "berth_pool_capacity_units": lambda row: row.capacity,
    "berth_pool_used_units": lambda row: row.used,
    "berth_pool_reserved_units": lambda row: row.reserved,
    "berth_pool_free_units": lambda row: row.free,
    "berth_pool_held_in_line_units": lambda row: row.held_in_line,
    "berth_pool_over_committed_units": lambda row: row.over_committed,
    "berth_pool_suspended": lambda row: row.suspended or row.held_back or row.unread,
    "berth_pool_domains": lambda row: len(row.domains),
}

_Values = dict[tuple[str, ...], float]


def _pools_told_apart(rows: Sequence[PoolRow]) -> dict[str, PoolRow]:
    """Return the pools that are told apart by name, so that no alarm misses one that is in trouble."""

    def calm(row: PoolRow) -> bool:
        return not (row.over_committed or row.suspended or row.held_back or row.unread or row.waiting)

    ordered = sorted(rows, key=lambda row: (calm(row), natural(row.name)))
    return {row.name: row for row in ordered[:MOST_POOLS]}


def _label(pool: str, told: Mapping[str, PoolRow]) -> tuple[str]:
    return (pool if pool in told else OTHER_POOLS,)


def told_apart(pools: Sequence[PoolRow]) -> list[tuple[str, DomainRow]]:
    """Return the domains that are told apart, with their pools: those with least free first. What a small
    pool leaves of its part is for the larger ones."""
    apart: list[tuple[str, DomainRow]] = []
    for number, row in enumerate(sorted(pools, key=lambda row: len(row.domains))):
        part = (MOST_DOMAINS - len(apart)) // (len(pools) - number)
        domains = sorted(row.domains, key=lambda one: (one.free - one.over, natural(one.name)))
        apart += [(row.name, one) for one in domains[: min(part, MOST_DOMAINS_OF_A_POOL)]]
    return apart


def _waiting(seen: Snapshot, told: Mapping[str, PoolRow]) -> list[tuple[str, _Values]]:
    if seen.waiting is None:
        return []  # no number is better than a wrong one
    labels = {row.name: _label(row.name, told) for row in seen.pools}
    pods: _Values = dict.fromkeys(labels.values(), 0.0)
    oldest = dict(pods)
    for row in seen.waiting.pods:
        if row.pool in labels and row.state != "gated":
            label = labels[row.pool]
            pods[label] += 1
            age = 0.0 if row.since is None else seen.at - row.since.timestamp()
            oldest[label] = max(oldest[label], age)
    return [
        ("berth_pool_waiting_pods", pods),
        ("berth_pool_oldest_waiting_seconds", oldest),
    ]


def _read(seen: Snapshot, told: Mapping[str, PoolRow]) -> list[tuple[str, _Values]]:
    """Return how old readings are, and what others use by them; of pools that are not told apart, the oldest
    and the sum."""
    ages: _Values = {}
    unread: _Values = {}
    external: _Values = {}
    for row in (row for row in seen.pools if row.external_state or row.external):
        label = _label(row.name, told)
        external[label] = external.get(label, 0.0) + row.external
        if not row.external_state:
            continue
        unread[label] = max(unread.get(label, 0.0), float(row.unread))
        if row.external_age is not None:
            ages[label] = max(ages.get(label, 0.0), row.external_age)
    return [
        ("berth_pool_external_units", external),
        ("berth_pool_external_reading_age_seconds", ages),
        ("berth_pool_external_unread", unread),
    ]


def _states(seen: Snapshot) -> list[tuple[str, _Values]]:
    claims = Counter(claim.state for claim in seen.view.claims() if not claim.is_external)
    states: _Values = {(state,): claims[state] for state in ("reserved", "bound", "lost")}
    return [("berth_claims", states), ("berth_ledger_closed", {(): bool(seen.closed)})]


def _reconciled(seen: Snapshot) -> list[tuple[str, _Values]]:
    last = seen.last
    if last is None:
        return []
    return [
        ("berth_reconcile_last_success_timestamp_seconds", {(): last.at}),
        ("berth_reconcile_duration_seconds", {(): last.seconds}),
        ("berth_reconcile_problems", {(): last.left}),
        ("berth_reconcile_mended", {(kind,): count for kind, count in last.mended.items()}),
        ("berth_reconcile_clock_ahead_seconds", {(): last.ahead or 0.0}),
    ]
