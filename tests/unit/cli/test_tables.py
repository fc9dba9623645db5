"""Rows and tables of what a ledger holds, from Views made by hand.

What `berth status` and `berth claims` do with them is in tests/cli/test_inspect.py.
"""

from collections.abc import Mapping

import msgspec
import pytest

from berth.cli import tables
from berth.ledger.holders import claim_rows
from berth.ledger.keys import domain_key, pool_key
from berth.ledger.model import Claim, Domain, Epoch, Holding, encode
from berth.ledger.report import pool_rows
from berth.ledger.view import View
from berth.stores.base import EPOCH
from tests.support.builders.objects import pool
from tests.support.builders.pool_rows import CALM


def claim(name: str, state: str = "bound", /, node: str = "n1", since: float = 0.0, **units: int) -> Claim:
    """A pod's claim on a node: units by pool."""
    held = tuple(Holding(pool, node, count) for pool, count in units.items())
    found = Claim(uid=f"uid-{name}", namespace="d", name=name, node=node, holdings=held, since=since)
    return msgspec.structs.replace(found, state="bound" if state == "bound" else "reserved")


def view_of(
    capacities: Mapping[tuple[str, str], int | None], *claims: Claim, pools: tuple[str, ...] = ("ip", "seat")
) -> View:
    """An open ledger's view."""
    domains = {
        domain_key(*which): Domain(capacity, {each.uid: each for each in claims if _on(each, *which)})
        for which, capacity in capacities.items()
    }
    view = View()
    view.update({EPOCH: encode(Epoch("e", 1.0)), **{pool_key(name): encode(pool(name)) for name in pools}})
    view.update({key: encode(domain) for key, domain in domains.items()})
    return view


def _on(found: Claim, pool: str, domain: str) -> bool:
    return any((each.pool, each.domain) == (pool, domain) for each in found.holdings)


def test_a_pool_is_the_sum_of_its_domains_and_reserved_units_are_among_those_used() -> None:
    view = view_of(
        {("ip", "n1"): 4, ("ip", "n2"): 3, ("seat", "n1"): 1},
        claim("a", ip=2, seat=1),
        claim("b", "reserved", ip=1),
        claim("c", node="n2", ip=3),
    )
    ip, seat = pool_rows(view, {"ip": 5})
    assert (ip.capacity, ip.used, ip.free, ip.reserved, ip.waiting, ip.over_committed) == (7, 6, 1, 1, 5, 0)
    assert [(row.name, row.capacity, row.used, row.free, row.reserved) for row in ip.domains] == [
        ("n1", 4, 3, 1, 1),
        ("n2", 3, 3, 0, 0),
    ]
    assert (seat.used, seat.free, seat.reserved, seat.waiting) == (1, 0, 0, 0)


def test_pools_and_domains_are_in_the_order_of_their_numbers() -> None:
    names = ("node-10", "node-2", "node-1", "edge", "node-02")
    view = view_of({("ip", name): 1 for name in names}, pools=("ip", "b10", "b9"))
    rows = pool_rows(view)
    assert [row.name for row in rows] == ["b9", "b10", "ip"]
    assert [row.name for row in rows[-1].domains] == ["edge", "node-1", "node-02", "node-2", "node-10"]


def test_units_beyond_the_capacity_are_counted_and_never_make_up_for_free_ones_elsewhere() -> None:
    view = view_of({("ip", "n1"): 2, ("ip", "n2"): 5}, claim("a", ip=3))
    (ip, _) = pool_rows(view)
    assert (ip.used, ip.free, ip.over_committed) == (3, 5, 1)


def test_a_domain_that_only_has_claims_left_has_no_capacity_and_is_over_committed() -> None:
    view = view_of({("gone", "n1"): None}, claim("a", gone=2), pools=())
    (gone,) = pool_rows(view)
    assert (gone.name, gone.capacity, gone.over_committed) == ("gone", 0, 2)
    assert gone.domains[0].capacity is None
    assert (
        tables.pool_lines([gone])[2]
        == "gone   n1       -          2      0      0         -         over-committed by 2"
    )


def test_a_pool_without_any_domain_is_shown_and_one_that_is_not_asked_for_is_not() -> None:
    view = view_of({("ip", "n1"): 1})
    assert [(row.name, row.capacity, row.domains) for row in pool_rows(view, only="seat")] == [
        ("seat", 0, ())
    ]


def test_in_json_the_keys_are_camel_case_and_what_is_not_known_is_null() -> None:
    (ip, _) = pool_rows(view_of({("ip", "n1"): 2}, claim("a", "reserved", ip=1)))
    assert msgspec.json.decode(msgspec.json.encode(ip)) == {
        "name": "ip",
        "capacity": 2,
        "used": 1,
        "free": 1,
        "reserved": 1,
        "binding": 1,
        "waiting": None,
        "overCommitted": 0,
        **CALM,
        "heldBack": False,
        "suspendedDomains": [],
        "external": 0,
        "externalState": "",
        "externalAge": None,
        "externalNote": "",
        "priorityAtLeast": None,
        "preemption": "None",
        "limits": [],
        "domains": [{"name": "n1", "capacity": 2, "used": 1, "free": 1, "reserved": 1, "binding": 1, **CALM}],
    }


def test_the_table_of_pools_has_aligned_columns_and_notes_only_where_there_is_one() -> None:
    view = view_of({("ip", "node-1"): 12, ("ip", "n2"): 0}, claim("a", node="n2", ip=1), pools=("ip",))
    rows = pool_rows(view, {"ip": 3})
    assert tables.pool_lines(rows) == [
        "POOL   DOMAIN   CAPACITY   USED   FREE   BINDING   WAITING   NOTE",
        "ip     <all>    12         1      12     0         3         over-committed by 1",
        "ip     n2       0          1      0      0         -         over-committed by 1",
        "ip     node-1   12         0      12     0         -",
    ]
    calm = tables.pool_lines(pool_rows(view_of({("ip", "n1"): 1}, pools=("ip",))))
    assert calm == [
        "POOL   DOMAIN   CAPACITY   USED   FREE   BINDING   WAITING",
        "ip     <all>    1          0      1      0         ?",
        "ip     n1       1          0      1      0         -",
    ]


def test_claims_are_listed_by_pod_with_a_row_for_each_holding() -> None:
    view = view_of(
        {("ip", "n1"): 9, ("seat", "n1"): 9},
        claim("pod-10", since=100.9, ip=1),
        claim("pod-9", "reserved", since=30.0, ip=2, seat=3),
    )
    rows = claim_rows(view)
    assert [(row.pod, row.pool, row.count, row.state) for row in rows] == [
        ("pod-9", "ip", 2, "reserved"),
        ("pod-9", "seat", 3, "reserved"),
        ("pod-10", "ip", 1, "bound"),
    ]
    assert msgspec.to_builtins(rows[-1])["since"] == "1970-01-01T00:01:40Z"
    assert tables.claim_lines(rows[:1], 400.0) == [
        "NAMESPACE   POD     NODE   POOL   DOMAIN   COUNT   STATE      AGE",
        "d           pod-9   n1     ip     n1       2       reserved   6m10s",
    ]


def test_claims_can_be_those_of_one_pool_or_of_one_namespace() -> None:
    view = view_of({("ip", "n1"): 9, ("seat", "n1"): 9}, claim("a", ip=2, seat=3), claim("b", ip=1))
    assert [(row.pod, row.pool) for row in claim_rows(view, pool="seat")] == [("a", "seat")]
    assert len(claim_rows(view, namespace="d")) == 3
    assert claim_rows(view, namespace="other") == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (120, "2m"),
        (330, "5m30s"),
        (600, "10m"),
        (179 * 60, "179m"),
        (180 * 60, "3h"),
        (5 * 3600 + 60, "5h1m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (50 * 3600, "2d2h"),
        (8 * 86400 + 3600, "8d"),
        (400 * 86400, "400d"),
    ],
)
def test_an_age_is_short_as_kubectl_writes_it(seconds: float, text: str) -> None:
    assert tables.age(seconds) == text


def test_what_others_wrote_cannot_move_the_terminals_cursor() -> None:
    assert tables.printable("a\x1b[2J\r\nb\tñ…") == "a [2J  b ñ…"
    assert tables.aligned(["A"], [["x\x1by"]]) == ["A", "x y"]
