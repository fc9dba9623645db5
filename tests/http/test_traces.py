"""Spans of a function in its own processes: what a collector gets, and that nobody waits for one that hangs.
The collector is a stand-in, which decodes what comes by OpenTelemetry's own definitions."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.builders.objects import EVENTS
from tests.support.servers.collector import Collector, collecting
from tests.support.servers.framework import SERVERS, function, send

TRACE, PARENT = "1a" * 16, "2b" * 8
CALL = (EVENTS / "extender/filter-names.json").read_bytes()
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


def environment(folder: Path) -> dict[str, str]:
    return {"BERTH_STORE": f"sqlite:///{folder}/ledger.db"}


@pytest.mark.parametrize("server", SERVERS)
def test_a_call_is_a_span_in_its_caller_s_trace_and_a_store_call_one_within(
    tmp_path: Path, collector: Collector, server: str
) -> None:
    with function("filter", {**environment(tmp_path), **collector.environment}, server) as url:
        headers = {**JSON, "traceparent": f"00-{TRACE}-{PARENT}-01"}
        assert send(url, "POST", "/", CALL, headers)[0] == 200
        spans = collector.of(TRACE, "filter", "store changes")
    (call,) = [span for span in spans if span.name == "filter"]
    assert (call.parent, call.service) == (PARENT, "berth")
    # The ledger is not open yet: the pod is to be retried.
    assert (call.facts["berth.function"], call.facts["berth.outcome"]) == ("filter", "unavailable")
    assert call.failed
    within = {span.name: span for span in spans if span.name != "filter"}
    assert {span.parent for span in within.values()} == {call.span}
    asked = within["store changes"].facts
    assert asked == {"db.system.name": "sqlite", "db.operation.name": "changes", "berth.outcome": "answered"}


@pytest.mark.parametrize("server", SERVERS)
def test_a_process_that_ends_in_order_sends_its_last_spans_first(
    tmp_path: Path, collector: Collector, server: str
) -> None:
    late = {**environment(tmp_path), **collector.environment, "OTEL_BSP_SCHEDULE_DELAY": "3600000"}
    with function("filter", late, server) as url:
        send(url, "POST", "/", CALL, {**JSON, "traceparent": f"00-{TRACE}-{PARENT}-01"})
        assert collector.spans == []
    assert collector.of(TRACE, "filter")


def test_a_caller_s_trace_that_is_not_sampled_is_not_sent_nor_one_that_our_own_sampler_leaves_out(
    tmp_path: Path, collector: Collector
) -> None:
    none = {"OTEL_TRACES_SAMPLER": "parentbased_always_off"}
    with function("filter", {**environment(tmp_path), **collector.environment, **none}, "webserver") as url:
        send(url, "POST", "/", CALL, {**JSON, "traceparent": f"00-{'1' * 32}-{PARENT}-00"})
        send(url, "POST", "/", CALL, JSON)
        send(url, "POST", "/", CALL, {**JSON, "traceparent": f"00-{TRACE}-{PARENT}-01"})
        collector.of(TRACE, "filter")
    assert {span.trace for span in collector.spans} == {TRACE}


def test_no_call_and_no_end_waits_for_a_collector_that_never_answers(tmp_path: Path) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        asks = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{deaf.getsockname()[1]}"}
        soon = {
            "OTEL_BSP_SCHEDULE_DELAY": "1",
            "OTEL_BSP_MAX_QUEUE_SIZE": "4",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "2",
        }
        with function("filter", {**environment(tmp_path), **asks, **soon}, "webserver") as url:
            began = time.monotonic()
            for _ in range(50):
                assert send(url, "POST", "/", CALL, JSON)[0] == 200
            ends = time.monotonic()
        assert ends - began < 8  # the exporter itself waits for 10 s
        assert time.monotonic() - ends < 8
