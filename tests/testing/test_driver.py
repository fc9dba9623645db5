"""The demonstration's driver tries pods when kube-scheduler would, and at no other time.
What the real one does is in docs/kubernetes.md#requeue; nobody but its reader compares the driver with it."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from berth.demo.driver import Driver
from berth.kube.cluster import Cluster, connect
from berth.testing.api_server import StandIn
from berth.testing.loopback import Loopback, Reply, Request

PODS = "/api/v1/namespaces/default/pods"


class Extender:
    """Answers filter with the node `n1` while there is `room`; binds as it is told to."""

    def __init__(self) -> None:
        self.cluster: Cluster | None = None
        self.room = True
        self.bind_error = ""
        self.calls: list[tuple[str, str]] = []

    def answer(self, request: Request) -> Reply:
        verb, body = request.path.strip("/"), json.loads(request.body)
        name = body["PodName"] if verb == "bind" else body["Pod"]["metadata"]["name"]
        self.calls.append((verb, name))
        return Reply(200, json.dumps(getattr(self, f"_{verb}")(body)).encode())

    def _filter(self, _: Any) -> Any:
        if self.room:
            return {"NodeNames": ["n1"], "Error": ""}
        return {"NodeNames": None, "FailedNodes": {"n1": "full"}, "Error": ""}

    def _prioritize(self, _: Any) -> Any:
        return [{"Host": "n1", "Score": 10}]

    def _bind(self, body: Any) -> Any:
        if not self.bind_error and self.cluster is not None:
            binding = {"metadata": {"name": body["PodName"]}, "target": {"name": body["Node"]}}
            self.cluster.create(f"{PODS}/{body['PodName']}/binding", binding)
        return {"Error": self.bind_error}


class Played:
    def __init__(self, cluster: Cluster, driver: Driver, extender: Extender) -> None:
        self.cluster, self.driver, self.extender = cluster, driver, extender

    def add(self, name: str) -> None:
        spec = {"schedulerName": "berth", "containers": [{"name": "main", "image": "x"}]}
        self.cluster.create(PODS, {"metadata": {"name": name}, "spec": spec})

    def settle(self) -> None:
        """Wait until the driver has seen all pods and has none to try."""
        _until(lambda: self.driver.idle(self.cluster.snapshot(PODS, {})[0]), "the driver is idle")

    def tried(self) -> list[str]:
        return [name for verb, name in self.extender.calls if verb == "filter"]


def _until(condition: Callable[[], object], what: str) -> None:
    give_up_at, pause = time.monotonic() + 60, threading.Event()
    while not condition():
        assert time.monotonic() < give_up_at, what
        pause.wait(0.02)


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    extender = Extender()
    with StandIn() as api, Loopback(extender.answer) as server:
        with mock.patch.dict(os.environ, {"KUBECONFIG": str(api.kubeconfig(tmp_path / "kubeconfig"))}):
            cluster = extender.cluster = connect()
        cluster.create("/api/v1/nodes", {"metadata": {"name": "n1"}})
        driver = Driver(cluster, server.url, "berth")
        driver.start()
        try:
            # A list of nodes that comes late has it try every pod again.
            _until(lambda: driver._nodes, "the driver knows the node")
            yield Played(cluster, driver, extender)
        finally:
            driver.stop()


def test_a_pod_is_filtered_and_bound_once(played: Played) -> None:
    played.add("one")
    played.settle()
    played.add("two")
    played.settle()
    assert played.extender.calls == [
        (verb, name) for name in ("one", "two") for verb in ("filter", "prioritize", "bind")
    ]


def test_a_refused_pod_is_tried_again_when_a_pod_is_deleted_and_not_when_one_comes(played: Played) -> None:
    played.add("held")
    played.settle()
    played.extender.room = False
    played.add("waits")
    played.settle()
    played.add("new")
    played.settle()
    assert played.tried() == ["held", "waits", "new"]
    played.cluster.delete(f"{PODS}/held")
    played.settle()
    assert sorted(played.tried()[3:]) == ["new", "waits"]


def test_its_own_word_about_a_pod_does_not_wake_it_and_a_condition_of_others_does(played: Played) -> None:
    played.extender.room = False
    played.add("waits")
    played.settle()
    assert played.tried() == ["waits"]
    found = played.cluster.pod("default", "waits")
    assert found is not None
    played.cluster.set_condition(found, {"type": "berth.dev/Waiting", "status": "False", "message": "1"})
    played.settle()
    assert played.tried() == ["waits", "waits"]


def test_a_bind_that_failed_is_tried_again_later_and_the_others_at_once(played: Played) -> None:
    played.extender.room = False
    played.add("waits")
    played.settle()
    played.extender.room, played.extender.bind_error = True, "the Binding was refused"
    played.add("fails")
    _until(lambda: ("bind", "waits") in played.extender.calls, "the other one is tried")
    played.extender.bind_error = ""
    played.settle()
    assert {pod["spec"]["nodeName"] for pod in played.cluster.snapshot(PODS, {})[0]} == {"n1"}


def test_an_extender_that_does_not_answer_is_said_on_the_pod(played: Played) -> None:
    played.extender.bind_error = "not today"
    played.add("one")

    def said() -> list[str]:
        pod = played.cluster.snapshot(PODS, {})[0][0]
        return [found["message"] for found in pod["status"].get("conditions", [])]

    _until(lambda: "not today" in said(), "the condition says why")
    played.extender.bind_error = ""
    played.settle()
