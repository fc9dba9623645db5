"""The first in line: what comes free is held for it until it is as much as it asks for, on every store.
Pods that ask for less come all the time; without that none of their units would ever be left for it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from berth.api.gang import GANG, GANG_SIZE
from berth.api.units import Units
from berth.controller import line_budget
from berth.controller.waiting import Seen, waiting
from berth.handlers.reconcile import Reconcile
from berth.http.extender_v1 import BindingCall
from berth.ledger.ledger import Ledger
from berth.ledger.report import pool_notes, pool_rows
from berth.ledger.transaction import BusyError, OutdatedError
from berth.scheduling.explanation import explain
from berth.testing.api_server import StandIn
from tests.support.builders.line_stage import LineStage
from tests.support.builders.places import Place

CLUSTER = {"scope": "Cluster"}
POOLS: dict[str, Any] = {
    "seat": {**CLUSTER, "capacity": {"perDomain": 4}},
    "ip": {"capacity": {"perDomain": 2}},
    "open": {**CLUSTER, "capacity": {"perDomain": 4}, "line": {"holds": "None"}},
    "many": {**CLUSTER, "capacity": {"perDomain": 300}},
}
RESERVED = {"priorityAtLeast": 9, "units": 2}
HELD = "seat: 0 of 4 free, 1 asked; {} held for default/big, first in line"

CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # the rest are shown by others


class Line(LineStage):
    """With what people see of the line."""

    def give_a_turn_that_has_to_move(self) -> None:
        """Have what comes free of ip on n2 held for a pod that may go to n1 alone by now."""
        for node in ("n1", "n2"):
            for number in range(2):
                self.bound_pod(f"{node}-{number}", on=node, ip=1)
        self.write_node("n1", cordoned=True)
        self.pod("big", ip=2)
        self.ticks(60)
        assert self.holds() == {"domain/ip/n2": ("default/big", 2)}
        self.write_node("n1", cordoned=False)
        self.write_node("n2", taints=[{"key": "broken", "effect": "NoSchedule"}])

    def check_told(self, first: BindingCall, other: BindingCall) -> None:
        """People see it in `berth status`, `berth waiting`, `berth explain` and the metrics."""
        view, now = self._ledger(self.store, while_closed=True).view(), self.time.now
        rows = pool_rows(view, now=now)
        (seat,) = (row for row in rows if row.name == "seat")
        assert (seat.used, seat.free, seat.held_in_line, seat.first_in_line) == (3, 0, 1, "default/big")
        assert pool_notes(seat) == ["1 held for default/big, first in line"]
        nodes = self.cluster.nodes()
        turn = "it is first in line: what comes free is held for it, so far 1 of 4 of seat in *"
        mine = explain(self.get(first.name), view, nodes, now)
        assert mine.notes == (turn,)
        theirs = explain(self.get(other.name), view, nodes, now)
        assert theirs.summary == f"waits: {HELD.format('1 more is')}"
        assert [domain.rule for domain in theirs.pools[0].domains] == ["held"]
        seen = Seen([self.full_pod(call) for call in (first, other)], view, now)
        why = {row.pod: row.why for row in waiting(seen, ["berth"]).pods}
        assert why == {"big": f"seat: 1 of 4 free, 4 asked; {turn}", "new": HELD.format("1 more is")}


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Line]:
    made: list[Line] = []
    with StandIn(clock=lambda: made[0].time() if made else 0.0) as api:  # pods are as old as its time says
        made.append(Line(api, tmp_path, place, POOLS, {"n1": {}, "n2": {}}))
        with closing(made[0].store), closing(made[0].raw):
            yield made[0]


def test_what_comes_free_is_held_for_the_first_in_line_until_it_is_enough(stage: Line) -> None:
    small = stage.full()
    big = stage.pod("big", seat=4)
    stage.ticks(59)
    assert not stage.holds()
    stage.ticks(1)
    assert stage.holds() == {"domain/seat/*#0": ("default/big", 4)}
    stage.check_well()
    new = stage.pod("new", seat=1)
    assert stage.why(new, "n1") == {"n1": "seat: 0 of 4 free, 1 asked"}
    stage.gone(small[0])
    assert stage.woken() == set(), "what is held is no news to anybody yet"
    why = HELD.format("1 more is")
    assert (stage.why(new, "n1"), stage.bind(new)) == ({"n1": why}, why)
    stage.check_told(big, new)
    stage.gone(small[1])
    stage.check_survives_a_loss()
    why = HELD.format("2 more are")
    assert stage.why(new, "n1") == {"n1": why}, "a lost ledger costs nobody the turn"
    for pod in small[2:]:
        stage.gone(pod)
    assert stage.woken() == {"big"}
    assert stage.why(big, "n1", "n2") == {}
    assert stage.bind(big) == ""
    assert not stage.holds()
    assert stage.of(big, "seat")[1] == 4
    stage.gone(big)
    assert stage.bind(new) == ""
    stage.check_well()


@CHEAP
def test_the_journal_has_what_was_held_in_line_and_in_no_use(stage: Line) -> None:
    small = stage.full()
    stage.pod("big", seat=4)
    stage.ticks(60)
    stage.gone(small[0])
    stage.ticks(60)
    stage.gone(small[1])
    stage.ticks(60)
    days = [
        day for page in stage.ledger().journal().pages().values() for day in page.days.values() if day.held
    ]
    (day,) = days
    assert day.held == 55_000 + 2 * 60_000, "one unit until five seconds before a look, then two"


@CHEAP
def test_a_pod_of_a_higher_priority_need_not_wait_for_the_first_in_line(stage: Line) -> None:
    small = stage.full()
    stage.pod("big", seat=4, priority=5)
    stage.ticks(60)
    stage.gone(small[0])
    same, higher = stage.pod("same", seat=1, priority=5), stage.pod("higher", seat=1, priority=6)
    assert stage.bind(same, "n1") == HELD.format("1 more is")
    assert stage.bind(higher, "n1") == ""
    assert stage.holds() == {"domain/seat/*#0": ("default/big", 4)}
    above = stage.pod("above", seat=3, priority=6)
    stage.ticks(60)
    assert stage.holds() == {"domain/seat/*#0": ("default/above", 3)}, "it is first in line now"
    stage.check_well()
    stage.gone(above)
    stage.ticks()
    assert stage.holds() == {"domain/seat/*#0": ("default/big", 4)}


@CHEAP
def test_who_came_before_the_first_in_line_need_not_wait_for_it(stage: Line) -> None:
    """It asks for one unit and has no turn of its own: whatever comes free is enough for it."""
    small = stage.full()
    older = stage.pod("older", seat=1)
    stage.time.now += 1
    stage.pod("big", seat=4)
    stage.ticks(60)
    assert stage.holds() == {"domain/seat/*#0": ("default/big", 4)}
    stage.gone(small[0])
    assert stage.woken() == {"older"}
    assert stage.bind(stage.pod("younger", seat=1), "n1") == HELD.format("1 more is")
    assert stage.bind(older, "n1") == ""
    stage.check_well()


@CHEAP
def test_a_turn_of_which_nothing_comes_ends_and_each_pause_is_longer(stage: Line) -> None:
    """It may lack CPU, or a taint keep it away: Berth does not know, and others shall not wait for it."""
    small = stage.full()
    stage.pod("big", seat=4)
    stage.ticks(60)
    for pod in small:
        stage.gone(pod)
    held, new = HELD.format("4 more are"), stage.pod("new", seat=1)
    for pause in (30, 60, 120):
        stage.ticks()  # it sees that the hold is whole
        stage.ticks(29)
        assert stage.why(new, "n1") == {"n1": held}
        stage.ticks(1)
        assert (stage.why(new, "n1"), stage.holds()) == ({}, {})
        stage.ticks(pause - 1)
        assert not stage.holds()
        stage.ticks(1)
        assert stage.holds() == {"domain/seat/*#0": ("default/big", 4)}
    stage.check_well()


@CHEAP
@pytest.mark.long
def test_pods_that_can_t_run_take_half_of_the_time_at_most(stage: Line) -> None:
    for number in range(5):
        stage.pod(f"hopeless-{number}", seat=4)
    stage.time.now += 1
    big, new = stage.pod("big", seat=3), stage.pod("new", seat=1)
    could, turns = 0, set[str]()
    for _ in range(100):
        stage.ticks(60)
        could += not stage.why(new, "n1")
        turns |= {label for label, _ in stage.holds().values()}
    assert (could >= 50, "default/big" in turns) == (True, True)
    stage.check_well()
    assert stage.bind(big) in ("", HELD.format("4 more are").replace("default/big", "default/hopeless-0"))


@CHEAP
def test_where_nothing_came_of_a_turn_the_next_is_elsewhere(stage: Line) -> None:
    """n2 has the units free, and no CPU; on n1 others come and go."""
    running = [stage.bound_pod(f"n1-{number}", on="n1", ip=1) for number in range(2)]
    stage.pod("big", ip=2)
    places: list[str] = []
    for _ in range(8):
        stage.ticks(60)
        places += [key for key in stage.holds() if key not in places[-1:]]
    assert places[:2] == ["domain/ip/n2", "domain/ip/n1"]
    assert running


@CHEAP
def test_a_turn_is_judged_where_its_units_are_held(stage: Line) -> None:
    """Units that are free where the pod may not go are not what it waits for."""
    stage.write_node("n2", taints=[{"key": "broken", "effect": "NoSchedule"}])
    running = [stage.bound_pod(f"n1-{number}", on="n1", ip=1) for number in range(2)]
    big = stage.pod("big", ip=2)
    for _ in range(5):
        stage.ticks(60)
        assert stage.holds() == {"domain/ip/n1": ("default/big", 2)}
    for pod in running:
        stage.gone(pod)
    assert stage.bind(big, "n1") == ""


@CHEAP
def test_those_who_may_go_nowhere_take_nobody_s_turn(stage: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_budget, "MOST_READ", 2)
    stage.full()
    stage.write_node("n1", taints=[{"key": "broken", "effect": "NoSchedule"}])
    stage.write_node("n2", taints=[{"key": "broken", "effect": "NoSchedule"}])
    for number in range(5):
        stage.pod(f"nowhere-{number}", seat=2)
    stage.time.now += 1
    stage.pod("big", seat=2, tolerates="broken")
    stage.ticks(60)
    assert not stage.holds()
    for _ in range(2):
        stage.ticks(60)
    assert stage.holds() == {"domain/seat/*#0": ("default/big", 2)}


@CHEAP
def test_what_a_pod_has_reserved_is_not_held_for_another(stage: Line) -> None:
    stage.full(count=3)
    mine = stage.pod("mine", seat=1)
    stage.pod("big", seat=4)
    stage.time.now += 60

    def step() -> None:
        if stage.states().get("mine") == "reserved":
            stage.reconcile()
            assert (stage.holds(), stage.why(mine, "n1")) == ({"domain/seat/*#0": ("default/big", 4)}, {})

    stage.stepping(lambda stepped: stepped.bind(mine), step)
    assert stage.states()["mine"] == "bound"
    stage.check_well()


def test_a_hold_goes_with_its_pod_and_others_are_woken(stage: Line) -> None:
    small = stage.full()
    big, new = stage.pod("big", seat=4), stage.pod("new", seat=1)
    stage.ticks(60)
    stage.gone(small[0])
    assert (stage.woken(), stage.bind(new)) == (set(), HELD.format("1 more is"))
    assert stage.gone(big)["woken"] == 1
    assert (stage.woken(), stage.holds(), stage.bind(new)) == ({"new"}, {}, "")
    stage.check_well()


@CHEAP
def test_a_hold_goes_with_its_pod_though_the_event_is_lost(stage: Line) -> None:
    small = stage.full()
    big, new = stage.pod("big", seat=4), stage.pod("new", seat=1)
    stage.ticks(60)
    stage.gone(small[0])
    stage.cluster.delete(f"/api/v1/namespaces/default/pods/{big.name}")
    stage.ticks()
    assert (stage.woken(), stage.holds(), stage.bind(new)) == ({"new"}, {}, "")


@CHEAP
def test_a_pool_may_hold_nothing_for_anybody(stage: Line) -> None:
    small = stage.full("open")
    stage.pod("big", open=4)
    stage.ticks(3600)
    assert not stage.holds()
    stage.gone(small[0])
    assert stage.bind(stage.pod("new", open=1)) == ""


@CHEAP
def test_a_pod_of_two_pools_has_its_turn_in_both_or_in_none(stage: Line) -> None:
    """On one node: what is held of one pool elsewhere would be of no use."""
    seats = stage.full()
    first = stage.bound_pod(on="n1", ip=1)
    for number in range(2):
        stage.bound_pod(f"full-{number}", on="n2", ip=1)
    big = stage.pod("big", seat=2, ip=2)
    stage.ticks(60)
    both = {"domain/ip/n1": ("default/big", 2), "domain/seat/*#0": ("default/big", 2)}
    assert stage.holds() == both, "on n1 one address is missing, on n2 two"
    assert "1 more is held" in stage.bind(stage.pod("small", ip=1), "n1")
    stage.gone(first)
    stage.gone(seats[0])
    stage.gone(seats[1])
    assert stage.passes(big, "n1", "n2") == {"n1"}
    assert (stage.bind(big, "n1"), stage.holds()) == ("", {})
    stage.check_well()


@CHEAP
def test_a_hold_is_placed_where_its_pod_may_go_and_moves_when_it_may_not(stage: Line) -> None:
    stage.give_a_turn_that_has_to_move()
    stage.ticks(60)
    assert stage.holds() == {"domain/ip/n1": ("default/big", 2)}
    stage.pools(ip={"capacity": {"perDomain": 1}})
    stage.ticks(60)
    assert not stage.holds(), "no node has two"


@CHEAP
def test_only_a_pod_that_units_alone_keep_waiting_has_a_turn(stage: Line) -> None:
    stage.pools(seat={**POOLS["seat"], "limits": {"small": 1}})
    stage.full()
    stage.pod("limited", seat=2, namespace="small")
    stage.pod("never", seat=5)
    stage.ticks(60)
    assert not stage.holds()
    stage.pools(seat=POOLS["seat"])
    stage.ticks(60)
    assert stage.holds() == {"domain/seat/*#0": ("small/limited", 2)}


def test_a_large_pool_is_held_in_its_stripes(stage: Line) -> None:
    """A pool of more than some units is in several documents; a hold is in as many as it takes."""
    running = stage.full("many", 3, 100)
    big = stage.pod("big", many=150)
    stage.ticks(60)
    assert sum(count for _, count in stage.holds().values()) == 150
    for pod in running:
        stage.gone(pod)
    assert (stage.free("many", "*"), stage.woken()) == ((150, 300), {"big"})
    new = stage.pod("new", many=160)
    why = "many: 150 of 300 free, 160 asked; 150 more are held for default/big, first in line"
    assert (stage.why(new, "n1"), stage.bind(new)) == ({"n1": why}, why)
    assert (stage.bind(stage.pod("small", many=150)), stage.bind(big)) == ("", "")
    assert not stage.holds()
    stage.check_well()


@CHEAP
def test_a_poolclaim_s_units_are_refused_by_filter_where_all_of_their_stripe_is_held(stage: Line) -> None:
    """There is room in other stripes; bind refused the pod, again and again."""
    stage.pools(many={"scope": "Cluster", "units": {"*": ["10.0.0.1-10.0.1.44"]}})
    running = stage.full("many", 3, 100)
    big = stage.pod("big", many=150)
    stage.ticks(60)
    for pod in running:
        stage.gone(pod)
    assert stage.holds() == {"domain/many/*#0": ("default/big", 128), "domain/many/*#1": ("default/big", 22)}
    assert stage.view().at("domain/many/*#0").capacity == 128
    for number in range(3):
        unit = Units.of(stage.view().at(f"domain/many/*#{number}").units or ()).take(1)[0].entries()[0]
        stage.claim_object(f"claim-{number}", "many", units=[unit])
        pod = stage.pod(many=1, claims=f"claim-{number}")
        why = "" if number else "many: the units of PoolClaim claim-0 are not here, or not free"
        assert stage.why(pod, "n1") == ({"n1": why} if why else {})
        assert stage.bind(pod) == why
    assert stage.bind(big) == ""
    stage.check_well()


@CHEAP
def test_what_is_not_reserved_for_a_priority_is_held_too(stage: Line) -> None:
    """Units that are reserved for others leave room in the pool that is none for the first in line."""
    stage.pools(seat={**POOLS["seat"], "capacity": {"perDomain": 6}, "reserved": RESERVED})
    small = stage.full(count=4)
    big, new = stage.pod("big", seat=2), stage.pod("new", seat=1)
    stage.ticks(60)
    stage.gone(small[0])
    assert stage.bind(new) != ""
    assert stage.bind(stage.pod("important", seat=1, priority=9)) == ""
    stage.gone(small[1])
    assert (stage.woken(), stage.bind(big), stage.holds()) == ({"big"}, "", {})
    stage.check_well()


@CHEAP
def test_a_hold_stands_until_the_binding_and_is_the_pods_own_meanwhile(stage: Line) -> None:
    """A Binding that fails costs no turn, and while it is made nothing is held twice."""
    small = stage.full()
    big, new = stage.pod("big", seat=3), stage.pod("new", seat=1)
    stage.ticks(60)
    for pod in small:
        stage.gone(pod)
    seen: list[tuple[int, bool]] = []

    def step() -> None:
        if "big" in stage.states():
            seen.append((stage.free("seat", "*")[0], bool(stage.holds())))

    stage.stepping(lambda stepped: stepped.bind(big), step)
    assert {free for free, _ in seen} == {1}
    assert not stage.holds()
    assert stage.bind(new) == ""
    stage.check_well()


@CHEAP
def test_an_error_in_the_line_is_reported_and_the_rest_of_reconcile_is_done(
    stage: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = stage.full()
    stage.pod("big", seat=4)
    waits = stage.pod("waits", seat=1)
    stage.cluster.delete(f"/api/v1/namespaces/default/pods/{small[0].name}")
    stage.time.now += 60
    with monkeypatch.context() as broken:
        broken.setattr(Ledger, "hold_in_line", Mock(side_effect=BusyError))
        report = stage.reconcile()
    assert report.problems == [f"who is first in line was not looked at: {BusyError()}"]
    assert (report.released, waits.name in stage.woken(), stage.holds()) == (1, True, {})
    stage.ticks(60)
    assert stage.holds() == {"domain/seat/*#0": ("default/big", 4)}


@CHEAP
def test_a_reconcile_that_is_overtaken_leaves_the_line_as_it_is(
    stage: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.full()
    stage.pod("big", seat=4)
    stage.ticks(60)
    before = stage.holds()
    with monkeypatch.context() as overtaken:
        overtaken.setattr(Reconcile, "_look", Mock(side_effect=OutdatedError))
        stage.ticks(60)
    assert (stage.holds(), before) == (before, {"domain/seat/*#0": ("default/big", 4)})


@CHEAP
def test_a_pool_that_goes_while_the_line_is_looked_at_is_held_for_nobody(
    stage: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process takes it away between two looks of one reconcile."""
    stage.give_a_turn_that_has_to_move()
    dropped = Ledger.drop_line_hold

    def drops(ledger: Ledger, uid: str) -> object:
        left = {name: pool for name, pool in ledger.view().pools.items() if name != "ip"}
        ledger.apply_pools(left)
        return dropped(ledger, uid)

    stage.time.now += 60
    with monkeypatch.context() as overtaken:
        overtaken.setattr(Ledger, "drop_line_hold", drops)
        assert not stage.reconcile().problems
    assert not stage.holds()
    stage.ticks(60)
    assert stage.holds() == {"domain/ip/n1": ("default/big", 2)}


@CHEAP
def test_a_pool_of_a_gang_that_goes_while_the_line_is_looked_at_ends_no_reconcile(
    stage: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.full()
    stage.give_a_turn_that_has_to_move()
    for number in range(4):
        stage.pod(f"gang-{number}", annotations={GANG: "gang", GANG_SIZE: "4"}, seat=1)
    dropped = Ledger.drop_line_hold

    def drops(ledger: Ledger, uid: str) -> object:
        ledger.apply_pools({name: pool for name, pool in ledger.view().pools.items() if name != "seat"})
        return dropped(ledger, uid)

    stage.time.now += 60
    with monkeypatch.context() as overtaken:
        overtaken.setattr(Ledger, "drop_line_hold", drops)
        assert not stage.reconcile().problems
