"""The project keeps the house rules: how long functions are, which names say nothing, how wide pages are.
What breaks a rule is shown on texts made by hand in tests/unit/support/test_house_rules.py."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.support.house_rules import (
    docstrings_beginning,
    long_functions,
    names_given,
    parameters_and_attributes,
    wide_lines,
)
from tests.support.references import ROOT, committed

PRODUCT = ("shared/", "functions/")
ALL = (*PRODUCT, "tests/")

# What one looks up by its first column stays in one table, however wide.
WIDE_TABLES = {"docs/runbook.md", "docs/reliability.md"}
PAGES = {
    "docs": {
        *("index", "install", "runbook", "architecture", "glossary", "promises", "kubernetes"),
        *(
            "reliability",
            "benchmarks",
            "screens",
            "tutorial",
            "capacity-planning",
            "security",
            "access",
            "events",
            "monitoring",
            "logs-and-traces",
            "observability",
            "dashboard",
            "events-on-pods",
            "upgrade",
            "usage",
            "kind",
            "release",
        ),
    },
    "docs/stores": {"index", "sqlite", "redis", "configmap", "dynamodb"},
    "docs/concepts": {
        *("claims-and-waking", "named-units", "sticky", "limits", "line", "gangs", "licences"),
        *("preemption", "lost-nodes"),
    },
    "docs/reference": {"pool", "poolclaim", "settings", "cli", "checks"},
}

Rule = Callable[[str], list[str]]
RULES: dict[str, tuple[tuple[str, ...], Rule]] = {
    "functions of 60 lines at most": (ALL, long_functions),
    "nothing is called found": (PRODUCT, partial(names_given, name="found")),
    "no parameter and no attribute is called each": (ALL, partial(parameters_and_attributes, name="each")),
    "no docstring begins with The same": (ALL, partial(docstrings_beginning, words="The same")),
}


def sources(folders: tuple[str, ...]) -> Iterator[str]:
    yield from (name for name in sorted(committed()) if name.startswith(folders) and name.endswith(".py"))


def pages() -> Iterator[str]:
    yield from (name for name in sorted(committed()) if name.endswith(".md"))


def broken(said: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return what is said of the files of which something is said."""
    return {name: lines for name, lines in said.items() if lines}


@pytest.mark.group("sources")  # parsed once for all rules, in one process
@pytest.mark.parametrize("rule", RULES)
def test_every_source_keeps_the_rule(rule: str) -> None:
    folders, check = RULES[rule]
    said = {name: check((ROOT / name).read_text()) for name in sources(folders)}
    assert len(said) > 100
    assert broken(said) == {}


def test_no_page_is_wider_than_120_columns() -> None:
    texts = {name: (ROOT / name).read_text() for name in pages()}
    said = {name: wide_lines(text, tables_too=name not in WIDE_TABLES) for name, text in texts.items()}
    assert broken(said) == {}


def test_every_page_of_docs_has_its_place() -> None:
    """What fits none of these places is a section of a page that is there, or this list changes with it."""
    allowed = {f"{folder}/{name}.md" for folder, names in PAGES.items() for name in names}
    free = ("docs/decisions/", "docs/scenarios/")
    assert {name for name in pages() if name.startswith("docs/") and not name.startswith(free)} == allowed


def test_every_picture_is_on_a_page() -> None:
    """A path to it, from anywhere: that it leads there is for test_project.py."""
    texts = [(ROOT / name).read_text() for name in pages()]
    pictures = [name for name in sorted(committed()) if name.startswith("docs/") and name.endswith(".svg")]
    assert pictures
    assert [name for name in pictures if not any(f"/{Path(name).name})" in text for text in texts)] == []
