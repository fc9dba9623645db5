"""The stand-in for Knative's ApiServerSource posts what the real one was recorded to post, and as often.
Its watching is shown by tests/e2e/faults/test_event_faults.py, on a real API server."""

import json
import re
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from berth.local import event_relay
from berth.local.ports import free_port
from tests.support.fakes.apiserversource import (
    PAUSES,
    REFERENCE,
    RESOURCE,
    RETRIED,
    Answer,
    ApiServerSource,
    Event,
    anew,
    batch,
    event_of,
    structured,
)
from tests.support.servers.serving import serving

CAPTURES = Path(__file__).resolve().parents[2] / "support" / "captures"
VARYING = ("Host", "Ce-Id", "Ce-Time")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}Z")


class Request(NamedTuple):
    line: str
    headers: Mapping[str, str]
    body: bytes


def recorded() -> list[Any]:
    """Every recorded request, by its file and number."""
    found = []
    for path in sorted(CAPTURES.glob("*.http")):
        parts = re.split(rb"(?m)^### .* -> reply \d+\n", path.read_bytes())[1:]
        for number, part in enumerate(parts, 1):
            head, _, body = part.partition(b"\n\n")
            line, *lines = head.decode().splitlines()
            headers = dict(each.split(": ", 1) for each in lines)
            request = Request(line, headers, body[: int(headers["Content-Length"])])
            found.append(pytest.param(request, id=f"{path.stem}-{number}"))
    return found


class Sink(ThreadingHTTPServer):
    """Keeps what it is posted, and answers by `statuses`, the last of them for ever; always with `reply`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.got: list[Request] = []
        self.statuses = [200]
        self.reply: tuple[Mapping[str, str], bytes] = ({}, b"")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Sink

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(Request(self.requestline, dict(self.headers.items()), body))
        statuses = self.server.statuses
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        headers, body = self.server.reply
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody asked."""


@pytest.fixture
def sink() -> Iterator[Sink]:
    with serving(Sink()) as server:
        yield server


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def source(sink: Sink, pauses: list[float]) -> ApiServerSource:
    """It is not started: only its posting is looked at."""
    return ApiServerSource("http://nowhere", "", None, sink.url, pause=pauses.append)


def of_recorded(request: Request) -> Event:
    """What the stand-in makes of the object that the recorded event was about."""
    kind, _, change = request.headers["Ce-Type"].rpartition(".")
    item = json.loads(request.body)
    meta = item.get("metadata") or {"namespace": item["namespace"], "name": item["name"]}
    event = event_of(request.headers["Ce-Source"], change, {**item, "metadata": meta}, f"{kind}.")
    return event._replace(attributes={**event.attributes, "cluster": "demo"})  # set in the recorded source


@pytest.mark.parametrize("request_", recorded())
def test_it_posts_what_was_recorded_header_by_header_and_byte_by_byte(
    source: ApiServerSource, sink: Sink, request_: Request
) -> None:
    expected = request_
    if expected.headers["Ce-Type"].startswith(RESOURCE):
        assert json.loads(expected.body)["metadata"]["uid"]
    assert source.post(of_recorded(expected)).status == 200
    (got,) = sink.got
    assert got.line == expected.line
    assert got.headers.keys() == expected.headers.keys()
    fixed = {name: value for name, value in expected.headers.items() if name not in VARYING}
    assert {name: got.headers[name] for name in fixed} == fixed
    assert got.body == expected.body
    for headers in (got.headers, expected.headers):
        assert UUID.fullmatch(headers["Ce-Id"])
        assert TIME.fullmatch(headers["Ce-Time"])


def test_the_recorded_are_of_both_modes_and_of_every_change() -> None:
    types = {each.values[0].headers["Ce-Type"] for each in recorded()}
    assert types == {
        kind + change for kind in (RESOURCE, REFERENCE) for change in ("add", "update", "delete")
    }


@pytest.mark.parametrize("status", [status for status in RETRIED if status])
def test_a_try_that_may_be_mended_is_repeated_five_times_in_3_1_seconds_under_one_id(
    source: ApiServerSource, sink: Sink, pauses: list[float], status: int
) -> None:
    sink.statuses = [status]
    sent = source.post(an_event())
    assert [answer.status for answer in sent.answers] == [status] * 6
    assert (tuple(pauses), round(sum(pauses), 3)) == (PAUSES, 3.1)
    assert len(sink.got) == 6
    assert {got.headers["Ce-Id"] for got in sink.got} == {sent.event.attributes["id"]}


def test_a_retry_that_succeeds_is_the_last(source: ApiServerSource, sink: Sink, pauses: list[float]) -> None:
    sink.statuses = [503, 404, 200]
    assert [answer.status for answer in source.post(an_event()).answers] == [503, 404, 200]
    assert tuple(pauses) == PAUSES[:2]


@pytest.mark.parametrize("status", [400, 401, 409, 500])
def test_other_failures_are_dropped_at_once(
    source: ApiServerSource, sink: Sink, pauses: list[float], status: int
) -> None:
    sink.statuses = [status]
    assert source.post(an_event()).status == status
    assert (len(sink.got), pauses) == (1, [])


@pytest.mark.parametrize("kind", ["application/json", "text/html"])
def test_an_answer_that_is_neither_empty_nor_a_cloudevent_counts_as_a_failure_as_with_a_broker(
    source: ApiServerSource, sink: Sink, pauses: list[float], kind: str
) -> None:
    sink.reply = ({"Content-Type": kind}, b'{"released":1}')
    sent = source.post(an_event())
    assert [answer.status for answer in sent.answers] == [502] * 6
    assert sent.answers[0].text.endswith('not recognized as CloudEvent: {"released":1}')
    assert tuple(pauses) == PAUSES


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Type": "application/json"}, b""),
        ({"Ce-Specversion": "1.0", "Content-Type": "application/json"}, b"{}"),
        ({"Content-Type": "application/cloudevents+json"}, b"{}"),
    ],
)
def test_an_answer_that_is_empty_or_a_cloudevent_is_taken(
    source: ApiServerSource, sink: Sink, headers: Mapping[str, str], body: bytes
) -> None:
    sink.reply = (headers, body)
    assert [answer.status for answer in source.post(an_event()).answers] == [200]


def test_the_body_of_a_failure_changes_nothing(source: ApiServerSource, sink: Sink) -> None:
    sink.statuses, sink.reply = [422], ({}, b'{"error":"why"}')
    assert source.post(an_event()).answers == [Answer(422, '{"error":"why"}')]


def test_who_is_not_there_is_tried_as_often(pauses: list[float]) -> None:
    source = ApiServerSource(
        "http://nowhere", "", None, f"http://127.0.0.1:{free_port()}", pause=pauses.append
    )
    sent = source.post(an_event())
    assert [answer.status for answer in sent.answers] == [0] * 6
    assert tuple(pauses) == PAUSES


def test_the_relay_of_berth_up_retries_as_the_source_does() -> None:
    assert event_relay._PAUSES == PAUSES
    assert {0, *event_relay._RETRIED} == set(RETRIED)


def test_the_other_dresses_carry_the_same_event() -> None:
    event = an_event()
    headers, body = structured(event)
    assert headers == {"Content-Type": "application/cloudevents+json"}
    whole = json.loads(body)
    assert whole.pop("data") == json.loads(event.data)
    assert whole.pop("datacontenttype") == "application/json"
    assert whole == event.attributes
    assert batch(event)[0] == {"Content-Type": "application/cloudevents-batch+json"}
    assert json.loads(batch(event)[1]) == [json.loads(body)]


def test_an_event_anew_differs_by_its_id_alone() -> None:
    event = an_event()
    other = anew(event)
    assert other.attributes["id"] != event.attributes["id"]
    assert {**other.attributes, "id": ""} == {**event.attributes, "id": ""}
    assert other.data == event.data


def an_event() -> Event:
    meta = {"name": "a", "namespace": "default", "uid": "uid-a"}
    return event_of("http://nowhere", "delete", {"apiVersion": "v1", "kind": "Pod", "metadata": meta})
