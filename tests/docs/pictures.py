"""Pictures of docs/pictures made from the texts beside them: who calls whom, or states and transitions.
They need nothing but a browser, and can be read on light and on dark pages."""

import math
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from tests.docs.svg import svg
from tests.support.references import ROOT

FOLDER = ROOT / "docs" / "pictures"

_STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1f2328; text-anchor: middle }
.name { font-weight: 600 } .heading { font-weight: 600; text-anchor: start }
.box { fill: #f6f8fa; stroke: #8c959f } .life { stroke: #d1d9e0 } .under { fill: #ffffff; opacity: 0.85 }
.call { stroke: #0969da; fill: none } .answer { stroke: #59636e; fill: none; stroke-dasharray: 5 4 }
.tip { fill: #0969da } .tip.of-answer { fill: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .box { fill: #161b22; stroke: #656c76 } .life { stroke: #3d444d }
  .under { fill: #0d1117 } .call { stroke: #58a6ff } .answer { stroke: #9198a1 }
  .tip { fill: #58a6ff } .tip.of-answer { fill: #9198a1 }
}
"""
_MESSAGE = re.compile(r"(?P<sender>.+?) (?P<arrow>-->|->) (?P<receiver>.+?): (?P<text>.+)")
_STATE = re.compile(r"state (?P<key>\w+) at (?P<column>\d+),(?P<row>\d+): (?P<name>.+)")


_HALF_BOX = (58, 17)


class State(NamedTuple):
    x: float
    y: float
    name: str


def picture(text: str) -> str:
    """Return the SVG that a text describes; texts with actors are of calls, others of states."""
    lines = [line for line in text.splitlines() if line]
    said = [line.partition(": ") for line in lines]
    title = next(value for key, _, value in said if key == "title")
    about = " ".join(value for key, _, value in said if key == "about")
    actors = next((value.split(" | ") for key, _, value in said if key == "actors"), None)
    rest = [line for line in lines if not line.startswith(("title: ", "about: ", "actors: "))]
    width, height, shapes = _calls(actors, rest) if actors else _states(rest)
    return svg((width, height), title, about, _STYLE, shapes)


def _calls(actors: Sequence[str], lines: Sequence[str]) -> tuple[int, int, str]:
    """A column for each actor, and a row for each message and heading."""
    step, top, high = 132, 64, 30
    place = {actor: 70 + step * number for number, actor in enumerate(actors)}
    width, height = 70 * 2 + step * (len(actors) - 1), top + high * len(lines) + 10
    shapes = [
        f'<line class="life" x1="{x}" y1="44" x2="{x}" y2="{height - 10}"/>\n{_box(x, 26, actor)}'
        for actor, x in place.items()
    ]
    for row, line in enumerate(lines):
        y = top + high * row + 16
        if line.startswith("=="):
            shapes.append(
                f'<rect class="under" x="8" y="{y - 12}" width="{width - 16}" height="20"/>\n'
                f'<text class="heading" x="16" y="{y + 3}">{escape(line.strip("= "))}</text>\n'
            )
            continue
        shapes.append(_message(line, place, y, width))
    return width, height, "".join(shapes)


def _message(line: str, place: dict[str, int], y: int, width: int) -> str:
    message = _MESSAGE.fullmatch(line)
    if message is None:
        raise ValueError(f"no message: {line}")
    start, end = place[message["sender"]], place[message["receiver"]]
    half = len(message["text"]) * 3.3
    middle = min(max((start + end) / 2, half + 4), width - half - 4)
    return (
        _arrow(start, y, end, y, answer=message["arrow"] == "-->")
        + f'<rect class="under" x="{middle - half:.0f}" y="{y - 18}" width="{2 * half:.0f}" height="15"/>\n'
        + f'<text x="{middle:.0f}" y="{y - 6}">{escape(message["text"])}</text>\n'
    )


def _states(lines: Sequence[str]) -> tuple[int, int, str]:
    """States at their places, and an arrow for each transition, beside the one that leads back."""
    states: dict[str, State] = {}
    transitions: list[re.Match[str]] = []
    for line in lines:
        if state := _STATE.fullmatch(line):
            x, y = 80 + 155 * int(state["column"]), 40 + 105 * int(state["row"])
            states[state["key"]] = State(x, y, state["name"])
        elif transition := _MESSAGE.fullmatch(line):
            transitions.append(transition)
        else:
            raise ValueError(f"neither state nor transition: {line}")
    pairs = {(move["sender"], move["receiver"]) for move in transitions}
    shapes = [
        _transition(
            states[move["sender"]],
            states[move["receiver"]],
            move["text"],
            twofold=(move["receiver"], move["sender"]) in pairs,
        )
        for move in transitions
    ]
    shapes += [_box(state.x, state.y, state.name) for state in states.values()]
    width, height = max(state.x for state in states.values()), max(state.y for state in states.values())
    return round(width) + 80, round(height) + 40, "".join(shapes)


def _transition(start: State, end: State, text: str, *, twofold: bool) -> str:
    dx, dy = end.x - start.x, end.y - start.y
    long, aside = math.hypot(dx, dy), 12 if twofold else 0
    dx, dy = dx / long, dy / long
    out, back = _edge(dx, dy, -dy * aside, dx * aside), _edge(-dx, -dy, -dy * aside, dx * aside)
    x1, y1, x2, y2 = start.x + out[0], start.y + out[1], end.x + back[0], end.y + back[1]
    x, y, half = (x1 + x2) / 2, (y1 + y2) / 2, len(text) * 3.4
    return (
        _arrow(x1, y1, x2, y2)
        + f'<rect class="under" x="{x - half:.0f}" y="{y - 9:.0f}" width="{2 * half:.0f}" height="17"/>\n'
        + f'<text x="{x:.0f}" y="{y + 4:.0f}">{escape(text)}</text>\n'
    )


def _edge(dx: float, dy: float, aside_x: float, aside_y: float) -> tuple[float, float]:
    """Where a line in this direction leaves a box, from the box's middle; it starts beside that middle."""
    to_side = (math.copysign(_HALF_BOX[0], dx) - aside_x) / dx if dx else math.inf
    to_top = (math.copysign(_HALF_BOX[1], dy) - aside_y) / dy if dy else math.inf
    far = min(to_side, to_top)
    return aside_x + dx * far, aside_y + dy * far


def _box(x: float, y: float, name: str) -> str:
    wide, high = _HALF_BOX
    return (
        f'<rect class="box" x="{x - wide:.0f}" y="{y - high:.0f}" '
        f'width="{2 * wide}" height="{2 * high}" rx="6"/>\n'
        f'<text class="name" x="{x:.0f}" y="{y + 4:.0f}">{escape(name)}</text>\n'
    )


def _arrow(x1: float, y1: float, x2: float, y2: float, *, answer: bool = False) -> str:
    """A line with a tip of its own: markers take no colour from the page's scheme."""
    kind = "answer" if answer else "call"
    angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
    return (
        f'<line class="{kind}" x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}"/>\n'
        f'<path class="tip{" of-answer" if answer else ""}" d="M0 0 L-9 -4 L-9 4 Z" '
        f'transform="translate({x2:.0f} {y2:.0f}) rotate({angle:.0f})"/>\n'
    )


def sources() -> Iterator[str]:
    """The names of the pictures that have a text."""
    yield from sorted(path.stem for path in FOLDER.glob("*.txt"))


def made_from_text(name: str) -> str:
    """Return the picture that the text of this name describes."""
    return picture((FOLDER / f"{name}.txt").read_text())
