"""The look at references, on texts made by hand: what it takes for one, and which it finds dead.
That the project has no dead ones is in test_project.py."""

import pytest

from tests.support.references import (
    Reference,
    anchors,
    is_there,
    notes_outside,
    numbers,
    prose_of,
    references_in,
)

HERE = "tests/project/test_references.py"


@pytest.mark.parametrize(
    "text",
    [
        "Facts 5 says",
        "so: facts, 4)",
        "(facts: 197 calls)",
        "of design 4",
        "the design's start",
        "see design.md",
        "(issue 17)",
        "Step 3 needs it",
    ],
)
def test_a_citation_of_notes_that_are_not_here_is_seen(text: str) -> None:
    assert notes_outside(text)


@pytest.mark.parametrize(
    "text",
    [
        "a fact",
        "the facts of a case",
        "by design, 4 of them",
        "designed for 4",
        "in steps, 4 of them",
        "[issue 17](https://x/17)",
    ],
)
def test_plain_words_and_links_are_no_citation(text: str) -> None:
    assert notes_outside(text) == []


@pytest.mark.parametrize(
    ("text", "path", "anchor", "test"),
    [
        ("see docs/architecture.md.", "docs/architecture.md", "", ""),
        ("`docs/architecture.md#time-outs`,", "docs/architecture.md", "time-outs", ""),
        ("README.md#try-it", "README.md", "try-it", ""),
        (f"`{HERE}::test_plain`", HERE, "", "test_plain"),
        ("(infra/overlays/below-1.36)", "infra/overlays/below-1.36", "", ""),
        ("test_up.py shows it", "*/test_up.py", "", ""),
        ("`controller/requeue` wakes", "shared/berth/controller/requeue.py", "", ""),
        ("`stores/redis` keeps", "shared/berth/stores/redis", "", ""),
    ],
)
def test_a_file_that_is_named_is_a_reference(text: str, path: str, anchor: str, test: str) -> None:
    assert references_in("shared/berth/http/endpoint.py", text) == {Reference(path, anchor, test)}


@pytest.mark.parametrize(
    "text",
    [
        "https://kubernetes.io/docs/concepts/x",
        "functions/<verb>",
        "functions/{name}",
        "events/s",
        "`text/plain`",
    ],
)
def test_a_url_a_pattern_and_a_unit_are_none(text: str) -> None:
    assert references_in("shared/berth/http/endpoint.py", text) == set()


def test_a_page_s_links_are_from_its_own_folder_and_those_in_examples_are_none() -> None:
    page = (
        "[a](decisions/) [b](../README.md#try-it) [c](#time-outs) [d](https://x/y.md)\n```\n[e](f.md)\n```\n"
    )
    assert references_in("docs/architecture.md", page) == {
        Reference("docs/decisions"),
        Reference("README.md", "try-it"),
        Reference("docs/architecture.md", "time-outs"),
    }


@pytest.mark.parametrize(
    "reference",
    [
        Reference("docs/architecture.md", "time-outs"),
        Reference("docs/decisions/0016"),
        Reference("infra/overlays"),
        Reference("tests/unit/test_*.py"),
        Reference(HERE, test="test_what_is_there_is_there"),
    ],
    ids=str,
)
def test_what_is_there_is_there(reference: Reference) -> None:
    assert is_there(reference)


@pytest.mark.parametrize(
    "reference",
    [
        Reference("docs/nothing.md"),
        Reference("docs/architecture.md", "nothing"),
        Reference("docs/decisions/9999"),
        Reference("docs/decisions", "settings"),
        Reference("infra/overlay"),
        Reference("tests/unit/nothing_*.py"),
        Reference("*/test_nothing.py"),
        Reference(HERE, test="test_nothing"),
        Reference("../elsewhere.md"),
    ],
    ids=str,
)
def test_what_is_not_there_is_dead(reference: Reference) -> None:
    assert not is_there(reference)


def test_anchors_are_those_that_github_makes() -> None:
    page = "# A `b`, and [c](d.md)\n## What a pod's event says\n## Twice\n### Twice\n```sh\n# none\n```\n"
    assert anchors(page) == {"a-b-and-c", "what-a-pods-event-says", "twice", "twice-1"}


def test_numbers_follow_their_word_over_lines() -> None:
    text = (
        "decision 7, decisions 0008, 0009 and\n10, docs/decisions/0011-x.md, [decision 12](x), precision 13"
    )
    assert numbers("decision", text) == {7, 8, 9, 10, 11, 12}


def test_of_a_program_comments_and_docstrings_are_read() -> None:
    source = '"""Module."""\nX = "string"  # why\n"""Attribute."""\ndef f():\n    """Function."""\n'
    assert prose_of("x.py", source).splitlines() == ["Module.", "why", "Attribute.", "Function."]
    assert prose_of("x.yaml", "# why\na: b#c # d\n").splitlines() == ["why", "d"]
    assert prose_of("x.lua", "-- why\nlocal a = '#b'\n").splitlines() == ["why"]
