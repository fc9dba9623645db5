"""`python -m tests.bench seats`: 10,000 units for the whole cluster, in stripes and in one plain document.
The API server's part of a bind is not in it; no network lies between the callers and the stores."""

import random
import statistics
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from berth.documents import Claim, Holding
from berth.ledger import Ledger
from berth.policy.pools import EVERYWHERE
from berth.stores import open_store
from berth.stores.base import Store
from tests.bench import report
from tests.bench.callers import HOT, Done, Order
from tests.bench.contents import POOL
from tests.bench.costs import CALLERS, PROCESSES
from tests.bench.keeper import fill, hold, patiently
from tests.bench.processes import BenchError, Helper, helper
from tests.bench.stores import place

USUAL = ("sqlite", "redis", "redis-cluster")
UNITS = 10_000
_HELD = UNITS // 2
_SEATS = "licence"
_KINDS = {"stripes": (_SEATS, EVERYWHERE), "one document": (POOL, HOT)}
_HEAD = ("store", "10,000 units in", "callers", "bind p50 ms", "bind p99 ms", "binds/s", "given up")


@dataclass
class Cell:
    """So many callers of one kind of domain in one store; times in seconds, a list for each round."""

    store: str
    kind: str
    callers: int
    rounds: list[list[float]] = field(default_factory=list)
    spent: float = 0.0
    busy: int = 0

    def run(self, processes: Sequence[Helper], seconds: float) -> None:
        number, threads = CALLERS[self.callers]
        order = msgspec.json.encode(Order(threads, seconds, wanted=_KINDS[self.kind])).decode()
        for each in processes[:number]:
            each.tell(order)
        results = [msgspec.json.decode(each.answer(), type=Done) for each in processes[:number]]
        self.spent += max(each.spent for each in results)
        self.rounds.append([each for result in results for each in result.seconds])
        if any(each.refused for each in results):
            raise BenchError(f"{self.store}: units in {self.kind} were refused, though half are free")
        self.busy += sum(each.busy for each in results)

    def row(self) -> dict[str, object]:
        times = sorted(each for one in self.rounds for each in one)
        return {
            "store": self.store,
            "kind": self.kind,
            "callers": self.callers,
            "p50": statistics.median(times) if times else None,
            "p99": times[min(len(times) - 1, len(times) * 99 // 100)] if times else None,
            "rate": len(times) / self.spent,
            "busy": self.busy,
        }


def measure(stores: Sequence[str], rounds: int, seconds: float) -> list[dict[str, object]]:
    """A bind is a reservation and its confirmation. What a cell took it gives back when its time is over."""
    order = random.Random(0)
    with ExitStack() as stack:
        cells = []
        for store in stores:
            processes = stack.enter_context(_callers(store))
            cells += [(Cell(store, kind, number), processes) for kind in _KINDS for number in CALLERS]
        for number in range(rounds):
            print(f"bench: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            for cell, processes in order.sample(cells, len(cells)):
                cell.run(processes, seconds)
    return [cell.row() for cell, _ in cells]


@contextmanager
def _callers(name: str) -> Iterator[Sequence[Helper]]:
    print(f"bench: a ledger in {name}", file=sys.stderr, flush=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        home = stack.enter_context(place(name, folder))
        with closing(open_store(home.url)) as store:
            _fill(store)
        yield [
            stack.enter_context(helper("callers", home.url, 1, home.environment, "--who", str(number)))
            for number in range(PROCESSES)
        ]


def _fill(store: Store) -> None:
    """An open ledger in which half of the units of both kinds of domain are held."""
    fill(store, [])
    ledger, which = Ledger(store), (_SEATS, EVERYWHERE)
    patiently(lambda: ledger.set_capacities({which: UNITS}, {which: None}, {which}))
    patiently(lambda: ledger.adopt_all([_holder(number) for number in range(_HELD)]))
    patiently(lambda: ledger.reopen(which))  # pods that run are put wherever they fell
    hold(store, {HOT: _HELD}, UNITS)


def _holder(number: int) -> Claim:
    chance = random.Random(number)
    return Claim(
        uid=str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        namespace="default",
        name=f"holder-{number}",
        node=f"node-{number % 1000}",
        holdings=(Holding(_SEATS, EVERYWHERE, 1),),
        attempt=f"{chance.getrandbits(48):012x}",
        since=1.7e9 + chance.randrange(10**12) / 1e6,
    )


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """As Markdown."""
    return report.markdown(_HEAD, [_line(row) for row in rows], 3)


def _line(row: Mapping[str, object]) -> Sequence[object]:
    words = (row[key] for key in ("store", "kind", "callers"))
    return (*words, report.ms(row["p50"]), report.ms(row["p99"]), f"{row['rate']:,.0f}", row["busy"])
