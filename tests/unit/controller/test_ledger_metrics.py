"""The ledger in Prometheus' form: what each gauge tells of a View, and how many series there can be.
How status answers a scrape: tests/handlers/test_status.py."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from berth.api.pool import Pool
from berth.controller.board import Snapshot
from berth.controller.ledger_metrics import (
    GAUGES,
    MOST_DOMAINS,
    MOST_DOMAINS_OF_A_POOL,
    MOST_POOLS,
    OTHER_POOLS,
    page,
    told_apart,
)
from berth.controller.waiting import Seen, waiting
from berth.kube.types import PodInFull
from berth.ledger.keys import POOL, domain_key
from berth.ledger.last_reconcile import LastReconcile
from berth.ledger.model import Claim, Domain, Epoch, Holding, Reading, encode
from berth.ledger.report import DomainRow, PoolRow, pool_rows
from berth.ledger.view import View
from berth.stores.base import EPOCH
from tests.support.builders.objects import pool
from tests.support.references import ROOT
from tests.unit.controller.test_waiting import NOW
from tests.unit.controller.test_waiting import pod as waiting_pod

LAST = LastReconcile(at=NOW - 60, seconds=0.5, mended={"adopted": 2, "released": 0}, problems=("x",), more=3)

Values = dict[str, dict[tuple[str, ...], float]]


def domain(
    capacity: int | None, node: str, state: Literal["reserved", "bound", "lost"] = "bound", **held: int
) -> Domain:
    """A domain of pool ip where pods of these names hold so many units."""
    claims = {
        name: Claim(
            uid=name, namespace="d", name=name, node=node, state=state, holdings=(Holding("ip", node, count),)
        )
        for name, count in held.items()
    }
    return Domain(capacity, claims)


def seen(
    domains: Mapping[tuple[str, str], Domain],
    *pools: Pool,
    pods: Sequence[PodInFull] | None = (),
    last: LastReconcile | None = LAST,
    closed: str = "",
) -> Snapshot:
    """What status sees at the time NOW of a ledger with these pools and domains."""
    view = View()
    pool_bodies = {f"{POOL}{one.name}": encode(one) for one in pools}
    domain_bodies = {domain_key(*where): encode(one) for where, one in domains.items()}
    view.update({EPOCH: encode(Epoch("e", 1.0)), **pool_bodies, **domain_bodies})
    waits = None if pods is None else waiting(Seen(pods, view, NOW), ("berth",))
    return Snapshot(NOW, view, tuple(pool_rows(view, now=NOW)), "", closed, waits, "", last, ())


def told(snapshot: Snapshot) -> Values:
    """What a scrape reads: values by the gauge's name and its labels, in their order."""
    families = text_string_to_metric_families(page(snapshot).decode())
    return {
        family.name: {
            tuple(sample.labels[label] for label in GAUGES[family.name].labels): sample.value
            for sample in family.samples
        }
        for family in families
    }


def row(name: str, domains: int = 1, *, waits: int = 0, over: int = 0, suspended: bool = False) -> PoolRow:
    """A pool with so many domains of two units, one of which is used."""
    return PoolRow(
        name=name,
        capacity=2 * domains,
        used=domains,
        free=domains,
        reserved=0,
        binding=0,
        waiting=waits,
        over_committed=over,
        suspended=suspended,
        domains=tuple(
            DomainRow(name=f"n{number}", capacity=2, used=1, free=1, reserved=0, binding=0)
            for number in range(domains)
        ),
    )


def of_rows(*rows: PoolRow) -> Snapshot:
    return seen({}, pods=None, last=None)._replace(pools=rows)


def test_a_pool_is_told_in_units_and_each_claim_once() -> None:
    ledger = {
        ("ip", "n1"): domain(4, "n1", a=2, b=1),
        ("ip", "n2"): domain(1, "n2", "reserved", c=3),
        ("ip", "n3"): domain(2, "n3", "lost", d=1),
    }
    values = told(seen(ledger, pool("ip")))
    assert {name: value[("ip",)] for name, value in values.items() if GAUGES[name].labels == ("pool",)} == {
        "berth_pool_capacity_units": 7,
        "berth_pool_used_units": 7,
        "berth_pool_reserved_units": 3,
        "berth_pool_free_units": 2,
        "berth_pool_held_in_line_units": 0,
        "berth_pool_over_committed_units": 2,
        "berth_pool_suspended": 0,
        "berth_pool_domains": 3,
        "berth_pool_waiting_pods": 0,
        "berth_pool_oldest_waiting_seconds": 0,
    }
    assert values["berth_claims"] == {("reserved",): 1, ("bound",): 2, ("lost",): 1}
    assert values["berth_domain_capacity_units"] == {("ip", "n1"): 4, ("ip", "n2"): 1, ("ip", "n3"): 2}
    assert values["berth_domain_used_units"] == {("ip", "n1"): 3, ("ip", "n2"): 3, ("ip", "n3"): 1}


def test_a_domain_without_a_share_has_no_capacity_but_its_units_count_as_used() -> None:
    values = told(seen({("ip", "n1"): domain(None, "n1", a=2)}, pool("ip")))
    assert values["berth_domain_capacity_units"] == {("ip", "n1"): 0}
    assert values["berth_pool_over_committed_units"] == {("ip",): 2}


def test_who_waits_is_told_with_the_age_of_the_oldest_and_gated_pods_wait_for_nothing() -> None:
    pods = [
        waiting_pod("young", minute=9),
        waiting_pod("old", minute=5, second=0),
        waiting_pod("gated", minute=1, schedulingGates=[{"name": "example.com/later"}]),
        waiting_pod("elsewhere", minute=1, schedulerName="default-scheduler"),
    ]
    full = {("ip", "n1"): domain(1, "n1", a=1), ("seat", "n1"): Domain(1)}
    values = told(seen(full, pool("ip"), pool("seat"), pods=pods))
    assert values["berth_pool_waiting_pods"] == {("ip",): 2, ("seat",): 0}
    assert values["berth_pool_oldest_waiting_seconds"] == {("ip",): 300, ("seat",): 0}


def test_a_clock_that_is_behind_the_api_server_makes_no_age_below_zero() -> None:
    full = {("ip", "n1"): domain(1, "n1", a=1)}
    values = told(seen(full, pool("ip"), pods=[waiting_pod("ahead", minute=11)]))
    assert values["berth_pool_oldest_waiting_seconds"] == {("ip",): 0}


def test_what_is_not_known_is_missing_instead_of_zero() -> None:
    values = told(seen({("ip", "n1"): Domain(1)}, pool("ip"), pods=None, last=None))
    missing = {name for name in GAUGES if "waiting" in name or "reconcile" in name or "external" in name}
    assert set(GAUGES) - set(values) == missing


def test_how_old_readings_are_is_told_of_pools_that_read_what_others_use() -> None:
    source = {"feature": "F", "staleAfterSeconds": 120}
    read = pool("seat", scope="Cluster", externalFrom=source)
    never = pool("never", scope="Cluster", externalFrom=source)
    mark = read.external_from.mark if read.external_from else ""
    claim = Claim(
        uid="external:seat",
        namespace="",
        name="",
        node="",
        state="bound",
        holdings=(Holding("seat", "*", 3),),
    )
    seats = Domain(10, {claim.uid: claim}, reading=Reading(NOW - 121, mark))
    values = told(seen({("seat", "*"): seats, ("never", "*"): Domain(10)}, read, never, pool("ip")))
    assert values["berth_pool_external_reading_age_seconds"] == {("seat",): 121}
    assert values["berth_pool_external_unread"] == {("seat",): 1, ("never",): 1}
    assert values["berth_pool_external_units"] == {("seat",): 3, ("never",): 0}
    assert values["berth_pool_suspended"] == {("seat",): 1, ("never",): 1, ("ip",): 0}


def test_the_last_reconcile_is_told_with_all_that_it_left() -> None:
    values = told(seen({}, closed="is being rebuilt"))
    assert values["berth_reconcile_last_success_timestamp_seconds"] == {(): NOW - 60}
    assert values["berth_reconcile_duration_seconds"] == {(): 0.5}
    assert values["berth_reconcile_problems"] == {(): 4}
    assert values["berth_reconcile_mended"] == {("adopted",): 2, ("released",): 0}
    assert values["berth_ledger_closed"] == {(): 1}


def test_a_suspended_pool_is_told() -> None:
    values = told(seen({("ip", "n1"): Domain(1)}, pool("ip", suspended=True)))
    assert values["berth_pool_suspended"] == {("ip",): 1}


@pytest.mark.parametrize("name", ['n"} 9\nberth_ledger_closed 1', "n\\", "a\nb", "ö{}"])
def test_a_domain_by_any_name_forges_no_line(name: str) -> None:
    one = row("ip")
    odd = DomainRow(name=name, capacity=2, used=1, free=1, reserved=0, binding=0)
    rows = (PoolRow(**{field: getattr(one, field) for field in one.__struct_fields__} | {"domains": (odd,)}),)
    values = told(of_rows(*rows))
    assert values["berth_domain_used_units"] == {("ip", name): 1}
    assert values["berth_ledger_closed"] == {(): 0}


def test_the_domains_told_apart_are_those_with_least_free_by_number() -> None:
    names = [one.name for _, one in told_apart([row("ip", MOST_DOMAINS_OF_A_POOL + 10)])]
    assert names == [f"n{number}" for number in range(MOST_DOMAINS_OF_A_POOL)]


@pytest.mark.parametrize("small", [1, 100])
def test_small_pools_leave_their_part_of_the_domains_to_large_ones(small: int) -> None:
    rows = [row(f"small-{number}") for number in range(small)] + [row("large", MOST_DOMAINS_OF_A_POOL)]
    assert len(told_apart(rows)) == small + MOST_DOMAINS_OF_A_POOL


def test_each_pool_that_is_told_apart_has_some_of_its_domains_told() -> None:
    rows = [row(f"pool-{number}", 60) for number in range(MOST_POOLS)]
    apart = told_apart(rows)
    assert len(apart) == MOST_DOMAINS
    assert {name for name, _ in apart} == {one.name for one in rows}


def test_pools_beyond_the_most_are_told_as_one_and_no_unit_is_missing() -> None:
    rows = [row(f"pool-{number}", 3) for number in range(MOST_POOLS + 40)]
    values = told(of_rows(*rows))
    units = values["berth_pool_capacity_units"]
    assert len(units) == MOST_POOLS + 1
    assert units[OTHER_POOLS,] == 40 * 6
    assert sum(units.values()) == sum(one.capacity for one in rows)
    assert values["berth_pool_domains"][OTHER_POOLS,] == 120
    assert ("pool-0",) in units
    assert (f"pool-{MOST_POOLS + 39}",) not in units


def test_pools_in_trouble_are_told_apart_before_others() -> None:
    calm = [row(f"a-{number}") for number in range(MOST_POOLS)]
    troubled = [row("z-waits", waits=1), row("z-over", over=1), row("z-held", suspended=True)]
    values = told(of_rows(*calm, *troubled))
    assert {(one.name,) for one in troubled} <= values["berth_pool_capacity_units"].keys()
    assert values["berth_pool_over_committed_units"]["z-over",] == 1
    assert values["berth_pool_suspended"][OTHER_POOLS,] == 0


def test_of_pools_that_are_told_as_one_the_oldest_pod_is_told_and_all_that_wait() -> None:
    names = [f"p{number}" for number in range(MOST_POOLS + 2)]
    ledger = {(name, "n1"): Domain(0) for name in names}
    pods = [
        waiting_pod(f"w{number}", minute=8 - number // 200, ip=None, more={name: 1})
        for number, name in enumerate(names)
    ]
    values = told(seen(ledger, *map(pool, names), pods=pods))
    assert values["berth_pool_waiting_pods"][OTHER_POOLS,] == 2
    assert values["berth_pool_oldest_waiting_seconds"][OTHER_POOLS,] == 150
    assert sum(values["berth_pool_waiting_pods"].values()) == len(pods)


def test_ten_times_the_pools_and_domains_make_no_more_series_than_the_most() -> None:
    rows = [
        msgspec.structs.replace(
            row(f"pool-{number}", 20, waits=1), external_state="stale", external_age=1.0 * number
        )
        for number in range(10 * MOST_POOLS)
    ]
    values = told(seen({})._replace(pools=tuple(rows)))
    assert set(values) == set(GAUGES)
    by_pool = [name for name in values if GAUGES[name].labels == ("pool",)]
    assert all(len(values[name]) == MOST_POOLS + 1 for name in by_pool)
    assert len(values["berth_domain_used_units"]) == MOST_DOMAINS
    assert 4500 < sum(map(len, values.values())) < 4700
    assert "below 4,700 series of the ledger" in (ROOT / "docs/observability.md").read_text()
