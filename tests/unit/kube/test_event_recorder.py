"""Events about pods, sent from a thread of their own: no caller waits for them, and none fails by them."""

import itertools
import logging
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from berth.errors import ClusterRefusedError, ClusterUnavailableError
from berth.kube.event_queue import MOST_NORMAL, PodEvent
from berth.kube.event_recorder import EventRecorder
from tests.support.builders.ledgers import Time

SECONDS = 30.0  # that a test waits at most for what happens at once
AWAY = ClusterUnavailableError("the API server did not answer")


def event(pod: str = "a", *, note: str = "Has 1 ip on n1", warning: bool = False) -> PodEvent:
    return PodEvent("team", pod, f"uid-of-{pod}", "UnitsAllocated", "Binding", note, warning)


class Sender:
    """Takes events, or fails as it is told; `hold` keeps it from answering."""

    def __init__(self) -> None:
        self.created = queue.SimpleQueue[dict[str, Any]]()
        self.repeated = queue.SimpleQueue[tuple[str, str, Mapping[str, Any]]]()
        self.errors = list[Exception]()
        self.go_on = threading.Event()
        self.go_on.set()
        self.entered = threading.Event()

    def create_event(self, namespace: str, document: Mapping[str, Any]) -> None:
        assert document["metadata"]["namespace"] == namespace
        self._answer()
        self.created.put(dict(document))

    def repeat_event(self, namespace: str, name: str, series: Mapping[str, Any]) -> None:
        self._answer()
        self.repeated.put((namespace, name, series))

    def _answer(self) -> None:
        self.entered.set()
        assert self.go_on.wait(SECONDS)
        if self.errors:
            raise self.errors.pop(0)


class Stage:
    """A recorder, what it sends to, and what became of its events."""

    def __init__(self) -> None:
        self.sender, self.time = Sender(), Time()
        self.outcomes = queue.SimpleQueue[tuple[str, str]]()
        self.recorder = EventRecorder(
            self.sender, "bind", lambda *told: self.outcomes.put(told), self.time, self.time
        )

    def outcome(self) -> str:
        reason, outcome = self.outcomes.get(timeout=SECONDS)
        assert reason == "UnitsAllocated"
        return outcome


@contextmanager
def staged() -> Iterator[Stage]:
    stage = Stage()
    try:
        yield stage
    finally:
        stage.sender.go_on.set()
        stage.recorder.close(SECONDS)


def test_an_event_is_made_as_the_api_has_it() -> None:
    with staged() as stage:
        stage.recorder.record(event(warning=True))
        made = stage.sender.created.get(timeout=SECONDS)
    assert made.pop("reportingInstance")
    at = made["metadata"].pop("name").removeprefix("a.")
    assert int(at, 16) == int(stage.time() * 1e9)
    assert made == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "team"},
        "eventTime": made["eventTime"],
        "reportingController": "berth.dev/bind",
        "action": "Binding",
        "reason": "UnitsAllocated",
        "regarding": {
            "kind": "Pod",
            "apiVersion": "v1",
            "namespace": "team",
            "name": "a",
            "uid": "uid-of-a",
        },
        "note": "Has 1 ip on n1",
        "type": "Warning",
    }
    assert made["eventTime"].endswith("Z")


def test_a_name_and_a_note_are_as_long_as_the_api_takes_them() -> None:
    with staged() as stage:
        stage.recorder.record(event("p" * 253, note="é" * 2000))
        made = stage.sender.created.get(timeout=SECONDS)
    assert len(made["metadata"]["name"]) == 253
    assert len(made["note"].encode()) in (1023, 1024)
    assert made["note"].endswith("é…")


def test_repeats_are_written_into_the_event_that_is_there() -> None:
    with staged() as stage:
        stage.recorder.record(event())
        name = stage.sender.created.get(timeout=SECONDS)["metadata"]["name"]
        assert stage.outcome() == "sent"
        for _ in range(2):
            stage.recorder.record(event())
            assert stage.outcome() == "aggregated"
        stage.recorder.close(SECONDS)
        namespace, repeated, series = stage.sender.repeated.get(timeout=SECONDS)
        assert (namespace, repeated, series["count"]) == ("team", name, 3)
        assert stage.outcome() == "sent"


def test_where_the_event_is_there_no_more_another_one_tells_how_often_it_came() -> None:
    with staged() as stage:
        stage.recorder.record(event())
        stage.sender.created.get(timeout=SECONDS)
        assert stage.outcome() == "sent"
        stage.time.advance(1)
        stage.recorder.record(event())
        stage.sender.errors.append(ClusterRefusedError("not found", 404))
        stage.recorder.close(SECONDS)
        assert stage.sender.created.get(timeout=SECONDS)["series"]["count"] == 2


def test_a_caller_does_not_wait_for_an_api_server_that_hangs_and_what_is_too_much_is_dropped() -> None:
    with staged() as stage:
        stage.sender.go_on.clear()
        stage.recorder.record(event())
        assert stage.sender.entered.wait(SECONDS)  # it is being sent, and the answer does not come
        for number in range(MOST_NORMAL + 1):
            stage.recorder.record(event(str(number)))
        assert stage.outcome() == "dropped"
        stage.recorder.close(0)
        assert [stage.outcome() for _ in range(MOST_NORMAL)] == ["dropped"] * MOST_NORMAL


def test_an_error_is_in_the_log_once_a_minute_and_what_is_sent_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with staged() as stage, caplog.at_level(logging.WARNING, "berth.pod-events"):
        refused = ClusterRefusedError("the API server refused it (403): forbidden", 403)
        for number in range(3):
            stage.sender.errors.append(refused)
            stage.recorder.record(event(str(number)))
            assert stage.outcome() == "failed"
            stage.time.advance(25)
        stage.sender.errors.append(refused)
        stage.recorder.record(event("last"))
        assert stage.outcome() == "failed"
        stage.time.advance(25)
        stage.recorder.record(event("good"))
        assert stage.outcome() == "sent"
        stage.recorder.close(SECONDS)
    assert [record.getMessage() for record in caplog.records] == [
        "1 events about pods were not sent: the API server refused it (403): forbidden",
        "3 events about pods were not sent: the API server refused it (403): forbidden",
    ]


def test_a_retry_whose_first_try_was_carried_out_is_no_failure() -> None:
    seconds = itertools.count(1.0)  # a look at the clock takes one, so that each pause is over at the next
    sender, outcomes = Sender(), queue.SimpleQueue[str]()
    sender.errors += [AWAY, ClusterRefusedError("it already exists", 409)]
    recorder = EventRecorder(
        sender, "bind", lambda _, outcome: outcomes.put(outcome), Time(), lambda: next(seconds)
    )
    recorder.record(event())
    assert outcomes.get(timeout=SECONDS) == "sent"
    recorder.close(SECONDS)
    assert sender.errors == []


def test_a_fault_of_ours_does_not_end_it() -> None:
    with staged() as stage:
        stage.sender.errors.append(RuntimeError("a fault"))
        stage.recorder.record(event())
        assert stage.outcome() == "failed"
        stage.time.advance(1)
        stage.recorder.record(event("b"))
        assert stage.outcome() == "sent"


def test_a_caller_does_not_fail_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    stage = Stage()
    monkeypatch.setattr(threading.Thread, "start", start)
    stage.recorder.record(event())
    monkeypatch.undo()
    stage.recorder.record(event("b"))
    assert [stage.outcome() for _ in range(2)] == ["sent", "sent"]
    stage.recorder.close(SECONDS)


def test_after_its_end_it_takes_nothing() -> None:
    stage = Stage()
    stage.recorder.record(event())
    stage.recorder.close(SECONDS)
    assert stage.outcome() == "sent"
    stage.recorder.record(event("b"))
    assert stage.outcome() == "dropped"
