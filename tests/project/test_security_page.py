"""docs/security.md says nothing that no test holds: each item and row names its test, or says that none does.

It does not judge whether the test shows what the sentence says.
"""

import re
from collections.abc import Iterator

import yaml

import berth
from tests.support.references import ROOT

PAGE = ROOT / "docs" / "security.md"
HELD = re.compile(r"tests/[\w/]+\.py|\*not tested\*", re.IGNORECASE)
BY_SECTION = re.compile(
    r"\[[^]]+\]\(#[\w-]+\)\.$"
)  # the overview's items lead to the sections that name tests


def statements() -> Iterator[str]:
    """Each item, row and paragraph below the first heading, as one line."""
    _, mark, text = PAGE.read_text().partition("\n## ")
    for block in re.split(r"\n(?=- |\| |\n|#)", mark + text):
        one = " ".join(block.split())
        if one and not one.startswith("#") and not re.match(r"\| -", one):
            yield one


def test_every_sentence_names_a_test_or_says_that_there_is_none() -> None:
    found = list(statements())
    heads = [line for line, after in zip(_lines(), _lines()[1:], strict=False) if after.startswith("| ---")]
    loose = [one for one in found if one not in heads and not HELD.search(one) and not BY_SECTION.search(one)]
    assert loose == []
    assert len(found) > 40


def test_every_account_of_infra_is_there() -> None:
    accounts = {
        document["metadata"]["name"]
        for path in (ROOT / "infra").rglob("*.yaml")
        if ROOT / "infra" / "chart" not in path.parents  # its templates read these
        for document in yaml.safe_load_all(path.read_text())
        if isinstance(document, dict) and document.get("kind") == "ServiceAccount"
    }
    table = PAGE.read_text().partition("## Accounts")[2].partition("## Tenants")[0]
    assert accounts == set(
        re.findall(r"berth-[a-z]+", " ".join(re.findall(r"^- \*\*(.*?)\.\*\*$", table, re.MULTILINE)))
    )


def test_security_md_names_the_version_that_this_is() -> None:
    policy = (ROOT / "SECURITY.md").read_text()
    assert f"| {'.'.join(berth.__version__.split('.')[:2])} | yes |" in policy


def _lines() -> list[str]:
    return [" ".join(line.split()) for line in PAGE.read_text().splitlines()]
