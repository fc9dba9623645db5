"""Pods get no licence that others have: random use of a licence server that is read now and then."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from berth.controller import licence_reading
from berth.errors import BadInputError
from berth.ledger import transitions
from berth.ledger.model import Domain, Reading
from berth.licences import checkouts, formats
from berth.licences.checkouts import Feature, Use
from tests.properties.licence_world import World

STEPS = 80


@pytest.mark.drawn
@given(st.integers(0, 2**32), st.booleans())
def test_claims_and_outside_use_are_no_more_than_there_are_licences(seed: int, issued_counts: bool) -> None:
    """But for what others took since the reading by which the last claim was given."""
    World(Random(seed), issued_counts).go_on(STEPS)


def test_pods_are_given_licences_and_refused_some_in_these_worlds() -> None:
    worlds = [World(Random(seed)) for seed in range(20)]
    for world in worlds:
        world.go_on(STEPS)
    assert sum(world.given for world in worlds) > 40
    assert sum(world.refused for world in worlds) > 40


def a_checkout_counts_beside_its_claim() -> Any:
    real = checkouts.use_of

    def use_of(feature: Feature, _: Mapping[str, Sequence[int]], match: Any) -> Use:
        return real(feature, {}, match)

    return mock.patch.object(licence_reading, "use_of", use_of)


def outside_use_is_a_difference() -> Any:
    def use_of(feature: Feature, claimed: Mapping[str, Sequence[int]], _: Any) -> Use:
        return Use(0, 0, max(0, feature.in_use - sum(map(sum, claimed.values()))))

    return mock.patch.object(licence_reading, "use_of", use_of)


def what_pods_have_beyond_their_claims_is_forgotten() -> Any:
    return mock.patch.object(checkouts.Use, "outside", property(lambda use: use.others))


def an_old_reading_is_as_good() -> Any:
    return mock.patch("berth.ledger.ledger.why_held", return_value="")


def what_can_not_be_read_is_no_use() -> Any:
    real = formats.read

    def read(body: bytes, form: str, name: str) -> Feature:
        try:
            return real(body, form, name)
        except BadInputError:
            return Feature(name, issued=8)

    return mock.patch.object(licence_reading, "read", read)


def the_time_of_a_reading_is_not_looked_at() -> Any:
    real = transitions.with_reading

    def with_reading(claim: Any, key: str, reading: Reading, now: float, domains: Any) -> Any:
        there: dict[str, Domain] = {**domains}
        there[key] = replace(there[key], reading=None)
        return real(claim, key, reading, now, there)

    return mock.patch.object(transitions, "with_reading", with_reading)


def what_the_server_lacks_is_given() -> Any:
    return mock.patch.object(licence_reading, "missing_of", return_value=0)


@pytest.mark.parametrize(
    ("bug", "said"),
    [
        (a_checkout_counts_beside_its_claim, "are free by the ledger"),
        (outside_use_is_a_difference, "are free by the ledger"),
        (what_pods_have_beyond_their_claims_is_forgotten, "are free by the ledger"),
        (an_old_reading_is_as_good, "a claim was given"),
        (what_can_not_be_read_is_no_use, "a claim was given|more in use than there is"),
        (the_time_of_a_reading_is_not_looked_at, "an older text undid a later one"),
        (what_the_server_lacks_is_given, "are free by the ledger"),
    ],
)
def test_a_bug_of_reading_licences_is_found(bug: Callable[[], Any], said: str) -> None:
    with bug(), pytest.raises(AssertionError, match=said):
        _any_of(30)


def test_the_statement_itself_finds_units_that_are_given_twice() -> None:
    """Without the look right after a reading."""
    for bug in (outside_use_is_a_difference, what_pods_have_beyond_their_claims_is_forgotten):
        said, unseen = "more in use than there is", mock.patch.object(World, "check_exact")
        with bug(), unseen, pytest.raises(AssertionError, match=said):
            _any_of(200)


def _any_of(worlds: int) -> None:
    for seed in range(worlds):
        World(Random(seed)).go_on(STEPS)
