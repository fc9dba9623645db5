"""docs/observability.md has each metric with its labels and its meaning, and its figure of series holds."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.values import close_all_multiprocess_files

from berth.controller.ledger_metrics import GAUGES
from berth.metrics import FOLDER, METRICS, Metrics
from tests.support.references import ROOT

PAGE = (ROOT / "docs/observability.md").read_text()
POOLS = 50
RULES = ("short", "suspended", "heldBack", "limit", "leaving", "poolClaim", "kept")


def test_each_metric_is_told_with_its_labels_and_its_meaning() -> None:
    parts = re.findall(r"^### `(\w+)`\n\nLabels: (.*)\.\n(.*)\.\n\nWhat to do: ", PAGE, re.MULTILINE)
    told = {name: (labels, meaning) for name, labels, meaning in parts}
    for name, metric in METRICS.items():
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
        assert told.pop(f"{name}_total" if metric.kind == "counter" else name) == (labels, metric.help)
    for name, gauge in GAUGES.items():
        labels = ", ".join(f"`{label}`" for label in gauge.labels) or "none"
        assert told.pop(name) == (labels, gauge.help)
    assert told == {}


def test_a_function_with_fifty_pools_has_fewer_series_than_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    metrics = Metrics(tmp_path, store="redis").of("bind")
    for outcome in ("answered", "refused", "failed", "unavailable", "unauthorized", "invalid"):
        metrics.called("bind", outcome, 0.1)
    for pool in range(POOLS):
        for rule in RULES:
            metrics.refused(f"pool-{pool}", rule)
    for outcome in ("committed", "conflict", "failed"):
        metrics.committed(outcome)
    for change in ("reserved", "confirmed", "cancelled", "released", "adopted", "woken"):
        metrics.changed(change)
    metrics.bound_after(1.0)
    page = metrics.page()[1].decode()
    close_all_multiprocess_files()  # type: ignore[no-untyped-call]
    series = sum(len(family.samples) for family in text_string_to_metric_families(page))
    assert 400 < series < 700
    assert "below 700 for one function, with 50 pools" in PAGE
