"""The alerts of infra/components/monitoring, and the same with all time made shorter, for a run of minutes.

What `faster` divides: each `for`, each range in brackets, and the seconds since the last reconcile of
BerthReconcileLate. Shares, counts and durations of calls stay. So a faster alert fires after a shorter
disturbance than the real one does: where it stays silent, so does the real one.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.references import ROOT

FOLDER = ROOT / "infra/components/monitoring"
FILE = FOLDER / "alerts.yaml"
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+)(ms|s|m|h)")
_SINCE = "timestamp_seconds) > 300"

Rule = Mapping[str, Any]


def rules(path: Path = FILE) -> list[Rule]:
    """Return all alerts of the file."""
    groups = yaml.safe_load(path.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def seconds(text: str) -> float:
    """Return how long one of Prometheus' durations of one unit is."""
    match = _DURATION.fullmatch(text)
    assert match is not None, text
    return int(match[1]) * _UNITS[match[2]]


def faster(factor: float) -> dict[str, Any]:
    """Return the file's document with its time divided by the factor."""

    def shorter(text: str) -> str:
        return f"{round(seconds(text) / factor * 1000)}ms"

    document: dict[str, Any] = yaml.safe_load(FILE.read_text())
    for group in document["groups"]:
        for rule in group["rules"]:
            rule["for"] = shorter(rule["for"])
            expr = re.sub(r"\[(\w+)\]", lambda match: f"[{shorter(match[1])}]", rule["expr"])
            rule["expr"] = expr.replace(_SINCE, f"timestamp_seconds) > {300 / factor:g}")
    return document
