"""The real release behind a source that behaves, and misbehaves, as Knative's does, on a real API server.

`berth up`'s own relay is deaf here and its clock stands still: what is freed, the source's events or one
reconcile have freed. Each pod takes a whole node, so that two fill the cluster. How events are read is shown
by tests/unit/http/test_cloudevents.py.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Self

import pytest

from berth.local.ports import free_port
from tests.e2e.faults.checks import UNITS
from tests.e2e.faults.fault_world import World
from tests.e2e.harness import settled
from tests.support.cluster import UNDERLAY_IP, Object, wait
from tests.support.fakes.apiserversource import (
    REFERENCE,
    RESOURCE,
    Answer,
    ApiServerSource,
    Event,
    anew,
    batch,
    binary,
    event_of,
    structured,
)
from tests.support.servers.framework import started

LABEL = "berth.dev/scheduled"
TAKEN = Answer(204, "")


class Release:
    """functions/release as a process of functions-framework with its own account's token."""

    def __init__(self, world: World) -> None:
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._settings = {
            "KUBECONFIG": str(world.accounts.kubeconfig("release")),
            "BERTH_STORE": world.berth.store,
        }
        self._running = ExitStack()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        source = ["--source", "functions/release/main.py", "--target", "release"]
        command = ["functions-framework", *source, "--host", "127.0.0.1", "--port", str(self._port)]
        self._running.enter_context(started(command, self._settings, self._port))

    def stop(self) -> None:
        self._running.close()


@pytest.fixture(scope="module")
def release(shared: World) -> Iterator[Release]:
    """And a kube-scheduler beside it."""
    with Release(shared) as running, shared.scheduling():
        yield running


@pytest.fixture
def source(world: World, release: Release) -> Iterator[ApiServerSource]:
    """With the rights that infra gives the real one."""
    world.faults.set("deaf")
    plane = world.plane
    token = world.accounts.token("events")
    found = ApiServerSource(plane.url, token, plane.ca_file, release.url, selector=f"{LABEL}=true")
    with found:
        yield found


def create(world: World, *names: str) -> None:
    for name in names:
        world.cluster.create_pod(name, {UNDERLAY_IP: UNITS}, labels={LABEL: "true"})


def bound(world: World, *names: str) -> list[Object]:
    """These pods, once they are."""
    create(world, *names)
    world.cluster.wait_bound(*names)
    return [world.cluster.get_pod(name) for name in names]


def holders(world: World) -> list[str]:
    return [name for name, _, _ in world.berth.claims()]


def last(source: ApiServerSource, change: str, name: str, times: int = 1) -> Answer:
    """What the last of so many such events was answered in the end."""
    return source.wait_told(change, name, times).answers[-1]


def deletion_begun(source: ApiServerSource, name: str) -> bool:
    return any(b'"deletionTimestamp"' in sent.event.data for sent in source.told("update", name))


def assert_all_taken(source: ApiServerSource) -> None:
    refused = [sent for sent in source.sent if list(sent.answers) != [TAKEN]]
    assert not refused, refused


def test_what_a_pod_held_goes_to_the_next_waiter_once_it_is_gone_or_finished_and_not_before(
    world: World, source: ApiServerSource
) -> None:
    bound(world, "first", "second")
    create(world, "waiter-1", "waiter-2")
    world.wait_idle(2)

    world.cluster.delete_pod("first", grace=30)  # it may run for so long
    wait(lambda: deletion_begun(source, "first"), 60, "the update that says that its deletion began")
    assert holders(world) == ["first", "second"]

    world.cluster.delete_pod("first")
    assert last(source, "delete", "first") == TAKEN
    assert "first" not in holders(world)
    world.cluster.finish_pod("second")
    world.cluster.wait_bound("waiter-1", "waiter-2")
    assert_all_taken(source)
    assert settled(world)["released"] == 0, "the events should have freed them, not the reconcile"
    assert holders(world) == ["waiter-1", "waiter-2"]


def test_deletes_that_the_source_did_not_see_leak_until_one_reconcile(
    world: World, source: ApiServerSource
) -> None:
    bound(world, "first", "second")
    with source.blind():
        for name in ("first", "second"):
            world.cluster.delete_pod(name)
        create(world, "unseen")
    create(world, "seen")
    source.wait_told("add", "seen")
    assert {sent.event.name for sent in source.sent if sent.event.change == "delete"} == set()
    assert not source.told("add", "unseen")
    assert holders(world) == ["first", "second"]
    assert settled(world)["released"] == 2
    world.cluster.wait_bound("unseen", "seen")
    world.cluster.delete_pod("unseen")
    assert last(source, "delete", "unseen") == TAKEN
    assert "unseen" not in holders(world)
    assert_all_taken(source)
    settled(world)


def test_a_label_taken_off_a_running_pod_is_told_as_its_deletion_and_frees_nothing(
    world: World, source: ApiServerSource
) -> None:
    bound(world, "running")
    label(world, "running", None)
    assert last(source, "delete", "running") == TAKEN
    assert holders(world) == ["running"]
    label(world, "running", "true")
    source.wait_told("add", "running", 2)
    assert holders(world) == ["running"]
    assert settled(world)["released"] == 0
    world.cluster.delete_pod("running")
    assert last(source, "delete", "running", 2) == TAKEN
    assert holders(world) == []
    assert_all_taken(source)


def label(world: World, name: str, value: str | None) -> None:
    path = f"/api/v1/namespaces/default/pods/{name}"
    world.cluster.patch(path, {"metadata": {"labels": {LABEL: value}}})


def test_doubled_late_and_reversed_events_free_once_and_nothing_of_a_new_pod_of_that_name(
    world: World, source: ApiServerSource
) -> None:
    source.way = lambda event: [event, event, anew(event)]
    bound(world, "kept", "doubled")
    world.cluster.delete_pod("doubled")
    source.wait_told("delete", "doubled", 3)
    assert holders(world) == ["kept"]

    late: list[Event] = []
    source.way = lambda event: kept_back(late, event)
    bound(world, "again")
    world.cluster.delete_pod("again")
    world.berth.reconcile()
    (new,) = bound(world, "again")
    world.cluster.create_pod("end", {}, labels={LABEL: "true"})
    source.wait_told("add", "end")
    assert [event.change for event in late if event.name == "again"].count("add") == 2
    for event in reversed(late):
        assert source.post(event).status == 204
    assert world.claims_of(new) == [(new["spec"]["nodeName"], "bound")]
    assert holders(world) == ["again", "kept"]
    assert_all_taken(source)
    assert settled(world)["released"] == 0


def kept_back(late: list[Event], event: Event) -> list[Event]:
    if event.name != "end":
        late.append(event)
    return [event] if event.name == "end" else []


def test_what_another_mode_sends_is_taken_or_refused_with_a_word_that_says_what_to_set(
    world: World, source: ApiServerSource
) -> None:
    bound(world, "structured", "reference")
    source.dress = structured
    world.cluster.delete_pod("structured")
    assert last(source, "delete", "structured") == TAKEN
    assert holders(world) == ["reference"]

    source.dress, source.kind = binary, REFERENCE
    world.cluster.delete_pod("reference")
    said = "the source sends mode Reference, which has no UID: set spec.mode: Resource in it"
    assert last(source, "delete", "reference") == Answer(
        400, json.dumps({"error": said}, separators=(",", ":"))
    )
    assert holders(world) == ["reference"]
    assert settled(world)["released"] == 1

    source.dress, source.kind = batch, RESOURCE
    bound(world, "batched")
    world.cluster.delete_pod("batched")
    answer = last(source, "delete", "batched")
    assert answer.status == 400
    assert "send each in a request of its own" in answer.text
    assert all(len(sent.answers) == 1 for sent in source.sent), "what can't be mended was tried again"
    assert holders(world) == ["batched"]
    assert settled(world)["released"] == 1


def test_forged_and_garbled_events_and_calls_free_and_bind_nothing(
    world: World, source: ApiServerSource
) -> None:
    (pod, _) = bound(world, "pod", "other")
    host = "https://10.96.0.1:443"
    genuine = event_of(host, "delete", {**pod, "apiVersion": "v1", "kind": "Pod"})
    headers, body = binary(genuine)
    for forged in (genuine, renamed(genuine, "long-gone"), renamed(genuine, "other")):
        assert source.post(forged).answers == [TAKEN]
    garbage = [(headers, bad) for bad in (b"", b"<html>", body[:-20], b"[]", b'{"kind":"Pod"}')]
    for answer in (source.once(*each) for each in [*garbage, ({"Content-Type": "application/json"}, body)]):
        assert answer.status == 400, answer
        assert json.loads(answer.text)["error"]
    assert holders(world) == ["other", "pod"]

    finished = world.cluster.create_pod("finished", scheduling_gates=["example.com/wait"])
    world.cluster.finish_pod("finished", phase="Failed")
    assert "is being deleted or has finished" in world.bind(finished, pod["spec"]["nodeName"])
    assert settled(world)["released"] == 0
    assert holders(world) == ["other", "pod"]


def renamed(event: Event, name: str) -> Event:
    """The event of one pod under the name of another."""
    item = json.loads(event.data)
    item["metadata"]["name"] = name
    return Event({**event.attributes, "name": name}, json.dumps(item).encode())


def test_an_event_that_meets_no_function_is_told_again_when_it_is_back(
    world: World, source: ApiServerSource, release: Release
) -> None:
    tried, back = threading.Event(), threading.Event()

    def pause(_: float) -> None:
        """Until the function is back: it may need more than the source's 3.1 s to start."""
        tried.set()
        assert back.wait(120)

    source.pause = pause
    bound(world, "pod")
    release.stop()
    try:
        world.cluster.delete_pod("pod")
        assert tried.wait(60)
        assert holders(world) == ["pod"]
    finally:
        release.start()
        back.set()
    assert last(source, "delete", "pod") == TAKEN
    retried = [sent for sent in source.sent if len(sent.answers) > 1]
    assert [[answer.status for answer in sent.answers] for sent in retried] == [[0, 204]]
    assert holders(world) == []
    settled(world)
