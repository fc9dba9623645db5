"""The project's own rules: what is locked, where references lead, which version this is.
How functions, names and pages look is in test_house_rules.py.

It does not check that the lock is fresh: only `make lock`, which needs a package index, can tell.
"""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import berth
from tests.support.references import (
    committed,
    is_there,
    notes_outside,
    numbers,
    promises,
    prose,
    records,
    references_in,
)

ROOT = Path(__file__).resolve().parents[2]
PINNED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==\S+( ;.*)? \\$")


def locked() -> dict[str, list[str]]:
    """Every line of the lock that is no comment, below the requirement that it belongs to."""
    found: dict[str, list[str]] = {}
    requirement = ""
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        if line.lstrip().startswith("#"):
            continue
        if not line.startswith(" "):
            requirement = line
            found[requirement] = []
        else:
            found[requirement].append(line.strip())
    return found


def normal(requirement: str) -> str:
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> set[str]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = document["project"]
    wanted: list[object] = [*project["dependencies"], *document["build-system"]["requires"]]
    groups = {
        name: group for name, group in document["dependency-groups"].items() if name != "audit"
    }  # its own
    for group in (*project["optional-dependencies"].values(), *groups.values()):
        wanted.extend(group)
    return {normal(each) for each in wanted if isinstance(each, str)}


LOCKS = sorted(name for name in committed() if name.endswith((".lock", "go.sum")))


def test_there_are_locks_of_both_kinds() -> None:
    assert {Path(name).suffix for name in LOCKS} == {".lock", ".sum"}


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_names_an_address_or_a_machines_path(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert not re.search(r"(^|[\s=])/\w", text)
    assert "--index-url" not in text
    assert "--find-links" not in text


def test_every_locked_requirement_is_pinned_and_hashed() -> None:
    requirements = locked()
    assert requirements
    assert [each for each in requirements if not PINNED.match(each)] == []
    hashed = re.compile(r"^--hash=sha256:[0-9a-f]{64}( \\)?$")
    assert [
        each for each, lines in requirements.items() if not lines or not all(map(hashed.match, lines))
    ] == []


def test_everything_that_pyproject_asks_for_is_locked() -> None:
    assert declared() - {normal(each) for each in locked()} == set()


def test_the_installed_distribution_has_the_packages_version() -> None:
    assert version("berth-scheduler") == berth.__version__


def test_no_text_cites_notes_that_are_not_in_the_repository() -> None:
    cited = {name: notes_outside(text) for name, text in prose().items()}
    assert {name: notes for name, notes in cited.items() if notes} == {}


def test_every_file_heading_and_test_that_a_text_names_is_there() -> None:
    named = {name: references_in(name, text) for name, text in prose().items()}
    dead = {name: sorted(str(each) for each in found if not is_there(each)) for name, found in named.items()}
    assert {name: references for name, references in dead.items() if references} == {}
    assert sum(map(len, named.values())) > 300


def test_every_decision_and_promise_that_a_text_names_is_there() -> None:
    for word, known in (("decision", records()), ("promise", promises())):
        named = {name: numbers(word, text) for name, text in prose().items()}
        assert {name: found - known for name, found in named.items() if found - known} == {}
        assert set().union(*named.values())
