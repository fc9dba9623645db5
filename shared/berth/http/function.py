"""The callable that functions-framework serves, made of an endpoint or of a router of several.
It reads the settings, and knows of the web framework only what a request looks like."""

import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol

from flask import current_app, has_app_context

from berth import settings
from berth.errors import SettingsError
from berth.http.endpoint import Endpoint, Router, respond
from berth.http.request_body import request_bodies
from berth.http.scrape import counted
from berth.metrics import Metrics, own_folder
from berth.settings import Settings
from berth.telemetry import logs, traces

if TYPE_CHECKING:
    from flask import Request


Response = tuple[bytes, int, dict[str, str]]


class Served(NamedTuple):
    """What answers requests, and by which names of this machine it may be reached (None: any)."""

    target: Endpoint | Router
    hosts: Collection[str] | None


class MakesEndpoint(Protocol):
    """Makes what answers a function's requests, by the settings."""

    def __call__(self, settings: Settings, /, *, metrics: Metrics) -> Endpoint | Router:
        """Return the endpoint, which counts in these metrics. Raises SettingsError."""


def serve(endpoint: MakesEndpoint) -> Callable[["Request"], Response]:
    """Return a callable that answers requests by the endpoint, which is built here by the settings.

    Wrong settings end the process with one clear line: a function that starts must be able to work.
    """
    try:
        config = settings.from_environment()
        # The framework, where it is what loads us, may have set up a log of its own.
        secrets = (config.access.token, config.external.token, config.scrapes.token)
        logs.configure(config.log_format, config.log_level, secrets, alone=has_app_context())
        traces.configure("berth")
        metrics = Metrics(own_folder(), store=config.store.partition("://")[0])
        built = counted(endpoint(config, metrics=metrics), metrics, config)
    except SettingsError as error:
        sys.exit(f"berth can't start: {error}")
    bodies = request_bodies(built)
    if has_app_context():
        # The framework loads us here. It answers /robots.txt, /favicon.ico and WebSocket requests by itself,
        # and the server would wait for their bodies.
        current_app.wsgi_app = bodies.wrap(current_app.wsgi_app)  # type: ignore[assignment, method-assign]

    def answer(request: "Request") -> Response:
        with bodies.body(request.environ) as body:
            sent = dict(request.headers.items())
            query = request.query_string.decode("utf-8", "replace")
            reply = respond(built, request.method, request.path, sent, body, config.hosts, query)
        return reply.body, reply.status, reply.headers()

    answer.__name__ = built.name  # by which functions-framework knows that it takes plain requests
    answer.served = Served(built, config.hosts)  # type: ignore[attr-defined] # for http/server.py
    return answer
