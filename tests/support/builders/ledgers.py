"""Claims, ledgers on any store, and a store that fails on demand, for tests of the ledger.
The clock and the monotonic time stand still unless a test moves them; nothing sleeps."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from time import monotonic

from berth.errors import StoreUnavailableError
from berth.ledger.capacity import CapacityChange
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.stores import open_store
from berth.stores.base import LIMIT, Changes, Cursor, Document, Store, Version


def claim(uid: str, node: str = "n1", attempt: str = "a1", /, **pools: int) -> Claim:
    """A pod's claim on a node; one unit of `ip` if no pools are named."""
    holdings = tuple(Holding(pool, node, count) for pool, count in sorted((pools or {"ip": 1}).items()))
    return Claim(uid=uid, namespace="d", name=uid, node=node, holdings=holdings, attempt=attempt, since=1.0)


LAG_SECONDS = 60.0
"""No store's changes lag for longer, even on a busy machine."""


class Time:
    """Stands in for clock and monotonic; `advance` stands in for sleep."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += max(seconds, 0.001)


class FaultyStore:
    """A store whose next commits end as told: "before" fails without writing, "after" writes and then fails,
    "conflict" says that another was first; `meanwhile` is called before a commit goes through."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.faults: list[str] = []
        self.meanwhile: Iterator[Callable[[], object]] = iter(())

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        assert len(set(keys)) <= LIMIT
        return self._store.read(keys)

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        assert len({*writes, *expected}) <= LIMIT
        next(self.meanwhile, lambda: None)()
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "before":
            raise StoreUnavailableError("the store went away before the commit")
        done = fault != "conflict" and self._store.commit(writes, expected)
        if fault == "after":
            raise StoreUnavailableError("the store went away after the commit")
        return done

    def changes(self, since: Cursor | None) -> Changes:
        return self._store.changes(since)

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        return self._store.batches(keys)

    def close(self) -> None:
        self._store.close()


def ledger_on(store: Store, *, while_closed: bool = False, time: Time | None = None) -> Ledger:
    time = time or Time()
    return Ledger(store, clock=time, monotonic=time, sleep=time.advance, while_closed=while_closed)


def resize(ledger: Ledger, wanted: Mapping[tuple[str, str], int | None]) -> list[CapacityChange]:
    """Set capacities whatever they are now."""
    return ledger.set_capacities(wanted, ledger.view().capacities())


def opened(url: str, capacities: Mapping[tuple[str, str], int]) -> Store:
    """The store of this URL with a ledger that is open and has these capacities."""
    store = open_store(url)
    reopen(store, capacities)
    return store


def reopen(store: Store, capacities: Mapping[tuple[str, str], int], *adopted: Claim) -> None:
    """Rebuild as reconcile does: claims of pods that run, capacities, the epoch last."""
    keeper = ledger_on(store, while_closed=True)
    mark = keeper.begin_rebuild("rebuild-1")
    for each in adopted:
        keeper.adopt(each)
    resize(keeper, capacities)
    keeper.open("epoch-1", mark)


def two_pools(url: str) -> Store:
    """An open ledger with two units of `ip` and three of `seat` on each of two nodes."""
    units = {"ip": 2, "seat": 3}
    return opened(url, {(pool, node): units[pool] for pool in units for node in ("n1", "n2")})


def free(ledger: Ledger, pool: str = "ip", node: str = "n1") -> int:
    return ledger.view().free[pool][node][0]


def held(ledger: Ledger) -> dict[str, tuple[str, str]]:
    """Every claim's state and node, by UID."""
    return {found.uid: (found.state, found.node) for found in ledger.view().claims()}


def catch_up(reader: Ledger, writer: Ledger) -> None:
    """Let the reader look until it sees what the writer has done: changes may lag (stores.base.Store)."""
    until = monotonic() + LAG_SECONDS
    while _seen(reader) != (there := _seen(writer)):
        assert monotonic() < until, f"after {LAG_SECONDS:g} s the reader still lacks something of {there}"


def _seen(ledger: Ledger) -> tuple[object, object]:
    return held(ledger), ledger.view().capacities()


def drop_notes(ledger: Ledger) -> None:
    """Remove the notes of what ended, as reconcile does once the journal has counted it."""
    notes = {
        (pool, name): domain.ended
        for pool, domains in ledger.view().domains.items()
        for name, domain in domains.items()
        if domain.ended
    }
    ledger.journal().drop_notes(notes)
