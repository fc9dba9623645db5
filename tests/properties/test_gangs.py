"""A gang is served whole or not at all: random traffics, whatever comes, goes or fails (promise 12)."""

from collections.abc import Callable
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.api.gang import gang_label
from berth.controller import gang, gang_roll
from berth.controller.gang import GangBinding
from berth.controller.gang_roll import roll_of
from berth.ledger import transitions
from berth.scheduling import fit
from tests.properties.gang_traffic import GangTraffic
from tests.support.selection import examples

STEPS, SEEDS = 60, 30


@pytest.mark.drawn
@settings(max_examples=examples(3, 30))
@given(st.integers(0, 2**32), st.booleans())
def test_gangs_are_served_whole_and_nobody_waits_for_ever(seed: int, hopeless: bool) -> None:
    traffic = GangTraffic(Random(seed), hopeless)
    traffic.go_on(STEPS)


def half_of_it_is_reserved() -> Any:
    rolled = GangBinding._rolled

    def half(*arguments: Any) -> Any:
        whole = rolled(*arguments)
        return whole._replace(needed=(whole.needed + 1) // 2)

    return mock.patch.object(GangBinding, "_rolled", half)


def seats_wait_for_ever() -> Any:
    return mock.patch.object(gang, "is_over", return_value=False)


def a_binding_that_fails_gives_up_the_seat() -> Any:
    def dropped(claim: Any, _: float, domains: Any) -> Any:
        return claim.holdings, transitions.without(claim.uid, domains)

    return mock.patch.object(transitions, "cancelled", dropped)


def filter_forgets_no_gang() -> Any:
    def refused(pod: Any, view: Any, *_: Any) -> Any:
        known = any(pod.metadata.uid in note.members for note in view.gangs.values())
        return ("seat", "no") if known and not view.keys_of(pod.metadata.uid) else None

    return mock.patch.object(fit, "gang_obstacle", refused)


def runs_of_one_name_are_one_gang() -> Any:
    return mock.patch("berth.api.gang._workload_of", return_value="")


def sizes_may_differ() -> Any:
    def all_agree(*arguments: Any) -> Any:
        return roll_of(*arguments)._replace(refusal="")

    return mock.patch.object(gang, "roll_of", all_agree)


def one_that_failed_is_waited_for() -> Any:
    return mock.patch.object(gang_roll, "has_run", return_value=False)


def nobody_looks_again() -> Any:
    def forgotten(_: Any, label: str, pods: Any, *__: Any) -> Any:
        return [pod for pod in pods if gang_label(pod) == label and pod.waiting]

    return mock.patch.object(gang, "revised", forgotten)


def seats_end_with_a_suspension() -> Any:
    return mock.patch.object(fit, "seated_on", return_value=set())


@pytest.mark.parametrize(
    ("bug", "said", "first"),
    [
        (half_of_it_is_reserved, "half of", 0),
        (seats_wait_for_ever, "a seat waits for", 0),
        (a_binding_that_fails_gives_up_the_seat, "and not for", 2),
        (filter_forgets_no_gang, "wait for ever", 0),
        (runs_of_one_name_are_one_gang, "half of|wait for ever|and not for", 2),
        (sizes_may_differ, "half of|wait for ever|and not for", 0),
        (one_that_failed_is_waited_for, "wait for ever", 2),
        (nobody_looks_again, "and sleeps|wait for ever", 12),
        (seats_end_with_a_suspension, "can't take its seat", 5),
    ],
)
@pytest.mark.long
def test_a_bug_of_gangs_is_found(bug: Callable[[], Any], said: str, first: int) -> None:
    """The traffics with the `first` seeds find it soon, others later."""
    with bug(), pytest.raises(AssertionError, match=said):
        _any_from(first, hopeless=bug is seats_wait_for_ever)


def _any_from(first: int, *, hopeless: bool) -> None:
    for seed in range(first, first + SEEDS):
        GangTraffic(Random(seed), hopeless).go_on(STEPS)
