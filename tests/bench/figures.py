"""Figures that a bench has written with `--json`, as the Markdown that it prints and that docs/ shows."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.bench import (
    binds,
    costs,
    foreign,
    life,
    proxied,
    reconciles,
    report,
    scheduled,
    seats,
    signals,
    starts,
)

CALLS = "calls"
"""What `make bench` measures when it is told nothing else."""

_TABLES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    CALLS: lambda figures: report.table(figures["rows"]),
    "costs": lambda figures: costs.tables(figures["cycles"], figures["sizes"]),
    "seats": lambda figures: seats.table(figures["rows"]),
    "binds": lambda figures: binds.table(figures["rows"]),
    "life": lambda figures: life.table(figures["rows"]),
    "foreign": lambda figures: foreign.table(figures["rows"]),
    "reconcile": lambda figures: reconciles.table(figures["rows"]),
    "start": lambda figures: starts.table(figures["rows"]),
    "proxy": lambda figures: proxied.table(figures["rows"]),
    "scheduled": lambda figures: scheduled.table(figures["rows"]),
    "signals": lambda figures: signals.table(figures["rows"]),
}


def markdown(figures: Mapping[str, Any]) -> str:
    """Return the tables, and below them the machine on which they were measured."""
    return f"{_TABLES[figures['what']](figures)}\n\n{report.told(figures['machine'])}"
