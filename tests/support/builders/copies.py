"""A ledger to be copied, and two stores whose calls can be counted, broken off, or have something happen
before them. Time stands still but for sleeping."""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import pytest

from berth.errors import BerthError
from berth.ledger.migrate import Copied, Copy
from berth.ledger.model import Epoch, encode
from berth.stores import open_store
from berth.stores.base import EPOCH, Changes, Cursor, Document, Store, Version
from tests.support.builders.ledgers import Time, claim, held, ledger_on, reopen

T = TypeVar("T")
Hook = Callable[[int, str], None]

UNITS = {("ip", "n1"): 3, ("ip", "n2"): 3, ("seat", "n1"): 5}
CLAIMS = {"first": ("bound", "n1"), "second": ("reserved", "n1"), "third": ("bound", "n2")}
_clock = itertools.count(1000.0)  # no two copies write the same


class KilledError(BaseException):
    """The process is gone: no `except` of the product may go on after it."""


def nothing(_: int, __: str) -> None:
    pass


class Calls:
    """The calls of a process to its stores, numbered from 1; `before` and `after` may raise."""

    def __init__(self, before: Hook = nothing, after: Hook = nothing) -> None:
        self.number = 0
        self._before, self._after = before, after

    def make(self, store: str, call: Callable[[], T]) -> T:
        self.number += 1
        number = self.number
        self._before(number, store)
        answer = call()
        self._after(number, store)
        return answer


def dies_after(last: int) -> Calls:
    """The process that is killed after its call `last` took effect."""

    def before(number: int, _: str) -> None:
        if number > last:
            raise KilledError

    def after(number: int, _: str) -> None:
        if number >= last:
            raise KilledError

    return Calls(before, after)


class Watched:
    """A store as one process calls it."""

    def __init__(self, store: Store, name: str, calls: Calls) -> None:
        self._store, self._name, self._calls = store, name, calls

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        return self._calls.make(self._name, lambda: self._store.read(keys))

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        return self._calls.make(self._name, lambda: self._store.commit(writes, expected))

    def changes(self, since: Cursor | None) -> Changes:
        return self._calls.make(self._name, lambda: self._store.changes(since))

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        return self._store.batches(keys)

    def close(self) -> None:
        self._store.close()


class Pair:
    """A source and a target, opened; `lose` empties both."""

    def __init__(self, source: str, target: str, lose: Callable[[], None]) -> None:
        self.urls = {"source": source, "target": target}
        self.stores = {name: open_store(url) for name, url in self.urls.items()}
        self.lose = lose

    def watched(self, name: str, calls: Calls) -> tuple[Store, str]:
        return Watched(self.stores[name], name, calls), self.urls[name]

    def close(self) -> None:
        for store in self.stores.values():
            store.close()


def fill(pair: Pair) -> None:
    """Both emptied; three claims in the source, which is open."""
    pair.lose()
    reopen(pair.stores["source"], UNITS)
    ledger = ledger_on(pair.stores["source"])
    for uid, (state, node) in CLAIMS.items():
        mine = claim(uid, node, **({"ip": 1, "seat": 2} if uid == "second" else {"ip": 1}))
        ledger.reserve(mine)
        if state == "bound":
            ledger.confirm(mine)


def copy(pair: Pair, calls: Calls | None = None) -> Copied:
    calls, time = calls or Calls(), Time()
    source, target = pair.watched("source", calls), pair.watched("target", calls)
    return Copy(source, target, clock=_clock.__next__, monotonic=time, sleep=time.advance).run()


def stopped(pair: Pair, calls: Calls) -> str:
    """Why the copy was not made; empty if it was."""
    try:
        copy(pair, calls)
    except BerthError as error:
        return str(error)
    return ""


def calls_of(pair: Pair) -> range:
    """The numbers of the calls that a whole copy makes."""
    fill(pair)
    calls = Calls()
    copy(pair, calls)
    return range(1, calls.number + 1)


def gives(store: Store) -> str:
    """Whether the ledger gives units: "yes", or the error's type."""
    try:
        ledger_on(store).reserve(claim("probe", "n2"))
    except BerthError as error:
        return type(error).__name__
    ledger_on(store).release("probe")
    return "yes"


def state(pair: Pair) -> tuple[str, str]:
    return gives(pair.stores["source"]), gives(pair.stores["target"])


def claims_in(store: Store) -> dict[str, tuple[str, str]]:
    return held(ledger_on(store, while_closed=True))


def check_moved(pair: Pair) -> None:
    assert state(pair) == ("MovedError", "yes")
    assert claims_in(pair.stores["target"]) == CLAIMS
    assert ledger_on(pair.stores["target"]).view().capacities() == UNITS
    with pytest.raises(BerthError):
        reopen(pair.stores["source"], UNITS)  # nor does reconcile open the source again


def pause(store: Store, moved: bool = False) -> None:
    """As a copy would."""
    found = store.read([EPOCH])[EPOCH]
    paused = Epoch("copy", 1.0, "redis://there", moved)
    assert store.commit({EPOCH: encode(paused)}, {EPOCH: found.version})
