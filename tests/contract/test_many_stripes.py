"""Claims over so many stripes that one commit can't take them all: a store takes 100 keys."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from berth.documents import Claim, Holding
from berth.errors import RefusedError
from berth.ledger import Ledger
from berth.stores import open_store
from tests.contract.properties.pools import small_stripes
from tests.support.ledgers import FaultyStore, Time, ledger_on, reopen
from tests.support.places import Place

WHERE = [("seat", "*"), ("desk", "*")]
UNITS = 120  # in 60 stripes of each pool

pytestmark = pytest.mark.parametrize("place", ["dynamodb", "sqlite"], indirect=True)


@pytest.fixture
def ledger(place: Place) -> Iterator[Ledger]:
    """Of two pools in 60 stripes each; a call with more keys than a store takes fails the test."""
    with small_stripes(), closing(open_store(place.url)) as store:
        reopen(store, {})
        found = ledger_on(FaultyStore(store), while_closed=True, time=Time())
        found.set_capacities(dict.fromkeys(WHERE, UNITS), {}, WHERE)
        yield found


def asking(uid: str, seats: int, desks: int) -> Claim:
    holdings = (Holding("desk", "*", desks), Holding("seat", "*", seats))
    return Claim(uid=uid, namespace="d", name=uid, node="n1", holdings=holdings, attempt="a1", since=1.0)


def free(ledger: Ledger) -> tuple[int, int]:
    view = ledger.view()
    return view.free["seat"]["*"][0], view.free["desk"]["*"][0]


def test_a_claim_that_one_commit_can_not_take_is_refused_and_nothing_of_it_stays(ledger: Ledger) -> None:
    text = (
        "desk, seat: what is free lies in too many parts of berth's ledger for one pod; ask for fewer units"
    )
    with pytest.raises(RefusedError, match=f"^{text}$"):
        ledger.reserve(asking("large", UNITS, UNITS))
    assert (ledger.view().claims(), free(ledger)) == ([], (UNITS, UNITS))


def test_a_claim_over_as_many_stripes_as_one_commit_takes_is_reserved_confirmed_and_released(
    ledger: Ledger,
) -> None:
    held = ledger.reserve(asking("large", 96, 96))
    assert len({each.key for each in held.holdings}) == 96
    ledger.confirm(held)
    assert free(ledger) == (UNITS - 96, UNITS - 96)
    assert sum(each.count for each in ledger.release("large", also=asking("large", 96, 96).holdings)) == 192
    assert (ledger.view().claims(), free(ledger)) == ([], (UNITS, UNITS))
    ledger.cancel(ledger.reserve(asking("large", 96, 96)))
    assert (ledger.view().claims(), free(ledger)) == ([], (UNITS, UNITS))


def test_a_pod_that_runs_is_adopted_whatever_it_holds_and_wherever_it_was(ledger: Ledger) -> None:
    ledger.adopt(asking("large", UNITS, UNITS))
    assert free(ledger) == (0, 0)
    (found,) = ledger.view().claims()
    assert (found.state, found.logical()) == ("bound", asking("large", UNITS, UNITS).holdings)
    ledger.release("large")
    ledger.reserve(asking("moves", 96, 96))
    ledger.set_capacities({("seat", "z"): 5, ("desk", "z"): 5}, {})
    there = (Holding("desk", "z", 5), Holding("seat", "z", 5))
    freed = ledger.adopt(Claim(uid="moves", namespace="d", name="moves", node="n2", holdings=there))
    assert freed is not None
    assert sum(each.count for each in freed) == 192
    (found,) = ledger.view().claims()
    assert found.holdings == there
    assert free(ledger) == (UNITS, UNITS)
