"""`python -m tests.bench costs`: what a claim's way through the ledger costs in each store, and its bytes.
The API server's part of a bind is not in it; no network lies between the callers and the stores."""

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from berth.ledger.keys import domain_key
from berth.ledger.ledger import Ledger
from berth.stores import open_store
from berth.stores.base import Cursor, Store
from tests.bench import callers, report
from tests.bench.callers import HOT, Caller, Done, Order
from tests.bench.contender_processes import BenchError, Helper, helper
from tests.bench.contents import CAPACITY, POOL, node_names
from tests.bench.keeper import fill, hold, patiently
from tests.bench.store_costs import Home, place
from tests.bench.witness import Witness, held

PROCESSES = 4
CALLERS = {1: (1, 1), 8: (1, 8), 64: (PROCESSES, 16)}  # how many at once: processes, threads in each
_HELD, _HOT_UNITS = CAPACITY // 2, 10 * CAPACITY
_ALONE, _LOOKS = 30, 50
_CYCLES = ("store", "callers", "domains", "p50 ms", "p99 ms", "cycles/s", "given up")
_SIZES = (
    *("store", "bytes per claim", "requests per cycle", "log bytes per cycle"),
    *("`changes`, nothing new, ms", "`changes`, one document, ms"),
)


@dataclass
class Cell:
    """One store, so many callers, on domains of their own or all on one: a list of times for each round."""

    store: str
    callers: int
    hot: bool
    rounds: list[list[float]] = field(default_factory=list)
    spent: float = 0.0
    refused: int = 0
    busy: int = 0

    def add(self, results: Sequence[Done], seconds: float) -> None:
        self.rounds.append([each for result in results for each in result.seconds])
        self.spent += seconds
        self.refused += sum(each.refused for each in results)
        self.busy += sum(each.busy for each in results)

    def row(self) -> dict[str, object]:
        times = sorted(each for one in self.rounds for each in one)
        medians = [statistics.median(one) for one in self.rounds if one]
        return {
            "store": self.store,
            "callers": self.callers,
            "domains": "one" if self.hot else "any",
            "p50": statistics.median(medians) if medians else None,
            "p99": times[min(len(times) - 1, len(times) * 99 // 100)] if times else None,
            "rate": len(times) / self.spent,
            "busy": self.busy,
            "refused": self.refused,
        }


@dataclass(frozen=True)
class Contender:
    """A store with a ledger in it and the processes that call it."""

    name: str
    size: dict[str, object]
    processes: Sequence[Helper]
    check: Callable[[], None]

    def run(self, cell: Cell, seconds: float) -> None:
        """What each cycle committed is the callers' to look at; afterwards the ledger is as it was before."""
        processes, threads = CALLERS[cell.callers]
        order = Order(threads, seconds, cell.hot)
        began = time.monotonic()
        for each in self.processes[:processes]:
            each.tell(msgspec.json.encode(order).decode())
        results = [msgspec.json.decode(each.answer(), type=Done) for each in self.processes[:processes]]
        cell.add(results, time.monotonic() - began)
        if any(each.refused for each in results) and (cell.hot or cell.callers == 1):
            raise BenchError(f"{self.name}: a unit was refused, though there are some for every caller")
        self.check()


def _say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr, flush=True)


def measure(
    stores: Sequence[str], nodes: int, rounds: int, seconds: float
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Rows of the cycles and rows of the sizes."""
    order = random.Random(0)
    with ExitStack() as stack:
        contenders = [stack.enter_context(_contender(name, nodes)) for name in stores]
        cells = [
            (each, Cell(each.name, number, hot))
            for each in contenders
            for hot in (False, True)
            for number in CALLERS
        ]
        for number in range(rounds):
            _say(f"round {number + 1} of {rounds}")
            for contender, cell in order.sample(cells, len(cells)):
                contender.run(cell, seconds)
    return [cell.row() for _, cell in cells], [each.size for each in contenders]


@contextmanager
def _contender(name: str, nodes: int) -> Iterator[Contender]:
    _say(f"a ledger of {nodes:,} nodes in {name}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        home = stack.enter_context(place(name, folder))
        store = stack.enter_context(closing(open_store(home.url)))
        sizes = _sizes(name, home, store, node_names(nodes))
        started = [
            stack.enter_context(helper("callers", home.url, nodes, home.environment, "--who", str(number)))
            for number in range(PROCESSES)
        ]
        yield Contender(name, sizes, started, lambda: check(name, store, [*node_names(nodes), HOT]))


def check(name: str, store: Store, domains: Sequence[str]) -> None:
    """Raises BenchError unless all that came has gone, and nothing else."""
    found = held(store, [domain_key(POOL, each) for each in domains])
    wrong = {key: claims for key, claims in found.items() if claims != _HELD}
    if wrong or len(found) != len(domains):
        raise BenchError(
            f"{name}: {_HELD} units should be held in each domain, and in {len(wrong)} it is not so: {wrong}"
        )


def _sizes(name: str, home: Home, store: Store, names: list[str]) -> dict[str, object]:
    """Fills the ledger on the way: it is left with half of the units held, and one large domain for all."""
    fill(store, names)
    hold(store, dict.fromkeys(names, 0))
    empty = home.size()
    hold(store, dict.fromkeys(names, CAPACITY))
    full = home.size()
    hold(store, dict.fromkeys(names, _HELD))
    hold(store, {HOT: _HELD}, _HOT_UNITS)
    before, written = home.trips(), home.written() if home.written else 0
    _cycles(store, names)
    return {
        "store": name,
        "bytes": (full - empty) / (CAPACITY * len(names)),
        "requests": (home.trips() - before) / _ALONE,
        "log": (home.written() - written) / _ALONE if home.written else None,
        **_looks(home.url, store, names),
    }


def _cycles(store: Store, names: list[str]) -> None:
    witness, wanted = Witness(store), callers.claims(names, "alone")
    caller = Caller(Ledger(witness), witness)
    for _ in range(_ALONE):
        caller.cycle(next(wanted))
    caller.check()
    if len(caller.told) != _ALONE:
        raise BenchError(f"{len(caller.told)} of {_ALONE} claims came and went, by one caller alone")


def _looks(url: str, store: Store, names: list[str]) -> dict[str, object]:
    """What a warm filter asks before it answers: `changes`, with nothing new, and after another's commit."""
    with closing(open_store(url)) as other:
        cursor: Cursor | None = None
        took = 0.0

        def once() -> None:
            nonlocal cursor, took
            began = time.perf_counter()
            cursor = other.changes(cursor).cursor
            took = time.perf_counter() - began

        def look() -> float:
            patiently(once)
            return took

        look()

        idle = statistics.median(look() for _ in range(_LOOKS))
        changed = []
        for number in range(_LOOKS):
            hold(store, {names[number % len(names)]: _HELD})
            changed.append(look())
    return {"idle": idle, "changed": statistics.median(changed)}


def tables(cycles: Sequence[Mapping[str, object]], sizes: Sequence[Mapping[str, object]]) -> str:
    """Both as Markdown."""
    first = report.markdown(_CYCLES, [_cycle_line(row) for row in cycles], 3)
    return f"{first}\n\n{report.markdown(_SIZES, [_size_line(row) for row in sizes], 1)}"


def _cycle_line(row: Mapping[str, object]) -> Sequence[object]:
    words = (row[key] for key in ("store", "callers", "domains"))
    return (*words, report.ms(row["p50"]), report.ms(row["p99"]), f"{row['rate']:,.0f}", row["busy"])


def _size_line(row: Mapping[str, object]) -> Sequence[object]:
    log = "" if row["log"] is None else f"{row['log']:,.0f}"
    sizes = (f"{row['bytes']:,.0f}", f"{row['requests']:,.1f}", log)
    return (row["store"], *sizes, report.ms(row["idle"]), report.ms(row["changed"]))
