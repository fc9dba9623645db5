"""What a EventRelay tells somebody who looks on, and that neither he nor an odd object ends its watches.

That events reach the functions, and what is lost on the way, is shown by tests/e2e.
"""

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from berth.errors import ClusterRefusedError, ClusterUnavailableError
from berth.kube.cluster import Cluster
from berth.local import event_relay
from berth.local.event_relay import LANES, EventRelay
from berth.local.ports import free_port
from tests.support.servers.serving import serving

SECONDS = 60.0
TICK = "a tick"


def _pool_claim(name: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "d", "uid": f"uid-{name}"}
    return {"apiVersion": "berth.dev/v1alpha1", "kind": "PoolClaim", "metadata": meta}


def _pod(name: str, **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "d", "uid": f"uid-{name}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"schedulerName": "berth"}, **more}


def _ending(name: str, *, on: str = "") -> dict[str, Any]:
    """A pod that is being deleted, on a node or on none."""
    pod = _pod(name)
    pod["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    return {**pod, "spec": {"nodeName": on} if on else {}}


class _Pods:
    """A cluster whose only changes are these; each list begins a new batch of them."""

    host = "http://nowhere"

    def __init__(self, *batches: list[tuple[str, dict[str, Any]]]) -> None:
        self._batches = iter(batches)

    def snapshot(self, path: str, _: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        return ([_pod("listed")] if path.endswith("/pods") else []), "1"

    def watch(
        self, path: str, _: Mapping[str, str], __: str, stop: threading.Event
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        yield from next(self._batches, []) if path.endswith("/v1/pods") else []
        stop.wait()


class _PoolClaims(_Pods):
    """A cluster that serves no Pools, and PoolClaims after so many refusals; only these change."""

    def __init__(self, refusals: int, changes: list[tuple[str, dict[str, Any]]]) -> None:
        super().__init__()
        self._refusals, self._changes = refusals, changes

    def snapshot(self, path: str, query: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        claims = path.endswith("/poolclaims")
        if path.endswith("/pools") or (claims and self._refusals > 0):
            self._refusals -= claims
            raise ClusterRefusedError(f"the API server refused GET {path} (404): no reason given", 404)
        return super().snapshot(path, query)

    def watch(
        self, path: str, query: Mapping[str, str], version: str, stop: threading.Event
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        if path.endswith("/poolclaims"):
            yield from self._changes
        yield from super().watch(path, query, version, stop)


class _Away(_Pods):
    """A cluster that is away for the first lists of each path, and whose watches then break off once."""

    def __init__(self, failures: int) -> None:
        super().__init__([("DELETED", _pod("last"))])
        self._left = dict.fromkeys(("/api/v1/pods", "/api/v1/nodes"), failures)
        self._breaks = {"/api/v1/nodes"}

    def snapshot(self, path: str, query: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        if self._left.get(path, 0) > 0:
            self._left[path] -= 1
            raise ClusterUnavailableError(
                f"the API server at {self.host} did not answer (connection refused)"
            )
        return super().snapshot(path, query)

    def watch(
        self, path: str, query: Mapping[str, str], version: str, stop: threading.Event
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        if path in self._breaks:
            self._breaks.remove(path)
            raise ClusterUnavailableError("the API server closed the connection")
        yield from super().watch(path, query, version, stop)


class _Functions(ThreadingHTTPServer):
    """Takes every event, keeps the name of its object and answers nothing; other calls get `report`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.names: list[str] = []
        self.subjects: list[str] = []
        self.connections: set[Any] = set()  # on which events came
        self.report: Mapping[str, object] = {}
        self.had = threading.Event()
        self.unanswered: list[str] = []  # names of objects, or TICK: once each
        self.cut: list[str] = []  # the same, whose connection is closed without an answer
        self.over = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert isinstance(self.server, _Functions)
        self.rfile.read(int(self.headers["Content-Length"]))
        name = self.headers.get("Ce-Name", "")
        if (name or TICK) in self.server.unanswered:
            self.server.unanswered.remove(name or TICK)
            self.server.over.wait(SECONDS)
            return
        if name in self.server.cut:
            self.server.cut.remove(name)
            self.close_connection = True
            return
        if name:
            self.server.connections.add(self.client_address)
            self.server.names.append(name)  # before the answer: the next event follows on that
            self.server.subjects.append(f"{self.headers['Ce-Type']} {self.headers['Ce-Subject']}")
        report = b"" if name else json.dumps(self.server.report).encode()
        self.send_response(204 if name else 200)
        self.send_header("Content-Length", str(len(report)))
        self.end_headers()
        self.wfile.write(report)
        if name == "last":
            self.server.had.set()

    def log_message(self, *_: object) -> None:
        """Nobody asked."""


@pytest.fixture
def functions() -> Iterator[_Functions]:
    with serving(_Functions()) as server:
        yield server
        server.over.set()


def _relayed(
    functions: _Functions,
    pods: Any,
    pools: Path | None = None,
    to: str = "release",
    lanes: int = 1,
    **named: Any,
) -> list[Mapping[str, object]]:
    """Relays until the function `to` had the object `last`; what was said."""
    said: list[Mapping[str, object]] = []
    urls = dict.fromkeys((to, "reconcile"), functions.url)
    relay = EventRelay(pods, urls, ["berth"], pools, said.append, lanes=lanes, **named)
    relay.start()
    try:
        assert functions.had.wait(SECONDS)
    finally:
        relay.stop()
    return said


def test_who_looks_on_is_told_of_the_list_and_then_of_each_change(functions: _Functions) -> None:
    told: list[tuple[str, Mapping[str, Any]]] = []
    changes = [("ADDED", _pod("a")), ("DELETED", _pod("last"))]
    said = _relayed(functions, _Pods(changes), observe=lambda kind, item: told.append((kind, item)))
    assert told == [("LISTED", {"schedulerName": "berth", "items": [_pod("listed")]}), *changes]
    assert said == []


def test_release_is_told_of_every_change_where_that_is_asked_for(functions: _Functions) -> None:
    """As Knative's source tells it; the demo makes events of such ones."""
    changes = [("ADDED", _pod("a")), ("MODIFIED", _pod("a")), ("DELETED", _pod("last"))]
    assert _relayed(functions, _Pods(changes), every_change=True) == []
    assert functions.names == ["a", "a", "last"]


def test_an_event_holds_up_none_of_other_lanes(functions: _Functions) -> None:
    """A hundred pods may go together, and each costs release some calls of the API server."""
    functions.unanswered = ["slow"]
    changes = [("DELETED", _pod("slow")), ("DELETED", _pod("last"))]
    assert _relayed(functions, _Pods(changes), lanes=LANES) == []
    assert functions.names == ["last"]


def test_an_event_that_can_t_be_sent_keeps_none_behind_it_from_release(
    functions: _Functions, caplog: pytest.LogCaptureFixture
) -> None:
    odd = {**_pod("odd"), "spec": {"nodeName": "n1", "odd": object()}}  # no JSON
    assert _relayed(functions, _Pods([("DELETED", odd), ("DELETED", _pod("last"))])) == []
    assert functions.names == ["last"]
    assert "an event of a pod was not sent" in caplog.text


class _Cut(_Pods):
    """A cluster that ends each watch of pods after one change, and counts its lists of them."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self._names, self.lists = names, 0

    def snapshot(self, path: str, query: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        self.lists += path == "/api/v1/pods"
        return super().snapshot(path, query)

    def watch(
        self, path: str, _: Mapping[str, str], version: str, stop: threading.Event
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        since = int(version) - 1
        if path != "/api/v1/pods" or since == len(self._names):
            stop.wait()
            return
        pod = _pod(self._names[since])
        yield "DELETED", {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(since + 2)}}


def test_a_watch_that_the_api_server_ends_goes_on_and_no_deletion_is_lost(functions: _Functions) -> None:
    pods = _Cut("a", "b", "last")
    assert _relayed(functions, pods) == []
    assert (functions.names, pods.lists) == (["a", "b", "last"], 1)


def test_release_is_told_only_of_what_may_free_a_unit_on_connections_that_are_kept(
    functions: _Functions,
) -> None:
    told: list[tuple[str, Mapping[str, Any]]] = []
    changes = [
        ("ADDED", _pod("a")),
        ("MODIFIED", _pod("a", status={"phase": "Running"})),
        ("MODIFIED", _pod("a", status=None)),
        ("MODIFIED", _pod("a", status={"phase": "Succeeded"})),
        ("ADDED", _pod("b", status={"phase": "Failed"})),
        ("MODIFIED", _ending("c", on="n1")),
        ("MODIFIED", _ending("d")),  # a finalizer keeps it, and units may be held for it
        ("DELETED", _pod("a", status={"phase": "Running"})),
        ("DELETED", _pod("last")),
    ]
    said = _relayed(functions, _Pods(changes), observe=lambda kind, item: told.append((kind, item)))
    path = "/api/v1/namespaces/d/pods"
    kinds = [subject.removeprefix("dev.knative.apiserver.resource.") for subject in functions.subjects]
    ends = [f"update {path}/a", f"add {path}/b", f"update {path}/d", f"delete {path}/a"]
    assert kinds == [*ends, f"delete {path}/last"]
    assert len(functions.connections) <= 2  # which the ticks have as well: here they go to the same server
    assert told[1:] == changes
    assert said == []


def test_who_looks_on_and_fails_hurts_nobody_and_is_logged_once(
    functions: _Functions, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(kind: str, item: Mapping[str, Any]) -> None:
        raise ValueError(kind, item)

    with caplog.at_level(logging.WARNING):
        said = _relayed(functions, _Pods([("DELETED", _pod("a")), ("DELETED", _pod("last"))]), observe=fail)
    assert functions.names == ["a", "last"]
    assert said == []
    assert [record.getMessage() for record in caplog.records] == ["a pod that was LISTED can't be shown"]


@pytest.mark.parametrize(
    "odd", [{}, {"metadata": None, "apiVersion": "v1"}, {"apiVersion": 7, "metadata": {}}]
)
def test_an_object_that_cannot_be_read_is_said_and_the_watch_goes_on(
    functions: _Functions, odd: dict[str, Any]
) -> None:
    said = _relayed(functions, _Pods([("ADDED", odd)], [("DELETED", _pod("last"))]))
    (failed,) = said
    assert (failed["watch"], failed["state"]) == ("/api/v1/pods", "failed")
    assert "an object can't be read" in str(failed["why"])


def test_what_only_a_person_can_mend_is_said_from_reconciles_report(functions: _Functions) -> None:
    functions.report = {"released": 0, "problems": ["Pool ip: no field 'scoer'"]}
    said: list[Mapping[str, object]] = []
    told = threading.Event()

    def say(what: Mapping[str, object]) -> None:
        said.append(what)
        told.set()

    urls = dict.fromkeys(("release", "inventory", "reconcile"), functions.url)
    cluster: Any = _Pods([])
    relay = EventRelay(cluster, urls, ["berth"], None, say)
    relay.start()
    try:
        assert told.wait(SECONDS)
    finally:
        relay.stop()
    assert said[0] == {"state": "problem", "why": "Pool ip: no field 'scoer'"}


def test_a_problem_is_said_once_and_once_more_when_it_is_mended(
    functions: _Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_relay, "_EVERY_SECONDS", 0.0)
    said: list[Mapping[str, object]] = []
    ticks: list[Mapping[str, object]] = []
    told = threading.Event()

    class Ticking(EventRelay):
        def _report(self, problems: Any) -> None:
            super()._report(problems)
            ticks.append(problems)
            functions.report = {"problems": ["b"] if len(ticks) >= 5 else ["a", "b"]}
            if len(ticks) == 7:
                told.set()

    functions.report = {"problems": ["a"]}
    relay = Ticking(cast("Cluster", _Pods()), {"reconcile": functions.url}, ["berth"], None, said.append)
    relay.start()
    try:
        assert told.wait(SECONDS)
    finally:
        relay.stop()
    assert [(what["state"], what["why"]) for what in said] == [
        ("problem", "a"),
        ("problem", "b"),
        ("mended", "a"),
    ]


def test_an_api_server_that_is_away_is_said_once_with_the_time_and_once_when_it_is_back(
    functions: _Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_relay, "_FIRST_PAUSE", 0.01)
    times = iter([1_000_000.0, 1_000_035.4])
    away, back = _relayed(functions, _Away(3), clock=lambda: next(times))
    why = "the API server at http://nowhere did not answer (connection refused)"
    assert away == {"cluster": "http://nowhere", "state": "away", "time": "1970-01-12T13:46:40Z", "why": why}
    assert back == {
        "cluster": "http://nowhere",
        "state": "back",
        "time": "1970-01-12T13:47:15Z",
        "seconds": 35,
    }


def test_an_answer_to_another_path_or_a_failure_of_before_says_nothing() -> None:
    said: list[Mapping[str, object]] = []
    outage = event_relay._Outage("http://nowhere", said.append, lambda: 0.0)
    began = time.monotonic()
    outage.failed("/pods", "refused", began)
    outage.failed("/nodes", "refused", began)
    outage.answered("/pools")
    assert [what["state"] for what in said] == ["away"]
    outage.answered("/nodes")
    outage.failed("/pods", "refused", began)
    assert not outage.lasts
    assert [what["state"] for what in said] == ["away", "back"]


def test_a_tick_that_is_lost_again_for_the_same_reason_is_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_relay, "_PAUSES", ())
    url = f"http://127.0.0.1:{free_port()}"
    said: list[Mapping[str, object]] = []
    relay = EventRelay(cast("Cluster", _Pods()), {"reconcile": url}, ["berth"], None, said.append)
    for _ in range(3):
        assert relay._send("reconcile", event_relay._TICK, {}) is None
    assert [what["why"] for what in said] == [f"{url}: ConnectionRefusedError"]
    relay._report([])
    assert relay._send("reconcile", event_relay._TICK, {}) is None
    assert len(said) == 2


@pytest.mark.parametrize(("from_a_file", "refusals"), [(False, 0), (True, 1)])
def test_inventory_is_told_of_poolclaims_wherever_the_pools_are_and_a_cluster_without_them_is_no_failure(
    functions: _Functions, tmp_path: Path, from_a_file: bool, refusals: int
) -> None:
    changes = [("ADDED", _pool_claim("a")), ("DELETED", _pool_claim("last"))]
    pools = tmp_path / "pools.yaml" if from_a_file else None
    said = _relayed(functions, _PoolClaims(refusals, changes), pools, to="inventory")
    kind, path = "dev.knative.apiserver.resource", "/apis/berth.dev/v1alpha1/namespaces/d/poolclaims"
    assert functions.subjects == [f"{kind}.add {path}/a", f"{kind}.delete {path}/last"]
    assert said == []


def test_an_event_that_is_not_answered_in_time_is_lost_at_once_and_the_next_one_goes_on(
    functions: _Functions,
) -> None:
    """Tried again five times it would hold up those behind it for six times as long."""
    functions.unanswered = ["a"]
    hung: list[tuple[str, str]] = []
    began = time.monotonic()
    said = _relayed(
        functions,
        _Pods([("DELETED", _pod("a")), ("DELETED", _pod("last"))]),
        seconds={"release": 0.5, "reconcile": SECONDS},
        hung=lambda function, why, since: hung.append((function, why)) if began <= since else None,
    )
    assert functions.names == ["last"]
    assert hung == [("release", "an event got no answer within 0.5 s")]
    assert [(each["to"], each["state"], each["why"]) for each in said] == [
        ("release", "lost", "no answer within 0.5 s")
    ]


def test_an_event_is_sent_again_where_its_connection_is_closed_in_the_middle(functions: _Functions) -> None:
    functions.cut = ["b", "b"]
    said = _relayed(functions, _Pods([("DELETED", _pod(name)) for name in ("a", "b", "last")]))
    assert functions.names == ["a", "b", "last"]
    assert said == []


def test_a_function_that_is_not_there_has_not_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_relay, "_PAUSES", (0.0, 0.0))
    said: list[Mapping[str, object]] = []
    told = threading.Event()

    def say(what: Mapping[str, object]) -> None:
        said.append(what)
        told.set()

    url = f"http://127.0.0.1:{free_port()}"
    urls, cluster = (
        dict.fromkeys(("release", "reconcile"), url),
        cast("Cluster", _Pods([("DELETED", _pod("a"))])),
    )
    hung: list[str] = []
    relay = EventRelay(cluster, urls, ["berth"], None, say, hung=lambda function, *_: hung.append(function))
    relay.start()
    try:
        assert told.wait(SECONDS)
    finally:
        relay.stop()
    assert (said[0]["state"], said[0]["why"]) == ("lost", f"{url}: ConnectionRefusedError")
    assert hung == []


def test_a_tick_that_is_not_answered_in_time_is_told_and_followed_by_another(functions: _Functions) -> None:
    functions.unanswered = [TICK]
    hung: list[str] = []
    late = threading.Event()
    relay = EventRelay(
        _Pods(),  # type: ignore[arg-type]
        {"reconcile": functions.url},
        ["berth"],
        None,
        lambda _: None,
        seconds={"reconcile": 0.5},
        hung=lambda function, *_: hung.append(function),
    )
    relay.start()
    try:
        with ThreadPoolExecutor(1) as waiter:
            assert waiter.submit(relay.wait_first_reconcile, late).result(SECONDS)
    finally:
        late.set()
        relay.stop()
    assert hung == ["reconcile"]
