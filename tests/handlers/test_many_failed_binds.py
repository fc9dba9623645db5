"""A pod whose attempts fail a hundred times and more: nothing is held meanwhile, and the next one binds it.
Which attempt it is, nobody counts; when kube-scheduler makes the next is its own affair."""

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from unittest import mock

import pytest

from berth.errors import ClusterRefusedError, ClusterUnavailableError
from tests.support.builders.places import Place
from tests.support.builders.stage import Stage, staged

pytestmark = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # it asks no store much

FAILURES = 120


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Stage]:
    with staged(tmp_path, place) as found:
        yield found


def test_a_pod_whose_binding_fails_a_hundred_times_and_more_holds_nothing_meanwhile_and_is_bound_in_the_end(
    stage: Stage,
) -> None:
    pod = stage.add_pod()
    # No API server says yes: it refuses, or is away, so that nobody knows what became of the Binding.
    ways = cycle([ClusterRefusedError("no bindings today", 422), ClusterUnavailableError("away")])
    with mock.patch.object(stage.cluster, "bind", side_effect=ways) as tried:
        for _ in range(FAILURES):
            said = stage.bind(pod)
            assert "was not bound to n1" in said
            assert stage.claims() == {}
    assert tried.call_count == FAILURES
    assert stage.bind(pod) == ""
    assert stage.claims() == {pod.name: ("n1", "bound")}
    assert stage.bound() == {pod.name: "n1"}


def test_a_pod_that_finds_no_unit_a_hundred_times_and_more_is_bound_once_there_is_one(stage: Stage) -> None:
    holder, waiter = stage.add_pod(), stage.add_pod()
    assert stage.bind(holder) == ""
    said = {stage.bind(waiter) for _ in range(FAILURES)}
    assert said == {"ip: 0 of 1 free, 1 asked"}
    assert stage.claims() == {holder.name: ("n1", "bound")}
    stage.delete_with_event(holder)
    assert stage.bind(waiter) == ""
    assert stage.claims() == {waiter.name: ("n1", "bound")}
