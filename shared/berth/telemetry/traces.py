"""Spans, where OTEL_* variables ask for them and the extra `otel` is installed; else nothing, at no cost.
OpenTelemetry is imported only then. Spans are sent in the background, and dropped where nobody takes them."""

import atexit
import enum
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Protocol

from berth.telemetry.traceparent import TraceParent

log = logging.getLogger("berth.traces")

Fact = str | int | float | bool | Sequence[str]
"""The value of a field of the log, or of an attribute of a span."""

Facts = dict[str, Fact]
"""Such values by name."""

FLUSH_SECONDS = 2.0
"""How long a process that ends waits for its last spans to be taken."""

_ASK = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class Kind(enum.Enum):
    """Which side of a call a span is."""

    SERVER = "server"
    CLIENT = "client"
    PRODUCER = "producer"


class Span(Protocol):
    """A piece of work in a trace. No method raises."""

    @property
    def traceparent(self) -> TraceParent | None:
        """Where it is in its trace."""

    def set(self, facts: Mapping[str, Fact]) -> None:
        """Add facts to it."""

    def note(self, name: str, facts: Mapping[str, Fact]) -> None:
        """Note that something happened in it now."""

    def end(self, outcome: str | None = None) -> None:
        """End it. An empty outcome drops it; None: it has one, or needs none."""


class Tracer(Protocol):
    """Makes spans."""

    def begin(
        self, name: str, kind: Kind, parent: TraceParent | None = None, state: str | None = None
    ) -> Span:
        """Begin a span: a part of the thread's one, or of the parent's that a caller names."""

    def flush(self, seconds: float) -> None:
        """Send what there is, and wait so long for it at most. No span may be begun afterwards."""


class NoSpan:
    """A span that nobody sees."""

    traceparent: TraceParent | None = None

    def set(self, _: Mapping[str, Fact]) -> None:
        return

    def note(self, _: str, __: Mapping[str, Fact]) -> None:
        return

    def end(self, _: str | None = None) -> None:
        return


NO_SPAN = NoSpan()

tracer: Tracer | None = None
"""The process's; None: there are no spans."""


def asked(environment: Mapping[str, str]) -> str:
    """Return the variable that asks for traces; empty: none does."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ""
    if environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return ""
    return next((name for name in _ASK if environment.get(name, "").strip()), "")


def configure(service: str, environment: Mapping[str, str] = os.environ) -> None:
    """Begin to trace if that is asked for. What hinders it is logged in one line, and stops nothing."""
    global tracer
    name = asked(environment)
    if not name or tracer is not None:
        return
    exporters = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() or "otlp"
    protocol = next((environment[which] for which in _PROTOCOLS if environment.get(which)), "http/protobuf")
    if exporters != "otlp" or protocol != "http/protobuf":
        log.warning(
            "traces are off: OTEL_TRACES_EXPORTER may be otlp or none, and its protocol http/protobuf; "
            "these are %s and %s",
            exporters,
            protocol,
        )
        return
    try:
        from berth.telemetry.otel import OtelTracer

        tracer = OtelTracer(service, environment)
        atexit.register(flush)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        log.warning(
            "traces are off: %s asks for them, and OpenTelemetry is not installed: "
            "pip install 'berth-scheduler[otel]'",
            name,
        )
    except Exception as error:  # noqa: BLE001 - whatever OpenTelemetry dislikes: pods are placed without it
        log.warning("traces are off: OpenTelemetry does not start: %s: %s", type(error).__name__, error)


def flush(seconds: float = FLUSH_SECONDS) -> None:
    """Send the last spans before the process ends. One that ends by os._exit has to call it."""
    if tracer is not None:
        tracer.flush(seconds)
