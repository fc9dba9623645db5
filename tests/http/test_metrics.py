"""GET /metrics of real functions: exact under two replicas of several processes each, of which one dies.
What each metric means is in docs/observability.md."""

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from berth.local.ports import free_port
from berth.metrics import FOLDER
from berth.testing import kubeconfig
from tests.support.floods import workers
from tests.support.processes import is_running
from tests.support.servers.framework import function, send
from tests.unit.test_metrics import samples

TOKEN = {"BERTH_AUTH_TOKEN": "s3cret"}
BEARER = {"Authorization": "Bearer s3cret"}
JSON = {"Content-Type": "application/json"}
CALL = json.dumps({"Pod": {"metadata": {"name": "a", "uid": "1"}, "spec": {}}, "NodeNames": ["n1"]}).encode()
ANSWERED = frozenset({"filter", "answered"})


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    return {"BERTH_STORE": f"sqlite:///{tmp_path}/ledger.db", **TOKEN}


@pytest.fixture(params=["functions-framework", "webserver"])
def url(request: pytest.FixtureRequest, environment: Mapping[str, str]) -> Iterator[str]:
    with function("filter", environment, server=request.param) as url:
        yield url


def scraped(url: str) -> dict[tuple[str, frozenset[str]], float]:
    status, kind, body = send(url, "GET", "/metrics", b"", BEARER)
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    return samples(body)


def test_calls_are_told_by_how_they_ended(url: str) -> None:
    for headers, body in ((BEARER, CALL), (BEARER, b"rubbish"), ({}, CALL), (BEARER, CALL)):
        send(url, "POST", "/filter", body, {**JSON, **headers})
    told = scraped(url)
    count = "berth_call_duration_seconds_count"
    assert {labels: value for (name, labels), value in told.items() if name == count} == {
        ANSWERED: 2,
        frozenset({"filter", "invalid"}): 1,
        frozenset({"filter", "unauthorized"}): 1,
    }
    assert 0 < told["berth_call_duration_seconds_sum", ANSWERED] < 60


@pytest.mark.parametrize(
    ("verbs", "opened"),
    [({}, {"scraper"}), (TOKEN, {"scraper", "s3cret"})],
    ids=["alone", "beside the verbs' token"],
)
@pytest.mark.parametrize("name", ["filter", "status"])
def test_the_token_of_the_metrics_opens_them_and_nothing_else(
    name: str, verbs: Mapping[str, str], opened: set[str], tmp_path: Path
) -> None:
    environment = {
        **verbs,
        "BERTH_STORE": f"sqlite:///{tmp_path}/ledger.db",
        "BERTH_METRICS_TOKEN": "scraper",
    }
    nobody = kubeconfig.write(tmp_path / "kubeconfig", f"http://127.0.0.1:{free_port()}", {})
    with function(name, {**environment, "KUBECONFIG": str(nobody)}) as url:
        for token in ("", "wrong", "scraper", "s3cret"):
            headers = {"Authorization": f"Bearer {token}"}
            status, _, body = send(url, "GET", "/metrics", b"", headers)
            assert status == (200 if token in opened else 401), (token, body)
            if name == "filter" and token != "s3cret":
                called = send(url, "POST", "/filter", CALL, {**JSON, **headers})[0]
                assert called == (401 if verbs else 200)


def test_who_may_not_call_may_not_scrape_and_a_scrape_is_no_call(url: str) -> None:
    assert send(url, "GET", "/metrics", b"", {})[0] == 401
    assert send(url, "POST", "/metrics", CALL, {**JSON, **BEARER})[0] == 200, "any path is filter's"
    assert scraped(url) == scraped(url)


def test_two_replicas_of_three_processes_lose_no_call_to_a_death(
    tmp_path: Path, environment: Mapping[str, str]
) -> None:
    with ExitStack() as replicas:
        urls = []
        for name in ("one", "two"):
            settings = {**environment, FOLDER: str(tmp_path / name), "WORKERS": "3"}
            urls.append(replicas.enter_context(function("filter", settings, server="webserver")))
        for sent in (40, 80, 120):
            for url in urls:
                for _ in range(40):
                    assert send(url, "POST", "/filter", CALL, {**JSON, **BEARER})[0] == 200
                assert _counted(url, sent) == sent
            _kill_one(urls[sent // 40 % 2])
    assert len(list((tmp_path / "one").glob("histogram_*.db"))) <= 3, (
        "who came after a dead one took its place"
    )


def _counted(url: str, sent: int) -> float:
    """The calls that a scrape tells, once they are as many; a process counts its first one a moment after its
    answer."""
    give_up_at = time.monotonic() + 30
    while True:
        counted = scraped(url)["berth_call_duration_seconds_count", ANSWERED]
        if counted >= sent or time.monotonic() > give_up_at:
            return counted


def _kill_one(url: str) -> None:
    """Kill a process that serves there, and wait until its parent knows."""
    there = workers(url)
    victim = min(there)
    os.kill(victim, signal.SIGKILL)
    while is_running(victim):
        send(url, "GET", "/healthz", b"", {})
