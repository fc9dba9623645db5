"""A rebuild that takes longer than its caller waits ends in time and goes on in the next tick, where it was.
Knative and `berth up` wait for 600 s: tests/e2e/test_manifests.py."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.errors import UnfinishedError
from berth.handlers.reconcile import Reconcile
from berth.kube.types import Pod
from tests.support.builders.places import Place
from tests.support.builders.stage import Stage, staged

WAITS = 600.0
PODS = 20
EACH = 40.0  # seconds that a write to a pod takes


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Stage]:
    with staged(tmp_path, place) as found:
        yield found


class Slow:
    """The stage's cluster, where each fence takes long; whose pods were fenced, in turn."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self.fenced = stage, list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage.cluster, name)

    def set_condition(self, pod: Pod, condition: Any, *more: Any) -> Pod | None:
        if condition["reason"] == "Fenced":
            self._stage.time.now += EACH
            self.fenced.append(pod.metadata.name)
        return self._stage.cluster.set_condition(pod, condition, *more)


def reconciler(stage: Stage, cluster: Any) -> Reconcile:
    """A function's, which outlives its ticks."""
    ledger = stage._ledger(stage.store, while_closed=True)
    return Reconcile(ledger, cluster, stage.settings, clock=stage.time, monotonic=stage.time)


def ticks(stage: Stage, verb: Reconcile) -> list[float]:
    """Reconcile, a tick a minute, until the ledger is rebuilt; how long each took."""
    took = []
    for _ in range(PODS):
        began = stage.time.now
        try:
            done = verb.run().rebuilt
        except UnfinishedError:
            done = False
        took.append(stage.time.now - began)
        stage.time.now += 60.0
        if done:
            return took
    raise AssertionError(f"it was never rebuilt: {took}")


def interrupted(stage: Stage) -> tuple[Slow, Reconcile]:
    """A lost ledger's rebuild that has run out of time once, and what it has fenced."""
    stage.lose_ledger()
    slow = Slow(stage)
    verb = reconciler(stage, slow)
    with pytest.raises(UnfinishedError, match="the next reconcile goes on"):
        verb.run()
    return slow, verb


def test_a_rebuild_that_takes_too_long_ends_in_time_and_goes_on_where_it_was(stage: Stage) -> None:
    running = stage.add_pod()
    assert stage.bind(running) == ""
    waiting = [stage.add_pod().name for _ in range(PODS)]
    stage.lose_ledger()
    slow = Slow(stage)
    took = ticks(stage, reconciler(stage, slow))
    assert max(took) < WAITS
    assert sorted(slow.fenced) == sorted(waiting)  # each once
    assert stage.claims() == {running.name: ("n1", "bound")}
    assert stage.bind(stage.add_pod(), "n2") == ""


def test_a_ledger_that_is_lost_again_meanwhile_is_rebuilt_anew(stage: Stage) -> None:
    """What was fenced before proves nothing then: the ledger may have been open in between."""
    waiting = [stage.add_pod().name for _ in range(PODS)]
    slow, verb = interrupted(stage)
    before = len(slow.fenced)
    assert 0 < before < PODS
    stage.lose_ledger()
    ticks(stage, verb)
    assert sorted(slow.fenced[before:]) == sorted(waiting)


def test_a_rebuild_that_another_reconcile_took_over_is_begun_anew(stage: Stage) -> None:
    waiting = [stage.add_pod().name for _ in range(PODS)]
    slow, verb = interrupted(stage)
    before = len(slow.fenced)
    assert stage.reconcile().rebuilt
    assert stage.bind(stage.add_pod()) == ""
    stage.lose_ledger()
    ticks(stage, verb)
    assert {*waiting} <= {*slow.fenced[before:]}
