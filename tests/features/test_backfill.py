"""Units that are held for the first in line are lent to pods that are gone before it can have all it asks
for, by what the pods say of their run times, on every store."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from berth.api.run_time import MARGIN_SECONDS
from berth.handlers.bind import Bind
from berth.http.extender_v1 import BindingCall
from berth.ledger.ledger import Ledger
from berth.ledger.transaction import BusyError
from berth.scheduling.explanation import explain
from berth.testing.api_server import StandIn
from tests.support.builders.line_stage import LineStage
from tests.support.builders.places import Place

CLUSTER = {"scope": "Cluster"}
FOUR = {**CLUSTER, "capacity": {"perDomain": 4}}
POOLS: dict[str, Any] = {
    "seat": FOUR,
    "ip": {"capacity": {"perDomain": 2}},
    "many": {**CLUSTER, "capacity": {"perDomain": 300}},
    "rests": {**FOUR, "reuseAfterSeconds": 100},
    "kept": {**FOUR, "sticky": {"by": "Owner", "forSeconds": 60}},
    "deleted": {**FOUR, "releaseOn": "Deleted"},
}
SEAT = "domain/seat/*#0"
HELD = "seat: {} of 4 free, 1 asked; {} held for default/big, first in line"
LENT = f"{HELD}, or a pod that says it is done in time (berth.dev/runs-for)"
DAY = 86400.0

CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # the rest are shown by others


class Backfill(LineStage):
    """With pods that say how long they run, and end at once when they are told to."""

    def says(self, runs_for: str, name: str = "", **how: Any) -> BindingCall:
        """A waiting pod that asks for one seat, if it is not told otherwise."""
        asks = how if how.keys() & POOLS.keys() else {"seat": 1, **how}
        return self.pod(name, runs_for=runs_for, **{"grace": 0, **asks})

    def turn(self, *runs_for: str, pool: str = "seat", **how: Any) -> list[BindingCall]:
        """Holders that say so, and the first in line, which asks for all; a minute has gone."""
        holders = []
        one: Any = {**how, pool: 1}
        every: Any = {pool: 4}
        for text in runs_for:
            holders.append(self.says(text, **one))
            assert self.bind(holders[-1], "n1") == ""
        self.pod("big", **every)
        self.ticks(60)
        assert {label for label, _ in self.holds().values()} == {"default/big"}
        return holders

    def notes(self, call: BindingCall) -> tuple[str, ...]:
        return explain(self.get(call.name), self.view(), self.cluster.nodes(), self.time.now).notes


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Backfill]:
    made: list[Backfill] = []
    with StandIn(clock=lambda: made[0].time() if made else 0.0) as api:
        made.append(Backfill(api, tmp_path, place, POOLS, {"n1": {}, "n2": {}}))
        with closing(made[0].store), closing(made[0].raw):
            yield made[0]


def test_a_pod_that_is_done_in_time_is_lent_what_is_held(stage: Backfill) -> None:
    began = stage.time.now
    holders = stage.turn("10m", "10m", "10m", "5m")
    by = {SEAT: began + 600 + MARGIN_SECONDS}
    assert stage.whole_by() == by
    short, long, silent = stage.says("539"), stage.says("541"), stage.says("")
    stage.gone(holders[3])
    assert (stage.woken(), stage.whole_by()) == ({short.name}, by)
    lent = LENT.format(0, "1 more is")
    assert stage.why(long, "n1") == stage.why(silent, "n1") == {"n1": lent}
    assert (stage.bind(long), stage.bind(silent)) == (lent, lent)
    assert (stage.why(short, "n1"), stage.bind(short)) == ({}, "")
    assert (stage.holds(), stage.whole_by()) == ({SEAT: ("default/big", 4)}, by)
    stage.check_survives_a_loss()
    assert stage.holds() == {SEAT: ("default/big", 4)}
    again = stage.whole_by()[SEAT]
    assert again is not None
    assert by[SEAT] - 1 <= again <= by[SEAT], "a pod says in whole seconds when it was bound"
    for pod in (short, *holders[:3]):
        stage.gone(pod)
    assert "big" in stage.woken()
    assert (stage.whole_by(), stage.bind(silent)) == ({SEAT: stage.time.now}, HELD.format(0, "4 more are"))
    assert stage.bind(BindingCall("big", "default", stage.get("big").metadata.uid, "n1")) == ""
    stage.check_well()


def test_nothing_is_lent_while_nobody_knows_when_all_is_there(stage: Backfill) -> None:
    """One of those that hold the rest does not say how long it runs, or says what is no time."""
    holders = stage.turn("10m", "10m", "soon", "10m")
    short, silent = stage.says("1s"), stage.says("")
    stage.gone(holders[0])
    assert stage.whole_by() == {SEAT: None}
    held = HELD.format(0, "1 more is")
    assert (stage.why(short, "n1"), stage.bind(short)) == ({"n1": held}, held)
    assert (stage.why(silent, "n1"), stage.woken()) == ({"n1": held}, set())
    (note,) = stage.notes(short)
    who = "what is held for default/big of seat in *"
    assert note == f"{who} is lent to nobody: not all that hold the rest say how long they run"
    assert stage.notes(silent) == ()
    stage.gone(holders[2])
    assert stage.bind(short) == "", "those that are left say it"
    stage.check_well()


@CHEAP
def test_who_says_nothing_may_hold_what_the_first_in_line_can_do_without(stage: Backfill) -> None:
    for text in ("", "10m", "10m", "10m"):
        assert stage.bind(stage.says(text)) == ""
    stage.pod("big", seat=3)
    stage.ticks(60)
    assert stage.whole_by() == {SEAT: stage.time.now - 60 + 600 + MARGIN_SECONDS}


@CHEAP
def test_explain_says_when_and_to_whom(stage: Backfill) -> None:
    holders = stage.turn("10m", "10m", "10m", "10m")
    stage.gone(holders[0])
    long, silent, wrong = stage.says("2h"), stage.says(""), stage.says("1h30")
    assert stage.whole_by() == {SEAT: stage.time.now - 60 + 610}
    lent = "what is held for default/big of seat in * is lent to who is gone by "
    for pod, says in (
        (long, "; it would be gone by "),
        (silent, "; it does not say how long it runs (berth.dev/runs-for, activeDeadlineSeconds)"),
        (wrong, "; berth.dev/runs-for: '1h30' is no time, so it counts for nothing: write 90s, 30m or 1h30m"),
    ):
        (note,) = stage.notes(pod)
        assert note.startswith(lent)
        assert says in note
    big = BindingCall("big", "default", "", "n1")
    (note,) = stage.notes(big)
    assert "so far 1 of 4 of seat in *, all of it by " in note
    assert note.endswith(" if those that hold it end as they say")


@CHEAP
def test_the_time_to_end_counts_and_the_shorter_of_two_times(stage: Backfill) -> None:
    holders = stage.turn("10m", "10m", "10m", "10m")
    stage.gone(holders[0])
    lent = LENT.format(0, "1 more is")
    assert stage.bind(stage.says("530", grace=30)) == lent
    assert stage.bind(stage.says("", deadline=541)) == lent
    assert stage.bind(stage.says("2h", deadline=510, grace=30)) == ""
    stage.check_well()


@CHEAP
def test_what_is_lent_rests_in_time_too(stage: Backfill) -> None:
    holders = stage.turn("10m", "10m", "10m", "10m", pool="rests")
    first = stage.time.now
    stage.gone(holders[0])
    assert stage.whole_by() == {"domain/rests/*#0": first - 60 + 600 + MARGIN_SECONDS + 100}
    stage.time.now += 100  # what it left has rested
    assert "done in time" in stage.bind(stage.says("441", rests=1))
    lent = stage.says("440", rests=1)
    assert stage.bind(lent) == ""
    stage.time.now += 440
    stage.gone(lent)
    for pod in holders[1:]:
        stage.gone(pod)
    stage.time.now += 100
    assert stage.whole_by() == {"domain/rests/*#0": stage.time.now}


@CHEAP
def test_a_unit_that_rests_comes_free_by_the_clock(stage: Backfill) -> None:
    holders = stage.turn("10m", "10m", "10m", "10m", pool="rests")
    for pod in holders[1:]:
        stage.gone(pod)
    stage.time.now += 100
    stage.gone(holders[0])
    assert stage.whole_by() == {"domain/rests/*#0": stage.time.now + 100}
    assert "done in time" in stage.bind(stage.says("10s", rests=1)), "it would rest for too long"


@CHEAP
@pytest.mark.parametrize("pool", ["kept", "deleted"])
def test_nothing_is_lent_of_what_its_holders_leave_to_others_nobody_knows_when(
    stage: Backfill, pool: str
) -> None:
    """Kept units are the owner's for a while; a pod that has finished is there until somebody deletes it."""
    holders = stage.turn("10m", "10m", "10m", "10m", pool=pool)
    stage.gone(holders[0])
    assert list(stage.whole_by().values()) == [None]
    one: Any = {pool: 1}
    assert "1 more is held for default/big" in stage.bind(stage.says("1s", **one))


@CHEAP
def test_a_pool_whose_units_rest_longer_now_lends_by_that(stage: Backfill) -> None:
    holders = stage.turn("10m", "10m", "10m", "10m")
    stage.gone(holders[0])
    stage.pools(seat={**FOUR, "releaseOn": "Deleted"})
    stage.ticks()
    assert stage.whole_by() == {SEAT: None}
    stage.pools(seat=FOUR)
    stage.ticks()
    assert stage.whole_by() == {SEAT: stage.time.now - 60 + 610}


def test_whose_pod_runs_longer_than_it_said_is_not_believed_for_a_day(stage: Backfill) -> None:
    stage.turn("1h", "1h", "1h", owner="calm")
    liar = stage.says("2m", "liar", owner="liar")
    assert stage.bind(liar) == ""
    stage.ticks(120 + MARGIN_SECONDS)
    assert [event for event in stage.events() if event[1] == "FailedClaim"] == []
    stage.ticks(1)
    told = [event for event in stage.events() if event[1] == "FailedClaim"]
    assert [pod for pod, _, _ in told] == ["liar"]
    assert told[0][2].startswith("runs longer than it said (berth.dev/runs-for, activeDeadlineSeconds)")
    assert stage.whole_by() == {SEAT: None}, "nobody knows when it ends"
    stage.ticks(60)
    assert [event for event in stage.events() if event[1] == "FailedClaim"] == [], "it is told once"
    stage.gone(liar)
    again, other = stage.says("2m", owner="liar"), stage.says("2m", owner="other")
    held = HELD.format(0, "1 more is")
    assert (stage.why(again, "n1"), stage.bind(again)) == ({"n1": held}, held)
    (note,) = stage.notes(again)
    assert "a pod of default/StatefulSet:liar ran longer than it said, so none is believed until" in note
    assert (stage.why(other, "n1"), stage.bind(other)) == ({}, "")
    stage.gone(other)
    stage.check_well()


def test_nothing_is_lent_while_somebody_before_the_first_in_line_waits(stage: Backfill) -> None:
    """A loan would make it later, and the first in line with it."""
    first, second, *others = [stage.says("10m") for _ in range(4)]
    for call in (first, second, *others):
        assert stage.bind(call) == ""
    older = stage.says("5m", "older")
    stage.time.now += 1
    stage.pod("big", seat=4)
    stage.ticks(60)
    assert stage.whole_by() == {SEAT: None}
    stage.gone(first)
    assert stage.woken() == {"older"}
    short = stage.says("1m")
    assert stage.bind(short) == HELD.format(0, "1 more is")
    assert stage.notes(short)[0].endswith("is lent to nobody: a pod waits that is before that one in line")
    assert stage.bind(older) == ""
    stage.ticks()
    (by,) = stage.whole_by().values()
    assert by is not None, "nobody waits any more who is before it"
    stage.gone(second)
    assert (stage.holds(), stage.bind(short)) == ({SEAT: ("default/big", 4)}, "")
    stage.check_well()


@CHEAP
def test_who_is_before_and_lacks_something_else_stops_no_loan(stage: Backfill) -> None:
    """A unit is free for it, and it is not bound: it lacks CPU, say."""
    holders = [stage.says("10m") for _ in range(4)]
    for call in holders:
        assert stage.bind(call) == ""
    stage.pod("never", seat=5)
    stage.ticks()
    stage.says("5m", "hopeless")
    stage.time.now += 1
    stage.pod("big", seat=4)
    stage.ticks(60)
    assert stage.whole_by() == {SEAT: None}
    stage.gone(holders[0])
    stage.ticks(60)
    assert stage.bind(stage.says("1m")) == ""


@CHEAP
def test_an_owner_is_believed_again_after_a_day(stage: Backfill) -> None:
    liar = stage.says("2m", "liar", owner="liar")
    assert stage.bind(liar) == ""
    stage.ticks(3600)
    stage.ticks(DAY)
    stage.gone(liar)
    holders = stage.turn("48h", "48h", "48h", "48h")
    stage.gone(holders[0])
    again = stage.says("2m", owner="liar")
    stage.ticks(DAY - 61)
    assert stage.bind(again) == HELD.format(0, "1 more is")
    stage.ticks(1)
    assert stage.bind(again) == "", "a day after it was seen last"


@CHEAP
def test_a_large_pool_is_lent_where_its_part_is_held(stage: Backfill) -> None:
    """Each document of a domain in parts decides for itself."""
    holders = []
    for text in ("10m", "10m", "10m", "10m", "20m", "20m"):
        holders.append(stage.says(text, many=50))
        assert stage.bind(holders[-1]) == ""
    stage.pod("big", many=300)
    stage.ticks(60)
    held, began = stage.holds(), stage.time.now - 60
    assert sum(count for _, count in held.values()) == 300
    stage.gone(holders[0])
    by = stage.whole_by()
    assert {*by.values()} <= {began + 600 + MARGIN_SECONDS, began + 1200 + MARGIN_SECONDS}
    assert "or a pod that says it is done in time" in stage.bind(stage.says("30m", many=40))
    assert stage.bind(stage.says("1m", many=40)) == ""
    assert (stage.holds(), stage.whole_by()) == (held, by)
    stage.check_well()


@CHEAP
def test_a_pod_of_two_pools_is_in_time_in_both(stage: Backfill) -> None:
    seats = stage.turn("10m", "10m", "10m", "10m")
    addresses = stage.says("2m", "address", ip=2)
    assert stage.bind(addresses, "n1") == ""
    stage.gone(seats[0])
    assert stage.bind(stage.says("5m", seat=1, ip=1), "n2") == ""
    stage.gone(seats[1])
    stage.pod("two", ip=2)
    stage.ticks(60)
    both = stage.holds()
    assert len(both) == 2
    (node,) = {key.removeprefix("domain/ip/") for key in both if "/ip/" in key}
    stage.gone(addresses)
    assert stage.bind(stage.says("8m", seat=1, ip=1), node) != "", "it is late for the one of them"
    stage.check_well()


@CHEAP
def test_a_bind_that_is_repeated_too_late_does_not_keep_what_was_lent(stage: Backfill) -> None:
    """The one before died after it had reserved: the pod begins later than was counted on."""
    holders = stage.turn("10m", "10m", "10m", "10m")
    stage.gone(holders[0])
    lent = stage.says("530")
    dead_bind(stage, lent)
    by = stage.whole_by()
    stage.time.now += 8
    dead_bind(stage, lent)
    assert stage.whole_by() == by
    stage.time.now += 3
    assert "it would be done too late now" in stage.bind(lent)
    stage.ticks(5)
    assert lent.name not in stage.states(), "reconcile cancels it"
    assert stage.whole_by() == by


@CHEAP
def test_a_reservation_from_before_the_turn_is_taken_over_however_late(stage: Backfill) -> None:
    stage.full(count=3, runs_for="1h")
    stage.pod("big", seat=4)
    mine = stage.says("1h")
    stage.time.now += 58
    dead_bind(stage, mine)
    stage.ticks(2)
    assert stage.whole_by() == {SEAT: stage.time.now - 2 + 3600 + MARGIN_SECONDS}
    stage.time.now += 1
    assert stage.bind(mine) == ""


def dead_bind(stage: Backfill, call: BindingCall) -> None:
    """A bind that dies before it makes the Binding."""

    class Died(BaseException):
        pass

    class Cluster:
        def __getattr__(self, name: str) -> Any:
            if name == "bind":
                raise Died
            return getattr(stage.cluster, name)

    bind = Bind(stage.ledger(), Cluster(), ("berth",), stage.time)  # type: ignore[arg-type]
    with pytest.raises(Died):
        bind.run(BindingCall(call.name, call.namespace, call.uid, "n1"))
    assert stage.states()[call.name] == "reserved"


@CHEAP
def test_an_overrun_that_can_not_be_noted_is_reported_and_noted_by_the_next_reconcile(
    stage: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = stage.says("1m", "late")
    assert stage.bind(late) == ""
    stage.time.now += 60 + MARGIN_SECONDS + 1
    with monkeypatch.context() as broken:
        broken.setattr(Ledger, "note_overruns", Mock(side_effect=BusyError))
        assert stage.reconcile().problems == [f"who runs longer than they said was not noted: {BusyError()}"]
    stage.ticks(60)
    assert stage.view().overruns == {"default/late": stage.time.now + DAY}, "it has no owner but itself"
