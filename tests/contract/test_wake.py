"""Who is woken when room was made, in which order and how many; on the stand-in API server.
That kube-scheduler then tries them is shown by tests/e2e/test_wake.py."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from berth.errors import ClusterRefusedError
from berth.steps.wake import wake
from tests.support.ledgers import ledger_on
from tests.support.places import Place
from tests.support.stage import Stage, staged

pytestmark = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # it asks no store much


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Stage]:
    with staged(tmp_path, place) as found:
        yield found


def test_twice_the_room_and_eight_more_are_woken_by_priority_then_by_age(stage: Stage) -> None:
    names = [stage.add_pod(priority=number % 2).name for number in range(20)]
    assert _wake(stage, {"ip": 1}) == 10
    assert _woken(stage) == set(names[1::2])


def test_everyone_is_woken_if_asked_so(stage: Stage) -> None:
    for _ in range(20):
        stage.add_pod()
    assert _wake(stage, {"ip": 1}, everyone=True) == 20


def test_nobody_is_woken_without_room_or_for_another_pool(stage: Stage) -> None:
    stage.add_pod()
    assert _wake(stage, {}) == 0
    assert _wake(stage, {"licence": 3}) == 0
    for node in ("n1", "n2"):
        assert stage.bind(stage.add_pod(), node) == ""
    assert _wake(stage, {"ip": 1}) == 0  # it was taken again before anyone could be woken


def test_a_pod_that_can_not_use_the_room_is_left_alone(stage: Stage) -> None:
    stage.add_pod(units="2")  # more than any node has
    stage.add_pod(units="500m")
    stage.add_pod(gates=[{"name": "example.com/later"}])
    stage.add_pod(scheduler="default-scheduler")
    stage.add_pod(units="0")
    stage.add_pod(other="berth.dev/typo")
    usable = stage.add_pod()
    assert _wake(stage, {"ip": 1}) == 1
    assert _woken(stage) == {usable.name}


def test_a_pod_that_refuses_the_patch_does_not_keep_the_room_from_the_next(stage: Stage) -> None:
    first, second = stage.add_pod(), stage.add_pod()
    write = stage.cluster.set_condition

    def refused(pod: Any, *arguments: Any) -> Any:
        if pod.metadata.name == first.name:
            raise ClusterRefusedError("a webhook says no", 403)
        return write(pod, *arguments)

    with mock.patch.object(stage.cluster, "set_condition", refused):
        assert _wake(stage, {"ip": 1}) == 1
    assert _woken(stage) == {second.name}


def test_a_caller_that_has_no_time_left_wakes_no_more(stage: Stage) -> None:
    for _ in range(3):
        stage.add_pod()
    seconds = iter([1.0, 1.0, 0.0])
    assert _wake(stage, {"ip": 1}, left=lambda: next(seconds)) == 1


def test_each_wake_changes_the_pod_anew_even_while_the_clock_stands_still(stage: Stage) -> None:
    call = stage.add_pod()
    versions = set()
    for _ in range(3):
        assert _wake(stage, {"ip": 1}) == 1
        pod = stage.cluster.pod("default", call.name)
        assert pod is not None
        versions.add(pod.metadata.resource_version)
    assert len(versions) == 3


def _wake(stage: Stage, room: dict[str, int], **how: Any) -> int:
    ledger = ledger_on(stage.store, time=stage.time)
    return wake(ledger, stage.cluster, ["berth"], room, stage.time(), **how)


def _woken(stage: Stage) -> set[str]:
    items, _ = stage.cluster.snapshot("/api/v1/pods", {})
    return {
        item["metadata"]["name"]
        for item in items
        if any(found.get("reason") == "Woken" for found in item["status"].get("conditions", []))
    }
