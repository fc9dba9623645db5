"""In worlds of everything that clusters have, before a queue like kube-scheduler's: the promises hold at each
step, no unit idles beside a pod that fits, nobody is tried again and again, and in the end all are served."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties import wide_bugs as bugs
from tests.properties.wide_world import Kind, WideWorld
from tests.support.selection import IS_LONG, examples

STEPS, SEEDS = 40, 25
KINDS = st.builds(
    Kind,
    services=st.booleans(),
    gangs=st.booleans(),
    hopeless=st.booleans(),
    trouble=st.booleans(),
    skewed=st.booleans(),
    bounds=st.booleans(),
    large=st.sampled_from([False, False, False, IS_LONG]),
)


@pytest.mark.drawn
@settings(max_examples=examples(3, 20), deadline=None)
@given(st.integers(0, 2**32), KINDS)
def test_in_wide_worlds_no_promise_is_broken_and_no_unit_idles_and_nobody_is_tried_in_vain(
    seed: int, kind: Kind
) -> None:
    WideWorld(Random(seed), kind).go_on(STEPS)


@pytest.mark.long
@pytest.mark.parametrize(
    ("bug", "said", "kind"), bugs.BUGS, ids=[f"{bug.__name__}" for bug, _, _ in bugs.BUGS]
)
def test_a_bug_of_the_line_or_of_waking_is_found(bug: Callable[[], Any], said: str, kind: Kind) -> None:
    with bug(), pytest.raises(AssertionError, match=said):
        _any_of(SEEDS, kind)


def _any_of(seeds: int, kind: Kind) -> None:
    for seed in range(seeds):
        WideWorld(Random(seed), kind).go_on(STEPS)
