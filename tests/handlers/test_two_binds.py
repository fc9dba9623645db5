"""Two binds of one pod to two nodes, taking turns at every pair of steps, and a rival for the unit.
The threads take turns as the test says; nothing is left to chance."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.controller.settle import BIND_SECONDS
from berth.http import extender_v1
from tests.support.builders.places import Place
from tests.support.builders.stage import Stage, staged
from tests.support.selection import IS_LONG

# What is tried here is the verb's order, not the store's; on every store: tests/properties.
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)]

BEFORE_BINDING = 9  # steps of a bind until it is about to POST: each call it makes is two, before and after
UNTIL_IT_TRIES_AGAIN = 11  # from a POST that met 409 to the next one, with a renewed reservation
MOST_STEPS = 42
SECONDS = 120  # only to end a test that hangs


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Stage]:
    with staged(tmp_path, place) as found:
        yield found


class Turns(threading.Thread):
    """One bind in a thread that goes only as many steps as it is given."""

    def __init__(self, stage: Stage, call: extender_v1.BindingCall, node: str) -> None:
        super().__init__(daemon=True)
        self._stage, self._call, self._node = stage, call, node
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._steps_left = 0
        self.over = False
        self.answer = ""
        self.start()

    def run(self) -> None:
        self._go.acquire()
        self.answer = self._stage.bind(self._call, self._node, self._step)
        self.over = True
        self._stopped.release()

    def go(self, steps: int) -> None:
        """Let it make so many steps, or come to its end."""
        if not self.over:
            self._steps_left = steps
            self._go.release()
            assert self._stopped.acquire(timeout=SECONDS)

    def finish(self) -> None:
        self.go(10_000)
        self.join(SECONDS)

    def _step(self) -> None:
        self._steps_left -= 1
        if self._steps_left <= 0:
            self._stopped.release()
            self._go.acquire()


@pytest.mark.drawn
@pytest.mark.parametrize("second_goes_on", range(1, 14))
def test_two_binds_in_any_order_and_a_rival_share_no_unit(
    stage: Stage, place: Place, second_goes_on: int
) -> None:
    # The order is the verb's, not the store's: every one on SQLite in the long run, else every third.
    first_to_go, every = (1, 1) if place.name == "sqlite" and IS_LONG else (1 + second_goes_on % 3, 3)
    for second_goes in range(first_to_go, MOST_STEPS, every):
        stage.clear()
        call, rival = stage.add_pod(), stage.add_pod()
        first, second = Turns(stage, call, "n1"), Turns(stage, call, "n2")
        first.go(BEFORE_BINDING)
        second.go(second_goes)
        tried_all = second.over
        first.go(UNTIL_IT_TRIES_AGAIN)
        second.go(second_goes_on)
        stage.bind(rival)
        first.finish()
        second.finish()
        what = f"second {second_goes} and {second_goes_on}: {first.answer!r}, {second.answer!r}"
        assert len(set(stage.bound().values())) == len(stage.bound()), f"{what}: {stage.bound()}"
        stage.time.now += BIND_SECONDS + 1
        stage.reconcile()
        assert stage.claims() == {name: (node, "bound") for name, node in stage.bound().items()}, what
        if tried_all:
            return
    pytest.fail("a bind makes more steps than were tried")


@pytest.mark.drawn
@pytest.mark.parametrize("node", ["n1", "n2"])
@pytest.mark.parametrize("first_goes", range(1, BEFORE_BINDING + 1))
def test_two_binds_of_a_pod_that_others_write_to_bind_it(stage: Stage, first_goes: int, node: str) -> None:
    """A write meanwhile has the API server refuse both Bindings; one of the calls goes on."""
    every = 1 if IS_LONG else 3
    for second_goes in range(BEFORE_BINDING - 2, BEFORE_BINDING + 1, every):
        for goes_on in range(1 + first_goes % every, UNTIL_IT_TRIES_AGAIN, every):
            stage.clear()
            call = stage.add_pod()
            first, second = Turns(stage, call, "n1"), Turns(stage, call, node)
            first.go(first_goes)
            second.go(second_goes)
            first.go(BEFORE_BINDING - first_goes)
            stage.touch(call)
            first.go(goes_on)
            second.go(goes_on)
            first.finish()
            second.finish()
            answers = {"n1": first.answer, node: second.answer}
            what = f"{first_goes}, {second_goes}, {goes_on}: {first.answer!r}, {second.answer!r}"
            (on,) = stage.bound().values() or [""]
            assert answers.get(on) == "", what
            assert node != "n1" or first.answer == "", what
            assert stage.claims() == {call.name: (on, "bound")}, what
