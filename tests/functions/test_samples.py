"""Every function, started by plain functions-framework, takes every sample of events/ that is meant for it.
What the answers mean in a cluster is shown by tests/e2e."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from berth.demo.apiserver import StandIn
from tests.support.framework import ROOT, function, send

EVENTS = ROOT / "events"
_POOL = """apiVersion: berth.dev/v1alpha1
kind: Pool
metadata: {name: underlay-ip}
spec: {capacity: {perDomain: 10}}
"""
_NONE = {"released": 0, "woken": 0}

# sample: the function it is for, the status, and a part of the answer
SAMPLES: dict[str, tuple[str, int, Any]] = {
    "extender/filter-names.json": (
        "filter",
        200,
        {"NodeNames": ["n1", "n2", "n0"], "Nodes": None, "Error": ""},
    ),
    "extender/filter-full.json": ("filter", 200, {"NodeNames": None, "FailedAndUnresolvableNodes": {}}),
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
    "extender/bind.json": ("bind", 200, {"Error": "pod default/a with UID {uid} is gone"}),
    "cloudevents/pod-add.json": ("release", 200, {"released": 0}),
    "cloudevents/pod-update-graceful-deletion.json": ("release", 200, {"released": 0}),
    "cloudevents/pod-update-finished.json": ("release", 200, _NONE),
    "cloudevents/pod-delete.json": ("release", 200, _NONE),
    "cloudevents/pod-delete-through-broker.json": ("release", 200, _NONE),
    "cloudevents/pod-delete-label-removed.json": ("release", 200, _NONE),
    "cloudevents/pod-delete-reference.json": (
        "release",
        400,
        {"error": "the source sends mode Reference, which has no UID: set spec.mode: Resource in it"},
    ),
    "cloudevents/node-update.json": ("inventory", 200, {"changed": 0, "woken": 0}),
    "cloudevents/pool-update.json": ("inventory", 200, {"changed": 0, "woken": 0}),
    "cloudevents/ping.json": ("reconcile", 200, {"problems": [], "released": 0, "rebuilt": False}),
}
LATER = {"extender/preempt-names.json", "extender/preempt-full.json"}  # for functions/preempt, not built yet
FUNCTIONS = sorted({name for name, _, _ in SAMPLES.values()})


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """All functions, on one ledger that reconcile has opened, beside a stand-in with three nodes."""
    folder = tmp_path_factory.mktemp("samples")
    (folder / "pools.yaml").write_text(_POOL)
    with ExitStack() as stack:
        api = stack.enter_context(StandIn())
        for number in range(3):
            body = json.dumps({"metadata": {"name": f"n{number}"}}).encode()
            send(api.url, "POST", "/api/v1/nodes", body, {"Content-Type": "application/json"})
        environment = {
            "KUBECONFIG": str(api.kubeconfig(folder / "kubeconfig")),
            "BERTH_STORE": f"sqlite:///{folder}/ledger.db",
            "BERTH_POOLS": str(folder / "pools.yaml"),
        }
        started = {name: stack.enter_context(function(name, environment)) for name in FUNCTIONS}
        status, _, report = _send(started["reconcile"], EVENTS / "cloudevents/ping.json")
        assert (status, json.loads(report)["rebuilt"]) == (200, True)
        yield started


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_function_takes_its_sample(urls: Mapping[str, str], sample: str) -> None:
    name, status, expected = SAMPLES[sample]
    found = _send(urls[name], EVENTS / sample)
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


def test_every_sample_is_sent() -> None:
    there = {str(path.relative_to(EVENTS)) for path in EVENTS.rglob("*.json")}
    assert there == {*SAMPLES, *LATER}


def test_full_nodes_come_back_byte_for_byte(urls: Mapping[str, str]) -> None:
    sent = (EVENTS / "extender/filter-full.json").read_bytes()
    _, _, answer = _send(urls["filter"], EVENTS / "extender/filter-full.json")
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
    found = send(urls[name], method, path, body, {"Content-Type": "application/json"})
    assert (found[0], found[1]) == (status, "application/json")
    assert json.loads(found[2])
    assert b"\n" not in found[2]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_with_wrong_settings_does_not_start_and_says_why(name: str, tmp_path: Path) -> None:
    environment = {"BERTH_STORE": "mysql://somewhere", "KUBECONFIG": str(tmp_path / "none")}
    with (
        pytest.raises(AssertionError, match=r"berth can't start: BERTH_STORE should be a store's URL"),
        function(name, environment),
    ):
        pass


def _send(url: str, sample: Path) -> tuple[int, str, bytes]:
    kind = "application/cloudevents+json" if sample.parent.name == "cloudevents" else "application/json"
    return send(url, "POST", "/", sample.read_bytes(), {"Content-Type": kind})
