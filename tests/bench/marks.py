"""What filter and prioritize may take beside the floor in Go, pods a second, and what a reconcile may take.
The marks are aims: who runs the bench learns which are missed, and by how much."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.reconciles import MARKED, Size
from tests.bench.rounds import FLOOR, Measured
from tests.bench.scheduled import GO, NONE
from tests.bench.starts import FEW, MANY

LEEWAY = 1.2
"""A ratio that is more than so many times its mark ends the bench with an error."""

_BOTH = ("sqlite", "redis")
MARKS = {
    ("few", verb, store): mark
    for verb in ("filter", "prioritize")
    for store, mark in (("sqlite", 1.2), ("redis", 1.5))
}
MARKS |= {("names", verb, store): 0.8 for verb in ("filter", "prioritize") for store in _BOTH}
MARKS |= {("full", "filter", store): 0.12 for store in _BOTH}
MARKS |= {("full", "prioritize", store): 0.10 for store in _BOTH}
"""The largest ratio to the floor, by case (rounds.py), verb and store; of 5,000 nodes, one process."""

PODS_A_SECOND = 0.9
"""The least ratio to an extender in Go that counts in memory."""

RECONCILE_SECONDS, RECONCILE_BYTES = 5.0, 300e6
"""What a reconcile may take of the cluster of reconciles.MARKED, and its process in memory at most."""

START_SECONDS = {FEW: 0.3, MANY: 0.45}
"""From the start of filter's process to its first answer, by domains of the ledger."""

IDLE_BYTES, FULL_BYTES = 70e6, 250e6
"""What filter's process may have before its first call, and after calls with MANY full nodes, 8 at once."""


def judged(measured: Sequence[Measured]) -> list[tuple[str, bool]]:
    """Return a line for each mark that was measured, and whether it is missed by more than the leeway."""
    floors = {(one.case, one.verb): one for one in measured if one.contender == FLOOR}
    lines = []
    for one in measured:
        floor, mark = floors.get((one.case, one.verb)), MARKS.get((one.case.name, one.verb, one.contender))
        if floor is None or mark is None:
            continue
        ratio = one.ratio(floor)
        verdict = "met" if ratio <= mark else "not met"
        where = f"{one.verb}, {one.case.title}, {one.contender}"
        lines.append((f"{where}: {ratio:.2f} × the floor, mark {mark:g}: {verdict}", ratio > mark * LEEWAY))
    return lines


def judged_reconciles(rows: Sequence[Mapping[str, Any]], size: Size) -> list[tuple[str, bool]]:
    """Return lines as `judged` does, of reconciles."""
    lines = []
    for row in rows if size == MARKED else ():
        where = f"reconcile, {row['reconcile']}, {row['ledger']}"
        for figure, mark, unit in (
            (row["seconds"], RECONCILE_SECONDS, "s"),
            (row["peak"] / 1e6, RECONCILE_BYTES / 1e6, "MB"),
        ):
            verdict = "met" if figure <= mark else "not met"
            line = f"{where}: {figure:.1f} {unit}, mark {mark:g} {unit}: {verdict}"
            lines.append((line, figure > mark * LEEWAY))
    return lines


def judged_rates(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, bool]]:
    """Return lines as `judged` does, of pods a second."""
    lines = []
    for row in rows:
        if row["contender"] not in (NONE, GO):
            verdict = "met" if row["ratio"] >= PODS_A_SECOND else "not met"
            line = (
                f"{row['contender']}: {row['ratio']:.2f} × the pods a second of {GO}, mark {PODS_A_SECOND:g}"
            )
            lines.append((f"{line}: {verdict}", row["ratio"] * LEEWAY < PODS_A_SECOND))
    return lines


def judged_starts(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, bool]]:
    """Return lines as `judged` does, of starts and memory."""
    lines = []
    for row in rows:
        where = f"filter, {row['domains']:,} domains, {row['ledger']}"
        figures = [(row["idle"] / 1e6, IDLE_BYTES / 1e6, "MB before a call")]
        if row["domains"] in START_SECONDS:
            figures.append((1000 * row["seconds"], 1000 * START_SECONDS[row["domains"]], "ms to an answer"))
        if row["domains"] == MANY:
            figures.append((row["at_once"] / 1e6, FULL_BYTES / 1e6, "MB after full nodes"))
        for figure, mark, unit in figures:
            verdict = "met" if figure <= mark else "not met"
            lines.append((f"{where}: {figure:.0f} {unit}, mark {mark:g}: {verdict}", figure > mark * LEEWAY))
    return lines
