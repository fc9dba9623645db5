"""What the functions tell of pods by events, and what they keep to themselves.

What becomes of the events: tests/unit/kube/test_event_recorder.py, and on a real API server
tests/e2e/test_pod_events.py.
"""

import io
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from berth.cli import main, maintenance
from berth.controller.notices import Teller
from berth.controller.settle import BIND_SECONDS
from berth.errors import ClusterRefusedError, ClusterUnavailableError
from berth.kube.event_queue import BURST, RATE, PodEvent
from berth.kube.event_recorder import EventRecorder
from berth.ledger.ledger import Ledger
from berth.ledger.transitions import MissingClaimError
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged

# What is tried here is what the verbs say, not the store.
pytestmark = pytest.mark.parametrize("place", ["sqlite"], indirect=True)

POOLS: dict[str, Any] = {
    "ip": {"units": {"n1": ["a", "b"], "n2": ["c"]}},
    "seat": {"scope": "Cluster", "capacity": {"domains": {"*": 9}}},
    "disk": {"capacity": {"perDomain": 4}, "releaseOn": "Deleted"},
}


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS) as staged:
        staged.events()
        yield staged


def test_bind_tells_what_it_gave_and_where(stage: PoolsStage) -> None:
    call = stage.pod("pod", ip=2, seat=1)
    assert stage.bind(call) == ""
    assert stage.told == [
        PodEvent("default", "pod", call.uid, "UnitsAllocated", "Binding", "Has 2 ip (a, b), 1 seat on n1")
    ]


def test_of_a_pod_that_asks_for_nothing_and_of_one_that_is_refused_nothing_is_told(stage: PoolsStage) -> None:
    assert stage.bind(stage.pod("plain")) == ""
    assert "free" in stage.bind(stage.pod("large", ip=3))
    assert stage.events() == []


def test_bind_tells_what_it_gave_where_the_bindings_answer_was_lost(stage: PoolsStage) -> None:
    call, land = stage.pod("pod", ip=1), stage.cluster.bind

    def bind(*arguments: Any) -> None:
        land(*arguments)
        raise ClusterUnavailableError("no answer")

    with mock.patch.object(stage.cluster, "bind", bind):
        assert stage.bind(call) == ""
    assert stage.events() == [("pod", "UnitsAllocated", "Has 1 ip (a) on n1")]


def test_bind_tells_that_the_claim_of_a_pod_was_lost_when_the_pod_was_bound(stage: PoolsStage) -> None:
    with mock.patch.object(Ledger, "confirm", side_effect=MissingClaimError("it is gone")):
        assert stage.bind(stage.pod("pod", ip=1)) == ""
    ((pod, reason, note),) = stage.events()
    assert (pod, reason) == ("pod", "FailedClaim")
    assert "count again after the next reconcile" in note


def test_bind_tells_of_a_failure_that_comes_when_kube_scheduler_may_wait_no_longer(stage: PoolsStage) -> None:
    def late(*_: Any) -> None:
        stage.time.advance(BIND_SECONDS)
        raise ClusterUnavailableError("the API server did not answer")

    with mock.patch.object(stage.cluster, "bind", late):
        assert "was not bound to n1" in stage.bind(stage.pod("pod", ip=1))
    ((pod, reason, note),) = stage.events()
    assert (pod, reason) == ("pod", "FailedClaim")
    assert note.startswith("was not bound to n1 in time: ")


def test_release_tells_what_a_finished_pod_gave_back_and_nothing_of_one_that_is_gone(
    stage: PoolsStage,
) -> None:
    done, gone = stage.bound_pod("done", ip=1, disk=1), stage.bound_pod("gone", ip=1)
    stage.events()
    stage.finished(done)
    assert stage.events() == [("done", "ClaimReleased", "Freed 1 ip (a): the pod has finished")]
    stage.finished(done)
    stage.gone(gone)
    stage.gone(done)
    assert stage.events() == []


def test_reconcile_tells_what_release_did_not_see(stage: PoolsStage) -> None:
    done, gone = stage.bound_pod("done", ip=1), stage.bound_pod("gone", ip=1)
    stage.events()
    stage.finish(done)
    stage.delete(gone)
    stage.reconcile()
    assert stage.events() == [("done", "ClaimReleased", "Freed 1 ip (a): the pod has finished")]


def test_reconcile_tells_of_a_pod_that_it_adopts_once(stage: PoolsStage) -> None:
    stage.pod("runs", node="n2", seat=2)
    stage.reconcile()
    note = "Runs on n2; what it uses counts as its own from now on: 2 seat"
    assert stage.events() == [("runs", "Adopted", note)]
    stage.reconcile()
    assert stage.events() == []


def test_inventory_tells_of_pods_that_a_new_pool_adopts(stage: PoolsStage) -> None:
    stage.pod("runs", node="n2", gpu=1)
    stage.pools(gpu={"capacity": {"perDomain": 1}})
    note = "Runs on n2; what it uses counts as its own from now on: 1 gpu"
    assert stage.events() == [("runs", "Adopted", note)]


def test_bind_tells_of_a_pod_that_somebody_else_has_bound(stage: PoolsStage) -> None:
    call = stage.pod("runs", node="n2", seat=1)
    assert stage.bind(call, "n2") == ""
    note = "Runs on n2; what it uses counts as its own from now on: 1 seat"
    assert stage.events() == [("runs", "Adopted", note)]
    assert stage.bind(call, "n2") == ""
    assert stage.events() == []


def test_of_a_running_pod_whose_poolclaim_there_is_not_that_is_told_too(stage: PoolsStage) -> None:
    stage.pod("runs", node="n1", claims="mine", seat=1)
    stage.reconcile()
    adopted, failed = stage.events()
    assert adopted[:2] == ("runs", "Adopted")
    why = "runs all the same: there is no PoolClaim mine in the pod's namespace"
    assert failed == ("runs", "FailedClaim", why)


def test_of_a_running_pod_whose_units_have_no_names_that_is_told_in_equal_words_each_time(
    stage: PoolsStage,
) -> None:
    stage.pod("runs", node="n2", ip=1)
    stage.reconcile()
    first = [event for event in stage.events() if event[1] == "FailedClaim"]
    ((pod, _, note),) = first
    assert pod == "runs"
    assert note.startswith("holds 1 of ip in n2, 0 of them by name")
    stage.reconcile()
    assert stage.events() == first


def test_an_operators_release_is_told_of_though_the_pod_is_gone(
    stage: PoolsStage, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = stage.bound_pod("pod", ip=1)
    stage.delete(call)
    recorded: list[PodEvent] = []
    monkeypatch.setattr(maintenance, "connect", lambda: stage.cluster)
    monkeypatch.setattr(EventRecorder, "record", lambda _, event: recorded.append(event))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setenv("BERTH_STORE", place.url)
    assert main(["release", call.uid]) == 0
    assert [(event.pod, event.reason, event.note) for event in recorded] == [
        ("pod", "ClaimReleased", "Freed 1 ip (a): by hand (berth release)")
    ]


class Sender:
    """Takes events: never answers until it is told to, or refuses each."""

    def __init__(self, *, refuses: bool) -> None:
        self.refuses, self.asked, self.answer = refuses, threading.Event(), threading.Event()

    def create_event(self, _: str, __: Mapping[str, Any]) -> None:
        self.asked.set()
        if self.refuses:
            raise ClusterRefusedError("forbidden", 403)
        assert self.answer.wait(60)

    def repeat_event(self, *_: Any) -> None:
        raise AssertionError("no event of these came twice")


@pytest.mark.parametrize("refuses", [True, False], ids=["refusing", "hanging"])
def test_no_bind_waits_for_an_event_or_fails_by_it(stage: PoolsStage, refuses: bool) -> None:
    sender = Sender(refuses=refuses)
    recorder = EventRecorder(sender, "bind")
    stage.teller = Teller(recorder.record)
    for number in range(9):
        assert stage.bind(stage.pod(f"pod-{number}", seat=1)) == ""
    assert sender.asked.wait(60)
    assert not sender.answer.is_set()
    sender.answer.set()
    recorder.close()


@pytest.mark.long
def test_a_thousand_binds_send_no_more_events_than_the_stated_rate(stage: PoolsStage) -> None:
    stage.pools(seat={"scope": "Cluster", "capacity": {"domains": {"*": 1000}}})
    recorder = EventRecorder(stage.cluster.aside(), "bind")
    stage.teller = Teller(recorder.record)
    calls = [stage.pod(f"pod-{number}", seat=1) for number in range(1000)]
    began = time.monotonic()
    assert {stage.bind(call) for call in calls} == {""}
    recorder.close(0)
    most = BURST + RATE * (time.monotonic() - began) + 1
    assert BURST <= len(stage.api.memory.events) <= most
