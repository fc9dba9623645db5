"""The runbook has every kind of finding of `berth doctor`, in its words, and every kind is planted."""

from berth.controller.drift import KINDS
from tests.support.builders.damage import DAMAGES
from tests.support.references import ROOT


def test_the_runbook_has_each_kind_and_no_other() -> None:
    page = (
        (ROOT / "docs/runbook.md").read_text().partition("## What the doctor finds")[2].partition("\n## ")[0]
    )
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{name}` | {kind.means} | {kind.why} | {kind.fix} |" for name, kind in KINDS.items()]


def test_each_kind_is_planted_by_a_test() -> None:
    assert {damage.kind for damage in DAMAGES.values()} == KINDS.keys()
