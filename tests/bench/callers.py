"""A process of callers, threads that reserve, confirm and release, each for pods of its own.
An order of JSON comes in by line, what was measured goes out; it ends with its input."""

import argparse
import random
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import count

import msgspec

from berth.documents import Claim, Holding
from berth.errors import RefusedError, RetryableError
from berth.ledger import Ledger
from berth.stores import open_store
from tests.bench.contents import POOL, node_names
from tests.bench.keeper import patiently

HOT = "hot-99999"  # the domain that all callers want in the hot case


class Order(msgspec.Struct):
    """What the callers of one process are to do, and for how long. With `wanted`, a pool and a domain, all of
    them want that, and their claims are released only when the time is over."""

    threads: int
    seconds: float
    hot: bool = False
    wanted: tuple[str, str] | None = None


class Done(msgspec.Struct):
    """What became of it: a time for each whole cycle, or bind. One that was refused, or given up because
    others were always first (`busy`), has none. `spent` is how long all of it took."""

    seconds: list[float] = []
    refused: int = 0
    busy: int = 0
    spent: float = 0.0


def cycle(ledger: Ledger, claim: Claim, done: Done, *, release: bool = True) -> None:
    """A pod's way through the ledger: reserved, confirmed, released."""
    began = time.perf_counter()
    try:
        ledger.confirm(ledger.reserve(claim))
        if release:
            ledger.release(claim.uid)
        done.seconds.append(time.perf_counter() - began)
    except RefusedError:
        done.refused += 1
    except RetryableError:
        done.busy += 1
        patiently(lambda: ledger.release(claim.uid))


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


def _work(ledger: Ledger, names: list[str], who: str, order: Order, turn: int) -> Done:
    began = time.monotonic()
    until, bound = began + order.seconds, list[str]()
    results = [Done() for _ in range(order.threads)]
    pool, domain = order.wanted or (POOL, HOT)
    domains = [domain] if order.wanted or order.hot else names

    def one(number: int) -> None:
        for claim in claims(domains, f"{who}-{turn}-{number}", pool):
            cycle(ledger, claim, results[number], release=order.wanted is None)
            bound.append(claim.uid)
            if time.monotonic() > until:
                break

    threads = [threading.Thread(target=one, args=(number,)) for number in range(order.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = time.monotonic() - began
    for uid in bound if order.wanted else ():
        patiently(partial(ledger.release, uid))
    return Done(
        [seconds for each in results for seconds in each.seconds],
        sum(each.refused for each in results),
        sum(each.busy for each in results),
        spent,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--store", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--who", required=True, help="sets the pods of several processes apart")
    options = parser.parse_args()
    names = node_names(options.nodes)
    with closing(open_store(options.store)) as store:
        ledger = Ledger(store)
        patiently(ledger.view)
        print("ready", flush=True)
        for turn, line in enumerate(sys.stdin):
            order = msgspec.json.decode(line, type=Order)
            print(msgspec.json.encode(_work(ledger, names, options.who, order, turn)).decode(), flush=True)


if __name__ == "__main__":
    main()
