"""Claims over so many stripes that one commit can't take them all: a store takes 100 keys."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from berth.controller.annotation import ALLOCATED
from berth.errors import RefusedError, StoreUnavailableError
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.stores import open_store
from berth.stores.base import EPOCH
from tests.properties.pools import small_stripes
from tests.support.builders.ledgers import FaultyStore, Time, claim, ledger_on, reopen
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import pools_staged

WHERE = [("seat", "*"), ("desk", "*")]
NAMED = [("card", "*"), ("key", "*")]
UNITS = 120  # in 60 stripes of each pool

pytestmark = pytest.mark.parametrize("place", ["dynamodb", "sqlite"], indirect=True)


@pytest.fixture
def store(place: Place) -> Iterator[FaultyStore]:
    """A call with more keys than a store takes fails the test."""
    with small_stripes(), closing(open_store(place.url)) as store:
        reopen(store, {})
        yield FaultyStore(store)


@pytest.fixture
def ledger(store: FaultyStore) -> Ledger:
    """Of two pools in 60 stripes each."""
    found = ledger_on(store, while_closed=True, time=Time())
    found.set_capacities(dict.fromkeys(WHERE, UNITS), {}, WHERE)
    return found


def naming(uid: str, count: int = UNITS, node: str = "n1") -> Claim:
    """A pod that says which units of two named pools it uses."""
    holdings = tuple(Holding(pool, "*", count, names(pool)[:count]) for pool, _ in NAMED)
    return Claim(uid=uid, namespace="d", name=uid, node=node, holdings=holdings)


def names(pool: str) -> tuple[str, ...]:
    return tuple(sorted(f"{pool}-{number}" for number in range(UNITS)))


def list_names(ledger: Ledger) -> None:
    ledger.set_capacities({which: names(which[0]) for which in NAMED}, {}, NAMED)


def named_free(ledger: Ledger) -> list[int]:
    view = ledger.view()
    return [view.free[pool]["*"][0] for pool, _ in NAMED]


def whole(ledger: Ledger, uid: str) -> Claim:
    """The pod's claim, which stands in each of its documents and no other."""
    view = ledger.view()
    (found,) = {view.at(key).claims[uid] for key in view.keys_of(uid)}
    assert view.keys_of(uid) == {each.key for each in found.holdings}
    return found


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


def test_a_pod_that_names_units_in_more_stripes_than_one_commit_takes_is_adopted_with_all_of_them(
    ledger: Ledger,
) -> None:
    list_names(ledger)
    large = naming("large")
    assert ledger.adopt_all([large]) == {"large"}
    found = whole(ledger, "large")
    assert (found.state, len(found.holdings), found.units) == ("bound", 120, large.units)
    assert named_free(ledger) == [0, 0]
    assert ledger.adopt(large) is None
    assert ledger.adopt_all([large]) == set()
    assert sum(each.count for each in ledger.release("large")) == 2 * UNITS
    assert (ledger.view().claims(), named_free(ledger)) == ([], [UNITS, UNITS])


def test_of_what_it_names_it_gets_nothing_that_another_pod_holds(ledger: Ledger) -> None:
    list_names(ledger)
    first = ledger.reserve(naming("first", 1))
    ledger.adopt(naming("large"))
    assert whole(ledger, "large").units == naming("large").units - first.units
    assert len(whole(ledger, "large").units) == 2 * UNITS - 2
    assert ledger.view().at("domain/card/*").closed
    ledger.cancel(first)
    ledger.adopt(naming("large"))
    assert whole(ledger, "large").units == naming("large").units
    assert named_free(ledger) == [0, 0]


@pytest.mark.parametrize("done", [0, 1])
def test_a_death_between_two_of_its_commits_is_mended_by_the_next_look(
    ledger: Ledger, store: FaultyStore, done: int
) -> None:
    """Before, it had a unit of each, on another node."""
    list_names(ledger)
    ledger.adopt(naming("large", 1, "n2"))
    store.faults = [*[""] * done, "before"]
    with pytest.raises(StoreUnavailableError):
        ledger.adopt(naming("large"))
    ledger.adopt_all([naming("large")])
    assert whole(ledger, "large").units == naming("large").units
    assert named_free(ledger) == [0, 0]


def test_one_that_has_gone_meanwhile_is_not_adopted_in_place_of_its_claim(ledger: Ledger) -> None:
    list_names(ledger)
    assert ledger.adopt(naming("large"), anew=False) is None
    assert ledger.view().claims() == []


def test_a_claim_over_more_stripes_than_one_commit_takes_is_cancelled(ledger: Ledger) -> None:
    """It is a waiting pod's where what binds under way hold is counted by other Pools now."""
    list_names(ledger)
    ledger.adopt(naming("large"))
    assert len(ledger.cancel(whole(ledger, "large"))) == 120
    assert (ledger.view().claims(), named_free(ledger)) == ([], [UNITS, UNITS])


def test_a_pod_of_more_pools_than_one_commit_takes_is_adopted_and_released(ledger: Ledger) -> None:
    pools = {f"pool-{number:03}": 1 for number in range(130)}
    ledger.adopt(claim("large", **pools))
    assert whole(ledger, "large").holdings == claim("large", **pools).holdings
    moved = claim("large", "n2", **pools)
    assert sum(each.count for each in ledger.adopt(moved) or ()) == 130
    assert whole(ledger, "large").holdings == moved.holdings
    assert len(ledger.release("large")) == 130


@pytest.mark.parametrize("lost", ["the epoch", "all"])
@pytest.mark.long
def test_a_lost_ledger_is_opened_though_a_pod_names_units_in_so_many_stripes(
    tmp_path: Path, place: Place, lost: str
) -> None:
    """A store that came back older than it was takes the epoch away, and has the stripes still."""
    pools = {pool: {"scope": "Cluster", "units": {"*": list(names(pool))}} for pool, _ in NAMED}
    with small_stripes(), pools_staged(tmp_path, place, pools) as stage:
        stage.store = FaultyStore(stage.store)
        other = stage.pod(node="n1", card=1, annotations={ALLOCATED: told(naming("", 1))})
        note = {ALLOCATED: told(naming(""))}
        large = stage.pod(node="n1", card=UNITS, key=UNITS, annotations=note)
        if lost == "all":
            stage.lose_ledger()
        else:
            stage.store.commit({EPOCH: None}, {})
        report = stage.reconcile()
        assert report.rebuilt
        assert report.adopted == 2
        assert stage.of(other, "card")[2] == ("card-0",)
        assert stage.of(large, "card") == ("*", UNITS, names("card")[1:])
        assert stage.of(large, "key") == ("*", UNITS, names("key"))
        (line,) = report.problems
        assert f"{large.name} holds {UNITS} of card in *, {UNITS - 1} of them by name" in line
        stage.reconcile()  # what it has without a name stands where the list, if that is new, puts the name
        stage.check_well(*report.problems)
        stage.gone(other)
        assert stage.reconcile().settled == 1
        assert stage.of(large, "card") == ("*", UNITS, names("card"))
        stage.check_well()
        stage.gone(large)
        assert stage.free("card", "*") == stage.free("key", "*") == (UNITS, UNITS)


def told(found: Claim) -> str:
    return msgspec.json.encode(found.holdings).decode()
