"""The board has the form that Grafana's own schema wants, and asks for metrics that are there.
That Grafana draws it is not shown: there is none here. Its queries are run in tests/e2e/test_alerts.py."""

import json
import os
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from berth.controller.ledger_metrics import GAUGES
from berth.metrics import METRICS
from tests.monitoring.board import board, panels, queries
from tests.monitoring.test_alert_rules import SERIES, labels_of
from tests.support.references import ROOT

SCHEMA = ROOT / "tests/monitoring/schema"
KNOWN = {"bargauge", "row", "stat", "timeseries"}  # to tests/monitoring/schema/main.go


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that checks a board; without Go the test is skipped, and in CI it fails."""
    if shutil.which("go") is None:
        why = "no go here: the board's schema is not checked"
        pytest.fail(why, pytrace=False) if os.environ.get("CI") == "true" else pytest.skip(why)
    made = tmp_path_factory.mktemp("schema") / "check"
    built = subprocess.run(["go", "build", "-o", made, "."], cwd=SCHEMA, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return made


def complaints(schema: Path, document: dict[str, Any]) -> list[str]:
    done = subprocess.run([schema], input=json.dumps(document), capture_output=True, text=True)
    assert done.returncode == bool(done.stderr)
    return done.stderr.splitlines()


@pytest.mark.slow
def test_the_board_has_the_form_that_grafana_wants(schema: Path) -> None:
    assert complaints(schema, board()) == []
    wrong = board()
    stat = next(panel for panel in wrong["panels"] if panel["type"] == "stat")
    stat["options"]["colourMode"] = stat["options"].pop("colorMode")
    stat["targets"][0]["expression"] = "1"
    stat["gridPos"]["w"] = "wide"
    told = " ".join(complaints(schema, wrong))
    assert all(word in told for word in ("colourMode", "colorMode", "expression", "gridPos.w"))


def test_panels_are_of_kinds_that_the_check_knows_and_lie_beside_each_other() -> None:
    document = board()
    assert {panel["type"] for panel in document["panels"]} == KNOWN
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])
    for one, other in combinations([panel["gridPos"] for panel in document["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in document["panels"])


def test_queries_name_only_metrics_and_labels_that_are_there() -> None:
    for query in queries():
        named = set(re.findall(r"\b(berth_\w+)", query.expression))
        assert named <= SERIES, query
        there = set[str]().union(*(labels_of(name) for name in named))
        kept = {
            label for group in re.findall(r"by \((.*?)\)", query.expression) for label in group.split(", ")
        }
        assert kept <= there, query
        for name in named:
            for matchers in re.findall(rf"{name}\{{(.*?)\}}", query.expression):
                assert set(re.findall(r"(\w+)[=!]", matchers)) <= labels_of(name), query
    for panel in panels():
        for target in panel["targets"]:
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert all(f"{label}" in target["expr"] for label in shown), panel["title"]


def test_the_board_shows_every_metric() -> None:
    """Those that are counters or histograms by one of their series."""
    text = " ".join(query.expression for query in queries())
    shown = {name for name in (*GAUGES, *METRICS) if re.search(rf"\b{name}", text)}
    assert shown == {*GAUGES, *METRICS}
