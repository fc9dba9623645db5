"""Units of named pools and who holds them, from Views made by hand: rows, their table, and a Pool's status.

What `berth claims --units` does with them is in tests/cli/test_inspect.py.
"""

import re
from typing import Literal

import pytest

from berth.api.units import Units
from berth.cli import tables
from berth.controller.pool_status import status_of
from berth.ledger.holders import claim_rows, unit_rows
from berth.ledger.keys import domain_key
from berth.ledger.model import Claim, Domain, Epoch, Holding, RetainedUnits, encode
from berth.ledger.report import pool_rows
from berth.ledger.view import View
from berth.stores.base import EPOCH

NOW = 100.0


def claim(
    name: str,
    *units: str,
    domain: str = "n1",
    count: int | None = None,
    state: Literal["reserved", "bound", "lost"] = "bound",
    given: str = "",
) -> Claim:
    """A pod's claim on node n1: these units of pool k80, or so many."""
    held = Holding("k80", domain, len(units) if count is None else count, units, given)
    return Claim(uid=f"uid-{name}", namespace="d", name=name, node="n1", holdings=(held,), state=state)


def domain(*listed: str, claims: tuple[Claim, ...] = (), left: tuple[RetainedUnits, ...] = ()) -> Domain:
    units = Units.parse(listed)
    return Domain(units.size, {each.uid: each for each in claims}, units.entries(), left)


def view_of(**domains: Domain) -> View:
    """Domains of pool k80 by name; `_` in a name stands for the # of a stripe."""
    view = View()
    documents = {domain_key("k80", name.replace("_", "#")): encode(found) for name, found in domains.items()}
    view.update({EPOCH: encode(Epoch("e", 1.0)), **documents}, NOW)
    return view


def states(view: View, now: float = NOW) -> list[tuple[str, str, str]]:
    return [(row.unit, row.state, row.holder) for row in unit_rows(view, now)]


def test_each_unit_has_a_state_and_its_holder() -> None:
    claims = (
        claim("a", "k80-0"),
        claim("b", "k80-1", state="reserved", given="erc"),
        claim("c", "k80-2", state="lost"),
    )
    view = view_of(n1=domain("k80-0", "k80-1", "k80-2", "k80-10", "k80-3", claims=claims))
    assert states(view) == [
        ("k80-0", "bound", "d/a"),
        ("k80-1", "reserved", "d/b"),
        ("k80-2", "lost", "d/c"),
        ("k80-3", "free", ""),
        ("k80-10", "free", ""),
    ]
    assert tables.unit_lines(unit_rows(view, NOW)[1:4]) == [
        "POOL   DOMAIN   UNIT    STATE      HOLDER   CLAIM   NODE",
        "k80    n1       k80-1   reserved   d/b      erc     n1",
        "k80    n1       k80-2   lost       d/c      -       n1",
        "k80    n1       k80-3   free       -        -       -",
    ]


def test_free_addresses_are_ranges_between_those_that_are_held() -> None:
    view = view_of(n1=domain("10.0.0.0/28", "2001:db8::/64", claims=(claim("a", "10.0.0.4"),)))
    rows = unit_rows(view, NOW)
    assert [(row.unit, row.count, row.state) for row in rows] == [
        ("10.0.0.1-10.0.0.3", 3, "free"),
        ("10.0.0.4", 1, "bound"),
        ("10.0.0.5-10.0.0.14", 10, "free"),
        ("2001:db8::1-2001:db8::ffff:ffff:ffff:ffff", 2**64 - 1, "free"),
    ]


def test_a_held_unit_that_its_pool_lists_no_more_is_withdrawn_but_a_lost_one_stays_lost() -> None:
    claims = (claim("a", "old-0"), claim("b", "old-1", state="lost"))
    assert states(view_of(n1=domain("k80-0", claims=claims))) == [
        ("k80-0", "free", ""),
        ("old-0", "withdrawn", "d/a"),
        ("old-1", "lost", "d/b"),
    ]
    gone = view_of(n1=Domain(None, {each.uid: each for each in claims}))
    assert states(gone) == [("old-0", "withdrawn", "d/a"), ("old-1", "lost", "d/b")]


@pytest.mark.parametrize(
    ("now", "state", "holder"),
    [
        (NOW, "resting", ""),
        (109.9, "resting", ""),
        (110.0, "kept", "d/web-0"),
        (159.9, "kept", "d/web-0"),
        (160.0, "free", ""),
    ],
)
def test_a_unit_that_was_left_rests_then_is_kept_then_is_free(now: float, state: str, holder: str) -> None:
    left = RetainedUnits(1, ("k80-0",), "d/web-0", 110.0, 160.0)
    assert states(view_of(n1=domain("k80-0", left=(left,))), now) == [("k80-0", state, holder)]


def test_a_unit_that_was_kept_and_is_held_again_is_its_holders() -> None:
    left = RetainedUnits(1, ("k80-0",), "d/web-0", 0.0, 160.0)
    view = view_of(n1=domain("k80-0", claims=(claim("web-0", "k80-0"),), left=(left,)))
    assert states(view) == [("k80-0", "bound", "d/web-0")]


def test_units_whose_names_are_not_known_are_one_line_at_the_end() -> None:
    view = view_of(n1=domain("k80-0", "k80-1", claims=(claim("a", "k80-0", count=2),)))
    assert [(row.unit, row.count) for row in unit_rows(view, NOW)] == [("k80-0", 1), ("k80-1", 1), ("", 1)]
    assert "<1 without a name>   bound" in tables.unit_lines(unit_rows(view, NOW))[-1]


def test_stripes_are_one_domain_and_a_claim_over_two_of_them_is_told_once() -> None:
    parts = (Holding("k80", "*#0", 1, ("a",)), Holding("k80", "*#1", 1, ("b",)))
    both = Claim(uid="u", namespace="d", name="both", node="n1", holdings=parts, state="bound")
    head = Domain(3, {}, ("a", "b", "c"), stripes=2)
    stripes = {"*_0": domain("a", claims=(both,)), "*_1": domain("b", "c", claims=(both,))}
    view = view_of(**{"*": head, **stripes})
    assert states(view) == [("a", "bound", "d/both"), ("b", "bound", "d/both"), ("c", "free", "")]
    (row,) = claim_rows(view)
    assert (row.domain, row.count, row.units) == ("*", 2, ("a", "b"))


def test_claims_are_told_without_what_only_bounds_them_and_with_their_poolclaim() -> None:
    held = (
        Holding("k80", "!d/erc", 1),
        Holding("k80", "@d", 1),
        Holding("k80", "n1", 1, ("k80-0",), "erc"),
        Holding("k80", "n1<", 1),
    )
    found = Claim(uid="u", namespace="d", name="a", node="n1", holdings=held, state="bound")
    (row,) = claim_rows(view_of(n1=domain("k80-0", claims=(found,))))
    assert (row.domain, row.count, row.units, row.claim) == ("n1", 1, ("k80-0",), "erc")


def test_external_use_is_a_holder_without_a_node() -> None:
    held = (Holding("seat", "*", 3),)
    use = Claim(uid="external:seat", namespace="", name="external use", node="", holdings=held, state="bound")
    view = View()
    view.update({domain_key("seat", "*"): encode(Domain(10, {use.uid: use}))}, NOW)
    lines = tables.claim_lines(claim_rows(view), 0.0)
    assert re.split(" {3,}", lines[1]) == ["-", "external use", "-", "seat", "*", "3", "bound", "0s"]
    assert unit_rows(view, NOW) == []


def test_a_status_names_the_units_that_are_held_and_no_more_than_100() -> None:
    held = tuple(claim(f"p{number}", f"k80-{number}") for number in range(120))
    view = view_of(n1=domain(*(f"k80-{number}" for number in range(130)), claims=held), n2=domain("x"))
    (row,) = pool_rows(view, {})
    both = {each["name"]: each for each in status_of(row, view)["domains"]}
    assert "units" not in both["n2"]
    assert both["n1"]["units"][:2] == [
        {"name": "k80-0", "state": "bound", "pod": "d/p0"},
        {"name": "k80-1", "state": "bound", "pod": "d/p1"},
    ]
    assert len(both["n1"]["units"]) == 100
    assert status_of(row, view) == status_of(row, view)
