"""filter once for each of CONTENDERS, by its path, all in one process: each tells something else.
Only a server may import it: it changes how Berth tells of calls."""

import logging
import os
from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from flask import Request
from msgspec.structs import replace
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from berth.handlers import filter as verb
from berth.http import endpoint
from berth.http.endpoint import Content, Endpoint, Router, respond
from berth.http.function import Served
from berth.metrics import UNCOUNTED, Metrics, own_folder
from berth.settings import Settings, from_environment
from berth.telemetry import logs, traces
from berth.telemetry.otel import OtelTracer
from tests.bench.signals import CONTENDERS


class Forgetting(SpanExporter):
    """A collector that takes all at once."""

    def export(self, _: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def _debug_log() -> logging.Logger:
    handler = logging.FileHandler(os.devnull)
    handler.setFormatter(logs.formatter("json"))
    log = logging.getLogger("berth")
    log.addHandler(handler)
    log.propagate = False
    return log


class Switch:
    """Tells of a call what its contender tells; in place of endpoint._begun."""

    def __init__(self, tracer: OtelTracer) -> None:
        self._begun, self._tracer, self._log = endpoint._begun, tracer, _debug_log()
        self._silent: Any = nullcontext(SimpleNamespace(outcome=""))

    def __call__(self, asked: Endpoint, headers: Mapping[str, str], content: Content) -> Any:
        traces.tracer = self._tracer if asked.limited_by == "spans" else None
        level = logging.DEBUG if asked.limited_by == "lines" else logging.INFO
        if self._log.level != level:
            self._log.setLevel(level)
        if asked.limited_by in ("nothing", "metrics"):
            return self._silent
        return self._begun(asked, headers, content)


def _contender(path: str, settings: Settings, metrics: Metrics, tracer: OtelTracer) -> Endpoint:
    traces.tracer = tracer if path == "spans" else None  # so that its store has spans
    counted = UNCOUNTED if path == "nothing" else metrics
    made = verb.endpoint(settings, metrics=counted)
    return replace(made, metrics=counted, limited_by=path)  # a field that no small call needs


def _router() -> Router:
    settings = from_environment()
    metrics = Metrics(own_folder(), store="sqlite")
    tracer = OtelTracer("berth", {}, BatchSpanProcessor(Forgetting()))
    endpoints = {path: _contender(path, settings, metrics, tracer) for path in CONTENDERS}
    endpoint._begun = Switch(tracer)  # type: ignore[assignment]
    return Router(name="filter", endpoints=endpoints, health=lambda: None)


def filter(request: Request) -> tuple[bytes, int, dict[str, str]]:  # noqa: A001 - the target's name
    reply = respond(ROUTER, request.method, request.path, dict(request.headers.items()), request.stream)
    return reply.body, reply.status, reply.headers()


ROUTER = _router()
filter.served = Served(ROUTER, None)  # type: ignore[attr-defined]
