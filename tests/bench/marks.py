"""What filter and prioritize may take beside the floor in Go, with the ledger asked in the call.
The marks are aims: who runs the bench learns which are missed, and by how much."""

from collections.abc import Sequence

from tests.bench.rounds import FLOOR, Measured

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
