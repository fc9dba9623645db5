"""docs/pictures/ratios.svg: calls and pods beside extenders in Go, of what docs/benchmarks/ has.
A bar is the median of the rounds' ratios; a line across it is its mark."""

from html import escape

from tests.docs.kept_figures import judged
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
    rows = judged()
    height = _TOP + _HIGH * len(rows) + 10
    shapes = [
        f'<text x="{_LEFT + _SCALE + 4}" y="20">1.0: the same in Go</text>\n',
        f'<line class="floor" x1="{_LEFT + _SCALE}" y1="8" x2="{_LEFT + _SCALE}" y2="{height - 8}"/>\n',
    ]
    for number, one in enumerate(rows):
        label, ratio, mark = one
        y, wide, at = _TOP + _HIGH * number, round(ratio * _SCALE), _LEFT + round(mark * _SCALE)
        kind = "bar" if one.is_met else "over"
        shapes.append(
            f'<text x="8" y="{y + 12}">{escape(label)}</text>\n'
            f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{wide}" height="15"/>\n'
            f'<line class="mark" x1="{at}" y1="{y - 3}" x2="{at}" y2="{y + 18}"/>\n'
            f'<text x="{_LEFT + max(wide, round(mark * _SCALE)) + 6}" y="{y + 12}">{ratio:.2f}</text>\n'
        )
    about = "; ".join(f"{label}: {ratio:.2f}, mark {mark:.2f}" for label, ratio, mark in rows)
    return svg(
        (780, height), "Time of a call or a pod, an extender in Go being 1", about, _STYLE, "".join(shapes)
    )
