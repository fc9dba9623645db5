"""Every function takes every sample of events/ that is meant for it, by functions-framework and our server.
What the answers mean in a cluster is shown by tests/e2e."""

import http.client
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from berth.testing.api_server import StandIn
from tests.support.servers.framework import ROOT, function, send

EVENTS = ROOT / "events"
_POOL = """apiVersion: berth.dev/v1alpha1
kind: Pool
metadata: {name: underlay-ip}
spec: {capacity: {perDomain: 10}}
"""
_TAKEN = ""  # no body, not even JSON: a CloudEvent's sender takes it for a failure
# The samples' pods name a PoolClaim, which no cluster of a test has.
_NO_CLAIM = {f"n{number}": "there is no PoolClaim k80-erc in the pod's namespace" for number in range(3)}
_CLOSED = (
    "nobody may call /external: name the accounts that may in BERTH_EXTERNAL_ACCOUNTS, "
    "or set a token of its own in BERTH_EXTERNAL_TOKEN or BERTH_EXTERNAL_TOKEN_FILE"
)
_PATHS = {"http/external.json": "/external"}  # of all others any will do

# sample: the function it is for, the status, and a part of the answer
SAMPLES: dict[str, tuple[str, int, Any]] = {
    "extender/filter-names.json": (
        "filter",
        200,
        {"NodeNames": [], "Nodes": None, "FailedAndUnresolvableNodes": _NO_CLAIM, "Error": ""},
    ),
    "extender/filter-full.json": (
        "filter",
        200,
        {"NodeNames": None, "FailedAndUnresolvableNodes": _NO_CLAIM},
    ),
    "extender/prioritize-names.json": (
        "prioritize",
        200,
        [{"Host": name, "Score": 10} for name in ("n1", "n2", "n0")],
    ),
    "extender/prioritize-full.json": (
        "prioritize",
        200,
        [{"Host": f"n{number}", "Score": 10} for number in range(3)],
    ),
    "extender/preempt-names.json": ("preempt", 200, {"NodeNameToMetaVictims": {}}),
    "extender/preempt-full.json": ("preempt", 200, {"NodeNameToMetaVictims": {}}),
    "extender/bind.json": ("bind", 200, {"Error": "pod default/a with UID {uid} is gone"}),
    "cloudevents/pod-add.json": ("release", 204, _TAKEN),
    "cloudevents/pod-add-gated.json": ("release", 204, _TAKEN),
    "cloudevents/pod-update-graceful-deletion.json": ("release", 204, _TAKEN),
    "cloudevents/pod-update-finished.json": ("release", 204, _TAKEN),
    "cloudevents/pod-delete.json": ("release", 204, _TAKEN),
    "cloudevents/pod-delete-through-broker.json": ("release", 204, _TAKEN),
    "cloudevents/pod-delete-label-removed.json": ("release", 204, _TAKEN),
    "cloudevents/pod-delete-reference.json": (
        "release",
        400,
        {"error": "the source sends mode Reference, which has no UID: set spec.mode: Resource in it"},
    ),
    "cloudevents/node-update.json": ("inventory", 204, _TAKEN),
    "cloudevents/pool-update.json": ("inventory", 204, _TAKEN),
    "cloudevents/poolclaim-add.json": ("inventory", 204, _TAKEN),
    "cloudevents/poolclaim-delete.json": ("inventory", 204, _TAKEN),
    "http/external.json": ("inventory", 403, {"error": _CLOSED}),
    "cloudevents/ping.json": ("reconcile", 204, _TAKEN),
}
# the paths of functions/extender: the function that answers the same samples
VERBS = {
    "/filter": "filter",
    "/predicates": "filter",
    "/scheduler/filter": "filter",
    "/prioritize": "prioritize",
    "/priorities": "prioritize",
    "/preempt": "preempt",
    "/bind": "bind",
}
SINGLE = [(path, sample) for path in VERBS for sample, (name, *_) in SAMPLES.items() if name == VERBS[path]]
FUNCTIONS = sorted({"extender", *(name for name, _, _ in SAMPLES.values())})


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """A stand-in with three nodes, one ledger and one Pool."""
    folder = tmp_path_factory.mktemp("samples")
    (folder / "pools.yaml").write_text(_POOL)
    with StandIn() as api:
        for number in range(3):
            body = json.dumps({"metadata": {"name": f"n{number}"}}).encode()
            send(api.url, "POST", "/api/v1/nodes", body, {"Content-Type": "application/json"})
        yield {
            "KUBECONFIG": str(api.kubeconfig(folder / "kubeconfig")),
            "BERTH_STORE": f"sqlite:///{folder}/ledger.db",
            "BERTH_POOLS": str(folder / "pools.yaml"),
        }


@pytest.fixture(
    scope="module", params=["webserver", pytest.param("functions-framework", marks=pytest.mark.long)]
)
def urls(request: pytest.FixtureRequest, environment: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """All functions, on the ledger that reconcile has opened."""
    fresh = not Path(environment["BERTH_STORE"].removeprefix("sqlite://")).exists()
    with ExitStack() as stack:
        started = {
            name: stack.enter_context(function(name, environment, request.param)) for name in FUNCTIONS
        }
        status, _, report = send(started["reconcile"], "POST", "/", b"", {})
        assert (status, json.loads(report)["rebuilt"]) == (200, fresh)
        yield started


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_function_takes_its_sample(urls: Mapping[str, str], sample: str) -> None:
    name, *_ = SAMPLES[sample]
    _check(sample, _send(urls[name], EVENTS / sample, _PATHS.get(sample, "/")))


@pytest.mark.parametrize(("path", "sample"), SINGLE)
def test_the_extender_takes_the_samples_of_each_verb_by_path(
    urls: Mapping[str, str], path: str, sample: str
) -> None:
    found = _send(urls["extender"], EVENTS / sample, path)
    _check(sample, found)
    assert found == _send(urls[VERBS[path]], EVENTS / sample), "the function of this verb alone answers alike"


@pytest.mark.parametrize("path", ["/", "/Preempt", "/Filter", "/filter/x"])
def test_the_extender_names_its_paths_where_there_is_none(urls: Mapping[str, str], path: str) -> None:
    known = "/bind, /filter, /predicates, /preempt, /priorities, /prioritize"
    said = f"extender has no {path}: it takes POST {known}, and GET /healthz"
    status, kind, body = _send(urls["extender"], EVENTS / "extender/filter-names.json", path)
    assert (status, kind, json.loads(body)) == (404, "application/json", {"error": said})


def test_the_extender_wants_the_token_for_every_verb(environment: Mapping[str, str]) -> None:
    token = {"BERTH_AUTH_TOKEN": "s3cret"}
    basic = {"Authorization": f"Basic {b64encode(b'berth:s3cret').decode()}"}
    with function("extender", {**environment, **token}) as url:
        for path, sample in SINGLE:
            body = (EVENTS / sample).read_bytes()
            assert send(url, "POST", path, body, {})[0] == 401
            assert send(url, "POST", path, body, basic)[0] == 200
        assert send(url, "POST", "/other", b"", {})[0] == 404
        assert send(url, "GET", "/healthz", b"", {})[0] == 200


def test_external_use_is_set_by_who_has_its_own_token_and_where_the_pools_are(
    environment: Mapping[str, str],
) -> None:
    """What it does to a Pool in the cluster: tests/features/test_pool_fields.py."""
    body = (EVENTS / "http/external.json").read_bytes()
    tick = (EVENTS / "cloudevents/node-update.json").read_bytes()
    tokens = {"BERTH_EXTERNAL_TOKEN": "s3cret", "BERTH_AUTH_TOKEN": "the-verbs-own"}
    with function("inventory", {**environment, **tokens}) as url:
        assert send(url, "POST", "/external", body, {})[0] == 401
        assert send(url, "POST", "/external", body, {"Authorization": "Bearer the-verbs-own"})[0] == 401
        assert send(url, "POST", "/external", body, {"Authorization": "Bearer secret"})[0] == 401
        status, kind, answer = send(url, "POST", "/external", body, {"Authorization": "Bearer s3cret"})
        why = "the Pools are in a file (BERTH_POOLS): set spec.external there, or say berth external POOL N"
        assert (status, kind, json.loads(answer)) == (409, "application/json", {"error": why})
        token = {"Authorization": "Bearer s3cret"}
        status, _, answer = send(url, "POST", "/licences?pool=ip", b"a licence server's text", token)
        assert (status, json.loads(answer)) == (
            400,
            {"error": "no Pool 'ip' has externalFrom; there are: none"},
        )
        assert send(url, "POST", "/licences?pool=ip", b"a text", {})[0] == 401
        event = {"Content-Type": "application/cloudevents+json"}
        assert send(url, "POST", "/", tick, event)[0] == 204


def _check(sample: str, found: tuple[int, str, bytes]) -> None:
    _, status, expected = SAMPLES[sample]
    if expected == _TAKEN:
        assert (found[0], found[2]) == (204, b"")
        return
    answer = json.loads(found[2])
    assert (found[0], found[1]) == (status, "application/json")
    assert b"\n" not in found[2]
    if isinstance(expected, dict):
        uid = json.loads((EVENTS / sample).read_bytes()).get("PodUID", "")
        expected = {
            key: value.format(uid=uid) if key == "Error" else value for key, value in expected.items()
        }
        answer = {key: answer[key] for key in expected}
    assert answer == expected


@pytest.mark.parametrize("name", ["pod-delete", "node-update", "ping"])
def test_an_event_in_binary_mode_is_answered_with_nothing_and_its_connection_stays(
    urls: Mapping[str, str], name: str
) -> None:
    function, *_ = SAMPLES[f"cloudevents/{name}.json"]
    event = json.loads((EVENTS / "cloudevents" / f"{name}.json").read_bytes())
    data = json.dumps(event.pop("data"))
    headers = {f"Ce-{key}": value for key, value in event.items()} | {"Content-Type": "application/json"}
    connection = http.client.HTTPConnection(urls[function].removeprefix("http://"), timeout=30)
    with closing(connection):
        for _ in range(2):
            connection.request("POST", "/", data, headers)
            reply = connection.getresponse()
            assert (reply.status, reply.read(), reply.will_close) == (204, b"", False)
            assert "Ce-Specversion" not in reply.headers, "an event that is sent back is published again"


def test_a_person_who_calls_reconcile_is_told_what_it_did(urls: Mapping[str, str]) -> None:
    for body in (b"", b"{}", b"whatever"):
        status, kind, report = send(urls["reconcile"], "POST", "/", body, {})
        assert (status, kind) == (200, "application/json")
        assert json.loads(report) | {"released": 0, "problems": []} == json.loads(report)


def test_every_sample_is_sent() -> None:
    there = {str(path.relative_to(EVENTS)) for path in EVENTS.rglob("*.json")}
    assert there == {*SAMPLES}


def test_full_nodes_come_back_byte_for_byte(urls: Mapping[str, str]) -> None:
    named = b'"annotations":{"berth.dev/claims":"k80-erc"}'
    sent = (EVENTS / "extender/filter-full.json").read_bytes().replace(named, b'"annotations":{}')
    _, _, answer = send(urls["filter"], "POST", "/", sent, {"Content-Type": "application/json"})
    start = sent.index(b'"items":[') + len(b'"items":[')
    nodes = sent[start : sent.rindex(b"]}")]
    assert nodes in answer


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/healthz", b"", 200),
        ("GET", "/", b"", 405),
        ("PUT", "/", b"{}", 405),
        ("POST", "/any/path", b"<html>", 400),
        ("POST", "/", b"", 400),
    ],
)
def test_every_answer_is_one_line_of_json(
    urls: Mapping[str, str], name: str, method: str, path: str, body: bytes, status: int
) -> None:
    if name == "reconcile" and method == "POST":
        status = 200  # a tick has nothing in it to be wrong: any POST reconciles
    if name == "extender" and method == "POST":
        status = 404  # its paths name the verbs
    found = send(urls[name], method, path, body, {"Content-Type": "application/json"})
    assert (found[0], found[1]) == (status, "application/json")
    assert json.loads(found[2])
    assert b"\n" not in found[2]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.long
def test_a_function_with_wrong_settings_does_not_start_and_says_why(name: str, tmp_path: Path) -> None:
    environment = {"BERTH_STORE": "mysql://somewhere", "KUBECONFIG": str(tmp_path / "none")}
    with (
        pytest.raises(AssertionError, match=r"berth can't start: BERTH_STORE .* should be a store's URL"),
        function(name, environment),
    ):
        pass


def _send(url: str, sample: Path, path: str = "/") -> tuple[int, str, bytes]:
    kind = "application/cloudevents+json" if sample.parent.name == "cloudevents" else "application/json"
    return send(url, "POST", path, sample.read_bytes(), {"Content-Type": kind})
