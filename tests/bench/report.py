"""What was measured, as a Markdown table and as JSON, and on which machine (neither its name nor its paths).
It judges nothing: `marks` does."""

import os
import platform
import sqlite3
import textwrap
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.bench.rounds import FLOOR, Measured

_CPUINFO = Path("/proc/cpuinfo")
_HEAD = ("case", "verb", "contender", "passed", "p50 ms", "p99 ms", "CPU ms", "× floor")


def machine() -> dict[str, str]:
    """What figures depend on."""
    return {
        "cpu": f"{_cpu()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: version(name) for name in ("functions-framework", "gunicorn", "msgspec")},
    }


def rows(measured: Sequence[Measured]) -> list[dict[str, object]]:
    """One for each contender in each case; `ratio` is None where no floor was measured."""
    floors = {(each.case, each.verb): each for each in measured if each.contender == FLOOR}
    return [_row(each, floors.get((each.case, each.verb))) for each in measured]


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """The rows as Markdown."""
    body = [
        (
            *(row[name] for name in ("case", "verb", "contender")),
            f"{row['passed']:,}",
            *(ms(row[name]) for name in ("p50", "p99", "cpu")),
            _ratio(row["ratio"]),
        )
        for row in lines
    ]
    return markdown(_HEAD, body, 3)


def markdown(head: Sequence[str], body: Sequence[Sequence[object]], words: int) -> str:
    """A table whose first columns, so many, are words and the others numbers."""
    rule = ["---"] * words + ["---:"] * (len(head) - words)
    return "\n".join(map(_line, [head, rule, *body]))


def told(about: Mapping[str, str]) -> str:
    line = "; ".join(f"{name} {value}" for name, value in about.items())
    return textwrap.fill(line, 110, break_on_hyphens=False)


def _row(measured: Measured, floor: Measured | None) -> dict[str, object]:
    return {
        "case": measured.case.title,
        "verb": measured.verb,
        "contender": measured.contender,
        "rounds": len(measured.rounds),
        "calls": sum(map(len, measured.rounds)),
        "passed": measured.passed,
        "p50": measured.p50,
        "p99": measured.p99,
        "cpu": measured.cpu_per_call,
        "ratio": None if floor is None else measured.ratio(floor),
    }


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def ms(seconds: object) -> str:
    """In milliseconds; nothing for what was not measured."""
    if not isinstance(seconds, float):
        return ""
    return f"{1000 * seconds:,.2f}" if seconds < 0.1 else f"{1000 * seconds:,.0f}"


def _ratio(ratio: object) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _cpu() -> str:
    lines = _CPUINFO.read_text().splitlines() if _CPUINFO.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
