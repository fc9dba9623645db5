"""GET /metrics of a function, and the count of its calls.
Who may call the verbs may scrape it, and who has the metrics' own token; nobody else where either is set."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from berth.http import authentication
from berth.http.cloudevents import failed
from berth.http.endpoint import Content, Endpoint, Reply, Router
from berth.metrics import Metrics
from berth.settings import Settings


def counted(target: Endpoint | Router, metrics: Metrics, settings: Settings) -> Endpoint | Router:
    """Return the target with its calls counted, and with GET /metrics."""
    page = target.scrape or scrape(target.name, metrics.page, settings)
    if isinstance(target, Endpoint):
        return replace(target, metrics=metrics, scrape=page)
    endpoints = {path: replace(endpoint, metrics=metrics) for path, endpoint in target.endpoints.items()}
    default = None if target.default is None else replace(target.default, metrics=metrics)
    return replace(target, endpoints=endpoints, default=default, scrape=page)


def scrape(name: str, page: Callable[[], tuple[str, bytes]], settings: Settings) -> Endpoint:
    """Return the endpoint that answers a scrape with the page: its content type and its body."""

    def answer(_: Mapping[str, str], __: Content) -> Reply:
        kind, body = page()
        return Reply(200, body, kind=kind)

    return Endpoint(
        name=f"{name}/metrics",
        answer=answer,
        failed=failed,
        health=lambda: None,
        body_limit=0,
        authenticator=authentication.scrapers(settings),
    )
