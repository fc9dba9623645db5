"""docs/pictures/demo.svg: what `berth demo` prints, played line by line as in a terminal.
The lines are the demo's own; how fast they come is not."""

import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from html import escape, unescape
from pathlib import Path

from tests.docs.svg import svg
from tests.support.references import ROOT

PICTURE = ROOT / "docs" / "pictures" / "demo.svg"

_COLUMNS, _ROWS = 72, 24
_WIDE, _HIGH, _MARGIN, _BAR = 7.9, 18, 16, 30
_PAUSE = 0.4  # seconds from one row to the next
_LABEL = re.compile(r" *(?:naive counter|berth): ")
_MEASURED = re.compile(r"\b\d+(?:\.\d+)? s\b")
_TEXT = re.compile(r'<text class="line[^>]*>(.*?)</text>', re.DOTALL)

_STYLE = """\
.line { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328; white-space: pre }
.screen { fill: #f6f8fa; stroke: #d1d9e0 } .dot { fill: #d1d9e0 }
.step { font-weight: bold } .naive { fill: #b35900 } .berth { fill: #116329 }
@media (prefers-color-scheme: dark) {
  .line { fill: #e6edf3 } .screen { fill: #0d1117; stroke: #3d444d } .dot { fill: #3d444d }
  .naive { fill: #f0883e } .berth { fill: #56d364 }
}
@media (prefers-reduced-motion: no-preference) {
  .line { animation: shown 0.01s both } .all { animation: rolled TOTALs step-end both }
}
@keyframes shown { from { opacity: 0 } to { opacity: 1 } }
"""


def played() -> list[str]:
    """Return the lines that the demo prints now."""
    command = [str(Path(sys.executable).with_name("berth")), "demo"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def picture(lines: Sequence[str]) -> str:
    """Return the SVG that plays these lines; where nothing moves it shows the last of them."""
    rows = 0
    texts = []
    for line in ["$ berth demo", *lines]:
        parts = _wrapped(line)
        texts.append(_text(line, parts, rows))
        rows += len(parts)
    width, height = round(_COLUMNS * _WIDE) + 2 * _MARGIN, _ROWS * _HIGH + 2 * _MARGIN + _BAR
    rolled = max(0, rows - _ROWS) * _HIGH
    dots = "".join(
        f'<circle class="dot" cx="{_MARGIN + 6 + 18 * number}" cy="18" r="6"/>' for number in range(3)
    )
    shapes = f"""\
<rect class="screen" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>
{dots}
<clipPath id="w"><rect x="0" y="{_BAR + 4}" width="{width}" height="{height - _BAR - 14}"/></clipPath>
<g clip-path="url(#w)"><g class="all" transform="translate(0 -{rolled})">
{"".join(texts)}</g></g>
"""
    style = _STYLE.replace("TOTAL", f"{rows * _PAUSE:.1f}") + _rolling(rows)
    return svg((width, height), "A recording of `berth demo`", " · ".join(lines[-2:]), style, shapes)


def shown(svg: str) -> list[str]:
    """Return the lines that a picture shows, without what its wrapping added."""
    return [" ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split()) for text in _TEXT.findall(svg)][1:]


def plain(text: str) -> str:
    """Return the text with single spaces and without the seconds that were measured."""
    return _MEASURED.sub("… s", " ".join(text.split()))


def anew() -> str:
    """Return the picture of the demo as it is now; the one that is there, if it shows the same."""
    before, now = PICTURE.read_text() if PICTURE.exists() else "", picture(played())
    return before if plain(before) == plain(now) else now


def _wrapped(line: str) -> list[str]:
    label = _LABEL.match(line)
    indent = " " * (18 if label else len(line) - len(line.lstrip()))
    return textwrap.wrap(line, _COLUMNS, subsequent_indent=indent, drop_whitespace=False) or [""]


def _text(line: str, parts: Sequence[str], row: int) -> str:
    kind = "line step" if re.match(r"\d+\. |\$ ", line) else "line"
    spans = "".join(
        f'<tspan x="{_MARGIN}" y="{_BAR + _MARGIN + (row + number) * _HIGH}">{_coloured(part)}</tspan>'
        for number, part in enumerate(parts)
    )
    delay = f"animation-delay: {row * _PAUSE:.1f}s"
    return f'<text class="{kind}" style="{delay}" xml:space="preserve">{spans}</text>\n'


def _coloured(part: str) -> str:
    label = _LABEL.match(part)
    if not label:
        return escape(part)
    kind = "naive" if "naive" in label[0] else "berth"
    return f'<tspan class="{kind}">{escape(label[0])}</tspan>{escape(part[label.end() :])}'


def _rolling(rows: int) -> str:
    """The steps by which the lines go up, once the window is full; they end where a still picture stands."""
    steps = "".join(
        f"{100 * row / rows:.2f}% {{ transform: translate(0, -{(row + 1 - _ROWS) * _HIGH}px) }}\n"
        for row in range(_ROWS, rows)
    )
    return f"@keyframes rolled {{\n0% {{ transform: none }}\n{steps}}}\n"
