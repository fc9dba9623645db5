"""The project keeps the house rules: how long functions are, which names say nothing, how wide pages are.
What breaks a rule is shown on texts made by hand in tests/unit/support/test_house_rules.py."""

from collections.abc import Callable, Iterator
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

NOT_YET = Path(__file__).with_name("not_yet.txt")
PRODUCT = ("shared/", "functions/")
ALL = (*PRODUCT, "tests/")

# What one looks up by its first column stays in one table, however wide.
WIDE_TABLES = {"docs/runbook.md", "docs/reliability.md"}
PAGES = {
    "docs": {
        *("index", "install", "runbook", "architecture", "glossary", "promises", "kubernetes"),
        *("reliability", "benchmarks", "security", "access", "events", "upgrade"),
    },
    "docs/stores": {"index", "sqlite", "redis", "configmap", "dynamodb"},
    "docs/concepts": {
        *("claims-and-waking", "named-units", "sticky", "limits", "preemption", "lost-nodes"),
    },
    "docs/reference": {"pool", "poolclaim", "settings", "cli"},
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


def not_yet(rule: str) -> set[str]:
    """The files that do not keep a rule yet. The list only shrinks, and goes when it is empty."""
    lines = NOT_YET.read_text().splitlines() if NOT_YET.exists() else []
    return {name for name, _, about in (line.partition(": ") for line in lines) if about == rule}


def hold(rule: str, broken: dict[str, list[str]]) -> None:
    """Fail for a file that breaks the rule, and for one that is on the list though it keeps it by now."""
    listed, breaks = not_yet(rule), {name: said for name, said in broken.items() if said}
    assert {name: said for name, said in breaks.items() if name not in listed} == {}
    assert listed - breaks.keys() == set(), f"take these lines out of {NOT_YET.relative_to(ROOT)}"


@pytest.mark.parametrize("rule", RULES)
def test_every_source_keeps_the_rule(rule: str) -> None:
    folders, check = RULES[rule]
    broken = {name: check((ROOT / name).read_text()) for name in sources(folders)}
    assert len(broken) > 100
    hold(rule, broken)


def test_no_page_is_wider_than_120_columns() -> None:
    texts = {name: (ROOT / name).read_text() for name in pages()}
    hold(
        "no line of a page is wider than 120 columns",
        {name: wide_lines(text, tables_too=name not in WIDE_TABLES) for name, text in texts.items()},
    )


def test_every_page_of_docs_has_its_place() -> None:
    """What fits none of these places is a section of a page that is there, or this list changes with it."""
    allowed = {f"{folder}/{name}.md" for folder, names in PAGES.items() for name in names}
    loose = {
        name: ["no place for it"]
        for name in pages()
        if name.startswith("docs/") and not name.startswith(("docs/decisions/", "docs/scenarios/"))
        if name not in allowed
    }
    hold("every page of docs has its place", loose)


def test_every_picture_is_on_a_page() -> None:
    """A path to it, from anywhere: that it leads there is for test_project.py."""
    texts = [(ROOT / name).read_text() for name in pages()]
    pictures = [name for name in sorted(committed()) if name.endswith(".svg")]
    assert pictures
    loose = {
        name: [] if any(f"/{Path(name).name})" in text for text in texts) else ["on no page"]
        for name in pictures
    }
    hold("every picture is on a page", loose)


def test_the_list_names_rules_that_there_are() -> None:
    known = {
        *RULES,
        "no line of a page is wider than 120 columns",
        "every page of docs has its place",
        "every picture is on a page",
    }
    lines = NOT_YET.read_text().splitlines() if NOT_YET.exists() else []
    assert {line.partition(": ")[2] for line in lines} <= known
