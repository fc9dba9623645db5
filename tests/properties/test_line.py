"""Nobody starves in the line: random traffics, whatever comes, goes, is lost or can't run (promise 11)."""

from collections.abc import Callable
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.controller.line_hold import LineHolds
from berth.ledger.last_reconcile import LineNote
from berth.ledger.ledger import Ledger
from berth.ledger.model import Domain
from tests.properties.traffic import Kind, Traffic

STEPS = 60
KINDS = st.builds(Kind, st.booleans(), st.booleans(), st.booleans())


@pytest.mark.drawn
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
    return mock.patch.object(LineHolds, "_judged", return_value=(LineNote(), True))


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
def test_a_bug_of_the_line_is_found(bug: Callable[[], Any], said: str) -> None:
    kind = Kind(priorities=False, hopeless=bug is a_turn_never_ends)
    with bug(), pytest.raises(AssertionError, match=said):
        _any_of_30(kind)


def _any_of_30(kind: Kind) -> None:
    for seed in range(30):
        Traffic(Random(seed), kind).go_on(STEPS)
