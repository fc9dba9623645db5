"""When a process traces, and what it says where it can't."""

import logging
import sys
from collections.abc import Iterator

import pytest

from berth.telemetry import traces

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
URL = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    """No test leaves a tracer behind."""
    yield
    traces.tracer = None


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, ""),
        ({ENDPOINT: ""}, ""),
        ({ENDPOINT: URL}, ENDPOINT),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": URL}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "OTEL_TRACES_EXPORTER"),
        ({ENDPOINT: URL, "OTEL_TRACES_EXPORTER": "none"}, ""),
        ({ENDPOINT: URL, "OTEL_SDK_DISABLED": "true"}, ""),
    ],
)
def test_opentelemetry_s_variables_ask_for_traces(environment: dict[str, str], name: str) -> None:
    assert traces.asked(environment) == name


def test_traces_that_nobody_asks_for_are_off_and_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    traces.configure("berth", {})
    assert traces.tracer is None
    assert caplog.records == []


def test_traces_without_opentelemetry_are_off_and_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "berth.telemetry.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    caplog.set_level(logging.DEBUG, "berth")
    traces.configure("berth", {ENDPOINT: URL})
    assert traces.tracer is None
    (record,) = caplog.records
    assert record.getMessage() == (
        f"traces are off: {ENDPOINT} asks for them, and OpenTelemetry is not installed: "
        "pip install 'berth-scheduler[otel]'"
    )


@pytest.mark.parametrize(
    "more", [{"OTEL_TRACES_EXPORTER": "console"}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}], ids=str
)
def test_an_exporter_that_there_is_not_is_named_in_one_line(
    caplog: pytest.LogCaptureFixture, more: dict[str, str]
) -> None:
    traces.configure("berth", {ENDPOINT: URL, **more})
    assert traces.tracer is None
    (record,) = caplog.records
    assert record.getMessage().startswith("traces are off: OTEL_TRACES_EXPORTER may be otlp or none")
    assert next(iter(more.values())) in record.getMessage()
