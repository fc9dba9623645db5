"""functions/extender: which path leads to which verb, on one ledger, and what a pod's event is told.

What the verbs decide is tested where they stand alone.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from berth.errors import BerthError, ClusterUnavailableError, RefusedError, StoreUnavailableError
from berth.handlers import bind, extender, wiring
from berth.http.authentication import authenticator
from berth.http.endpoint import Endpoint, Reply, Router, event_message, respond
from berth.ledger.ledger import Ledger
from berth.settings import Access, Settings
from berth.stores.base import Changes, Cursor
from berth.stores.sqlite import SqliteStore
from tests.support.builders.ledgers import resize
from tests.support.builders.objects import EVENTS, IP, filter_call, pod_asking, pool

PATHS = {
    "/filter": "filter",
    "/predicates": "filter",
    "/prioritize": "prioritize",
    "/priorities": "prioritize",
    "/preempt": "preempt",
    "/bind": "bind",
}
KNOWN = "/bind, /filter, /predicates, /preempt, /priorities, /prioritize"


def sound() -> None:
    """A store that answers."""


def named(name: str, token: str | None = None) -> Endpoint:
    return Endpoint(
        name=name,
        answer=lambda _, body: Reply(200, json.dumps([name, str(body, errors="replace")]).encode()),
        failed=lambda message, _: Reply(500, message.encode()),
        health=sound,
        body_limit=100,
        authenticator=authenticator(Access(token=token)),
    )


def router(health: Callable[[], None] = sound, token: str | None = None) -> Router:
    return Router(
        name="extender",
        endpoints={path.removeprefix("/"): named(name, token) for path, name in PATHS.items()},
        health=health,
    )


def ask(target: Router, path: str, body: bytes = b"{}", method: str = "POST") -> tuple[int, Any]:
    reply = respond(target, method, path, {}, io.BytesIO(body))
    return reply.status, json.loads(reply.body)


# Which path leads where


@pytest.mark.parametrize("prefix", ["", "/scheduler", "/a/b//c", "/filter", "/healthz"])
@pytest.mark.parametrize("end", ["", "/"])
@pytest.mark.parametrize("path", PATHS)
def test_the_last_part_of_the_path_names_the_verb(prefix: str, path: str, end: str) -> None:
    assert ask(router(), f"{prefix}{path}{end}", b"call") == (200, [PATHS[path], "call"])


@pytest.mark.parametrize(
    "path", ["/", "", "//", "/Filter", "/FILTER", "/filter/x", "/filters", "/Preempt", "/bind?x", "/a\nb"]
)
def test_another_path_is_404_and_names_the_paths_there_are(path: str) -> None:
    said = f"extender has no {path or '/'}: it takes POST {KNOWN}, and GET /healthz"
    assert ask(router(), path) == (404, {"error": said})


def test_with_a_default_every_other_path_is_its() -> None:
    found = replace(router(token="s3cret"), default=named("events", None))
    for path in ("/", "/Filter", "/filter/x"):
        assert ask(found, path, b"call") == (200, ["events", "call"])
    assert ask(found, "/filter")[0] == 401


def test_a_path_that_is_not_there_is_404_before_the_body_is_read() -> None:
    body = io.BytesIO(b"call")
    assert respond(router(), "POST", "/other", {}, body).status == 404
    assert body.tell() == 0


@pytest.mark.parametrize("path", ["/", "/filter"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_another_method_is_405_on_every_path(method: str, path: str) -> None:
    said = f"extender takes POST, and GET /healthz; this was {method} {path}"
    assert ask(router(), path, method=method) == (405, {"error": said})


@pytest.mark.parametrize("path", PATHS)
def test_every_verb_wants_the_token(path: str) -> None:
    assert ask(router(token="s3cret"), path)[0] == 401


def test_its_health_is_that_of_its_one_ledger() -> None:
    def down() -> NoReturn:
        raise StoreUnavailableError("the ledger is busy")

    assert ask(router(), "/healthz", method="GET") == (200, {"status": "ok", "function": "extender"})
    assert ask(router(down), "/healthz", method="GET") == (
        503,
        {"error": "the store of extender does not answer; its log says why"},
    )


@given(
    st.just("POST") | st.text(), st.text() | st.sampled_from([*PATHS, "/healthz"]), st.binary(max_size=120)
)
def test_whatever_comes_is_answered_in_one_line_of_json(method: str, path: str, body: bytes) -> None:
    reply = respond(router(), method, path, {}, io.BytesIO(body))
    assert reply.status in (200, 404, 405, 413)
    assert json.loads(reply.body)
    assert b"\n" not in reply.body


# The verbs on their one ledger


class Recording(SqliteStore):
    """A store that writes down what its readers had seen."""

    seen: list[Cursor | None]

    def changes(self, since: Cursor | None) -> Changes:
        self.seen.append(since)
        return super().changes(since)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    found = Recording(tmp_path / "ledger.db")
    found.seen = []
    opened = iter([found])  # a second store would end the test
    monkeypatch.setattr(wiring, "open_store", lambda _: next(opened))
    monkeypatch.setattr("berth.kube.cluster.connect", mock.Mock)
    yield found
    found.close()


def open_ledger(store: SqliteStore, capacities: Mapping[str, int], cluster: str = "this cluster") -> None:
    ledger = Ledger(store, while_closed=True, cluster=lambda: cluster)
    mark = ledger.begin_rebuild("r1")
    ledger.apply_pools({"underlay-ip": pool()})
    resize(ledger, {("underlay-ip", node): count for node, count in capacities.items()})
    ledger.open("e1", mark)


def test_filter_and_prioritize_answer_from_one_view(store: Recording) -> None:
    open_ledger(store, {"n1": 10, "n2": 0})
    found = extender.router(Settings())
    store.seen.clear()
    call = filter_call(["n1", "n2"], {IP: 1})
    status, answer = ask(found, "/predicates", call)
    assert (status, answer["NodeNames"], answer["Error"]) == (200, ["n1"], "")
    assert ask(found, "/prioritize", call) == (
        200,
        [{"Host": "n1", "Score": 10}, {"Host": "n2", "Score": 0}],
    )
    first, *later = store.seen
    assert first is None
    assert later
    assert None not in later


def test_its_bind_takes_nothing_from_another_clusters_ledger(
    store: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ledger(store, {"n1": 10}, cluster="another")
    asking = pod_asking({IP: 1})
    cluster = mock.Mock(**{"identity.return_value": "this cluster", "pod_to_bind.return_value": asking})
    monkeypatch.setattr("berth.kube.cluster.connect", lambda: cluster)
    meta = asking.metadata
    call = {"PodName": meta.name, "PodNamespace": meta.namespace, "PodUID": meta.uid, "Node": "n1"}
    status, answer = ask(extender.router(Settings()), "/bind", json.dumps(call).encode())
    assert (status, "belongs to another cluster" in answer["Error"]) == (200, True)
    cluster.bind.assert_not_called()
    assert Ledger(store).view().claims() == []


@pytest.mark.usefixtures("store")
def test_health_asks_the_store(tmp_path: Path) -> None:
    found = extender.router(Settings())
    assert ask(found, "/healthz", method="GET")[0] == 200
    (tmp_path / "ledger.db").unlink()
    (tmp_path / "ledger.db").write_text("not a database, and long enough for SQLite to say so " * 10)
    assert ask(found, "/healthz", method="GET")[0] == 503


def test_the_settings_hold_for_every_verb(store: Recording) -> None:
    found = extender.router(Settings(access=Access(token="s3cret"), body_limit=3))
    assert {each.body_limit for each in found.endpoints.values()} == {3}
    # One for all: a token is reviewed once.
    (one,) = {each.authenticator for each in found.endpoints.values()}
    assert one is not None
    assert (one.refusal("Bearer s3cret"), one.refusal("Bearer other") != "") == ("", True)
    assert sorted(f"/{name}" for name in found.endpoints) == sorted(PATHS)
    assert store.seen == []


def test_what_goes_wrong_inside_is_told_by_the_functions_name_and_the_verbs(
    store: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, ZeroDivisionError("hunter2"))
    found = extender.router(Settings())
    said = "internal error (ZeroDivisionError); see the log of extender/bind"
    assert ask(found, "/bind", BIND) == (200, {"Error": said})
    assert store.seen == []


# What a pod's event is told

BIND = (EVENTS / "extender/bind.json").read_bytes()
RETRIED = "; the pod will be retried"


def raising(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def run(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(bind.Bind, "run", run)


def test_an_error_that_may_pass_says_that_the_pod_will_be_retried_and_no_other_does() -> None:
    assert event_message("busy", True) == "busy; the pod will be retried"
    assert event_message("0 of 1 free", False) == "0 of 1 free"


@pytest.mark.parametrize(
    ("error", "more"),
    [
        (StoreUnavailableError("the ledger is busy"), RETRIED),
        (ClusterUnavailableError("no answer"), RETRIED),
        (RefusedError("underlay-ip: 0 of 10 free, 1 asked"), ""),
    ],
)
@pytest.mark.usefixtures("store")
def test_binds_error_says_whether_the_pod_will_be_retried(
    monkeypatch: pytest.MonkeyPatch, error: BerthError, more: str
) -> None:
    raising(monkeypatch, error)
    assert ask(extender.router(Settings()), "/bind", BIND) == (200, {"Error": f"{error}{more}"})


@pytest.mark.usefixtures("store")
def test_only_what_reaches_the_pods_event_says_that_it_will_be_retried() -> None:
    found = extender.router(Settings())
    call = filter_call(["n1"], {IP: 1})
    status, answer = ask(found, "/filter", call)
    assert (status, answer["Error"].count(RETRIED)) == (200, 1)
    assert answer["Error"].endswith(RETRIED)
    status, answer = ask(found, "/prioritize", call)
    assert (status, answer["error"] + RETRIED) == (503, ask(found, "/filter", call)[1]["Error"])
