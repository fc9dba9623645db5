"""docs/benchmarks.md: written by hand, but for its tables, which are of the figures in docs/benchmarks/.
A table stands between `<!-- figures: NAME -->` and `<!-- end of figures -->`; NAME.json is a bench's."""

import json
import re

from tests.bench import figures
from tests.support.references import ROOT

PAGE = "docs/benchmarks.md"
FOLDER = ROOT / "docs" / "benchmarks"
_TABLE = re.compile(r"(<!-- figures: ([a-z0-9-]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def page() -> str:
    """Return the page as it stands, with its tables made anew."""
    return _TABLE.sub(_made, (ROOT / PAGE).read_text())


def names() -> list[str]:
    """Return which figures the page shows."""
    return [found[2] for found in _TABLE.finditer((ROOT / PAGE).read_text())]


def _made(found: re.Match[str]) -> str:
    measured = json.loads((FOLDER / f"{found[2]}.json").read_text())
    return f"{found[1]}\n{figures.markdown(measured)}\n\n{found[3]}"
