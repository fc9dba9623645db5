"""Who may send events where BERTH_EVENTS_ACCOUNTS says it: Knative Eventing's senders, by their tokens.

The API server's word on tokens is the test's; Knative's own senders are in tests/knative/test_oidc.py.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from berth.testing.api_server import StandIn
from berth.testing.loopback import CUT, Loopback, Reply, Request
from tests.support.floods import answer, opened
from tests.support.servers.framework import function, send

TRIGGER = "berth/release-oidc-eventing.knative.dev-trigger"
EVENTS = {
    "release": ("dev.knative.apiserver.resource.delete", {"kind": "Pod"}),
    "inventory": ("dev.knative.apiserver.resource.add", {"kind": "Pool"}),
    "reconcile": ("dev.knative.sources.ping", {}),
}
JSON = {"Content-Type": "application/json"}
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"

Serve = Callable[..., AbstractContextManager[str]]


def token(name: str, audience: str = "berth") -> str:
    """As a ServiceAccount's token looks."""
    parts = ({"alg": "RS256"}, {"aud": [audience], "sub": name})
    head, claims = (base64.urlsafe_b64encode(json.dumps(each).encode()).decode() for each in parts)
    return f"{head}.{claims.rstrip('=')}.c2ln".replace("=", "")


GOOD, TENANTS = token("trigger"), token("tenant")
ACCOUNTS = {GOOD: TRIGGER, TENANTS: "team-a/default"}


class Server:
    """An API server that knows whose tokens these are; `looks` are the calls that were no reviews."""

    def __init__(self, behind: StandIn) -> None:
        self.looks: list[str] = []
        self.reviewed: list[str] = []
        self.away = False
        self._behind = behind

    def __call__(self, request: Request) -> Reply:
        if request.path != REVIEWS:
            self.looks.append(request.path)
            given = {name: value for name, value in request.headers.items() if name == "Content-Type"}
            status, _, body = send(self._behind.url, request.method, request.path, request.body, given)
            return Reply(status, body)
        if self.away:
            return CUT
        asked = json.loads(request.body)["spec"]
        self.reviewed.append(asked["token"])
        name = ACCOUNTS.get(asked["token"], "")
        user = {"username": f"system:serviceaccount:{name.replace('/', ':')}"}
        said = {"authenticated": bool(name), "user": user, "audiences": asked["audiences"]}
        return Reply(201, json.dumps({"status": said}).encode())


@pytest.fixture
def server() -> Iterator[Server]:
    with StandIn() as behind:
        yield Server(behind)


@pytest.fixture
def environment(server: Server, tmp_path: Path) -> Iterator[Mapping[str, str]]:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "nobody"}}],
        "current-context": "here",
    }
    with Loopback(server) as api:
        clusters = [{"name": "here", "cluster": {"server": api.url}}]
        (tmp_path / "kubeconfig").write_text(json.dumps({**document, "clusters": clusters}))
        yield {
            "KUBECONFIG": str(tmp_path / "kubeconfig"),
            "BERTH_STORE": f"sqlite:///{tmp_path}/ledger.db",
            "BERTH_EVENTS_ACCOUNTS": TRIGGER,
        }


@pytest.fixture(params=[pytest.param("functions-framework", marks=pytest.mark.long), "webserver"])
def serve(request: pytest.FixtureRequest, environment: Mapping[str, str]) -> Serve:
    """Starts a function by each of the servers; its URL."""
    return partial(function, environment=environment, server=request.param)


def event(url: str, name: str, bearer: str = "", path: str = "/") -> tuple[int, str]:
    """Send the function an event; the status and what the answer says."""
    kind, body = EVENTS[name]
    headers = {**JSON, "Ce-Id": "1", "Ce-Source": "x", "Ce-Specversion": "1.0", "Ce-Type": kind}
    if bearer:
        headers["Authorization"] = f"Bearer {bearer}"
    status, _, said = send(url, "POST", path, json.dumps(body).encode(), headers)
    return status, json.loads(said)["error"] if said else ""


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_without_a_sender_s_token_is_401_and_nothing_is_looked_at(
    name: str, serve: Serve, server: Server
) -> None:
    needs = f"{name} needs a token of the ServiceAccount {TRIGGER} for the audience berth, as Bearer"
    with serve(name) as url:
        for bearer in ("", "s3cret", TENANTS, token("nobody"), token("trigger", "kubernetes")):
            assert event(url, name, bearer) == (401, needs)
        assert send(url, "POST", "/", b"{}", JSON)[0] == 401  # nor is a person's call
        assert server.looks == []
        assert server.reviewed == [TENANTS, token("nobody")]
        assert event(url, name, GOOD)[0] in (204, 400, 503)  # the ledger is not open, and the Pod has no UID
        if name == "reconcile":
            assert event(url, name, GOOD) == (204, "")
            assert server.looks != []


@pytest.mark.parametrize("name", EVENTS)
def test_while_the_api_server_can_t_say_an_event_is_tried_again(
    name: str, serve: Serve, server: Server
) -> None:
    """503 is repeated by Knative, 401 is not."""
    server.away = True
    with serve(name) as url:
        status, said = event(url, name, GOOD)
        assert (status, server.looks) == (503, []), said
        assert GOOD not in said
        server.away = False
        assert event(url, name, GOOD)[0] != 401


def test_the_body_of_a_stranger_s_event_is_not_read(serve: Serve) -> None:
    for name in ("release", "inventory"):
        with serve(name) as url, opened(url, {**JSON, "Content-Length": "1000000"}) as connection:
            assert answer(connection).status == 401  # none of the body was sent


def test_health_and_the_path_external_have_doors_of_their_own(serve: Serve, server: Server) -> None:
    with serve("inventory") as url:
        assert send(url, "GET", "/healthz", b"", {})[0] == 200
        assert send(url, "POST", "/external", b"{}", {**JSON, "Authorization": f"Bearer {GOOD}"})[0] == 403
        assert server.reviewed == []


def test_where_no_account_is_named_anybody_may_send(environment: Mapping[str, str], server: Server) -> None:
    with function("reconcile", {**environment, "BERTH_EVENTS_ACCOUNTS": "x/y"}) as url:
        assert event(url, "reconcile")[0] == 401
    open_to_all = {name: value for name, value in environment.items() if name != "BERTH_EVENTS_ACCOUNTS"}
    with function("reconcile", open_to_all) as url:
        assert event(url, "reconcile") == (204, "")
    assert server.reviewed == []
