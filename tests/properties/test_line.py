"""Nobody starves in the line: random traffics, whatever comes, goes, is lost or can't run (promise 11)."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from berth.api import run_time
from berth.api.pool import Pool
from berth.controller import adopt
from berth.controller.idle_line import IdleLine
from berth.controller.line_hold import LineHolds
from berth.kube.types import Pod
from berth.ledger import allocation
from berth.ledger.last_reconcile import LineTurn
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Domain
from berth.ledger.view import View
from berth.scheduling import demand
from tests.properties import traffic
from tests.properties.traffic import Kind, Traffic
from tests.support.selection import examples

STEPS, LONG, HOUR, SEEDS = 60, 120, 360, 30
KINDS = st.builds(Kind, *[st.booleans()] * 6)


@pytest.mark.drawn
@settings(max_examples=examples(10, 50))
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_no_units_idle_for_longer_than_their_pool_says(seed: int, priorities: bool, hopeless: bool) -> None:
    """Whatever is missing: some pods never end, and some are deleted while they have their turn."""
    Traffic(Random(seed), Kind(priorities, hopeless, services=True)).go_on(STEPS)


@pytest.mark.drawn
@settings(max_examples=examples(3, 15))
@given(st.integers(0, 2**32), st.booleans())
@pytest.mark.long
def test_units_idle_for_half_of_an_hour_at_most(seed: int, priorities: bool) -> None:
    """Pods that lack CPU have their turns all the time; after each the line rests for as long."""
    Traffic(Random(seed), Kind(priorities, hopeless=True, services=True, steady=True)).go_on(HOUR)


@pytest.mark.drawn
@settings(max_examples=examples(10, 50))
@given(st.integers(0, 2**32), KINDS)
def test_the_first_in_line_is_served_and_nothing_is_held_for_long_in_vain(seed: int, kind: Kind) -> None:
    traffic = Traffic(Random(seed), kind)
    traffic.go_on(STEPS)
    assert traffic.bound


def it_outlives_its_pod() -> Any:
    return mock.patch.object(LineHolds, "_drop_others")


def bind_knows_nothing_of_it() -> Any:
    return mock.patch.object(Domain, "_held_in_line", return_value=0)


def nothing_is_ever_held() -> Any:
    return mock.patch.object(LineHolds, "_placed", return_value=False)


def a_turn_never_ends() -> Any:
    return mock.patch.object(LineHolds, "_over", return_value="")


def a_bind_leaves_it_behind() -> Any:
    """Where the pod was bound elsewhere."""
    return mock.patch.object(Ledger, "drop_line_hold", return_value=())


@pytest.mark.parametrize(
    ("bug", "said"),
    [
        (it_outlives_its_pod, "held for pods that are gone"),
        (bind_knows_nothing_of_it, "took what is held for others"),
        (nothing_is_ever_held, "is first in line for"),
        (a_turn_never_ends, "is held for too long"),
        (a_bind_leaves_it_behind, "held for pods that are gone"),
    ],
)
@pytest.mark.long
def test_a_bug_of_the_line_is_found(bug: Callable[[], Any], said: str) -> None:
    kind = Kind(priorities=False, hopeless=bug is a_turn_never_ends)
    with bug(), pytest.raises(AssertionError, match=said):
        _any_of(SEEDS, kind)


def only_a_whole_turn_ends() -> Any:
    return mock.patch.object(IdleLine, "worn", return_value="")


def nobody_remembers_what_was_idle() -> Any:
    def turns(self: IdleLine, view: View) -> Mapping[str, LineTurn]:
        return {pool: replace(turn, idle_seconds=0.0) for pool, turn in known(self, view).items()}

    known = IdleLine.turns
    return mock.patch.object(IdleLine, "turns", turns)


def the_line_does_not_rest() -> Any:
    def end_in_vain(self: IdleLine, pools: Iterable[str]) -> float:
        return max((self._seconds.pop(pool, 0.0) for pool in pools), default=0.0)

    return mock.patch.object(IdleLine, "end_in_vain", end_in_vain)


@pytest.mark.parametrize(
    ("bug", "steps"),
    [
        (only_a_whole_turn_ends, LONG),
        (nobody_remembers_what_was_idle, LONG),
        (the_line_does_not_rest, HOUR),
    ],
)
@pytest.mark.long
def test_a_bug_by_which_units_idle_is_found(bug: Callable[[], Any], steps: int) -> None:
    kind = Kind(priorities=True, hopeless=True, services=True, steady=steps == HOUR)
    with bug(), pytest.raises(AssertionError, match="are idle for"):
        _any_of(SEEDS, kind, steps)


def it_is_lent_though_nobody_knows_until_when() -> Any:
    known = Domain.whole_by

    def whole_by(self: Domain, pool: str, domain: str, now: float) -> float | None:
        by = known(self, pool, domain, now)
        return now + 3600 if by is None else by

    return mock.patch.object(Domain, "whole_by", whole_by)


def it_is_lent_though_all_is_there() -> Any:
    known = Domain.whole_by

    def whole_by(self: Domain, pool: str, domain: str, now: float) -> float | None:
        by = known(self, pool, domain, now)
        return now + 60 if by == now else by

    return mock.patch.object(Domain, "whole_by", whole_by)


def the_time_to_end_is_forgotten() -> Any:
    return mock.patch.object(run_time, "grace_of", return_value=0)


def rests_are_forgotten() -> Any:
    return mock.patch.object(Pool, "returns_after", 0)


def who_borrows_may_come_back_later() -> Any:
    """A repeated bind is not looked at anew."""
    return mock.patch.object(allocation, "renewed", lambda _, wanted, *__: wanted.ends)


def a_lost_ledger_loses_the_ends() -> Any:
    def claim(*args: Any) -> Claim | None:
        held = adopt.held_by(*args)
        return None if held is None else replace(held, ends=0.0)

    return mock.patch.object(traffic, "held_by", claim)


def whoever_says_nothing_is_done_at_once() -> Any:
    def ends_at(pod: Pod, start: float) -> float:
        return run_time.ends_at(pod, start) or start + 1

    return mock.patch.object(demand, "ends_at", ends_at)


TOLD, LATE, TOOK = "is told to be there", "would bring back too late", "took what is held for others"


@pytest.mark.parametrize(
    ("bug", "said"),
    [
        (it_is_lent_though_nobody_knows_until_when, TOOK),
        (it_is_lent_though_all_is_there, TOOK),
        (the_time_to_end_is_forgotten, LATE),
        (rests_are_forgotten, TOLD),
        (who_borrows_may_come_back_later, LATE),
        (a_lost_ledger_loses_the_ends, TOLD),
        (whoever_says_nothing_is_done_at_once, LATE),
    ],
)
@pytest.mark.long
def test_a_bug_of_what_is_lent_is_found(bug: Callable[[], Any], said: str) -> None:
    """Those that are not told wrongly are found by what the pods then do."""
    kind = Kind(priorities=False, hopeless=False, named=True, says=True)
    looked = mock.patch.object(Traffic, "look_at_the_promises") if said != TOLD else nullcontext()
    with bug(), looked, pytest.raises(AssertionError, match=said):
        _any_of(2 * SEEDS, kind)


@pytest.mark.long
def test_much_is_lent_in_these_traffics() -> None:
    """Else they would show nothing."""
    traffics = [Traffic(Random(seed), Kind(False, False, says=True)) for seed in range(10)]
    for one in traffics:
        one.go_on(STEPS)
    assert sum(one.lent for one in traffics) > 5


def _any_of(seeds: int, kind: Kind, steps: int = STEPS) -> None:
    for seed in range(seeds):
        Traffic(Random(seed), kind).go_on(steps)
