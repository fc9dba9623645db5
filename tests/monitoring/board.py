"""The Grafana board of infra/components/monitoring: its panels and their queries.
It asks as Grafana would, with all pools chosen."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.monitoring.rules import FOLDER

FILE = FOLDER / "board.json"


class Query(NamedTuple):
    """One query of a panel; an instant one shows a moment."""

    panel: str
    expression: str
    instant: bool


def board() -> dict[str, Any]:
    """Return the board's document."""
    document: dict[str, Any] = json.loads(FILE.read_text())
    return document


def panels() -> list[dict[str, Any]]:
    """Return all panels but the rows."""
    return [panel for panel in board()["panels"] if panel["type"] != "row"]


def queries(interval: str = "1m") -> Iterator[Query]:
    """Yield each panel's queries, with all pools chosen and this for Grafana's interval of a rate."""
    for panel in panels():
        for target in panel["targets"]:
            text = target["expr"].replace("$__rate_interval", interval).replace("$pool", ".*")
            yield Query(panel["title"], text, target["instant"])
