"""docs/benchmarks.md: written by hand, but for its tables, which are of the figures in docs/benchmarks/.
A table stands between `<!-- figures: NAME -->` and `<!-- end of figures -->`; NAME.json is a bench's."""

import re

from tests.bench import report
from tests.bench.figures import markdown
from tests.docs.kept_figures import figures, judged
from tests.support.references import ROOT

PAGE = "docs/benchmarks.md"
MARKS = "marks"
"""The name of the table that says how all figures stand to their marks."""

_TABLE = re.compile(r"(<!-- figures: ([a-z0-9-]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def page() -> str:
    """Return the page as it stands, with its tables made anew."""
    return _TABLE.sub(_made, (ROOT / PAGE).read_text())


def names() -> list[str]:
    """Return which figures the page shows, beside those of the marks."""
    return [found[2] for found in _TABLE.finditer((ROOT / PAGE).read_text()) if found[2] != MARKS]


def _made(found: re.Match[str]) -> str:
    table = _marks() if found[2] == MARKS else markdown(figures(found[2]))
    return f"{found[1]}\n{table}\n\n{found[3]}"


def _marks() -> str:
    rows = [
        (one.what, "met" if one.is_met else "**not met**", f"{one.ratio:.2f}", f"{one.mark:.2f}")
        for one in judged()
    ]
    return report.markdown(("what", "", "× Go's time", "mark"), rows, 2)
