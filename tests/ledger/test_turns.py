"""Two callers that set what there is at the same time, by looks at the cluster that differ: no unit's name
comes to be in two domains' lists, and an older look does not undo a newer one."""

from collections.abc import Callable, Iterator, Mapping
from itertools import count

import pytest

from berth.api.units import Units
from berth.ledger.ledger import Ledger
from berth.ledger.model import Domain
from berth.stores.base import Store
from tests.support.builders.ledgers import Time, ledger_on, opened
from tests.support.builders.places import Place
from tests.support.builders.races import in_threads, persistently
from tests.support.builders.stage import Tap

CALLERS = 8
CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # the rest are shown by others


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    found = opened(place.url, {})
    yield found
    found.close()


def stepping(store: Store, step: Callable[[], object]) -> Ledger:
    time = Time()
    return Ledger(Tap(store, step), clock=time, monotonic=time, sleep=time.advance)


def at_each_step(
    store: Store, call: Callable[[Ledger, int], object], meanwhile: Callable[[Ledger, int], object]
) -> range:
    """`call` once for each of its steps, on a number of its own, with `meanwhile` done at that step."""
    seen = count()
    call(stepping(store, lambda: next(seen)), 0)
    steps = range(1, next(seen) + 1)
    other = ledger_on(store)
    for number in steps:
        left = iter([lambda number=number: meanwhile(other, number)])
        passed = count(1)
        call(stepping(store, lambda: next(passed) == number and next(left)()), number)  # noqa: B023
    return steps


def lists(store: Store, pool: str) -> dict[str, tuple[str, ...]]:
    documents: Mapping[str, Domain] = ledger_on(store).view().domains.get(pool, {})
    return {name: tuple(Units.of(each.units).free(10, ())) for name, each in documents.items() if each.units}


def test_a_name_that_two_callers_give_at_once_is_in_one_list(store: Store) -> None:
    steps = at_each_step(
        store,
        lambda ledger, number: ledger.set_capacities({(f"ip{number}", "n1"): ("a", "b")}, {}),
        lambda ledger, number: ledger.set_capacities({(f"ip{number}", "n2"): ("b", "c")}, {}),
    )
    found = [lists(store, f"ip{number}") for number in steps]
    assert found == [
        each for each in found if each in ({"n1": ("a", "b"), "n2": ("c",)}, {"n1": ("a",), "n2": ("b", "c")})
    ]
    assert {each["n1"] for each in found} == {("a", "b"), ("a",)}


@CHEAP
def test_a_name_that_two_callers_move_at_once_is_in_one_list(store: Store) -> None:
    def moved(ledger: Ledger, number: int, to: str) -> object:
        pool = f"ip{number}"
        return ledger.set_capacities({(pool, "n0"): (), (pool, to): ("a",)}, {(pool, "n0"): ("a",)})

    for number in range(40):
        ledger_on(store).set_capacities({(f"ip{number}", "n0"): ("a",)}, {})
    steps = at_each_step(
        store,
        lambda ledger, number: moved(ledger, number, "n1"),
        lambda ledger, number: moved(ledger, number, "n2"),
    )
    assert len(steps) < 40
    found = [lists(store, f"ip{number}") for number in steps]
    assert found == [each for each in found if each in ({"n1": ("a",)}, {"n2": ("a",)})]


@CHEAP
def test_many_callers_at_once_list_a_name_once(store: Store) -> None:
    """Each has one of its own and one that all have."""

    def give(number: int) -> None:
        ledger = Ledger(store)
        wanted = {("ip", f"n{number}"): (f"own-{number}", "all")}
        persistently(lambda: ledger.set_capacities(wanted, {}))

    in_threads(give, CALLERS)
    found = lists(store, "ip")
    assert {names[0] for names in found.values()} == {f"own-{number}" for number in range(CALLERS)}
    assert sum("all" in names for names in found.values()) == 1


def test_where_a_node_is_said_by_an_older_look_does_not_undo_a_newer_one(store: Store) -> None:
    news: dict[int, list[list[str]]] = {}

    def placed(ledger: Ledger, number: int, rack: str) -> None:
        said = ledger.set_places({f"n{number}": {"ip": rack}}, {})
        news.setdefault(number, []).append([rack] if said else [])

    steps = at_each_step(
        store,
        lambda ledger, number: placed(ledger, number, "a"),
        lambda ledger, number: placed(ledger, number, "b"),
    )
    places = ledger_on(store).view().nodes
    assert [sorted(news[number]) for number in steps] == [
        [[], [places[f"n{number}"]["ip"]]] for number in steps
    ]
    assert {places[f"n{number}"]["ip"] for number in steps} == {"a", "b"}
