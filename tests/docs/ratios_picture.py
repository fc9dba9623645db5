"""docs/pictures/ratios.svg: filter and prioritize beside the floor in Go, of what docs/benchmarks/calls.json
has. A bar is the median of the rounds' ratios; a line across it is its mark."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from tests.bench.marks import MARKS
from tests.bench.rounds import usual_cases
from tests.docs.benchmarks_page import FOLDER
from tests.docs.svg import svg

PICTURE = "docs/pictures/ratios.svg"

_STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.bar { fill: #0969da } .over { fill: #bf8700 } .mark { stroke: #1f2328; stroke-width: 2 }
.floor { stroke: #8c959f; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .bar { fill: #58a6ff } .over { fill: #d29922 } .mark { stroke: #e6edf3 }
  .floor { stroke: #656c76 }
}
"""
_LEFT, _SCALE, _HIGH, _TOP = 270, 200, 24, 34


def picture() -> str:
    """Return the SVG of what the committed figures say of each mark."""
    figures = json.loads((FOLDER / "calls.json").read_text())
    rows = list(_judged(figures["rows"]))
    height = _TOP + _HIGH * len(rows) + 10
    shapes = [
        f'<text x="{_LEFT + _SCALE + 4}" y="20">1.0: the floor in Go</text>\n',
        f'<line class="floor" x1="{_LEFT + _SCALE}" y1="8" x2="{_LEFT + _SCALE}" y2="{height - 8}"/>\n',
    ]
    for number, (label, ratio, mark) in enumerate(rows):
        y, wide, at = _TOP + _HIGH * number, round(ratio * _SCALE), _LEFT + round(mark * _SCALE)
        kind = "bar" if ratio <= mark else "over"
        shapes.append(
            f'<text x="8" y="{y + 12}">{escape(label)}</text>\n'
            f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{wide}" height="15"/>\n'
            f'<line class="mark" x1="{at}" y1="{y - 3}" x2="{at}" y2="{y + 18}"/>\n'
            f'<text x="{_LEFT + max(wide, round(mark * _SCALE)) + 6}" y="{y + 12}">{ratio:.2f}</text>\n'
        )
    about = "; ".join(f"{label}: {ratio:.2f}, mark {mark:g}" for label, ratio, mark in rows)
    return svg((780, height), "Time of a call, the floor in Go being 1", about, _STYLE, "".join(shapes))


def _judged(rows: list[Mapping[str, Any]]) -> Iterator[tuple[str, float, float]]:
    names = {case.title: case.name for case in usual_cases(5000).values()}
    for row in rows:
        mark = MARKS.get((names.get(row["case"], ""), row["verb"], row["contender"]))
        if mark is not None:
            yield f"{row['verb']}, {row['case']}, {row['contender']}", row["ratio"], mark
