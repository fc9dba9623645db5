"""What clients without a token can't do to the functions' processes, however much or slowly they send.

Plain functions-framework holds this too; tests/http/test_server.py has what Berth's own server adds.
"""

import json
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial

import pytest

from berth.testing.api_server import StandIn
from tests.support.floods import MIB, Health, answer, health, opened, peak, pour, trickles
from tests.support.servers.framework import function, send

pytestmark = [pytest.mark.long, pytest.mark.group("floods")]  # two at a time would measure each other

TOKEN = {"BERTH_AUTH_TOKEN": "s3cret"}
GOOD = {"Authorization": f"Basic {b64encode(b'berth:s3cret').decode()}"}
EVENT = {
    "Content-Type": "application/json",
    "Ce-Specversion": "1.0",
    "Ce-Id": "1",
    "Ce-Source": "stray",
    "Ce-Type": "dev.knative.apiserver.resource.delete",
}
STRUCTURED = {"Content-Type": "application/cloudevents+json"}
INFRA = 512  # MiB: what infra's Services get
SOON = 3.0  # seconds: /healthz is asked for with 5

Environment = Mapping[str, str]
Serve = Callable[..., AbstractContextManager[str]]


@pytest.fixture(params=["functions-framework", "webserver"])
def serve(request: pytest.FixtureRequest) -> Serve:
    """Starts a function by each of the servers; its URL."""
    return partial(function, server=request.param)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    folder = tmp_path_factory.mktemp("floods")
    with StandIn() as api:
        yield {
            "KUBECONFIG": str(api.kubeconfig(folder / "kubeconfig")),
            "BERTH_STORE": f"sqlite:///{folder}/ledger.db",
            "BERTH_BODY_LIMIT": "1000000",
        }


@pytest.mark.parametrize("name", ["filter", "bind"])
def test_a_large_body_is_refused_before_it_is_read(name: str, serve: Serve, environment: Environment) -> None:
    with serve(name, {**environment, **TOKEN}) as url, Health(url) as asked:
        before = peak(url)
        for headers, status in (({}, 401), (GOOD, 413)):
            told = pour(url, 700 * MIB, headers)
            assert told.status in (0, status), "who sends on and on may miss the answer"
            assert told.sent < 20 * MIB
            connection = opened(url, {"Content-Length": str(10**18), **headers})
            with connection:
                assert answer(connection).status == status
        assert peak(url) - before < 20
    assert (asked.longest < SOON, asked.wrong) == (True, 0)


def test_chunks_are_counted(serve: Serve, environment: Environment) -> None:
    with serve("filter", {**environment, **TOKEN}) as url:
        before = peak(url)
        with opened(url, {"Transfer-Encoding": "chunked", **GOOD}) as connection:
            chunk = b"100000\r\n" + b"x" * MIB + b"\r\n"
            connection.sendall(chunk)
            assert answer(connection).status == 413
        assert peak(url) - before < 20


@pytest.mark.parametrize("threads", ["1", "4"])
def test_clients_without_the_token_that_send_slowly_hold_nothing(
    threads: str, serve: Serve, environment: Environment
) -> None:
    variables = {**environment, **TOKEN, "THREADS": threads}
    with serve("filter", variables) as url, trickles(url, 12, {}) as clients, Health(url) as asked:
        assert {answer(each).status for each in clients} == {401}
        assert send(url, "POST", "/filter", b"{}", GOOD)[0] == 400
    assert (asked.longest < SOON, asked.wrong) == (True, 0)


def test_a_body_that_comes_too_slowly_is_given_up(serve: Serve, environment: Environment) -> None:
    with serve("filter", {**environment, **TOKEN, "THREADS": "8"}) as url:
        with trickles(url, 1, GOOD) as (client,), Health(url) as asked:
            began = time.monotonic()
            assert answer(client).status == 408
            assert 9 < time.monotonic() - began < 15
        assert asked.longest < SOON


def test_slow_bodies_hold_nobody_up(serve: Serve, environment: Environment) -> None:
    with serve("release", {**environment, "THREADS": "8"}) as url, trickles(url, 8, EVENT) as clients:
        began = time.monotonic()
        assert health(url) == 200
        assert send(url, "POST", "/", b"{}", EVENT)[0] == 400
        assert time.monotonic() - began < SOON
        assert {answer(each).status for each in clients} <= {408, 503}


def test_slow_bodies_make_way_where_they_hold_most_threads(environment: Environment) -> None:
    """Of plain functions-framework; our own server needs no thread to read."""
    with function("release", {**environment, "THREADS": "8"}) as url, trickles(url, 8, EVENT) as clients:
        told = [answer(each) for each in clients]
    made_way = [each for each in told if each.status == 503]
    assert len(made_way) > 2, "fewer than three quarters of the threads read, and those may have 10 s"
    assert {each.headers["retry-after"] for each in made_way} == {"1"}


def test_nobody_stops_reconcile_by_a_body(serve: Serve, environment: Environment) -> None:
    """Its body means nothing, and is not read."""
    with serve("reconcile", {**environment, "THREADS": "1"}) as url:
        with trickles(url, 8, {}) as clients:
            began = time.monotonic()
            assert send(url, "POST", "/", b"{}", {})[0] == 200
            assert health(url) == 200
            assert time.monotonic() - began < 2 * SOON
            assert {answer(each).status for each in clients} == {200}
        assert pour(url, 300 * MIB, {}).sent < 20 * MIB
        assert peak(url) < 120


def test_an_event_has_a_limit_of_its_own(serve: Serve, environment: Environment) -> None:
    variables = {name: value for name, value in environment.items() if name != "BERTH_BODY_LIMIT"}
    with serve("release", {**variables, "THREADS": "8"}) as url:
        assert pour(url, 255 * MIB, EVENT).status in (0, 413)
        assert peak(url) < 120


def _garbage(structured: bool) -> bytes:
    lists = b"[" + b",".join([b"[]"] * (MIB - 1000)) + b"]"
    event = {name.removeprefix("Ce-").lower(): value for name, value in EVENT.items() if name[:3] == "Ce-"}
    return json.dumps(event).encode()[:-1] + b',"data":' + lists + b"}" if structured else lists


@pytest.mark.parametrize("structured", [False, True])
def test_an_event_that_is_garbage_takes_no_more_than_its_length(
    structured: bool, serve: Serve, environment: Environment
) -> None:
    body = _garbage(structured)
    assert 2.9 * MIB < len(body) < 3 * MIB
    variables = {**environment, "THREADS": "8", "BERTH_BODY_LIMIT": str(256 * MIB)}
    headers = STRUCTURED if structured else EVENT
    with serve("release", variables) as url, Health(url) as asked, ThreadPoolExecutor(8) as pool:
        before = peak(url)
        found = list(pool.map(lambda _: send(url, "POST", "/", body, headers)[0], range(32)))
        assert set(found) <= {400, 503}
        assert found.count(400) > 1
        assert peak(url) - before < 60
    assert (asked.longest < SOON, asked.wrong) == (True, 0)


def test_what_calls_hold_together_is_bounded(serve: Serve, environment: Environment) -> None:
    """Six clients stop one byte before their bodies' end: who is over the bound is told to come again."""
    with serve("release", {**environment, "THREADS": "16", "BERTH_BODY_LIMIT": str(256 * MIB)}) as url:
        before = peak(url)
        with ThreadPoolExecutor(6) as pool:
            told = list(pool.map(lambda _: _all_but_a_byte(url), range(6)))
        # gunicorn has a MiB of each in hand, which is not counted: so three fit, not two. Fewer do where some
        # are refused in the moment before another gives back what it held.
        assert set(told) <= {408, 503}
        assert told.count(503) >= 3
        assert peak(url) - before < 30


def _all_but_a_byte(url: str) -> int:
    with opened(url, {"Content-Length": str(3 * MIB), **EVENT}) as connection:
        connection.sendall(b"x" * (3 * MIB - 1))
        return answer(connection).status
