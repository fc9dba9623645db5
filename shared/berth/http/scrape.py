"""GET /metrics of a function, and the count of its calls.
Who may call the function's verbs may scrape it; nobody else may."""

from collections.abc import Mapping

from msgspec.structs import replace

from berth.http import authentication
from berth.http.cloudevents import failed
from berth.http.endpoint import Content, Endpoint, Reply, Router
from berth.metrics import Metrics
from berth.settings import Settings


def counted(target: Endpoint | Router, metrics: Metrics, settings: Settings) -> Endpoint | Router:
    """Return the target with its calls counted, and with GET /metrics."""
    # Who only reads has a page of metrics of its own.
    own = isinstance(target, Endpoint) and target.reads
    page = None if own else scrape(target.name, metrics, settings)
    if isinstance(target, Endpoint):
        return replace(target, metrics=metrics, scrape=page)
    endpoints = {path: replace(endpoint, metrics=metrics) for path, endpoint in target.endpoints.items()}
    default = None if target.default is None else replace(target.default, metrics=metrics)
    return replace(target, endpoints=endpoints, default=default, scrape=page)


def scrape(name: str, metrics: Metrics, settings: Settings) -> Endpoint:
    """Return the endpoint that answers a scrape with what all processes of the function have counted."""

    def answer(_: Mapping[str, str], __: Content) -> Reply:
        kind, body = metrics.page()
        return Reply(200, body, kind=kind)

    return Endpoint(
        name=f"{name}/metrics",
        answer=answer,
        failed=failed,
        health=lambda: None,
        body_limit=0,
        authenticator=authentication.authenticator(settings.access),
    )
