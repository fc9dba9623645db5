"""The promises of docs/promises.md hold in every store, whatever happens; and each is looked at so sharply
that a bug as other projects had it breaks it. BERTH_EXAMPLES=N draws N examples at random in their place."""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from berth.stores import open_store
from berth.stores.base import Store
from tests.properties.api import api_client
from tests.properties.bugs import BUGS
from tests.properties.machine import Machine
from tests.properties.memory import MemoryStore
from tests.properties.pools import Kind, small_stripes
from tests.properties.promises import ALL
from tests.support.builders.places import Place
from tests.support.selection import TIMES, examples

RANDOM = int(os.environ.get("BERTH_EXAMPLES", "0"))
# What is looked at is the ledger and the verbs; a store's own trouble is in the store's own tests.
# What was broken before is in test_promises_examples by name, so that few at random are enough for a turn.
EXAMPLES = {
    "sqlite": examples(8, 40),
    "redis": examples(3, 25),
    "redis-cluster": examples(1, 10),
    "dynamodb": examples(1, 2),
    "configmap": examples(1, 3),
}
EACH_BY_DAY = 4  # of the bugs; some take a minute to be found
TO_FIND_A_BUG = 25  # examples from each of so many seeds: those from one seed are much alike
SEEDS = 60  # not found with so many is no bad luck
STEPS = 30


def run(
    store: Store,
    lose: Callable[[], None],
    examples: int,
    numbers: Sequence[int] = ALL,
    start: int | None = None,
    kind: Kind | None = None,
    **how: Any,
) -> None:
    client = api_client()
    # The machine is made by hypothesis, which gives it nothing.
    machine = type(
        "Here",
        (Machine,),
        {"__init__": lambda self: Machine.__init__(self, store, lose, client, numbers, kind)},
    )
    with small_stripes():
        run_state_machine_as_test(
            machine if start is None else seed(start)(machine),
            settings=settings(
                max_examples=examples,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                print_blob=True,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
                **how,
            ),
        )


@pytest.mark.drawn
@pytest.mark.every_store
def test_whatever_happens_every_promise_holds(place: Place) -> None:
    with closing(open_store(place.url)) as store:
        run(store, place.lose, RANDOM or EXAMPLES[place.name], derandomize=TIMES == 1 and not RANDOM)


@pytest.mark.long
@pytest.mark.parametrize(
    ("promise", "bug", "kind"),
    [
        pytest.param(
            number,
            bug,
            kind,
            id=f"{number} {bug.__name__}",
            marks=pytest.mark.nightly if place % EACH_BY_DAY else [],
        )
        for place, (number, bug, kind) in enumerate(BUGS)
    ],
)
def test_a_bug_of_the_field_is_found_by_the_promise_it_breaks(
    promise: int, bug: Callable[[], Any], kind: Kind | None
) -> None:
    store = MemoryStore()
    with bug(), pytest.raises(AssertionError, match=f"promise {promise}: "):
        hunt(store, promise, kind)


def hunt(store: MemoryStore, promise: int, kind: Kind | None) -> None:
    for start in range(SEEDS):
        # Not shrunk: that it is found is what counts here.
        run(store, store.lose, TO_FIND_A_BUG, (promise,), start, kind, phases=[Phase.generate])
