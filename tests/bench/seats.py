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
from itertools import product
from pathlib import Path

import msgspec

from berth.api.pool import EVERYWHERE
from berth.ledger.keys import domain_key, stripe_keys
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.stores import open_store
from berth.stores.base import Store
from tests.bench import report
from tests.bench.callers import HOT, Done, Order, total
from tests.bench.contender_processes import BenchError, Helper, helper
from tests.bench.contents import POOL
from tests.bench.costs import CALLERS, PROCESSES
from tests.bench.keeper import fill, hold, patiently
from tests.bench.store_costs import place
from tests.bench.witness import document, held

USUAL = ("sqlite", "redis", "redis-cluster")
UNITS = 10_000
_HELD = UNITS // 2
_SEATS = "licence"
_KINDS = {"stripes": (_SEATS, EVERYWHERE), "one document": (POOL, HOT)}
_LAST = {"few in stripes": ("few", EVERYWHERE), "few in one document": (POOL, "few-99998")}
_FEW = {"few in stripes": 150, "few in one document": 30}  # two stripes of them
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

    def run(self, place: "Place", seconds: float) -> None:
        """Each bind must be a claim in the ledger, and each of them gone once it was given back."""
        number, threads = CALLERS[self.callers]
        done = place.order(number, Order(threads, seconds, wanted=_KINDS[self.kind]))
        place.check(self.kind, _HELD + len(done.seconds))
        if done.refused:
            raise BenchError(f"{self.store}: units in {self.kind} were refused, though half are free")
        place.order(number, Order(give_back=True))
        place.check(self.kind, _HELD)
        self.spent += done.spent
        self.rounds.append(done.seconds)
        self.busy += done.busy

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


@dataclass(frozen=True)
class Place:
    """A store with both kinds of domain in it, and the processes that call it."""

    name: str
    store: Store
    processes: Sequence[Helper]

    def order(self, number: int, order: Order) -> Done:
        """What so many processes did together."""
        some = self.processes[:number]
        for each in some:
            each.tell(msgspec.json.encode(order).decode())
        return total([msgspec.json.decode(each.answer(), type=Done) for each in some])

    def check(self, kind: str, claims: int) -> None:
        """Raises BenchError unless so many units are held, in no document more than there are."""
        documents = self._documents(*{**_KINDS, **_LAST}[kind])
        found = held(self.store, documents)
        if found.total() != claims:
            raise BenchError(f"{self.name}: {claims} units of {kind} should be held, and {found.total()} are")

    def race(self, kind: str) -> None:
        """All callers want all units there are of a few: so many win, and all the others are refused."""
        pool, domain = _LAST[kind]
        processes, threads = CALLERS[max(CALLERS)]
        done = self.order(processes, Order(threads, wanted=(pool, domain), last=True))
        units, callers = _FEW[kind], processes * threads
        if (len(done.seconds), done.refused) != (units, callers):
            raise BenchError(
                f"{self.name}: {callers} callers wanted {units} units of {kind}, as long as there were any: "
                f"{len(done.seconds)} were given, {done.refused} callers refused"
            )
        self.check(kind, units)
        self.order(processes, Order(give_back=True))
        self.check(kind, 0)

    def _documents(self, pool: str, domain: str) -> list[str]:
        stripes = document(self.store, domain_key(pool, domain)).get("stripes", 0)
        return stripe_keys(pool, domain, stripes) if stripes else [domain_key(pool, domain)]


def measure(stores: Sequence[str], rounds: int, seconds: float) -> list[dict[str, object]]:
    """A bind is a reservation and its confirmation. What a cell took it gives back when its time is over."""
    order = random.Random(0)
    with ExitStack() as stack:
        cells, places = [], []
        for store in stores:
            places.append(stack.enter_context(_place(store)))
            cells += [(Cell(store, kind, number), places[-1]) for kind in _KINDS for number in CALLERS]
        for place, kind in product(places, _LAST):
            place.race(kind)
        for number in range(rounds):
            print(f"bench: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            for cell, place in order.sample(cells, len(cells)):
                cell.run(place, seconds)
    return [cell.row() for cell, _ in cells]


@contextmanager
def _place(name: str) -> Iterator[Place]:
    print(f"bench: a ledger in {name}", file=sys.stderr, flush=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        home = stack.enter_context(place(name, folder))
        store = stack.enter_context(closing(open_store(home.url)))
        fill_seats(store)
        processes = [
            stack.enter_context(helper("callers", home.url, 1, home.environment, "--who", str(number)))
            for number in range(PROCESSES)
        ]
        yield Place(name, store, processes)


def fill_seats(store: Store) -> None:
    """An open ledger in which half of the units of both kinds of domain are held."""
    fill(store, [])
    ledger, which = Ledger(store), (_SEATS, EVERYWHERE)
    patiently(lambda: ledger.set_capacities({which: UNITS}, {which: None}, {which}))
    patiently(lambda: ledger.adopt_all([_holder(number) for number in range(_HELD)]))
    patiently(lambda: ledger.reopen(which))  # pods that run are put wherever they fell
    hold(store, {HOT: _HELD}, UNITS)
    striped, plain = _LAST
    few = _LAST[striped]
    patiently(lambda: ledger.set_capacities({few: _FEW[striped]}, {few: None}, {few}))
    hold(store, {_LAST[plain][1]: 0}, _FEW[plain])


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
