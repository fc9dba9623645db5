"""Interleaved rounds: in each, every contender makes the same number of calls of each case, shuffled.
So what disturbs the machine disturbs all alike, and ratios within a round stay honest."""

import gc
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.bench.answers import Asked, Expected, check
from tests.bench.bodies import CLAIMING, PLAIN, REFUSED, Calls
from tests.bench.client import CallError, Client
from tests.bench.contender_processes import Server
from tests.bench.contents import node_names

FLOOR = "floor"
_FULL_SHARE = 20  # a call with full nodes costs as much as hundreds with names


@dataclass(frozen=True)
class Case:
    """What is sent: so many nodes, in full or by name, for such a pod (bodies.py); `changed`: one claim
    changes before each call."""

    name: str
    title: str
    nodes: int
    full: bool = False
    changed: bool = False
    pod: str = PLAIN

    def calls(self, wanted: int) -> int:
        return max(1, wanted // _FULL_SHARE) if self.full else wanted

    def refused(self) -> "Case":
        """Return the case with a pod that every node is refused for."""
        title = f"{self.title}; a PoolClaim that is not there"
        return replace(self, name=f"{self.name}-refused", title=title, pod=REFUSED)


def usual_cases(nodes: int) -> dict[str, Case]:
    """By name, for a ledger of so many domains."""
    few = max(1, nodes // 10)
    found = (
        Case("few", f"{few:,} names", few),
        Case("names", f"{nodes:,} names", nodes),
        Case("claim", f"{nodes:,} names, a PoolClaim", nodes, pod=CLAIMING),
        Case("changed", f"{nodes:,} names, a claim changed before each call", nodes, changed=True),
        Case("full", f"{nodes:,} full nodes", nodes, full=True),
    )
    return {case.name: case for case in found}


def cases(nodes: int) -> dict[str, Case]:
    """The usual ones, and each with all nodes refused: what the bench took for its figures at one time."""
    usual = usual_cases(nodes)
    return usual | {
        each.name: each for each in (case.refused() for case in usual.values() if case.pod == PLAIN)
    }


@dataclass(frozen=True)
class Contender:
    """An extender that is up: its server by verb, what it should answer now, and how a claim of its ledger is
    changed."""

    name: str
    servers: Mapping[str, Server]
    expected: Callable[[Case], Expected]
    change: Callable[[], None] = lambda: None


@dataclass
class Measured:
    """One contender's calls in one case, in seconds, a list for each round; `cpu` is what they computed,
    `passed` how many nodes the last answer let pass, or scored."""

    case: Case
    verb: str
    contender: str
    rounds: list[list[float]] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    passed: int = 0

    @property
    def p50(self) -> float:
        return statistics.median(self._medians())

    @property
    def p99(self) -> float:
        """Over all calls, since a round is too short to have one."""
        ordered = sorted(seconds for each in self.rounds for seconds in each)
        return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]

    @property
    def cpu_per_call(self) -> float | None:
        """The median of the rounds' means: on a busy machine it tells more than a clock does."""
        means = [cpu / len(each) for cpu, each in zip(self.cpu, self.rounds, strict=False)]
        return statistics.median(means) if means else None

    def ratio(self, floor: "Measured") -> float:
        """The median of what each round's median was to the floor's in the same round."""
        return statistics.median(
            mine / its for mine, its in zip(self._medians(), floor._medians(), strict=True)
        )

    def _medians(self) -> list[float]:
        return [statistics.median(each) for each in self.rounds]


def measure(
    asked: Sequence[Case], verb: str, contenders: Sequence[Contender], rounds: int, calls: int
) -> list[Measured]:
    """Of each contender in each case. Raises CallError for an answer that is not the one that is expected."""
    order = random.Random(f"{[case.name for case in asked]} {verb}")
    bodies = {case.name: Calls(node_names(case.nodes), full=case.full, pod=case.pod) for case in asked}
    cells = [
        _Cell(Measured(case, verb, each.name), each, bodies[case.name])
        for case in asked
        for each in contenders
    ]
    for cell in cells:
        cell.calls(cell.measured.case.calls(_FULL_SHARE) + 1)  # what a fresh process pays once
    for _ in range(rounds):
        for cell in order.sample(cells, len(cells)):
            cell.round(cell.measured.case.calls(calls))
    return [cell.measured for cell in cells]


@dataclass(frozen=True)
class _Cell:
    """One contender in one case."""

    measured: Measured
    contender: Contender
    bodies: Calls

    def round(self, calls: int) -> None:
        server, found = self.contender.servers[self.measured.verb], self.measured
        before = server.cpu_seconds()
        found.rounds.append(self.calls(calls))
        after = server.cpu_seconds()
        if before is not None and after is not None:
            found.cpu.append(after - before)

    def calls(self, calls: int) -> list[float]:
        """So many, each answer checked: when all are there, so that the calls follow each other at once."""
        verb, case = self.measured.verb, self.measured.case
        answers = []
        gc.disable()
        try:
            # A connection for each round: gunicorn closes one that was idle for 2 s, while others had a turn.
            with Client(self.contender.servers[verb].port) as client:
                for _ in range(calls):
                    body = next(self.bodies)
                    if case.changed:
                        self.contender.change()
                    answers.append((client.call(verb, body), self.contender.expected(case)))
        finally:
            gc.enable()
        self._check([(answer.body, expected) for answer, expected in answers])
        return [answer.seconds for answer, _ in answers]

    def _check(self, answers: Sequence[tuple[bytes, Expected]]) -> None:
        case = self.measured.case
        asked = Asked(self.measured.verb, node_names(case.nodes), self.bodies.full)
        try:
            for body, expected in answers:
                self.measured.passed = check(asked, expected, body)
        except CallError as error:
            raise CallError(f"{self.contender.name}, {asked.verb}, {case.title}: {error}") from error
