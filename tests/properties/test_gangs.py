"""A gang is served whole or not at all: random traffics, whatever comes, goes or fails (promise 12)."""

from collections.abc import Callable
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.controller import gang
from berth.controller.gang import GangBinding
from berth.ledger import transitions
from berth.scheduling import fit
from tests.properties.gang_traffic import GangTraffic

STEPS = 60


@pytest.mark.drawn
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


@pytest.mark.parametrize(
    ("bug", "said"),
    [
        (half_of_it_is_reserved, "half of"),
        (seats_wait_for_ever, "a seat waits for"),
        (a_binding_that_fails_gives_up_the_seat, "and not for"),
        (filter_forgets_no_gang, "wait for ever"),
    ],
)
def test_a_bug_of_gangs_is_found(bug: Callable[[], Any], said: str) -> None:
    with bug(), pytest.raises(AssertionError, match=said):
        _any_of_30(hopeless=bug is seats_wait_for_ever)


def _any_of_30(*, hopeless: bool) -> None:
    for seed in range(30):
        GangTraffic(Random(seed), hopeless).go_on(STEPS)
