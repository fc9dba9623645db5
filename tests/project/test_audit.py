"""What `make audit` makes of its tools' answers. The tools run in CI alone: .ci/run."""

import tomllib
from typing import Any

import pytest

from tests.audit import __main__ as audit
from tests.project.test_containerfile import ALL, BUILD, IMAGE, name_of, pins

GOOD = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "not found on PyPI"}
FAULTS = [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["3"]}, {"id": "X", "fix_versions": []}]
FAULTY = {"name": "c", "version": "2", "vulns": FAULTS}


def test_a_fault_is_told_with_the_version_that_mends_it() -> None:
    assert list(audit.faults([GOOD, FAULTY], required=False)) == [
        "c 2: PYSEC-1, mended in 3",
        "c 2: X, mended in no version yet",
    ]


@pytest.mark.parametrize("name", ["PYSEC-1", "CVE-1"])
def test_a_fault_that_is_no_danger_here_is_named_with_a_reason(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "ACCEPTED", {name: "that part is never reached"})
    assert list(audit.faults([FAULTY], required=True)) == ["c 2: X, mended in no version yet"]


@pytest.mark.parametrize("found", ["connection refused", [SKIPPED, SKIPPED]])
def test_where_nobody_can_be_asked_that_is_no_all_clear(found: Any) -> None:
    """The tool itself says "No known vulnerabilities found" of packages that it could not ask about."""
    (note,) = audit.faults(found, required=False)
    assert note.startswith("note: nobody could be asked")
    (failure,) = audit.faults(found, required=True)
    assert failure.startswith("nobody could be asked")
    assert list(audit.faults([GOOD, SKIPPED], required=True)) == ["b: not found on PyPI"]


@pytest.mark.parametrize(
    ("licence", "taken"),
    [
        ("MIT License", True),
        ("Apache-2.0 AND MIT", True),
        ("Apache Software License; BSD License", True),
        ("MPL-2.0", True),
        ("GNU General Public License v3 (GPLv3)", False),
        ("MIT AND GPL-3.0-only", False),
        ("UNKNOWN", False),
    ],
)
def test_a_licence_that_may_not_be_given_on_is_told(licence: str, taken: bool) -> None:
    found = list(audit.licences([{"Name": "a", "Version": "1", "License": licence}]))
    assert found == ([] if taken else [f"a 1 has the licence {licence!r}"])


def test_a_package_whose_licence_nobody_looked_at_is_told() -> None:
    """The lock has some that another Python needs, and that are not installed here."""
    found = [{"Name": "Jinja2", "Version": "3", "License": "BSD License"}]
    said = "note: async-timeout is not installed here, so nobody looked at its licence"
    assert list(audit.licences(found, ["jinja2", "async-timeout"])) == [said]


def test_what_looks_like_a_secret_is_told_by_its_place_unless_it_is_known() -> None:
    place = {"type": "AWS Access Key", "line_number": 7}
    key, file = sorted(audit.KNOWN)[0]
    found = {"results": {"infra/a.yaml": [place], file: [{"type": key, "line_number": 1}, place]}}
    assert list(audit.secrets(found)) == [
        "infra/a.yaml:7 looks like a secret (AWS Access Key)",
        f"{file}:7 looks like a secret (AWS Access Key)",
    ]


def test_it_looks_at_all_that_is_locked() -> None:
    assert {name_of(each) for each in audit.names(ALL)} == pins(ALL).keys()
    assert {name_of(each) for each in audit.names(audit.SHIPPED)} == pins(IMAGE).keys()
    assert {lock.name for lock in audit.ROOT.glob("requirements*.lock")} == {*audit.LOCKS, IMAGE, BUILD}


def test_ci_runs_it_by_make() -> None:
    assert "\t.venv-audit/bin/python -m tests.audit\n" in (audit.ROOT / "Makefile").read_text()
    assert 'make PYTHON="$PYTHON" audit\n' in (audit.ROOT / ".ci" / "run").read_text()


def test_its_own_tools_are_pinned_by_hashes() -> None:
    tools = tomllib.loads((audit.ROOT / "pyproject.toml").read_text())["dependency-groups"]["audit"]
    locked = pins("requirements-audit.lock")
    assert {name_of(each) for each in tools} <= locked.keys()
    assert all(pin and hashes for pin, hashes in locked.values())
