"""The ledger is lost under two processes that race for its units: from then on nobody wins any.
Once it is rebuilt, exactly what its holders left is given out; other races are in test_races.py."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import count
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier, Event
from typing import NamedTuple

import pytest

from berth.errors import BerthError, RefusedError, RetryableError, StoreUnavailableError
from berth.ledger.ledger import Ledger
from berth.stores import open_store
from tests.support.builders.ledgers import claim, reopen
from tests.support.builders.places import Place
from tests.support.builders.races import (
    CONTEXT,
    SECONDS,
    in_threads,
    process,
    reserve,
    running,
    started,
    used,
)

pytestmark = pytest.mark.slow

PROCESSES, THREADS, TRIES = 2, 8, 5


class Loss(NamedTuple):
    """How the processes and the test tell each other how far they are."""

    busy: Barrier
    lost: Event
    tried: Barrier
    reopened: Event
    answers: "Queue[tuple[str, str]]"


def through_a_loss(url: str, process: int, loss: Loss) -> None:
    """Come and go until the ledger is lost; then ask for units, and again once it is open."""
    store = open_store(url)
    ledger = Ledger(store)

    def one(thread: int) -> None:
        name = f"p{process}-{thread}"
        mine = claim(name)
        for turn in count():
            with suppress(RetryableError, RefusedError):
                ledger.reserve(mine) if turn % 2 else ledger.cancel(mine)
            if turn == 3:
                loss.busy.wait(SECONDS)
            if turn > 3 and loss.lost.is_set():
                break
        for _ in range(TRIES):
            loss.answers.put(("lost", outcome(lambda: ledger.reserve(mine))))
        loss.tried.wait(SECONDS)
        assert loss.reopened.wait(SECONDS)
        loss.answers.put(("open", reserve(ledger, mine)))

    in_threads(one, THREADS)
    store.close()


def outcome(call: Callable[[], object]) -> str:
    while True:
        try:
            call()
        except StoreUnavailableError:
            continue  # a busy store says nothing of the loss
        except BerthError as error:
            return type(error).__name__
        return "won"


def test_after_a_loss_in_mid_race_nobody_wins_until_the_ledger_is_open_again(place: Place) -> None:
    """16 threads of two processes come and go; of four units, two turn out to be held when it is rebuilt."""
    all_of_us = PROCESSES * THREADS + 1
    loss = Loss(
        CONTEXT.Barrier(all_of_us),
        CONTEXT.Event(),
        CONTEXT.Barrier(all_of_us),
        CONTEXT.Event(),
        CONTEXT.Queue(),
    )
    workers = [process(through_a_loss, place.url, number, loss) for number in range(PROCESSES)]
    with started(place, ip=4) as ledger, running(workers), closing(open_store(place.url)) as store:
        loss.busy.wait(SECONDS)
        place.lose()
        loss.lost.set()
        loss.tried.wait(SECONDS)
        assert store.changes(None).documents == {}
        reopen(store, {("ip", "n1"): 4}, claim("held-1"), claim("held-2"))
        loss.reopened.set()
        answers = Counter(loss.answers.get(timeout=SECONDS) for _ in range((all_of_us - 1) * (TRIES + 1)))
        assert answers == {("lost", "RebuildingError"): 80, ("open", "won"): 2, ("open", "RefusedError"): 14}
        assert used(ledger, "ip") == 4
