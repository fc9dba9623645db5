"""Threads that want the same things: in their order, and together where they had to wait.
What shares one read is in ledger/test_follower.py."""

import gc
import threading
import weakref
from collections.abc import Iterator, Sequence

import pytest

from berth.coalesce import Grouped
from tests.support.cluster import wait

SECONDS = 30


class Work:
    """Work that waits to be let go, once for each group, and keeps what the groups were."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.began, self.let_go = threading.Semaphore(0), threading.Semaphore(0)
        self.error: Exception | None = None

    def __call__(self, items: Sequence[str]) -> None:
        self.groups.append([*items])
        self.began.release()
        assert self.let_go.acquire(timeout=SECONDS)
        if self.error is not None:
            raise self.error


class Stage:
    """Callers of one Grouped, each in a thread of its own."""

    def __init__(self, most: int = 10) -> None:
        self.work = Work()
        self.grouped = Grouped(self.work, most)
        self.threads: list[threading.Thread] = []
        self.told: dict[str, str] = {}
        self._late = 0

    def begins(self, item: str, wants: str, beside: str = "") -> None:
        """A caller whose item is begun at once."""
        self._call(item, wants, beside)
        assert self.work.began.acquire(timeout=SECONDS)

    def waits(self, item: str, wants: str, beside: str = "") -> None:
        """A caller that has to wait."""
        self._late += 1
        self._call(item, wants, beside)
        wait(lambda: len(self.grouped._waiting) == self._late, SECONDS, f"that {item} waits")

    def end(self) -> None:
        self.work.let_go.release(100)
        for thread in self.threads:
            thread.join(SECONDS)
            assert not thread.is_alive()

    def comes_in_vain(self, item: str, wants: str) -> None:
        """A caller that waits for no more than a moment."""
        self._call(item, wants, "", 0.01)
        self.threads[-1].join(SECONDS)

    def _call(self, item: str, wants: str, beside: str, seconds: float = SECONDS) -> None:
        def call() -> None:
            try:
                self.grouped.do(item, seconds, {*wants}, {*beside})
            except (ValueError, TimeoutError) as error:
                self.told[item] = str(error) or "too late"
            else:
                self.told[item] = "done"

        self.threads.append(threading.Thread(target=call, daemon=True))
        self.threads[-1].start()


@pytest.fixture
def stage() -> Iterator[Stage]:
    found = Stage()
    yield found
    found.end()


def test_who_wants_the_same_waits_and_all_who_wait_are_done_together_in_their_order(stage: Stage) -> None:
    stage.begins("first", "a")
    for item in ("second", "third", "fourth"):
        stage.waits(item, "a")
    stage.end()
    assert stage.work.groups == [["first"], ["second", "third", "fourth"]]
    assert set(stage.told.values()) == {"done"}


def test_who_wants_something_else_or_nothing_waits_for_nobody(stage: Stage) -> None:
    stage.begins("first", "a", "z")
    stage.begins("second", "b", "z")
    stage.begins("third", "")
    stage.begins("fourth", "")
    assert stage.work.groups == [["first"], ["second"], ["third"], ["fourth"]]


def test_those_who_wait_for_different_things_are_done_apart(stage: Stage) -> None:
    stage.begins("first", "ab")
    for item, wants in (("second", "a"), ("third", "b"), ("fourth", "a")):
        stage.waits(item, wants)
    stage.end()
    assert stage.work.groups[0] == ["first"]
    assert sorted(stage.work.groups[1:]) == [["second", "fourth"], ["third"]]


def test_nobody_is_passed_by_for_ever_by_those_who_want_less(stage: Stage) -> None:
    stage.begins("first", "a")
    stage.waits("second", "ab")
    stage.waits("third", "b")
    stage.end()
    assert stage.work.groups == [["first"], ["second", "third"]]


@pytest.mark.parametrize("beside", ["", "yz"])
def test_a_group_has_no_more_things_than_it_may(beside: str) -> None:
    stage = Stage(most=3)
    stage.begins("first", "a", beside)
    for item, wants in (("second", "ab"), ("third", "acdef"), ("fourth", "a")):
        stage.waits(item, wants, beside)
    stage.end()
    assert stage.work.groups == [["first"], ["second"], ["third"], ["fourth"]]


def test_an_error_is_told_to_its_group_and_to_nobody_else(stage: Stage) -> None:
    stage.begins("first", "a")
    stage.waits("second", "a")
    stage.waits("third", "a")
    stage.work.let_go.release()
    assert stage.work.began.acquire(timeout=SECONDS)
    stage.work.error = ValueError("no")
    stage.work.let_go.release()
    for thread in stage.threads:
        thread.join(SECONDS)
    assert stage.told == {"first": "done", "second": "no", "third": "no"}
    stage.work.error = None
    stage.begins("fourth", "a")
    stage.end()
    assert stage.told["fourth"] == "done"


def test_who_has_waited_long_enough_is_told_so_and_keeps_nobody_else_from_going_on(stage: Stage) -> None:
    stage.begins("first", "a")
    stage.comes_in_vain("second", "ab")
    assert stage.told == {"second": "too late"}
    stage.begins("third", "b")
    stage.waits("fourth", "a")
    stage.end()
    assert stage.work.groups == [["first"], ["third"], ["fourth"]]


def test_who_waits_behind_one_that_gives_up_goes_on(stage: Stage) -> None:
    stage.begins("first", "a")
    stage._call("second", "ab", "", 0.2)
    stage.begins("third", "b")
    stage.threads[1].join(SECONDS)
    assert stage.told == {"second": "too late"}
    stage.end()
    assert stage.work.groups == [["first"], ["third"]]


def test_what_was_done_is_gone_at_once() -> None:
    """A commit holds whole documents, and Python looks for circles only now and then."""

    class Item:
        pass

    item = Item()
    alive = weakref.ref(item)
    gc.disable()
    try:
        Grouped[Item](lambda _: None, 1).do(item, SECONDS, {"a"})
        del item
        assert alive() is None
    finally:
        gc.enable()
