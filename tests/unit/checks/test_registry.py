"""A run of checks: what it counts as passed is what was looked for, and nothing else."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.checks import admission, registry, rights, scheduler, store, versions
from berth.checks.finding import Check, Finding, Rule
from berth.checks.inputs import Inputs, Options, Scheduler
from berth.errors import ClusterRefusedError
from tests.unit.checks.inputs import inputs_of

A, B, C = (Rule(id=f"a.{name}", severity="error", meaning="It is.", action="Do.") for name in "abc")
OF_FILE = {"store.local", "store.folder", "store.network", "store.sqlite"}
OF_SERVER = {"store.slow", "store.closed", "store.eviction", "store.version"}


def run(monkeypatch: pytest.MonkeyPatch, *checks: Check, **read: Any) -> registry.Report:
    monkeypatch.setattr(registry, "CHECKS", checks)
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 53, 0))
    given = inputs_of(**read)
    return registry.run(given)


def finds(_: Inputs) -> Iterator[Finding]:
    yield A.finding("it is so")


def nothing(_: Inputs) -> list[Finding]:
    return []


def stops(_: Inputs) -> Iterator[Finding]:
    yield A.finding("it is so")
    raise ClusterRefusedError("no (403)", 403)


def leaves(inputs: Inputs) -> list[Finding]:
    inputs.leave(A)
    return []


def test_a_rule_of_which_nothing_was_found_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(monkeypatch, Check("x", finds, (A, B)), Check("y", nothing, (C,)))
    assert (report.passed, report.errors) == (("a.b", "a.c"), 1)


def test_a_check_that_could_not_look_lets_no_rule_pass_and_one_of_its_subject_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = run(monkeypatch, Check("x", stops, (A, B)), Check("x", nothing, (C,)))
    assert report.passed == ("a.c",)
    assert [finding.id for finding in report.findings] == ["a.a", "check.unseen"]


def test_what_a_later_check_leaves_out_has_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, Check("x", nothing, (A,)), Check("y", leaves, (B,))).passed == ("a.b",)


def test_a_folder_that_can_t_be_looked_at_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As for one of another user, for which root may be refused nothing."""
    report = run(monkeypatch, *store.CHECKS, store=f"sqlite:///{tmp_path}/{'a' * 300}/a.db", functions=())
    (finding,) = report.findings
    assert finding.id == "store.unreachable"
    assert "File name too long); check the path" in finding.message


@pytest.mark.parametrize("functions", [(), ("a function",)])
def test_of_a_file_that_is_not_there_no_server_s_settings_are_called_right(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, functions: tuple[str, ...]
) -> None:
    report = run(monkeypatch, *store.CHECKS, store=f"sqlite:///{tmp_path}/a.db", functions=functions)
    assert [finding.id for finding in report.findings] == ["store.local" if functions else "store.absent"]
    assert not OF_SERVER & {*report.passed}
    assert ("store.unreachable" in report.passed) == (not functions)


def test_of_a_store_that_does_not_answer_nothing_is_called_right(monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(monkeypatch, *store.CHECKS, store="what://ever", functions=())
    assert [finding.id for finding in report.findings] == ["store.unreachable"]
    assert {*report.passed} == {"store.namespace", *OF_FILE}


def test_before_the_installation_a_ledger_and_its_namespace_are_not_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = Options({}, pre=True)
    report = run(
        monkeypatch, *store.CHECKS, store=f"sqlite:///{tmp_path}/a.db", functions=(), options=options
    )
    assert {*report.passed} == {"store.unreachable", *OF_FILE}


def test_a_configuration_that_can_t_be_read_has_no_rule_right(monkeypatch: pytest.MonkeyPatch) -> None:
    unreadable = (Scheduler("a.yaml", None, "it is not YAML"),)
    report = run(monkeypatch, *scheduler.CHECKS, schedulers=unreadable)
    assert [finding.id for finding in report.findings] == ["scheduler.unreadable"]
    assert report.passed == ("scheduler.missing", "scheduler.other")


def test_what_is_not_installed_is_not_called_right(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, *admission.CHECKS).passed == ()
    accounts = next(check for check in rights.CHECKS if rights.ACCOUNT in check.rules)
    checks = (check for check in versions.CHECKS if versions.OVERLAY not in check.rules)
    nothing: dict[str, Any] = {
        "release": "v1.36.0",
        "definitions": {},
        "functions": [],
        "scheduler_deployment": None,
    }
    assert run(monkeypatch, accounts, *checks, **nothing).passed == ("versions.kubernetes", "versions.kinds")
