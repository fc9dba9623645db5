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
from itertools import count

import msgspec

from berth.documents import Claim, Holding
from berth.errors import RefusedError, RetryableError
from berth.ledger import Ledger
from berth.stores import open_store
from tests.bench.bodies import POOL, node_names
from tests.bench.keeper import patiently

HOT = "hot-99999"  # the domain that all callers want in the hot case


class Order(msgspec.Struct):
    """What the callers of one process are to do, and for how long."""

    threads: int
    seconds: float
    hot: bool = False


class Done(msgspec.Struct):
    """What became of it: a time for each whole cycle. A cycle that was refused, or given up because others
    were always first (`busy`), has none."""

    seconds: list[float] = []
    refused: int = 0
    busy: int = 0


def cycle(ledger: Ledger, claim: Claim, done: Done) -> None:
    """A pod's way through the ledger: reserved, confirmed, released."""
    began = time.perf_counter()
    try:
        ledger.confirm(ledger.reserve(claim))
        ledger.release(claim.uid)
        done.seconds.append(time.perf_counter() - began)
    except RefusedError:
        done.refused += 1
    except RetryableError:
        done.busy += 1
        patiently(lambda: ledger.release(claim.uid))


def claims(names: list[str], who: str) -> Iterator[Claim]:
    """One pod after the other, each on a node by chance."""
    chance = random.Random(who)
    for number in count():
        name = chance.choice(names)
        yield Claim(
            uid=str(uuid.UUID(int=chance.getrandbits(128), version=4)),
            namespace="default",
            name=f"pod-{who}-{number}",
            node=name,
            holdings=(Holding(POOL, name, 1),),
            attempt=f"{chance.getrandbits(48):012x}",
            since=time.time(),
        )


def _work(ledger: Ledger, names: list[str], who: str, order: Order, turn: int) -> Done:
    until = time.monotonic() + order.seconds
    results = [Done() for _ in range(order.threads)]

    def one(number: int) -> None:
        wanted = claims([HOT] if order.hot else names, f"{who}-{turn}-{number}")
        for claim in wanted:
            cycle(ledger, claim, results[number])
            if time.monotonic() > until:
                break

    threads = [threading.Thread(target=one, args=(number,)) for number in range(order.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Done(
        [seconds for each in results for seconds in each.seconds],
        sum(each.refused for each in results),
        sum(each.busy for each in results),
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
