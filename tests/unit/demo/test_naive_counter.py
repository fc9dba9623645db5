"""The naive counter of the demonstration is an honest one: it works on a good day, and fails as such do.
That Berth does not is shown by `berth demo` itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from berth.demo.naive.counter import Counter
from berth.testing.loopback import CUT, Loopback, Reply, Request

DELETE = "dev.knative.apiserver.resource.delete"
CALL = {"PodName": "pod-1", "PodNamespace": "default", "PodUID": "uid-1", "Node": "n1"}
POD = {"kind": "Pod", "metadata": {"name": "pod-1", "uid": "uid-1"}, "spec": {"nodeName": "n1"}}


@contextmanager
def _counter(folder: Path, answer: Reply) -> Iterator[Counter]:
    """Two units a node, and an API server that answers every Binding so."""
    with Loopback(lambda _: answer) as api:
        yield Counter(folder / "counts.db", 2, api.url)


@pytest.fixture
def counter(tmp_path: Path) -> Iterator[Counter]:
    with _counter(tmp_path, Reply(201)) as made:
        yield made


def test_a_bind_counts_one_unit_and_makes_the_binding_with_the_uid(tmp_path: Path) -> None:
    made: list[Request] = []

    def answer(request: Request) -> Reply:
        made.append(request)
        return Reply(201)

    with Loopback(answer) as api:
        counter = Counter(tmp_path / "counts.db", 2, api.url)
        assert counter.answer("/bind", "", CALL) == {"Error": ""}
    assert counter.used() == {"n1": 1}
    assert [request.path for request in made] == ["/api/v1/namespaces/default/pods/pod-1/binding"]
    assert b'"uid": "uid-1"' in made[0].body


@pytest.mark.parametrize("answer", [Reply(409, b"no"), Reply(500), CUT])
def test_a_binding_that_failed_is_counted_back(tmp_path: Path, answer: Reply) -> None:
    with _counter(tmp_path, answer) as counter:
        assert counter.answer("/bind", "", CALL)["Error"]
        assert counter.used() == {"n1": 0}


def test_filter_and_prioritize_compare_the_count_with_the_capacity(counter: Counter) -> None:
    for _ in range(2):
        counter.bind(CALL)
    call = {"Pod": POD, "NodeNames": ["n1", "n2"]}
    found = counter.answer("/filter", "", call)
    assert (found["NodeNames"], found["FailedNodes"], found["Error"]) == (["n2"], {"n1": "0 of 2 free"}, "")
    assert counter.answer("/prioritize", "", call) == [
        {"Host": "n1", "Score": 0},
        {"Host": "n2", "Score": 10},
    ]


def test_a_delete_event_of_a_bound_pod_counts_back_and_never_below_zero(counter: Counter) -> None:
    counter.bind(CALL)
    for _ in range(2):
        assert counter.answer("/", DELETE, POD) == {}
    assert counter.used() == {"n1": 0}


@pytest.mark.parametrize(
    ("event", "about"),
    [
        ("dev.knative.apiserver.resource.update", POD),
        (DELETE, {**POD, "spec": {}}),
        (DELETE, {**POD, "kind": "Node"}),
        ("dev.knative.sources.ping", {}),
    ],
)
def test_no_other_event_changes_the_count(counter: Counter, event: str, about: dict[str, object]) -> None:
    counter.bind(CALL)
    counter.answer("/", event, about)
    assert counter.used() == {"n1": 1}


def test_its_counts_outlive_it_but_not_their_file(tmp_path: Path, counter: Counter) -> None:
    counter.bind(CALL)
    again = Counter(tmp_path / "counts.db", 2, "http://127.0.0.1:1")
    assert again.used() == {"n1": 1}
    (tmp_path / "counts.db").unlink()
    assert (counter.used(), again.used()) == ({}, {})
