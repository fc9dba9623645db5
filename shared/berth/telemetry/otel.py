"""Spans by OpenTelemetry's SDK, sent as OTLP over HTTP. Only `traces` imports this, where it is asked for.
Sampling, limits, addresses and headers are OpenTelemetry's own variables; Berth has none beside them."""

import threading
from collections.abc import Mapping

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState

from berth import __version__
from berth.telemetry.traceparent import TraceParent
from berth.telemetry.traces import Fact, Kind

_LONGEST = 1024  # characters of a value
_KINDS = {Kind.SERVER: SpanKind.SERVER, Kind.CLIENT: SpanKind.CLIENT, Kind.PRODUCER: SpanKind.PRODUCER}
_FAILED = ("failed", "unavailable")
_NAMES = {"uid": "k8s.pod.uid", "node": "k8s.node.name"}
"""OpenTelemetry's names for facts; all others get the prefix `berth.`, unless they have one."""


class OtelSpan:
    """See traces.Span. It is the thread's current span from its making to its end."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._token = context.attach(trace.set_span_in_context(span))

    @property
    def traceparent(self) -> TraceParent:
        there = self._span.get_span_context()
        return TraceParent(f"{there.trace_id:032x}", f"{there.span_id:016x}", f"{there.trace_flags:02x}")

    def set(self, facts: Mapping[str, Fact]) -> None:
        if self._span.is_recording():
            self._span.set_attributes(_attributes(facts))

    def note(self, name: str, facts: Mapping[str, Fact]) -> None:
        if self._span.is_recording():
            self._span.add_event(name[:_LONGEST], _attributes(facts))

    def end(self, outcome: str | None = None) -> None:
        context.detach(self._token)
        if outcome == "":
            return
        if outcome is not None:
            self.set({"outcome": outcome})
        if outcome in _FAILED:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class OtelTracer:
    """See traces.Tracer; for one process, and those that it forks. `processor` takes spans in place of an
    exporter in the background."""

    def __init__(
        self, service: str, environment: Mapping[str, str], processor: SpanProcessor | None = None
    ) -> None:
        named = environment.get("OTEL_SERVICE_NAME") or "service.name" in environment.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        )
        own = {} if named else {"service.name": service}
        resource = Resource.create({"service.version": __version__, **own})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("berth", __version__)

    def begin(
        self, name: str, kind: Kind, parent: TraceParent | None = None, state: str | None = None
    ) -> OtelSpan:
        within = None if parent is None else trace.set_span_in_context(_remote(parent, state))
        return OtelSpan(self._tracer.start_span(name, within, _KINDS[kind]))

    def flush(self, seconds: float) -> None:
        # The exporter waits for a collector that is away, for longer than an end may take.
        last = threading.Thread(target=self._provider.shutdown, daemon=True)
        last.start()
        last.join(seconds)


def _remote(parent: TraceParent, state: str | None) -> trace.Span:
    """Return the caller's span, as far as it is known here."""
    return NonRecordingSpan(
        SpanContext(
            int(parent.trace_id, 16),
            int(parent.span_id, 16),
            is_remote=True,
            trace_flags=TraceFlags(int(parent.flags, 16)),
            trace_state=TraceState.from_header([state]) if state else TraceState(),
        )
    )


def _attributes(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    named: dict[str, Fact] = {}
    for name, fact in facts.items():
        value = fact[:_LONGEST] if isinstance(fact, str) else fact
        if name == "pod":
            namespace, _, pod = str(value).rpartition("/")
            named |= {"k8s.namespace.name": namespace, "k8s.pod.name": pod}
        else:
            named[_NAMES.get(name) or (name if "." in name else f"berth.{name}")] = value
    return named
