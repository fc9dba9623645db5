"""Interleaved rounds: in each, every contender makes the same number of calls, in shuffled order.
So what disturbs the machine disturbs all alike, and ratios within a round stay honest."""

import gc
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from tests.bench.bodies import Calls, node_names
from tests.bench.client import CallError, Client
from tests.bench.processes import Server

FLOOR = "floor"
_FULL_SHARE = 20  # a call with full nodes costs as much as hundreds with names


@dataclass(frozen=True)
class Case:
    """What is sent: so many nodes, in full or by name; `changed`: one claim changes before each call."""

    name: str
    title: str
    nodes: int
    full: bool = False
    changed: bool = False

    def calls(self, wanted: int) -> int:
        return max(1, wanted // _FULL_SHARE) if self.full else wanted


def cases(nodes: int) -> dict[str, Case]:
    """By name, for a ledger of so many domains."""
    few = max(1, nodes // 10)
    found = (
        Case("few", f"{few:,} names", few),
        Case("names", f"{nodes:,} names", nodes),
        Case("changed", f"{nodes:,} names, a claim changed before each call", nodes, changed=True),
        Case("full", f"{nodes:,} full nodes", nodes, full=True),
    )
    return {case.name: case for case in found}


@dataclass(frozen=True)
class Contender:
    """An extender that is up: its server by verb, and how a claim of its ledger is changed."""

    name: str
    servers: Mapping[str, Server]
    change: Callable[[], None] = lambda: None


@dataclass
class Measured:
    """One contender's calls in one case, in seconds, a list for each round; `cpu` is what they computed."""

    case: Case
    verb: str
    contender: str
    rounds: list[list[float]] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

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
    case: Case, verb: str, contenders: Sequence[Contender], rounds: int, calls: int
) -> list[Measured]:
    """Raises CallError for an answer that kube-scheduler would not take."""
    order = random.Random(f"{case.name} {verb}")
    bodies = Calls(node_names(case.nodes), full=case.full)
    found = {each.name: Measured(case, verb, each.name) for each in contenders}
    for each in contenders:
        _warm_up(each.servers[verb].port, verb, bodies, case)
    for _ in range(rounds):
        for each in order.sample(contenders, len(contenders)):
            before = each.servers[verb].cpu_seconds()
            found[each.name].rounds.append(_round(each, verb, bodies, case, case.calls(calls)))
            after = each.servers[verb].cpu_seconds()
            if before is not None and after is not None:
                found[each.name].cpu.append(after - before)
    return list(found.values())


def _round(contender: Contender, verb: str, bodies: Calls, case: Case, calls: int) -> list[float]:
    seconds = []
    gc.disable()
    try:
        # A connection for each round: gunicorn closes one that was idle for 2 s while others had their turn.
        with Client(contender.servers[verb].port) as client:
            for _ in range(calls):
                body = next(bodies)
                if case.changed:
                    contender.change()
                seconds.append(client.call(verb, body).seconds)
    finally:
        gc.enable()
    return seconds


def _warm_up(port: int, verb: str, bodies: Calls, case: Case) -> None:
    """The first answer is looked at; it also pays for what a fresh process does once."""
    with Client(port) as client:
        first = client.call(verb, next(bodies))
        for _ in range(case.calls(_FULL_SHARE)):
            client.call(verb, next(bodies))
    _check(verb, first.body, case)


def _check(verb: str, body: bytes, case: Case) -> None:
    answer = msgspec.json.decode(body)
    if verb == "prioritize":
        told = {each["Host"] for each in answer}
    elif answer["Error"]:
        raise CallError(f"filter answered with the error: {answer['Error']}")
    else:
        nodes = [each["metadata"]["name"] for each in (answer["Nodes"] or {}).get("items") or ()]
        told = {*nodes, *(answer["NodeNames"] or ()), *(answer["FailedAndUnresolvableNodes"] or ())}
    if told != set(node_names(case.nodes)):
        raise CallError(f"{verb} was asked about {case.nodes} nodes and answered about {len(told)}")
