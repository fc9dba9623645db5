"""The alarm: it rings when something is due, with one timer, and never busily."""

from collections.abc import Callable
from itertools import pairwise
from math import inf
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.controller.alarm import HORIZON_SECONDS, REST_SECONDS, Alarm, Room, room_of
from berth.errors import StoreUnavailableError
from berth.ledger.keys import domain_key
from berth.ledger.model import Domain, RetainedUnits, encode
from berth.ledger.view import View

DUE = 0.02  # it rings so much later than what is due, at most


class Clock:
    """Time that stands still until it is told to pass, and the timers that end meanwhile."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: dict[int, tuple[float, Callable[[], None]]] = {}
        self.started = 0

    def __call__(self) -> float:
        return self.now

    def start(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        self.started += 1
        number = self.started
        self.timers[number] = (self.now + seconds, call)
        return lambda: self.timers.pop(number, None) and None

    def pass_(self, seconds: float) -> None:
        until = self.now + seconds
        while (first := min(self.timers, key=lambda one: self.timers[one][0], default=None)) is not None:
            at, call = self.timers[first]
            if at > until:
                break
            del self.timers[first]
            self.now = max(self.now, at)
            call()
        self.now = until


class Stage:
    """An alarm on a View of pools of one Cluster-wide domain each."""

    def __init__(self) -> None:
        self.clock, self.view, self.rung = Clock(), View(), list[tuple[float, Room]]()
        self.view.pools = dict.fromkeys(("ip", "seat"), _POOL)  # type: ignore[arg-type]
        self.fails = False
        self.alarm = Alarm(self.look, self.wake, clock=self.clock, start=self.clock.start, apart=())

    def look(self) -> View:
        self.view.refresh(self.clock.now)
        return self.view

    def wake(self, room: Room) -> None:
        self.rung.append((self.clock.now, room))
        if self.fails:
            raise StoreUnavailableError("away")

    def left(self, pool: str, *seconds: float, domain: str = "*") -> None:
        """Units of the pool rest for so long from now on."""
        units = tuple(RetainedUnits(1, rest_until=self.clock.now + time) for time in seconds)
        self.view.update({domain_key(pool, domain): encode(Domain(9, retained=units))}, self.clock.now)
        self.alarm.arm(self.look())


class _Spec:
    scope = "Cluster"


class _Pool:
    spec = _Spec()


_POOL = _Pool()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_it_rings_when_a_rest_is_over_and_not_before(stage: Stage) -> None:
    stage.left("ip", 30)
    stage.clock.pass_(29.99)
    assert not stage.rung
    stage.clock.pass_(DUE)
    ((_, room),) = stage.rung
    assert room.units == {"ip": 1}
    assert not stage.clock.timers


def test_nothing_runs_while_nothing_is_due(stage: Stage) -> None:
    stage.alarm.arm(stage.look())
    stage.left("ip", HORIZON_SECONDS + 10)
    assert stage.clock.started == 0
    stage.clock.pass_(60)
    stage.alarm.arm(stage.look())  # the next reconcile
    stage.clock.pass_(60)
    assert len(stage.rung) == 1


def test_there_is_one_timer_however_much_is_due(stage: Stage) -> None:
    for number in range(50):
        stage.left("ip", 10 + number / 10, domain=f"n{number}")
        stage.alarm.later().call({"seat": 1}, stage.clock.now + 5 + number / 10)
        assert len(stage.clock.timers) == 1
    stage.clock.pass_(20)
    assert sum(room.units.get("ip", 0) for _, room in stage.rung) == 50
    assert sum(room.units.get("seat", 0) for _, room in stage.rung) == 50
    times = [at for at, _ in stage.rung]
    assert all(later - earlier >= REST_SECONDS - 1e-9 for earlier, later in pairwise(times))
    assert not stage.clock.timers


def test_what_is_due_while_it_rings_is_not_forgotten(stage: Stage) -> None:
    stage.left("ip", 1.0, 1.1)
    stage.clock.pass_(3)
    assert [room.units for _, room in stage.rung] == [{"ip": 1}, {"ip": 1}]


def test_what_a_look_has_freed_already_rings_all_the_same(stage: Stage) -> None:
    """Others look at the ledger all the time: what is due is not in the View any more then."""
    stage.left("ip", 1)
    stage.clock.now += 1.005
    stage.left("seat", 9)
    stage.clock.pass_(DUE)
    assert [room.units for _, room in stage.rung] == [{"ip": 1}]


def test_what_is_due_rings_though_more_of_its_document_rests_for_longer(stage: Stage) -> None:
    """Others have looked at the ledger since: its View knows only when the rest of it is due."""
    stage.left("ip", 1, 9)
    stage.clock.now += 1.005
    stage.left("seat", 30)
    stage.clock.pass_(DUE)
    assert [room.units for _, room in stage.rung] == [{"ip": 1}]
    stage.clock.pass_(9)
    assert [room.units for _, room in stage.rung] == [{"ip": 1}, {"ip": 1}]


def test_units_that_were_taken_or_kept_anew_meanwhile_ring_for_nobody(stage: Stage) -> None:
    stage.left("ip", 5)
    stage.left("ip", 50)
    stage.clock.pass_(6)
    assert all(not room.units for _, room in stage.rung)
    stage.clock.pass_(50)
    assert stage.rung[-1][1].units == {"ip": 1}


def test_a_store_that_is_away_costs_one_ring_and_no_other(stage: Stage) -> None:
    stage.fails = True
    stage.left("ip", 1)
    stage.left("seat", 2)
    stage.clock.pass_(3)
    assert len(stage.rung) == 2


def test_it_rings_no_more_once_it_is_closed(stage: Stage) -> None:
    stage.left("ip", 1)
    stage.alarm.close()
    stage.left("seat", 1)
    stage.clock.pass_(5)
    assert (stage.rung, stage.clock.timers) == ([], {})


def test_many_threads_arm_it_and_each_room_rings_once(stage: Stage) -> None:
    def again() -> None:
        for _ in range(50):
            stage.alarm.later().call({"ip": 1}, stage.clock.now + 1)

    threads = [Thread(target=again) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stage.clock.pass_(2)
    assert [room.units for _, room in stage.rung] == [{"ip": 400}]


def test_a_limit_that_counts_what_rests_is_no_room_of_its_own() -> None:
    view, left = View(), (RetainedUnits(2, rest_until=10.0),)
    view.pools = {"ip": _POOL}  # type: ignore[dict-item]
    documents = {"*": Domain(9, retained=left), "@a": Domain(9, retained=left)}
    view.update({domain_key("ip", name): encode(domain) for name, domain in documents.items()}, 0.0)
    assert room_of(view, dict.fromkeys((("ip", name) for name in documents), 10.0), 10.0).units == {"ip": 2}


@given(
    st.lists(
        st.tuples(st.sampled_from(["n1", "n2"]), st.sampled_from(["ip", "seat"]), st.floats(0.01, 80)),
        min_size=1,
        max_size=12,
    )
)
def test_whatever_rests_each_unit_rings_once_within_half_a_second_of_its_end(
    rests: list[tuple[str, str, float]],
) -> None:
    stage = Stage()
    for pool in ("ip", "seat"):
        for domain in ("n1", "n2"):
            here = [seconds for place, of, seconds in rests if (of, place) == (pool, domain)]
            stage.left(pool, *here, domain=domain)
    began, counted = stage.clock.now, 0
    stage.clock.pass_(100)
    for at, room in stage.rung:
        counted += sum(room.units.values())
        over = sum(1 for *_, seconds in rests if began + seconds <= at)
        assert counted <= over
    assert counted == len(rests)
    for *_, seconds in rests:
        end = began + seconds
        assert min((at for at, _ in stage.rung if at >= end), default=inf) - end <= REST_SECONDS + DUE
