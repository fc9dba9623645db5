"""What the demonstration does to Bindings and events on their way, and how it judges what came of it.
The story itself is played by tests/cli/test_demo.py."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from berth.demo.courier import Courier
from berth.demo.gateway import Gateway
from berth.demo.story import BrokenPromiseError, Measured, require_kept
from berth.testing.loopback import Loopback, Reply, Request

BINDING = "/api/v1/namespaces/default/pods/pod-1/binding"
KEPT: dict[str, Any] = {"wake_seconds": 0.2, "bound": 9, "waiting": 8}


def _call(url: str, path: str = "/", body: object = None, **headers: str) -> int:
    """The status of the answer; 0 where the connection was cut."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request("POST", path, json.dumps(body), names)
        reply = connection.getresponse()
        reply.read()
        return reply.status
    except (http.client.RemoteDisconnected, ConnectionError):
        return 0
    finally:
        connection.close()


@contextmanager
def _upstream() -> Iterator[tuple[str, list[Request]]]:
    seen: list[Request] = []

    def answer(request: Request) -> Reply:
        seen.append(request)
        return Reply(201)

    with Loopback(answer) as server:
        yield server.url, seen


@contextmanager
def _courier() -> Iterator[tuple[Courier, list[Request]]]:
    seen: list[Request] = []

    def answer(request: Request) -> Reply:
        seen.append(request)
        return Reply(200)

    with Loopback(answer) as function, Courier(function.url) as courier:
        yield courier, seen


def _event(courier: Courier, change: str, node: str | None = "n1") -> int:
    pod = {"metadata": {"name": "pod-1"}, "spec": {"nodeName": node} if node else {}}
    kind = f"dev.knative.apiserver.resource.{change}"
    return _call(courier.url, "/", pod, Ce_Type=kind, Ce_Kind="Pod", Ce_Name="pod-1", Ce_Id="1")


def _in_thread(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def test_a_held_binding_never_arrives_once_it_is_dropped() -> None:
    with _upstream() as (url, seen), Gateway(url) as gateway:
        hold = gateway.hold_next_binding()
        assert _call(gateway.url, "/api/v1/pods") == 201
        statuses: list[int] = []
        caller = _in_thread(lambda: statuses.append(_call(gateway.url, BINDING)))
        assert hold.reached.wait(30)
        hold.dropped.set()
        caller.join()
        assert statuses == [0]
        assert _call(gateway.url, BINDING) == 201
    assert [request.path for request in seen] == ["/api/v1/pods", BINDING]


def test_the_gateway_speaks_with_its_own_token_and_not_with_the_callers() -> None:
    with _upstream() as (url, seen), Gateway(url, token="secret") as gateway:
        _call(gateway.url, BINDING, Authorization="Bearer other")
    assert [request.headers["Authorization"] for request in seen] == ["Bearer secret"]


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_delete_event_waits_to_be_sent_and_arrives_as_often_as_was_said(times: int) -> None:
    with _courier() as (courier, seen):
        parcel = courier.expect_delete("pod-1", times)
        assert _event(courier, "update") == 200
        sender = _in_thread(lambda: _event(courier, "delete"))
        assert len(seen) == 1
        parcel.sent.set()
        assert parcel.delivered.wait(30)
        sender.join()
    changes = [request.headers["Ce-Type"].rpartition(".")[2] for request in seen]
    assert changes == ["update", *["delete"] * times]


def test_a_forged_delete_event_is_the_pods_last_one_but_for_its_type_and_id() -> None:
    with _courier() as (courier, seen):
        _event(courier, "update")
        courier.forge_delete("pod-1")
    last, forged = seen
    assert forged.body == last.body
    assert forged.headers["Ce-Type"].endswith(".delete")
    assert forged.headers["Ce-Id"] != last.headers["Ce-Id"]


def test_the_courier_knows_where_a_pod_runs_only_from_an_event() -> None:
    with _courier() as (courier, _):
        assert not courier.knows_node_of("pod-1")
        _event(courier, "add", node=None)
        assert not courier.knows_node_of("pod-1")
        _event(courier, "update")
        assert courier.knows_node_of("pod-1")


def test_events_of_nodes_and_of_time_are_answered_and_told_to_nobody() -> None:
    with _courier() as (courier, seen):
        assert _call(courier.url, "/", {}, Ce_Type="dev.knative.sources.ping") == 200
        assert _call(courier.url, "/", {}, Ce_Type="x", Ce_Kind="Node") == 200
    assert seen == []


def test_an_event_that_could_not_be_delivered_is_for_its_source_to_send_again() -> None:
    with Loopback(lambda _: Reply(0)) as function, Courier(function.url) as courier:
        assert _event(courier, "add") == 503


def test_a_day_without_fault_breaks_no_promise() -> None:
    require_kept(Measured(**KEPT))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"over_allocated": 1}, "1 units over-allocated"),
        ({"leaked": 2}, "2 units leaked"),
        ({"uncounted": 1}, "1 units held that the ledger does not know of"),
        ({"bound": 7}, "2 units free beside waiting pods"),
        ({"wake_seconds": None}, "no waiter was woken"),
    ],
)
def test_each_broken_promise_is_named(found: dict[str, Any], said: str) -> None:
    with pytest.raises(BrokenPromiseError, match=said):
        require_kept(Measured(**{**KEPT, **found}))
