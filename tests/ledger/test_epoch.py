"""The epoch: a ledger that was lost, between any two calls or within one, takes no claim until it is rebuilt.
Only its keeper, as reconcile is one, may open it, and only if it saw the whole rebuild through."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from berth.api.pool import Capacity, Pool, PoolSpec
from berth.errors import ContentionError, RebuildingError, RefusedError
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.ledger.transitions import MissingClaimError
from berth.stores import open_store
from berth.stores.base import Version
from tests.support.builders.ledgers import FaultyStore, claim, ledger_on, resize
from tests.support.builders.places import Place

POOL = Pool("ip", "berth.dev/ip", PoolSpec(capacity=Capacity(per_domain=1)))
MINE = claim("a")

CALLS: dict[str, Callable[[Ledger], object]] = {
    "reserve": lambda ledger: ledger.reserve(MINE),
    "reserve again": lambda ledger: ledger.reserve(MINE, after="a1"),
    "confirm": lambda ledger: ledger.confirm(MINE),
    "cancel": lambda ledger: ledger.cancel(MINE),
    "release": lambda ledger: ledger.release("a"),
    "adopt": lambda ledger: ledger.adopt(MINE),
    "apply_pools": lambda ledger: ledger.apply_pools({"ip": POOL}),
    "set_capacities": lambda ledger: resize(ledger, {("ip", "n1"): 7}),
    "view": lambda ledger: ledger.view(),
}


@pytest.fixture
def store(place: Place) -> Iterator[FaultyStore]:
    made = open_store(place.url)
    yield FaultyStore(made)
    made.close()


@pytest.fixture
def ledger(store: FaultyStore) -> Ledger:
    return ledger_on(store)


def rebuild(store: FaultyStore, *adopted: Claim) -> None:
    """As reconcile does: one unit of `ip` on n1, and what pods hold."""
    keeper = ledger_on(store, while_closed=True)
    mark = keeper.begin_rebuild("r")
    resize(keeper, {("ip", "n1"): 1})
    for each in adopted:
        keeper.adopt(each)
    keeper.open("e", mark)


def everything(store: FaultyStore) -> dict[str, bytes | None]:
    return dict(store.changes(None).documents)


@pytest.mark.parametrize("call", CALLS)
def test_a_new_ledger_is_closed_and_takes_nothing(ledger: Ledger, store: FaultyStore, call: str) -> None:
    with pytest.raises(RebuildingError, match=r"being rebuilt from the pods \(if this lasts"):
        CALLS[call](ledger)
    assert everything(store) == {}
    ledger.check()


@pytest.mark.parametrize("call", CALLS)
def test_a_ledger_lost_between_two_calls_takes_nothing(
    ledger: Ledger, store: FaultyStore, place: Place, call: str
) -> None:
    rebuild(store)
    ledger.reserve(MINE)
    place.lose()
    with pytest.raises(RebuildingError):
        CALLS[call](ledger)
    assert everything(store) == {}


@pytest.mark.parametrize("call", sorted(set(CALLS) - {"view", "adopt"}))
def test_a_ledger_lost_within_a_call_takes_nothing(
    ledger: Ledger, store: FaultyStore, place: Place, call: str
) -> None:
    rebuild(store)
    ledger.reserve(MINE)
    store.meanwhile = iter([place.lose])
    with pytest.raises(RebuildingError):
        CALLS[call](ledger)
    assert everything(store) == {}


def test_a_commit_that_read_nothing_but_the_epoch_is_not_made_in_a_lost_ledger(
    ledger: Ledger, store: FaultyStore, place: Place
) -> None:
    """A domain that was not there before the loss is not there after it either: only the epoch differs."""
    rebuild(store)
    store.meanwhile = iter([place.lose])
    with pytest.raises(RebuildingError):
        ledger.adopt(claim("a", "n9"))
    assert everything(store) == {}


def test_a_ledger_lost_and_rebuilt_within_a_call_gives_no_unit_twice(
    ledger: Ledger, store: FaultyStore, place: Place
) -> None:
    rebuild(store)

    def loses() -> None:
        place.lose()
        rebuild(store, claim("b"))

    store.meanwhile = iter([loses])
    with pytest.raises(RefusedError, match=r"^ip: 0 of 1 free, 1 asked$"):
        ledger.reserve(MINE)


def test_calls_of_before_the_loss_find_nothing_of_theirs_in_the_rebuilt_ledger(
    ledger: Ledger, store: FaultyStore, place: Place
) -> None:
    rebuild(store)
    ledger.reserve(MINE)
    place.lose()
    rebuild(store, claim("b"))
    with pytest.raises(MissingClaimError):
        ledger.confirm(MINE)
    assert ledger.cancel(MINE) == ledger.release("a") == ()
    with pytest.raises(RefusedError):
        ledger.reserve(MINE, after="a1")
    assert [found.uid for found in ledger.view().claims()] == ["b"]


def test_a_pod_that_runs_is_adopted_into_the_rebuilt_ledger_beyond_its_capacity(
    ledger: Ledger, store: FaultyStore
) -> None:
    rebuild(store, claim("b"), MINE)
    assert ledger.view().free["ip"]["n1"] == (0, 1)
    assert ledger.release("a") == (Holding("ip", "n1", 1),)
    assert ledger.view().free["ip"]["n1"] == (0, 1)


def test_a_rebuild_that_the_ledger_was_lost_under_does_not_open_it(store: FaultyStore, place: Place) -> None:
    keeper = ledger_on(store, while_closed=True)
    mark = keeper.begin_rebuild("r")
    keeper.adopt(claim("b"))
    place.lose()
    with pytest.raises(ContentionError, match="lost again or is being rebuilt by another reconcile"):
        keeper.open("e", mark)
    assert everything(store) == {}


def test_of_two_rebuilds_only_the_one_that_began_last_opens(store: FaultyStore) -> None:
    first, second = (ledger_on(store, while_closed=True) for _ in range(2))
    stale = first.begin_rebuild("r1")
    mark = second.begin_rebuild("r2")
    with pytest.raises(ContentionError):
        first.open("e1", stale)
    second.open("e2", mark)
    for late in (stale, mark):
        with pytest.raises(ContentionError):
            first.open("e1", late)
    assert ledger_on(store).view().open


def test_a_rebuild_that_another_overtakes_as_it_begins_leaves_it_to_that_one(store: FaultyStore) -> None:
    second = ledger_on(store, while_closed=True)
    marks: list[str] = []

    class Overtaken(FaultyStore):
        def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
            done = super().commit(writes, expected)
            marks.append(second.begin_rebuild("r2"))
            return done

    first = ledger_on(Overtaken(store), while_closed=True)
    with pytest.raises(ContentionError, match="another reconcile is rebuilding"):
        first.begin_rebuild("r1")
    second.open("e", marks[0])


def test_an_open_ledger_is_not_opened_again(store: FaultyStore) -> None:
    rebuild(store)
    keeper = ledger_on(store, while_closed=True)
    with pytest.raises(ContentionError):
        keeper.open("e2", keeper.begin_rebuild("r2"))
    assert ledger_on(store).view().open
