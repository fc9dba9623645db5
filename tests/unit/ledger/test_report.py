"""What is said of a pool beside its numbers, from Views made by hand: fields, notes, a headline."""

from collections.abc import Mapping
from typing import Any

import pytest

from berth.api.pool import Pool
from berth.cli import tables
from berth.ledger.keys import domain_key, kept_at, pool_key
from berth.ledger.model import EXTERNAL, Claim, Domain, Epoch, Holding, RetainedUnits, encode
from berth.ledger.report import PoolRow, headline, pool_rows
from berth.ledger.view import View
from berth.stores.base import EPOCH
from tests.support.builders.objects import pool

NOW = 100.0


def holder(name: str, *held: tuple[str, int], state: str = "bound", uid: str = "") -> Claim:
    """A pod of team-a that holds so many units of `ip` in each of these domains, or counts against quotas."""
    holdings = tuple(Holding("ip", domain, count) for domain, count in held)
    claim = Claim(uid=uid or name, namespace="team-a", name=name, node="n1", holdings=holdings, since=1.0)
    return replaced(claim, state)


def replaced(claim: Claim, state: Any) -> Claim:
    return Claim(**{field: getattr(claim, field) for field in claim.__struct_fields__} | {"state": state})


def view_of(found: Pool, /, *held: str, **domains: Domain) -> View:
    """An open ledger with one pool; `_` in a domain's name stands for @, and a last `x` for <."""
    view = View()
    names = {name: name.replace("_", "@").replace("x", "<").replace("all", "*") for name in domains}
    documents = {domain_key(found.name, names[name]): encode(domain) for name, domain in domains.items()}
    epoch = Epoch("e", 1.0, held=held)
    view.update({EPOCH: encode(epoch), pool_key(found.name): encode(found), **documents}, NOW)
    return view


def domain(capacity: int, *claims: Claim, left: tuple[RetainedUnits, ...] = ()) -> Domain:
    return Domain(capacity, {claim.uid: claim for claim in claims}, retained=left)


def seen(view: View, waiting: int = 1) -> tuple[PoolRow, list[str]]:
    """The pool's row, and the notes of its table's lines."""
    (row,) = pool_rows(view, {"ip": waiting}, now=NOW)
    header, *lines = tables.pool_lines([row])
    at = header.find("NOTE")
    return row, [line[at:] if at > 0 else "" for line in lines]


def test_a_suspended_pool_says_so_in_each_line_and_gives_none_of_its_free_units() -> None:
    row, notes = seen(view_of(pool("ip", suspended=True), n1=domain(5)))
    assert (row.suspended, row.free, row.given, row.domains[0].suspended) == (True, 5, 0, True)
    assert notes == ["suspended", "suspended"]
    assert headline([row], 1) == (
        "1 pool, 0 of 5 units free, 1 pod waits; ip is suspended (5 free units not given)"
    )


def test_suspended_domains_are_named_and_only_theirs_are_not_given() -> None:
    row, notes = seen(view_of(pool("ip", suspended=["n1"]), n1=domain(5), n2=domain(2)))
    assert (row.suspended, row.suspended_domains, row.given) == (False, ("n1",), 2)
    assert notes == ["suspended: n1", "suspended", ""]
    assert headline([row], 0) == "1 pool, 2 of 7 units free, 0 pods wait; ip is suspended in n1"
    many = tuple(f"n{number}" for number in range(5))
    row, notes = seen(view_of(pool("ip", suspended=list(many)), n1=domain(5)))
    assert notes[0] == "suspended: n0, n1, n2, 2 more"
    assert headline([row], 0).endswith("; ip is suspended in part")


def test_limits_name_what_each_namespace_has_of_its_own_those_that_leave_nothing_first() -> None:
    spec = {"limits": {"a-team": 6, "team-a": 4, "*": 10}}
    held = holder("p", ("n1", 4), ("@team-a", 4))
    row, notes = seen(
        view_of(pool("ip", **spec), n1=domain(9, held), _team=domain(10), **{"_team-a": domain(4, held)})
    )
    assert [(limit.namespace, limit.used, limit.limit) for limit in row.limits] == [
        ("a-team", 0, 6),
        ("team-a", 4, 4),
        ("*", None, 10),
    ]
    assert notes == ["limits: team-a 4/4, a-team 0/6, * 10", ""]


def test_what_rests_counts_against_its_namespace_s_limit() -> None:
    left = (RetainedUnits(3, rest_until=NOW + 1),)
    row, _ = seen(
        view_of(pool("ip", limits={"team-a": 4}), n1=domain(9), **{"_team-a": domain(4, left=left)})
    )
    assert row.limits[0].used == 3


def test_free_units_that_only_a_priority_gets_are_told() -> None:
    spec = {"reserved": {"priorityAtLeast": 1000, "units": 2}}
    row, notes = seen(view_of(pool("ip", **spec), n1=domain(5), n1x=domain(3)))
    assert (row.free, row.priority_only, row.priority_at_least) == (5, 2, 1000)
    assert notes == ["2 reserved for priority >= 1000", "2 reserved for a priority"]


def test_units_that_rest_or_are_kept_are_told_apart_as_time_passes() -> None:
    left = (
        RetainedUnits(3, rest_until=NOW + 1),
        RetainedUnits(2, owner="team-a/web-0", kept_until=NOW + 9),
        RetainedUnits(1, owner="team-a/web-1", rest_until=NOW + 1, kept_until=NOW + 9),
    )
    view = view_of(pool("ip", sticky={"by": "Pod", "forSeconds": 9}), n1=domain(10, left=left))
    row, notes = seen(view)
    assert (row.free, row.resting, row.kept) == (4, 4, 2)
    assert notes == ["4 resting; 2 kept for their last pods"] * 2
    view.refresh(NOW + 1)
    (row,) = pool_rows(view, now=NOW + 1)
    assert (row.free, row.resting, row.kept) == (7, 0, 3)
    view.refresh(NOW + 9)
    (row,) = pool_rows(view, now=NOW + 9)
    assert (row.free, row.resting, row.kept) == (10, 0, 0)


def test_units_that_are_kept_for_several_are_kept_also_where_too_few_are_left_for_all() -> None:
    left = tuple(RetainedUnits(1, owner=f"team-a/web-{number}", kept_until=NOW + 9) for number in range(2))
    row, notes = seen(view_of(pool("ip"), n1=domain(2, holder("a", ("n1", 1)), left=left)))
    assert (row.free, row.resting, row.kept) == (0, 0, 1)
    assert notes == ["1 kept for their last pods"] * 2


def test_what_is_kept_for_a_pod_that_has_it_already_is_not_kept_any_more() -> None:
    left = (RetainedUnits(2, owner="team-a/web-0", kept_until=NOW + 9),)
    held = holder("web-0", ("n1", 2), state="reserved")
    row, _ = seen(view_of(pool("ip"), n1=domain(5, held, left=left)))
    assert (row.used, row.free, row.kept, row.binding) == (2, 3, 0, 2)


def test_units_of_pods_that_are_gone_name_the_command_that_frees_them() -> None:
    lost = [holder("a", ("n1", 1), state="lost"), holder("b", ("n1", 2), state="lost")]
    row, notes = seen(view_of(pool("ip"), n1=domain(3, lost[0])))
    assert (row.lost, notes[0]) == (1, "1 held for a lost pod: berth release")
    row, notes = seen(view_of(pool("ip"), n1=domain(3, *lost)))
    assert (row.lost, notes[0]) == (3, "3 held for lost pods: berth release")
    assert headline([row], 0).endswith("; ip has 3 units held for lost pods")


def test_a_pool_that_is_held_back_gives_nothing_and_names_who_says_why() -> None:
    row, notes = seen(view_of(pool("ip"), "berth.dev/ip", n1=domain(3)))
    assert (row.held_back, row.given) == (True, 0)
    assert notes == ["held back since the ledger was lost: berth reconcile", ""]
    assert headline([row], 2).endswith("2 pods wait; ip is held back (3 free units not given)")


def test_use_outside_the_cluster_is_told() -> None:
    outside = holder("external use", ("*", 3), uid=f"{EXTERNAL}ip")
    found = pool("ip", capacity={"domains": {"*": 5}}, scope="Cluster", external=3)
    row, notes = seen(view_of(found, all=domain(5, outside)))
    assert (row.external, row.free) == (3, 2)
    assert notes[0] == "3 used outside the cluster"


@pytest.mark.parametrize(("waiting", "said"), [(0, False), (1, True)])
def test_free_units_of_a_pool_with_preemption_may_be_for_a_pod_that_preempts(
    waiting: int, said: bool
) -> None:
    row, notes = seen(view_of(pool("ip", preemption="Native"), n1=domain(3)), waiting)
    assert row.preemption == "Native"
    assert (notes[0] == "what is free may be for a pod that preempts") == said


def test_a_headline_tells_of_a_few_troubles_and_counts_the_others() -> None:
    rows = [pool_rows(view_of(pool(name, suspended=True)), {})[0] for name in ("a", "b", "c", "d", "e")]
    assert headline(rows, None) == (
        "5 pools, 0 of 0 units free, who waits is not known; "
        "a is suspended, b is suspended, c is suspended, and 2 more"
    )
    assert headline([], 0) == "no pools yet: berth apply -f FILE makes some"


def test_a_pool_in_order_has_no_note() -> None:
    found: Mapping[str, Domain] = {"n1": domain(20, holder("a", ("n1", 1)))}
    row, notes = seen(view_of(pool("ip"), **found), 0)
    assert notes == ["", ""]
    assert headline([row], 0) == "1 pool, 19 of 20 units free, 0 pods wait"


def test_quotas_count_nothing_twice() -> None:
    left = (RetainedUnits(1, owner=kept_at("team-a/a", "ip", "n1"), kept_until=NOW + 1),)
    view = view_of(pool("ip", limits={"team-a": 2}), n1=domain(2), **{"_team-a": domain(2, left=left)})
    row, _ = seen(view)
    assert (row.capacity, row.free, row.kept, row.limits[0].used) == (2, 2, 0, 1)
