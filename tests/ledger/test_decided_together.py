"""Threads of one process that want the same units: they meet no conflict, share commits, and no error.
Who waits for whom is in tests/unit/test_coalesce.py; processes race in test_races.py."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from berth.errors import BerthError, StoreFailedError
from berth.ledger.keys import domain_key
from berth.ledger.model import Claim
from berth.stores.base import Version
from tests.support.builders.ledgers import FaultyStore, Time, claim, held, ledger_on, opened
from tests.support.builders.places import Place
from tests.support.cluster import wait

SECONDS = 30
UNITS = 5


class Gated(FaultyStore):
    """Counts commits, holds the first of them back until it is let go, and takes as many writes at a time as
    it is told to."""

    commits = 0
    most = UNITS

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.began, self.let_go = threading.Event(), threading.Event()

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        self.commits += 1
        self.began.set()
        assert self.let_go.wait(SECONDS)
        if any((body or b"").count(b'"node":') > self.most for body in writes.values()):
            raise StoreFailedError("too large")
        return super().commit(writes, expected)


@pytest.fixture
def store(place: Place) -> Iterator[Gated]:
    with closing(opened(place.url, {("ip", "n1"): UNITS, ("ip", "n2"): UNITS})) as made:
        yield Gated(made)


class Callers:
    """Threads that call one ledger: the first one's commit is under way while the others come."""

    def __init__(self, store: Gated) -> None:
        self.time = Time()
        self.store, self.ledger = store, ledger_on(store, time=self.time)
        self.told: dict[str, str] = {}
        together = self.ledger._commits.together
        assert together is not None
        self.together, do = together, together.do

        def do_patiently(item: Any, seconds: float, *things: Any) -> None:
            """Time stands still, but who waits for its turn waits in real time: on a busy machine longer."""
            do(item, seconds * SECONDS, *things)

        together.do = do_patiently  # type: ignore[assignment, method-assign]

    def run(self, *calls: tuple[str, Callable[[], object]]) -> None:
        """Make the calls, all but the first in this order as one group."""
        threads = [threading.Thread(target=self._call, args=call, daemon=True) for call in calls]
        threads[0].start()
        assert self.store.began.wait(SECONDS)
        together = self.together
        for number, thread in enumerate(threads[1:], 1):
            thread.start()
            wait(lambda number=number: len(together._waiting) == number, SECONDS, "that it waits")  # type: ignore[misc]
        self.store.let_go.set()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()

    def reserve(self, *claims: Claim) -> None:
        self.run(*((wanted.uid, lambda wanted=wanted: self.ledger.reserve(wanted)) for wanted in claims))

    def _call(self, who: str, call: Callable[[], object]) -> None:
        try:
            call()
        except (BerthError, ZeroDivisionError) as error:
            self.told[who] = f"{type(error).__name__}: {error}"
        else:
            self.told[who] = "done"


@pytest.fixture
def callers(store: Gated) -> Callers:
    return Callers(store)


SHORT = f"RefusedError: ip: 0 of {UNITS} free, 1 asked"


def test_exactly_as_many_win_as_there_are_units_in_two_commits(callers: Callers) -> None:
    callers.reserve(*(claim(f"p{number}") for number in range(8)))
    won = [f"p{number}" for number in range(UNITS)]
    assert callers.told == {**dict.fromkeys(won, "done"), **dict.fromkeys(("p5", "p6", "p7"), SHORT)}
    assert set(held(ledger_on(callers.store))) == set(won)
    assert callers.store.commits == 2


def test_each_decides_on_what_those_before_it_have_decided(callers: Callers) -> None:
    first, ledger = claim("a", ip=UNITS), callers.ledger
    callers.run(
        ("a", lambda: ledger.reserve(first)),
        ("too early", lambda: ledger.reserve(claim("b"))),
        ("confirms", lambda: ledger.confirm(first)),
        ("too late", lambda: ledger.cancel(first)),
        ("elsewhere", lambda: ledger.confirm(claim("c"))),
    )
    assert callers.told == {
        "a": "done",
        "too early": SHORT,
        "confirms": "done",
        "too late": "done",
        "elsewhere": "MissingClaimError: pod d/c: no claim to confirm; reconcile will adopt it from the pod",
    }
    assert held(ledger_on(callers.store)) == {"a": ("bound", "n1")}
    assert callers.store.commits == 2


def test_after_a_conflict_all_of_them_decide_again_also_who_was_refused(callers: Callers) -> None:
    """What was given to others, and then not committed, is there for all of them again."""
    other = ledger_on(callers.store._store)
    other.reserve(claim("other", ip=UNITS - 2))
    callers.store.meanwhile = iter([lambda: None, lambda: other.release("other")])
    callers.reserve(*(claim(f"p{number}") for number in range(UNITS + 1)))
    won = [f"p{number}" for number in range(UNITS)]
    assert callers.told == {**dict.fromkeys(won, "done"), f"p{UNITS}": SHORT}
    assert set(held(ledger_on(callers.store))) == set(won)
    assert callers.store.commits == 3


def test_a_fault_of_ours_in_one_decision_is_told_to_nobody_else(callers: Callers) -> None:
    """A pod whose call meets it comes again and again."""
    commits = callers.ledger._commits
    callers.run(
        ("a", lambda: callers.ledger.reserve(claim("a"))),
        ("b", lambda: callers.ledger.reserve(claim("b"))),
        ("wrong", lambda: commits.run([domain_key("ip", "n1")], lambda _: (1 // 0, {}))),
        ("c", lambda: callers.ledger.reserve(claim("c"))),
    )
    wrong = "ZeroDivisionError: integer division or modulo by zero"
    assert callers.told == {"a": "done", "b": "done", "wrong": wrong, "c": "done"}
    assert set(held(ledger_on(callers.store))) == {"a", "b", "c"}
    assert callers.store.commits == 2


@pytest.mark.parametrize(("fault", "won"), [("before", ["p0"]), ("after", ["p0", "p1", "p2"])])
def test_who_shares_a_commit_of_unknown_outcome_is_told_so(
    callers: Callers, fault: str, won: list[str]
) -> None:
    callers.store.faults = ["", fault]
    callers.reserve(*(claim(f"p{number}") for number in range(3)))
    unknown = f"StoreUnavailableError: the store went away {fault} the commit"
    assert callers.told == {"p0": "done", "p1": unknown, "p2": unknown}
    assert sorted(held(ledger_on(callers.store))) == won


def test_what_a_store_does_not_take_together_it_gets_one_by_one(callers: Callers) -> None:
    callers.store.most = 3
    callers.reserve(*(claim(f"p{number}") for number in range(UNITS)))
    refused = dict.fromkeys(("p3", "p4"), "StoreFailedError: too large")
    assert callers.told == {**dict.fromkeys(("p0", "p1", "p2"), "done"), **refused}
    assert set(held(ledger_on(callers.store))) == {"p0", "p1", "p2"}


def test_nobody_waits_for_others_that_get_theirs_one_by_one_for_longer_than_it_is_patient(
    callers: Callers,
) -> None:
    """A store may take its time to say that it can't."""
    callers.store.most = 2
    callers.store.meanwhile = iter([lambda: None, lambda: callers.time.advance(1.1)])
    callers.reserve(*(claim(f"p{number}") for number in range(4)))
    busy = "BusyError: berth's ledger was too busy for 1 s"
    assert callers.told == {"p0": "done", "p1": "done", "p2": busy, "p3": busy}
    assert callers.store.commits == 3


def test_who_has_waited_for_its_turn_is_patient_for_the_rest_of_a_second(callers: Callers) -> None:
    began = callers.time.now
    callers.store.meanwhile = iter([lambda: callers.time.advance(0.9)])
    callers.store.faults = ["", *["conflict"] * 1000]
    callers.reserve(claim("p0"), claim("p1"))
    assert callers.told == {"p0": "done", "p1": "BusyError: berth's ledger was too busy for 1 s"}
    assert callers.time.now - began < 1.2


def test_who_came_later_goes_on_when_the_patience_of_the_first_is_over(callers: Callers) -> None:
    def later() -> None:
        callers.time.advance(0.9)
        callers.ledger.reserve(claim("p2"))

    callers.store.meanwhile = iter([lambda: None, lambda: callers.time.advance(0.2)])
    callers.store.faults = ["", "conflict"]
    first, second = (lambda uid=uid: callers.ledger.reserve(claim(uid)) for uid in ("p0", "p1"))
    callers.run(("p0", first), ("p1", second), ("p2", later))
    assert callers.told == {
        "p0": "done",
        "p1": "BusyError: berth's ledger was too busy for 1 s",
        "p2": "done",
    }
    assert set(held(ledger_on(callers.store))) == {"p0", "p2"}
