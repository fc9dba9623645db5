"""The figures that docs/ keeps of benches, and how they stand to their marks. It measures nothing."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.bench.marks import MARKS, PODS_A_SECOND
from tests.bench.rounds import usual_cases
from tests.bench.scheduled import GO, NONE
from tests.support.references import ROOT

FOLDER = ROOT / "docs" / "benchmarks"
NODES = 5000
"""Of the cases for which there are marks."""


class Judged(NamedTuple):
    """The time that something takes beside its like in Go, and how much it may take."""

    what: str
    ratio: float
    mark: float

    @property
    def is_met(self) -> bool:
        return round(self.ratio, 2) <= round(self.mark, 2)


def figures(name: str) -> Any:
    """Return what a bench has written into docs/benchmarks."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def judged() -> list[Judged]:
    """Return all that has a mark, calls first."""
    return [*_calls(), *_pods()]


def _calls() -> Iterator[Judged]:
    names = {case.title: case.name for case in usual_cases(NODES).values()}
    for row in figures("calls")["rows"]:
        mark = MARKS.get((names.get(row["case"], ""), row["verb"], row["contender"]))
        if mark is not None:
            yield Judged(f"{row['verb']}, {row['case']}, {row['contender']}", row["ratio"], mark)


def _pods() -> Iterator[Judged]:
    for row in figures("scheduled")["rows"]:
        if row["contender"] not in (NONE, GO):
            yield Judged(f"a pod in kube-scheduler, {row['contender']}", 1 / row["ratio"], 1 / PODS_A_SECOND)
