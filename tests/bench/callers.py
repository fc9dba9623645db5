"""A process of callers, threads that reserve, confirm and release, each for pods of its own.
An order of JSON comes in by line, what was measured goes out; it ends with its input."""

import argparse
import random
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import count

import msgspec
from msgspec.structs import replace

from berth.errors import RefusedError, RetryableError
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.stores import open_store
from berth.stores.base import Store
from tests.bench.contents import POOL, node_names
from tests.bench.keeper import patiently
from tests.bench.witness import BOUND, GONE, RESERVED, Witness, Writes, states

HOT = "hot-99999"  # the domain that all callers want in the hot case


class Order(msgspec.Struct):
    """What the callers of one process are to do, and for how long. With `wanted`, a pool and a domain, all of
    them want that, and keep what they get; with `last` until they are refused, however long that takes. With
    `give_back` they only release what they kept."""

    threads: int = 1
    seconds: float = 0.0
    hot: bool = False
    wanted: tuple[str, str] | None = None
    last: bool = False
    give_back: bool = False


class Done(msgspec.Struct):
    """What became of it: a time for each whole cycle, or bind. One that was refused, or given up because
    others were always first (`busy`), has none. `spent` is how long all of it took."""

    seconds: list[float] = []
    refused: int = 0
    busy: int = 0
    spent: float = 0.0


class WrongError(Exception):
    """A cycle did not do what it is measured for."""


class Caller:
    """One thread's cycles; `told` are the claims of those that were whole, with what each has committed."""

    def __init__(self, ledger: Ledger, witness: Witness) -> None:
        self._ledger, self._witness = ledger, witness
        self.done = Done()
        self.told: list[tuple[Claim, Sequence[Writes]]] = []

    def cycle(self, claim: Claim, *, release: bool = True) -> bool:
        """A pod's way through the ledger: reserved, confirmed, released. False where it was refused."""
        before = self._witness.so_far()
        began = time.perf_counter()
        try:
            self._ledger.confirm(self._ledger.reserve(claim))
            if release:
                self._ledger.release(claim.uid)
            self.done.seconds.append(time.perf_counter() - began)
            self.told.append((claim, self._witness.since(before)))
        except RefusedError:
            self.done.refused += 1
            return False
        except RetryableError:
            self.done.busy += 1
            patiently(lambda: self._ledger.release(claim.uid))
        return True

    def check(self, *, release: bool = True) -> None:
        """Raises WrongError unless each whole cycle made a reservation, confirmed it and gave it back, by
        commits in this order."""
        expected = [RESERVED, BOUND, GONE] if release else [RESERVED, BOUND]
        for claim, commits in self.told:
            found = states(claim.uid, commits)
            if found != expected:
                raise WrongError(f"a cycle of {', '.join(expected)} was {', '.join(found) or 'nothing'}")


def claims(names: list[str], who: str, pool: str = POOL) -> Iterator[Claim]:
    """One pod after the other, each in a domain by chance."""
    chance = random.Random(who)
    for number in count():
        name = chance.choice(names)
        yield Claim(
            uid=str(uuid.UUID(int=chance.getrandbits(128), version=4)),
            namespace="default",
            name=f"pod-{who}-{number}",
            node=name,
            holdings=(Holding(pool, name, 1),),
            attempt=f"{chance.getrandbits(48):012x}",
            since=time.time(),
        )


class Callers:
    """Those of one process, and what they keep."""

    def __init__(self, store: Store, names: list[str], who: str) -> None:
        self._witness = Witness(store)
        self._ledger, self._names, self._who = Ledger(self._witness), names, who
        self._kept: list[str] = []
        patiently(self._ledger.view)

    def work(self, order: Order, turn: int) -> Done:
        if order.give_back:
            kept, self._kept = self._kept, []
            for uid in kept:
                patiently(partial(self._ledger.release, uid))
            return Done()
        self._witness.forget()
        callers = [Caller(self._ledger, self._witness) for _ in range(order.threads)]
        threads = [
            threading.Thread(target=self._call, args=(caller, order, f"{self._who}-{turn}-{number}"))
            for number, caller in enumerate(callers)
        ]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spent = time.monotonic() - began
        for each in callers:
            each.check(release=order.wanted is None)
            self._kept += [claim.uid for claim, _ in each.told] if order.wanted else []
        return replace(total([each.done for each in callers]), spent=spent)

    def _call(self, caller: Caller, order: Order, who: str) -> None:
        until = time.monotonic() + order.seconds
        pool, domain = order.wanted or (POOL, HOT)
        for claim in claims([domain] if order.wanted or order.hot else self._names, who, pool):
            served = caller.cycle(claim, release=order.wanted is None)
            if not served if order.last else time.monotonic() > until:
                break


def total(done: Sequence[Done]) -> Done:
    """Of those who worked at the same time."""
    seconds = [each for one in done for each in one.seconds]
    refused, busy = sum(one.refused for one in done), sum(one.busy for one in done)
    return Done(seconds, refused, busy, max(one.spent for one in done))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--store", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--who", required=True, help="sets the pods of several processes apart")
    options = parser.parse_args()
    names = node_names(options.nodes)
    with closing(open_store(options.store)) as store:
        callers = Callers(store, names, options.who)
        print("ready", flush=True)
        for turn, line in enumerate(sys.stdin):
            order = msgspec.json.decode(line, type=Order)
            try:
                print(msgspec.json.encode(callers.work(order, turn)).decode(), flush=True)
            except WrongError as error:
                sys.exit(str(error))


if __name__ == "__main__":
    main()
