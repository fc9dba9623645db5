"""What only the demonstration's stand-in for the API server does; the rest is in the conformance tests.
It does not test that the demonstration works with it."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import urllib3
import yaml

from berth.testing.api_server import StandIn
from tests.support.cluster import Cluster


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    uids = iter(["first", "second"])
    with StandIn(clock=lambda: 1_000_000_000.0, uids=lambda: next(uids)) as started:
        yield started


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/services"),
        ("PUT", "/api/v1/namespaces/default/pods/one"),
        ("PATCH", "/api/v1/namespaces/default/pods/one"),
        ("POST", "/api/v1/namespaces/default/pods/one/eviction"),
    ],
)
def test_a_call_it_does_not_play_is_named(stand_in: StandIn, method: str, path: str) -> None:
    reply = Cluster(stand_in.url, "none").request(method, path, {})
    assert (reply.status, reply.body["kind"]) == (404, "Status")
    assert reply.body["message"].startswith(
        f"Berth's stand-in for the API server does not answer {method} {path};"
    )


def test_its_times_and_uids_are_those_it_was_given(stand_in: StandIn) -> None:
    cluster = Cluster(stand_in.url, "none")
    first, second = (cluster.create_pod(name)["metadata"] for name in ("one", "two"))
    assert (first["uid"], second["uid"]) == ("first", "second")
    assert first["creationTimestamp"] == "2001-09-09T01:46:40Z"


def test_its_kubeconfig_leads_to_it(stand_in: StandIn, tmp_path: Path) -> None:
    document = yaml.safe_load(stand_in.kubeconfig(tmp_path / "kubeconfig").read_text())
    assert document["clusters"][0]["cluster"] == {"server": stand_in.url}
    assert document["current-context"] == document["contexts"][0]["name"]


@pytest.mark.parametrize(("method", "body"), [("POST", "{"), ("POST", "[]"), ("PUT", "{")])
def test_a_body_that_is_no_object_is_a_bad_request(stand_in: StandIn, method: str, body: str) -> None:
    url = f"{stand_in.url}/api/v1/namespaces/default/pods"
    with urllib3.PoolManager() as http:
        answer = http.request(method, url, body=body)
    assert answer.status == 400
    assert answer.json()["kind"] == "Status"


def test_stopping_it_ends_its_watches(stand_in: StandIn) -> None:
    with urllib3.PoolManager() as http:
        answer = http.request("GET", f"{stand_in.url}/api/v1/pods?watch=1", preload_content=False, timeout=20)
        stopper = threading.Thread(target=stand_in.stop)
        stopper.start()
        with suppress(urllib3.exceptions.ProtocolError):  # cut, or ended before it could be
            assert list(answer) == []
        stopper.join()


def test_a_watcher_that_went_away_disturbs_nobody(
    stand_in: StandIn, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(stand_in.url, "none")
    with urllib3.PoolManager() as http:
        answer = http.request("GET", f"{stand_in.url}/api/v1/pods?watch=1", preload_content=False, timeout=20)
        answer.close()
    assert [cluster.create_pod(name)["metadata"]["name"] for name in ("one", "two")] == ["one", "two"]
    stand_in.stop()
    assert capfd.readouterr().err == ""
