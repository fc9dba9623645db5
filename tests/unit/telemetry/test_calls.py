"""What is told of a call of a function: its lines in the log, and its spans."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from berth.errors import BadInputError, RefusedError, StoreFailedError, StoreUnavailableError
from berth.http import cloudevents
from berth.http.endpoint import Content, Endpoint, Reply, call_at_once, error_reply, respond
from berth.settings import Settings
from berth.stores.memory import MemoryStore
from berth.stores.traced import traced
from berth.telemetry import calls, traces
from berth.telemetry.otel import OtelTracer
from tests.support.log_lines import LogLines, log_lines

TRACE, PARENT = "1a" * 16, "2b" * 8
HEADER = f"00-{TRACE}-{PARENT}-01"
EVENT = {"specversion": "1.0", "id": "1", "source": "here", "type": "dev.knative.sources.ping"}
BINARY = {f"ce-{name}": value for name, value in EVENT.items()}
STRUCTURED = {"content-type": "application/cloudevents+json"}
log = logging.getLogger("berth.test")


@pytest.fixture
def lines() -> Iterator[LogLines]:
    with log_lines(logging.DEBUG) as kept:
        yield kept


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[ReadableSpan]]:
    """Spans that ended; this process traces while the test runs."""
    kept = InMemorySpanExporter()
    monkeypatch.setattr(traces, "tracer", OtelTracer("berth", {}, SimpleSpanProcessor(kept)))
    return lambda: list(kept.get_finished_spans())


def endpoint(answer: Callable[[], object]) -> Endpoint:
    def answered(_: Mapping[str, str], __: Content) -> Reply:
        done = answer()
        return done if isinstance(done, Reply) else Reply(200, b"{}")

    return Endpoint(
        name="filter",
        answer=answered,
        failed=lambda message, _: error_reply(503, message),
        health=lambda: None,
        body_limit=1000,
    )


def asked(target: Endpoint, headers: Mapping[str, str] = {}, body: bytes = b"{}") -> Reply:
    return respond(target, "POST", "/", headers, BytesIO(body))


def say() -> None:
    log.info("hello")


def test_a_line_has_its_caller_s_trace_without_opentelemetry(lines: LogLines) -> None:
    asked(endpoint(say), {"Traceparent": HEADER})
    (told,) = lines.all
    assert (told["function"], told["trace_id"], "span_id" in told) == ("filter", TRACE, False)


@pytest.mark.parametrize("header", ["", "forged\x1b[1A", "00-1-2-3"])
def test_a_wrong_header_is_no_trace(lines: LogLines, header: str) -> None:
    asked(endpoint(say), {"traceparent": header})
    assert "trace_id" not in lines.all[0]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({**BINARY, "ce-traceparent": HEADER}, b"{}"),
        ({**BINARY, "traceparent": HEADER, "ce-traceparent": f"00-{'1' * 32}-{PARENT}-01"}, b"{}"),
        (STRUCTURED, json.dumps({**EVENT, "traceparent": HEADER}).encode()),
    ],
    ids=["extension", "header", "structured"],
)
def test_an_event_s_trace_goes_on(lines: LogLines, headers: dict[str, str], body: bytes) -> None:
    subscriber = cloudevents.subscriber("release", lambda *_: {"released": 1}, lambda: None, Settings())
    assert asked(subscriber, headers, body).status == 204
    (told,) = lines.all
    assert {name: told[name] for name in ("trace_id", "decision", "released", "function")} == {
        "trace_id": TRACE,
        "decision": "released",
        "released": 1,
        "function": "release",
    }


@pytest.mark.parametrize("body", [b"", b"[]", b'{"traceparent": 3}', b"\xff"])
def test_an_event_that_can_t_be_read_is_in_no_trace(body: bytes) -> None:
    subscriber = cloudevents.subscriber("release", lambda *_: {}, lambda: None, Settings(), reads_body=False)
    assert subscriber.traceparent is not None
    assert subscriber.traceparent(STRUCTURED, body) == ""


def test_what_a_call_is_about_is_in_its_lines_alone(lines: LogLines) -> None:
    def about() -> None:
        calls.about(pod="default/web", uid="u")
        say()

    asked(endpoint(about))
    asked(endpoint(say))
    say()
    assert [told.get("pod") for told in lines.all] == ["default/web", None, None]
    assert [told.get("function") for told in lines.all] == ["filter", "filter", None]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "answered"),
        (RefusedError("no"), "refused"),
        (BadInputError("no"), "invalid"),
        (StoreUnavailableError("away"), "unavailable"),
        (StoreFailedError("full"), "failed"),
        (ValueError("ours"), "failed"),
    ],
)
def test_a_span_says_how_its_call_ended(
    spans: Callable[[], list[ReadableSpan]], error: Exception | None, outcome: str
) -> None:
    def answer() -> None:
        calls.about(pod="default/web", uid="u-1", node="n1")
        calls.decided(log, "bound", {"pool": "ip"}, "bound")
        if error is not None:
            raise error

    asked(endpoint(answer), {"traceparent": HEADER, "tracestate": "a=b"})
    (span,) = spans()
    assert span.parent is not None
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert span.context is not None
    assert span.context.trace_state.get("a") == "b"
    assert dict(span.attributes or {}) == {
        "berth.function": "filter",
        "berth.outcome": outcome,
        "k8s.namespace.name": "default",
        "k8s.pod.name": "web",
        "k8s.pod.uid": "u-1",
        "k8s.node.name": "n1",
    }
    assert [event.name for event in span.events] == ["bound"]
    assert span.status.is_ok is (outcome not in ("unavailable", "failed"))


def test_a_line_names_the_span_that_it_was_written_in(
    spans: Callable[[], list[ReadableSpan]], lines: LogLines
) -> None:
    asked(endpoint(say), {"traceparent": HEADER})
    (span,) = spans()
    assert span.context is not None
    (told,) = lines.all
    assert (told["trace_id"], told["span_id"]) == (TRACE, f"{span.context.span_id:016x}")


def test_what_could_not_be_answered_at_once_is_one_span(spans: Callable[[], list[ReadableSpan]]) -> None:
    slow = endpoint(say)
    quick = Endpoint(
        name="filter",
        answer=slow.answer,
        failed=slow.failed,
        health=slow.health,
        body_limit=1000,
        at_once=lambda *_: None,
    )
    assert call_at_once(quick, {}, b"{}") is None
    asked(quick)
    assert [span.name for span in spans()] == ["filter"]


def test_a_store_s_calls_are_spans_of_the_call_and_none_outside_of_one(
    spans: Callable[[], list[ReadableSpan]],
) -> None:
    store = traced(MemoryStore(), "memory")

    def answer() -> None:
        assert store.commit({"a": b"1"}, {"a": None})
        assert not store.commit({"a": b"2"}, {"a": None})
        assert store.read(["a"])["a"].body == b"1"

    store.read(["a"])
    asked(endpoint(answer))
    *parts, whole = spans()
    told = [(span.name, (span.attributes or {})["berth.outcome"]) for span in parts]
    assert told == [("store commit", "committed"), ("store commit", "conflict"), ("store read", "answered")]
    assert whole.context is not None
    assert {span.parent and span.parent.span_id for span in parts} == {whole.context.span_id}


def test_a_store_is_left_as_it_is_where_there_are_no_traces() -> None:
    store = MemoryStore()
    traced(store, "memory")
    assert vars(store).keys() == vars(MemoryStore()).keys()


def test_a_request_for_a_call_carries_its_trace_and_one_outside_of_any_carries_none() -> None:
    carried: list[str] = []
    asked(endpoint(lambda: carried.append(calls.outgoing())), {"traceparent": HEADER})
    asked(endpoint(lambda: carried.append(calls.outgoing())))
    assert [*carried, calls.outgoing()] == [HEADER, "", ""]


@pytest.mark.usefixtures("lines")
def test_a_decision_that_changes_nothing_is_worded_only_for_somebody_who_listens() -> None:
    assert calls.tells(log)
    logging.getLogger("berth").setLevel(logging.INFO)
    assert not calls.tells(log)


def test_such_a_decision_is_worded_for_a_span(spans: Callable[[], list[ReadableSpan]]) -> None:
    assert (calls.tells(logging.getLogger("berth.silent")), spans()) == (True, [])
