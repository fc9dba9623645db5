"""A stand-in for an OpenTelemetry collector: takes spans as OTLP over HTTP, and tells which came.
It keeps nothing, checks no token."""

import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.cluster import wait
from tests.support.servers.serving import serving

SECONDS = 60.0


class Seen(NamedTuple):
    """A span as it came."""

    name: str
    trace: str
    span: str
    parent: str
    facts: Mapping[str, Any]
    notes: tuple[str, ...]
    failed: bool
    service: str


class Collector:
    """The spans that came so far, and where to send more."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.spans: list[Seen] = []

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a process sends its spans here, soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}

    def named(self, *names: str) -> list[Seen]:
        """Wait until a span of each of these names is here; return the first of each."""
        wait(lambda: set(names) <= {span.name for span in self.spans}, SECONDS, f"spans {names}")
        return [next(span for span in self.spans if span.name == name) for name in names]

    def of(self, trace: str, *names: str) -> list[Seen]:
        """Wait until a span of each of these names is here in this trace; return all of that trace."""

        def there() -> list[Seen]:
            spans = [span for span in self.spans if span.trace == trace]
            return spans if set(names) <= {span.name for span in spans} else []

        return wait(there, SECONDS, f"spans {names} of trace {trace}")

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = _facts(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                self.spans += (_seen(span, service) for span in scope.spans)


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector, for as long as the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/traces"
            collector.take(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        collector = Collector(server.server_port)
        yield collector


def _seen(span: Any, service: str) -> Seen:
    return Seen(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        _facts(span.attributes),
        tuple(event.name for event in span.events),
        span.status.code == 2,  # STATUS_CODE_ERROR
        service,
    )


def _facts(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
