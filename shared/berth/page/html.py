"""Renders the status page's templates; whatever a user wrote is escaped.
Pure: it gets what there is to show."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from berth.page.percent import share

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""What goes with each page: it loads from its own host alone, and no page of another one may frame it."""

STATIC: Mapping[str, str] = {
    "berth.css": "text/css; charset=utf-8",
    "berth.js": "text/javascript; charset=utf-8",
    "berth.svg": "image/svg+xml",
}
"""The files beside the pages, with their types."""

_TEMPLATES = ("pools", "pool", "waiting", "claims", "releases", "units", "usage", "missing")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("berth.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["share"] = share
    environment.filters["moment"] = _moment
    return environment


def compile_all() -> None:
    """Compile the templates: the first page would wait for that."""
    for name in _TEMPLATES:
        _environment().get_template(f"{name}.html")


def render(name: str, **shown: Any) -> bytes:
    """Return the page of this name."""
    return _environment().get_template(f"{name}.html").render(**shown).encode()


@cache
def static(name: str) -> bytes:
    """Return one of the files of STATIC."""
    return files("berth.page").joinpath("static", name).read_bytes()


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
