"""The ledger as a whole in Prometheus' form, as it is at a scrape: for functions/status.
Domains are bounded; namespaces, pods and units are no labels."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from berth.controller.board import Snapshot
from berth.ledger.report import DomainRow, PoolRow

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

MOST_DOMAINS_OF_A_POOL = 50
"""Domains of a pool that are told apart: those with least free, as in a Pool's status."""

MOST_DOMAINS = 1000
"""Domains of all pools that are told apart."""


class Gauge(NamedTuple):
    """One gauge: its labels and what it tells."""

    labels: tuple[str, ...]
    help: str


GAUGES: Mapping[str, Gauge] = {
    "berth_pool_capacity_units": Gauge(("pool",), "Units that the pool has"),
    "berth_pool_used_units": Gauge(("pool",), "Units that pods hold, or that are used elsewhere"),
    "berth_pool_reserved_units": Gauge(("pool",), "Used units whose pods are not bound yet"),
    "berth_pool_free_units": Gauge(("pool",), "Units that are free"),
    "berth_pool_over_committed_units": Gauge(("pool",), "Units that are used beyond a domain's capacity"),
    "berth_pool_suspended": Gauge(("pool",), "1 while nothing new is given of the pool, else 0"),
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
    for row in seen.pools:
        for name, value in _OF_A_POOL.items():
            values[name][row.name,] = value(row)
    for pool, domain in told_apart(seen.pools):
        values["berth_domain_capacity_units"][pool, domain.name] = domain.capacity or 0
        values["berth_domain_used_units"][pool, domain.name] = domain.used
    for name, more in (*_waiting(seen), *_states(seen), *_reconciled(seen)):
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
    "berth_pool_over_committed_units": lambda row: row.over_committed,
    "berth_pool_suspended": lambda row: row.suspended or row.held_back,
    "berth_pool_domains": lambda row: len(row.domains),
}

_Values = dict[tuple[str, ...], float]


def told_apart(pools: Sequence[PoolRow]) -> list[tuple[str, DomainRow]]:
    """Return the domains that are told apart, with their pools: those with least free first, of each pool as
    many as of the others."""
    by_pool = [
        [(row.name, one) for one in sorted(row.domains, key=lambda one: (one.free - one.over, one.name))]
        for row in pools
    ]
    each_has = min(MOST_DOMAINS_OF_A_POOL, MOST_DOMAINS // max(1, len(by_pool)))
    return [one for domains in by_pool for one in domains[:each_has]]


def _waiting(seen: Snapshot) -> list[tuple[str, _Values]]:
    if seen.waiting is None:
        return []  # no number is better than a wrong one
    pods: _Values = {(row.name,): 0.0 for row in seen.pools}
    oldest = dict(pods)
    for row in seen.waiting.pods:
        if (row.pool,) in pods and row.state != "gated":
            pods[row.pool,] += 1
            age = 0.0 if row.since is None else seen.at - row.since.timestamp()
            oldest[row.pool,] = max(oldest[row.pool,], age)
    return [
        ("berth_pool_waiting_pods", pods),
        ("berth_pool_oldest_waiting_seconds", oldest),
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
    ]
