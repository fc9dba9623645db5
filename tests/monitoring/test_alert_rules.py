"""The alerts are right rules, fire as their unit tests say, name what is there, and are told in the runbook.
That each fires when its cause is there, and none without: tests/e2e/test_alerts.py."""

import re
from collections.abc import Iterator

import pytest
import yaml

from berth.controller.ledger_metrics import GAUGES
from berth.metrics import METRICS
from tests.docs import rule_object
from tests.monitoring.rules import FILE, FOLDER, Rule, faster, rules
from tests.support.references import ROOT
from tests.support.servers.prometheus import promtool

UNIT_TESTS = ROOT / "tests/monitoring/alerts_test.yaml"
RUNBOOK = (ROOT / "docs/runbook.md").read_text()
SEVERITIES = {"critical": "Critical", "warning": "Warning", "info": "Info"}
PROMETHEUS_OWN = {"up", "time", "ALERTS"}
_METRIC = re.compile(r"\b(berth_\w+)")
each_alert = pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])


def names_of_series() -> Iterator[str]:
    """What a query may name: a histogram has three."""
    yield from GAUGES
    for name, metric in METRICS.items():
        if metric.kind == "histogram":
            yield from (f"{name}_{end}" for end in ("bucket", "count", "sum"))
        else:
            yield f"{name}_total"


SERIES = set(names_of_series())


def labels_of(name: str) -> set[str]:
    """The labels of a series, besides those that Prometheus gives each target."""
    base = re.sub(r"_(bucket|count|sum|total)$", "", name)
    if base in METRICS:
        return {*METRICS[base].labels, *(["le"] if name.endswith("_bucket") else [])}
    return set(GAUGES[name].labels)


@pytest.mark.usefixtures("promtool_installed")
def test_promtool_takes_the_rules_and_their_unit_tests_pass() -> None:
    for words in (("check", "rules", str(FILE)), ("check", "config", str(FOLDER / "berth-up.yaml"))):
        done = promtool(*words)
        assert done.returncode == 0, done.stdout + done.stderr
    done = promtool("test", "rules", str(UNIT_TESTS))
    assert done.returncode == 0, done.stdout + done.stderr


@each_alert
@pytest.mark.long
def test_each_alert_has_a_unit_test_in_which_it_fires(rule: Rule) -> None:
    tests = yaml.safe_load(UNIT_TESTS.read_text())["tests"]
    told = [
        sample["labels"]
        for test in tests
        for one in test["promql_expr_test"]
        for sample in one["exp_samples"]
    ]
    assert any(f'alertname="{rule["alert"]}", alertstate="firing"' in labels for labels in told)


@each_alert
def test_each_alert_says_how_bad_it_is_what_it_means_and_where_its_cure_is(rule: Rule) -> None:
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert (page, anchor) == ("docs/runbook.md", rule["alert"].lower())
    section = RUNBOOK.split(f"### {rule['alert']}\n\n")[1].partition("\n#")[0]
    assert section.startswith(SEVERITIES[rule["labels"]["severity"]])
    assert "\nWhat to do:" in section


def test_the_runbook_tells_of_no_alert_that_is_not_there() -> None:
    told = re.findall(r"^### (Berth\w+)$", RUNBOOK, re.MULTILINE)
    assert told == [rule["alert"] for rule in rules()]


@each_alert
def test_each_alert_names_only_metrics_and_labels_that_are_there(rule: Rule) -> None:
    named = set(_METRIC.findall(rule["expr"]))
    assert named <= SERIES
    assert named or rule["expr"].startswith(("up{", "absent(up{"))
    for name in named:
        for matchers in re.findall(rf"{name}\{{(.*?)\}}", rule["expr"]):
            assert set(re.findall(r"(\w+)=", matchers)) <= labels_of(name)
    kept = {label for group in re.findall(r"by \((.*?)\)", rule["expr"]) for label in group.split(", ")}
    there = {"job", "namespace"}.union(*(labels_of(name) for name in named))
    assert kept <= there
    shown = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    assert shown <= kept | ({"service", "instance"} if "up{" in rule["expr"] else set())


def test_the_cause_of_each_alert_is_brought_about_on_a_real_prometheus() -> None:
    source = (ROOT / "tests/e2e/test_alerts.py").read_text()
    fired = set(re.findall(r'"(\w+)"', " ".join(re.findall(r"\.fires\((.*?)\)", source))))
    assert sorted(fired) == sorted(rule["alert"] for rule in rules())


def test_prometheus_operator_gets_the_same_rules() -> None:
    made = yaml.safe_load(rule_object.page())
    assert made["spec"] == yaml.safe_load(FILE.read_text())


def test_faster_rules_differ_from_these_in_time_alone() -> None:
    """And all of the time: ranges, `for`, and the age of the last reconcile."""
    made = {rule["alert"]: rule for group in faster(30)["groups"] for rule in group["rules"]}
    for rule in rules():
        quick = made.pop(rule["alert"])
        assert quick["for"] != rule["for"]
        for name in set(rule) - {"for", "expr"}:
            assert quick[name] == rule[name]
        if rule["alert"] != "BerthReconcileLate":
            assert re.sub(r"\[\w+\]", "", quick["expr"]) == re.sub(r"\[\w+\]", "", rule["expr"])
    assert made == {}
    late = next(rule for rule in faster(30)["groups"][0]["rules"] if rule["alert"] == "BerthReconcileLate")
    assert late["expr"].endswith("timestamp_seconds) > 10")
    assert late["for"] == "2000ms"
