"""Clocks that are apart: of the process that stamps a time and of the one that judges it, ahead and behind.
Within the bound nothing is given back early and nothing is kept; beyond it nothing is kept for ever, and both
is told."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from berth.api.gang import GANG, GANG_SIZE
from berth.controller.clocks import SeatTimes, clock_problems
from berth.handlers.reconcile import Reconcile
from berth.handlers.wiring import ledger_and_cluster
from berth.ledger import overruns
from berth.ledger.last_reconcile import LONGEST_BELIEVED, LastReconcile, LineNote, LineNotes
from berth.ledger.model import Claim
from berth.ledger.overruns import DISBELIEVED_SECONDS
from berth.ledger.view import View
from berth.settings import Settings
from berth.skew import MOST_APART
from berth.testing.api_server import StandIn
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged

POOLS: dict[str, Any] = {
    "seat": {"scope": "Cluster", "capacity": {"perDomain": 4}},
    "ip": {"units": {"n1": ["a", "b"]}},
}
GANG_SECONDS = 120
YEAR = 365 * 86400.0

APART = [-MOST_APART, -5.0, -1.0, 0.0, 1.0, 5.0, MOST_APART]
BEYOND = [MOST_APART + 1, 3600.0, YEAR]
CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS) as found:
        yield found


@contextmanager
def clock(stage: PoolsStage, ahead: float) -> Iterator[None]:
    """What is called meanwhile has a clock that is so many seconds ahead of all others."""
    stage.time.now += ahead
    try:
        yield
    finally:
        stage.time.now -= ahead


def gang_is_bound(stage: PoolsStage, ahead: float) -> None:
    """The first of three pods is bound by a process with such a clock; the others have seats."""
    noted = {GANG: "train", GANG_SIZE: "3"}
    pods = [stage.pod(f"train-{number}", annotations=noted, seat=1) for number in range(3)]
    with clock(stage, ahead):
        assert stage.bind(pods[0]) == ""
    assert seats(stage) == {"train-1", "train-2"}


def seats(stage: PoolsStage) -> set[str]:
    return {claim.name for claim in stage.ledger().view().claims() if claim.is_seat}


@CHEAP
@pytest.mark.parametrize("ahead", [*APART, *BEYOND])
def test_seats_wait_as_long_as_they_are_to_whatever_the_clock_of_bind_says(
    stage: PoolsStage, ahead: float
) -> None:
    gang_is_bound(stage, ahead)
    stage.reconcile()
    stage.time.now += GANG_SECONDS - 1
    stage.reconcile()
    assert seats(stage) == {"train-1", "train-2"}
    stage.time.now += 1
    stage.reconcile()
    assert seats(stage) == set()


@CHEAP
@pytest.mark.parametrize("ahead", [*APART, *BEYOND, -YEAR])
def test_so_they_do_whatever_the_clock_of_reconcile_says(stage: PoolsStage, ahead: float) -> None:
    with clock(stage, ahead):
        stage.reconcile()  # as each minute
    gang_is_bound(stage, 0.0)
    with clock(stage, ahead):
        stage.reconcile()
        assert seats(stage) == {"train-1", "train-2"}
        stage.time.now += GANG_SECONDS - 1
        stage.reconcile()
        assert seats(stage) == {"train-1", "train-2"}
        stage.time.now += 1
        stage.reconcile()
        assert seats(stage) == set()


@CHEAP
@pytest.mark.parametrize("ahead", APART)
def test_a_seat_that_a_failed_bind_leaves_stays_one_whatever_the_clock_of_that_bind_says(
    stage: PoolsStage, ahead: float
) -> None:
    gang_is_bound(stage, 0.0)
    stage.time.now += GANG_SECONDS - 1
    taken = next(claim for claim in stage.ledger().view().claims() if claim.name == "train-1")
    with clock(stage, ahead):
        ledger = stage._ledger(stage.store)
        mine = ledger.take_seat(replace(taken, attempt="x", since=stage.time()), taken, mock.ANY)
        assert ledger.cancel(mine) == ()
    assert "train-1" in seats(stage)


@CHEAP
@pytest.mark.parametrize("ahead", [*APART, *BEYOND, -YEAR])
def test_a_reservation_in_doubt_is_settled_whatever_the_clock_of_its_bind_says(
    stage: PoolsStage, ahead: float
) -> None:
    """A fence decides (promise 5): to look too early costs the bind a try, and nothing else."""
    call = stage.pod(ip=1)
    with clock(stage, ahead):
        claim = replace(stage.claim(stage.get(call.name), "n1"), since=stage.time())
        stage._ledger(stage.store).reserve(claim)
    for _ in range(2):
        stage.time.now += MOST_APART
        stage.reconcile()
    assert stage.held() == {}


@CHEAP
@pytest.mark.parametrize("ahead", [-30.0, -5.0, 0.0, 5.0, 30.0])
def test_units_of_a_lost_node_are_held_until_its_kubelet_knows_by_a_clock_that_is_off(
    stage: PoolsStage, ahead: float
) -> None:
    """A kubelet takes 30 s at most to list its pods, and a node is lost after it was silent for 40 s."""
    call = stage.bound_pod(ip=1)
    stage.time.now += 40
    stage.write_node("n1", ready=False)
    stage.gone(call)
    back = stage.time.now
    stage.write_node("n1", since=back + ahead)
    stage.time.now = back + 30 + 29
    stage.node_event("n1")
    stage.reconcile()
    assert set(stage.states().values()) == {"lost"}
    stage.time.now = back + 60 + 30 + 31
    stage.reconcile()
    assert stage.held() == {}


@pytest.mark.parametrize("ahead", [0.0, MOST_APART, YEAR])
def test_what_is_noted_of_the_line_is_believed_for_a_day_at_most(ahead: float) -> None:
    now = 1000.0
    pods = {"a": LineNote(vain=1, until=now + ahead, looked=now + ahead)}
    notes = LineNotes(pods, {"seat": now + ahead}, at=now + ahead).believed(now)
    latest = now + min(ahead, LONGEST_BELIEVED)
    assert notes == LineNotes({"a": LineNote(vain=1, until=latest, looked=now)}, {"seat": latest}, at=now)


def test_an_owner_is_disbelieved_for_a_day_at_most() -> None:
    assert overruns.believed({"a": 1000.0 + YEAR, "b": 1001.0}, 1000.0) == {
        "a": 1000.0 + DISBELIEVED_SECONDS,
        "b": 1001.0,
    }


def test_a_seat_keeps_the_time_at_which_it_was_seen_first() -> None:
    seat = Claim(
        uid="a", namespace="d", name="a", node="n", holdings=(), gang="g", since=5000.0, seat_until=5030.0
    )
    first = SeatTimes(900.0)
    assert first.by_our_clock(seat, 1000.0).seat_until == 1030.0
    last = LastReconcile(at=1000.0, seconds=1.0, mended={}, seats=first.noted)
    assert SeatTimes.after(last).by_our_clock(seat, 1029.0).seat_until == 1030.0
    anew = replace(seat, since=5100.0, seat_until=5130.0)
    assert SeatTimes.after(last).by_our_clock(anew, 1029.0).seat_until == 1059.0
    behind = replace(seat, since=10.0, seat_until=40.0)
    assert SeatTimes.after(last).by_our_clock(behind, 1029.0).seat_until == 999.0 + 30.0


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (None, []),
        (5.0, []),
        (-5.0, []),
        (5.1, ["this machine's clock is more than 5 s ahead of the API server's"]),
        (-YEAR, ["this machine's clock is more than 5 s behind the API server's"]),
    ],
)
def test_reconcile_tells_how_far_its_clock_is_off(ahead: float | None, words: list[str]) -> None:
    assert list(clock_problems(ahead, View(), 1000.0)) == words


@CHEAP
def test_reconcile_tells_of_stamps_that_lie_ahead_and_notes_how_far_its_clock_is_off(
    stage: PoolsStage,
) -> None:
    with clock(stage, 30.0):
        stage.bound_pod(ip=1)
    ledger = stage._ledger(stage.store, while_closed=True)
    reconcile = Reconcile(
        ledger, stage.cluster, stage.settings, clock=stage.time, monotonic=stage.time, ahead=lambda: 400.0
    )
    told = "claims are stamped more than 5 s later than now: the clock of a process that binds pods is ahead"
    assert [problem.partition(";")[0] for problem in reconcile.run().problems] == [
        "this machine's clock is more than 5 s ahead of the API server's",
        told,
    ]
    last = ledger.last_reconcile()
    assert last is not None
    assert last.ahead == 400.0


@pytest.mark.parametrize("ahead", [-YEAR, -MOST_APART, 0.0, 5.0, YEAR])
def test_functions_that_act_go_by_the_clock_of_the_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    real = time.time
    with StandIn() as api:
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
        clocks = SimpleNamespace(**{**vars(time), "time": lambda: real() + ahead})
        monkeypatch.setattr("berth.server_clock.time", clocks)
        ledger, cluster = ledger_and_cluster(Settings(store=f"sqlite:///{tmp_path}/ledger.db"))
        cluster.identity()
        found = cluster.clock_ahead()
        assert ledger._clock == cluster.now
    assert abs(cluster.now() - real()) <= 1.5  # Dates are whole seconds
    assert found is not None
    assert abs(found - ahead) <= 1.0
