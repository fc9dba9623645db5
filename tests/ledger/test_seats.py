"""Races for a cluster-wide pool in stripes, for names, limits and PoolClaims: as many win as there is room.
64 threads are one process' callers here; several processes race in test_races.py."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from unittest import mock

import pytest

from berth.api.units import Units
from berth.ledger import allocation
from berth.ledger import capacity as sizes
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Domain, Holding, PoolClaimSpec, decode_domain
from berth.stores import open_store
from berth.stores.base import Version
from tests.ledger.test_lagging_view import Lagging
from tests.support.builders.ledgers import ledger_on, opened
from tests.support.builders.places import Place
from tests.support.builders.races import SECONDS, in_threads, reserve

CALLERS = 64
SEATS, FEW = 10_000, 300
SEAT = Holding("seat", "*", 1)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stripes of 8 units, so that few units are in several of them."""
    for module in (allocation, sizes):
        monkeypatch.setattr(module, "STRIPE", 8)


@contextmanager
def pool_of(place: Place, capacities: Mapping[str, int | tuple[str, ...]]) -> Iterator[Ledger]:
    """An open ledger with these domains of `seat`, those called `*` in stripes."""
    wanted = {("seat", domain): capacity for domain, capacity in capacities.items()}
    with closing(open_store(place.url)) as store:
        keeper = ledger_on(store, while_closed=True)
        mark = keeper.begin_rebuild("rebuild-1")
        keeper.set_capacities(wanted, {}, {("seat", "*"), ("seat", "*<")} & wanted.keys())
        keeper.set_poolclaims({("seat", "!d/erc"): PoolClaimSpec(1)})
        keeper.open("epoch-1", mark)
        yield ledger_on(store)


def asking(name: str, *holdings: Holding) -> Claim:
    return Claim(uid=name, namespace="d", name=name, node="n1", holdings=holdings, attempt="a1")


def winners(place: Place, number: int, *holdings: Holding, callers: int = CALLERS, kind: str = "") -> int:
    """How many pods got these, of `number` of each caller, all started at once."""
    answers, barrier = Counter[str](), threading.Barrier(callers)
    with closing(open_store(place.url)) as store:
        ledger = Ledger(store)

        def caller(which: int) -> None:
            barrier.wait(SECONDS)
            names = (f"{kind}p{which}-{each}" for each in range(number))
            answers.update([reserve(ledger, asking(name, *holdings)) for name in names])

        in_threads(caller, callers)
    assert answers.total() == callers * number
    assert answers.keys() <= {"won", "RefusedError"}
    return answers["won"]


def parts(ledger: Ledger, domain: str = "*") -> dict[str, Domain]:
    return ledger.view().parts("seat", domain)


def used(ledger: Ledger, domain: str = "*") -> int:
    found = parts(ledger, domain)
    assert all(each.used("seat", name) <= (each.capacity or 0) for name, each in found.items())
    return sum(each.used("seat", name) for name, each in found.items())


@pytest.mark.slow
@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_64_callers_for_10_000_seats_have_exactly_10_000_winners(place: Place) -> None:
    with pool_of(place, {"*": SEATS}) as ledger:
        assert winners(place, SEATS // CALLERS + 4, SEAT) == SEATS
        assert (used(ledger), len(ledger.view().claims()), len(parts(ledger))) == (SEATS, SEATS, 79)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_64_callers_for_the_last_300_of_10_000_seats_have_exactly_300_winners(place: Place) -> None:
    with pool_of(place, {"*": SEATS}) as ledger:
        ledger.adopt_all([asking(f"runs-{number}", SEAT) for number in range(SEATS - FEW)])
        ledger.reopen(("seat", "*"))
        assert winners(place, FEW // CALLERS + 1, SEAT) == FEW
        assert (used(ledger), len(ledger.view().claims()), len(parts(ledger))) == (SEATS, SEATS, 79)


@pytest.mark.usefixtures("small")
@pytest.mark.every_store
@pytest.mark.parametrize("place", ["configmap", "dynamodb", "redis-cluster"], indirect=True)
def test_16_callers_for_40_seats_in_five_stripes_have_exactly_40_winners(place: Place) -> None:
    with pool_of(place, {"*": 40}) as ledger:
        assert winners(place, 3, SEAT, callers=16) == 40
        assert (used(ledger), len(ledger.view().claims()), len(parts(ledger))) == (40, 40, 5)


@pytest.mark.usefixtures("small")
def test_names_in_stripes_are_given_once_each(place: Place) -> None:
    names = Units.parse(f"s{number}" for number in range(18)).entries()
    with pool_of(place, {"*": names}) as ledger:
        assert winners(place, 1, Holding("seat", "*", 2), callers=12) == 9
        held = [unit for claim in ledger.view().claims() for _, unit in claim.units]
        assert sorted(held) == sorted(names)
        assert (used(ledger), len(parts(ledger))) == (18, 3)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)
def test_a_limit_a_reserve_and_a_poolclaim_are_never_passed(place: Place) -> None:
    """Whichever of the bounds is the tightest decides."""
    bounded = [Holding("seat", domain, 1) for domain in ("*", "*<", "@d")]
    for bounds, most in (({"*<": 70, "@d": 20}, 20), ({"*<": 15, "@d": 200}, 15)):
        place.lose()
        with pool_of(place, {"*": 80, **bounds}) as ledger:
            assert winners(place, 1, *bounded) == most
            assert [used(ledger, domain) for domain in ("*", "*<", "@d")] == [most] * 3
            one = (Holding("seat", "!d/erc", 1), Holding("seat", "*", 1, (), "erc"))
            assert winners(place, 1, *one, kind="claims-") == 1
            assert (used(ledger, "!d/erc"), used(ledger)) == (1, most + 1)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)
def test_no_domain_is_closed_by_a_pod_that_runs_while_there_is_room_for_all_it_has(place: Place) -> None:
    """Who asks while it is closed is refused, and nobody would wake him: no units are freed."""
    mine = (Holding("seat", "*", 5), Holding("seat", "*", 5, (), "erc"), Holding("seat", "!d/erc", 1))
    with pool_of(place, {"*": 16}) as ledger, closing(open_store(place.url)) as store:
        commit, closed = store.commit, list[str]()

        def committed(writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
            closed.extend(key for key, body in writes.items() if body and decode_domain(body).closed)
            return commit(writes, expected)

        with mock.patch.object(store, "commit", committed):
            assert ledger_on(store).adopt(asking("runs", *mine)) == ()
        assert closed == []
        assert used(ledger) == 10


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)
def test_a_domain_that_an_adoption_closed_is_open_after_it_where_there_is_room(place: Place) -> None:
    """A unit's name says in which stripe the pod stands, however full that is. Who was refused meanwhile is
    to be woken: so what stands there is told as room that was made."""
    names = tuple(f"s{number}" for number in range(16))
    with pool_of(place, {"*": names}) as ledger:
        ledger.adopt(asking("full", Holding("seat", "*", 8)))
        assert [each.used("seat", name) for name, each in sorted(parts(ledger).items())] == [8, 0]
        made = ledger.adopt(asking("runs", Holding("seat", "*", 1, ("s3",))))
        assert ledger.view().free["seat"]["*"] == (7, 16)
        assert made == (Holding("seat", "*#0", 1, ("s3",)),)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_view_that_lags_refuses_nobody_and_no_claim_is_made_where_it_is_not_counted(place: Place) -> None:
    """It does not tell of seats freed a moment before, nor that the domain has stripes by now."""
    with pool_of(place, {"*": 20}) as ledger:
        ledger.reserve(asking("holder", Holding("seat", "*", 20)))
        with closing(open_store(place.url)) as store:
            late = ledger_on(Lagging(store))
            assert late.view().free["seat"]["*"] == (0, 20)
            ledger.release("holder")
            assert reserve(late, asking("next", Holding("seat", "*", 20))) == "won"
            assert reserve(late, asking("last", SEAT)) == "RefusedError"
    place.lose()
    with closing(opened(place.url, {})) as store:
        late, ledger = ledger_on(Lagging(store)), ledger_on(store)
        assert late.view().domains == {}
        ledger.set_capacities({("seat", "*"): 20}, {}, {("seat", "*")})
        assert reserve(late, asking("first", Holding("seat", "*", 15))) == "won"
        late.adopt(asking("runs", Holding("seat", "*", 5)))
        assert late.adopt_all([asking(f"run-{each}", SEAT) for each in range(2)]) == {"run-0", "run-1"}
        assert sum(each.used("seat", name) for name, each in parts(ledger).items()) == 22
        assert ledger.view().at(SEAT.key).claims == {}
