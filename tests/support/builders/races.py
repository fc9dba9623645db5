"""What tests of real races share: threads, processes, and calls that are made again as kube-scheduler would.
Nothing here waits for luck: whoever waits, waits for the others, and SECONDS only end a test that hangs."""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from multiprocessing.process import BaseProcess
from typing import TypeVar

from berth.errors import RefusedError, RetryableError
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim
from berth.ledger.transitions import ElsewhereError
from berth.stores import urls
from tests.support.builders.ledgers import ledger_on, opened
from tests.support.builders.places import Place

SECONDS = 120
T = TypeVar("T")
# Each process is a copy of one that has imported all this already: an import costs more than a race.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["tests.support.builders.races", *(f"berth.stores.{name}" for name in ("configmap", "dynamodb", "redis"))]
)


def persistently(call: Callable[[], T]) -> T:
    """The call's answer: one that may well work a moment later is made again, as kube-scheduler would."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return call()
        except RetryableError:
            if time.monotonic() > deadline:
                raise


def reserve(ledger: Ledger, wanted: Claim) -> str:
    try:
        persistently(lambda: ledger.reserve(wanted))
    except (RefusedError, ElsewhereError) as error:
        return type(error).__name__
    return "won"


def in_threads(work: Callable[[int], None], number: int) -> None:
    threads = [threading.Thread(target=work, args=(i,)) for i in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def process(work: Callable[..., object], *arguments: object) -> BaseProcess:
    """A process that does this work, in the environment and with the patience that are this one's now."""
    arguments = (dict(os.environ), urls.MOST_SECONDS, work, *arguments)
    return CONTEXT.Process(target=_here, args=arguments, daemon=True)


def _here(
    environment: Mapping[str, str], patience: int, work: Callable[..., object], *arguments: object
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    urls.MOST_SECONDS = patience
    work(*arguments)


@contextmanager
def running(workers: Sequence[BaseProcess]) -> Iterator[None]:
    for worker in workers:
        worker.start()
    yield
    for worker in workers:
        worker.join(SECONDS)


@contextmanager
def started(place: Place, **units: int) -> Iterator[Ledger]:
    store = opened(place.url, {(pool, node): count for pool, count in units.items() for node in ("n1", "n2")})
    with closing(store):
        yield ledger_on(store)


def used(ledger: Ledger, pool: str, node: str = "n1") -> int:
    return ledger.view().domains[pool][node].used(pool, node)
