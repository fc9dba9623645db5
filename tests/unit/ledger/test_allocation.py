"""Where a claim's units come from: what is planned can be had, what can be had is found, and none twice."""

from collections.abc import Callable, Iterator
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.api.units import Units
from berth.ledger import allocation as room
from berth.ledger import capacity as sizes
from berth.ledger.allocation import Requester, StripeFullError
from berth.ledger.keys import domain_key, stripe
from berth.ledger.model import Claim, Domain, Holding, RetainedUnits

SIZE = 4
KEY = domain_key("p", "d")


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with mock.patch.object(sizes, "STRIPE", SIZE):
        yield


def asking(uid: str, *holdings: Holding) -> Claim:
    return Claim(uid=uid, namespace="n", name=uid, node="n1", holdings=holdings)


def documents_of(capacity: int, *, named: bool) -> dict[str, Domain]:
    size = Units.parse(f"u{number}" for number in range(capacity)).entries() if named else capacity
    return {domain_key("p", name): each for name, each in sizes.cut("p", "d", Domain(), (), size).items()}


def at(documents: dict[str, Domain]) -> Callable[[str], Domain]:
    return lambda key: documents.get(key, Domain())


def take(documents: dict[str, Domain], claim: Claim) -> bool:
    """Plan and take; whether the claim stands then."""
    requester = Requester(claim.uid, claim.namespace)
    planned, short = room.plan(claim, at(documents), requester)
    if short:
        return False
    given, short = room.taken(planned, at(documents), requester)
    assert not short  # a plan by the newest documents can be had
    found = Claim(uid=claim.uid, namespace="n", name=claim.name, node="n1", holdings=given)
    assert found.logical() == claim.logical()
    for key in {each.key for each in given}:
        domain = documents[key]
        claims = {**domain.claims, claim.uid: found}
        documents[key] = Domain(domain.capacity, claims, domain.units, domain.retained, domain.stripes)
    return True


WISHES = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), max_size=12)


@given(st.integers(0, 20), st.booleans(), WISHES)
def test_what_fits_in_all_is_found_and_no_unit_is_given_twice(
    capacity: int, named: bool, wishes: list[list[int]]
) -> None:
    """Also to a pod with several holdings of the same domain, as PoolClaims make them."""
    documents, left = documents_of(capacity, named=named), capacity
    for number, counts in enumerate(wishes):
        holdings = (Holding("p", "d", count, (), f"c{each}") for each, count in enumerate(counts))
        fits = take(documents, asking(f"u{number}", *holdings))
        assert fits == (sum(counts) <= left)
        left -= sum(counts) if fits else 0
    parts = {stripe("d", number): documents[domain_key("p", stripe("d", number))] for number in range(1)}
    assert all(each.used("p", name) <= (each.capacity or 0) for name, each in parts.items())
    held = [
        unit
        for key, each in documents.items()
        if "#" in key
        for claim in each.claims.values()
        for holding in claim.holdings
        if holding.key == key
        for unit in holding.units
    ]
    assert len(held) == len(set(held)) == ((capacity - left) if named else 0)


@given(st.integers(0, 20), WISHES, st.integers(1, 6))
def test_a_running_pod_s_units_stand_somewhere_room_or_not(
    capacity: int, wishes: list[list[int]], count: int
) -> None:
    documents = documents_of(capacity, named=False)
    for number, counts in enumerate(wishes):
        take(documents, asking(f"u{number}", Holding("p", "d", sum(counts))))
    claim = asking("runs", Holding("p", "d", count))
    found = room.anyhow(claim, at(documents), Requester("runs"))
    assert sum(each.count for each in found) == count
    assert all(each.key in documents and "#" in each.domain for each in found)


@given(st.integers(1, 20), WISHES, st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_a_running_pod_s_holdings_share_no_room_where_there_is_enough_for_all(
    capacity: int, wishes: list[list[int]], counts: list[int]
) -> None:
    documents = documents_of(capacity, named=False)
    for number, asked in enumerate(wishes):
        take(documents, asking(f"u{number}", Holding("p", "d", sum(asked))))
    claim = asking("runs", *(Holding("p", "d", count, (), f"c{each}") for each, count in enumerate(counts)))
    _, short = room.plan(claim, at(documents), Requester("runs"))
    found = room.anyhow(claim, at(documents), Requester("runs"))
    assert sum(each.count for each in found) == sum(counts)
    for each in found:
        domain, there = documents[each.key], sum(other.count for other in found if other.key == each.key)
        assert short or domain.used("p", each.domain) + there <= (domain.capacity or 0)


def test_a_running_pod_s_names_stand_in_the_stripes_that_list_them() -> None:
    documents = documents_of(9, named=True)
    claim = asking("runs", Holding("p", "d", 3, ("u8", "u0")))
    found = room.anyhow(claim, at(documents), Requester("runs"))
    assert sum(each.count for each in found) == 3
    for each in found:
        assert all(unit in Units.of(documents[each.key].units or ()) for unit in each.units)
    assert sorted(unit for each in found for unit in each.units) == ["u0", "u8"]


@given(st.lists(st.integers(0, SIZE), min_size=1, max_size=8), st.integers(1, 12))
def test_a_claim_that_no_stripe_has_room_for_is_in_as_few_as_can_be(rooms: list[int], count: int) -> None:
    documents = {KEY: Domain(sum(rooms), stripes=len(rooms))}
    documents |= {domain_key("p", stripe("d", number)): Domain(room) for number, room in enumerate(rooms)}
    planned, short = room.plan(asking("u", Holding("p", "d", count)), at(documents), Requester("u"))
    assert bool(short) == (sum(rooms) < count)
    if not short:
        largest = sorted(rooms, reverse=True)
        assert len(planned) == next(few for few in range(1, 9) if sum(largest[:few]) >= count)


def test_a_domain_that_has_stripes_is_no_place_for_a_claim() -> None:
    documents = documents_of(9, named=False)
    with pytest.raises(StripeFullError):
        room.require_whole([Holding("p", "d", 1)], at(documents))
    room.require_whole([Holding("p", "d#0", 1), Holding("p", "e", 1)], at(documents))


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_what_is_kept_for_one_owner_is_kept_from_all_others(kept: int, used: int, resting: int) -> None:
    left = (RetainedUnits(kept, (), "n/web", 0.0, 50.0), RetainedUnits(resting, (), "", 50.0))
    holder = asking("u", Holding("p", "d", used))
    documents = {KEY: Domain(9, {"u": holder}, retained=left)}

    def most(owner: str, now: float) -> int:
        requester = Requester("x", "n", (owner,), now)
        return max(
            count
            for count in range(10)
            if not count or not room.taken([Holding("p", "d", count)], at(documents), requester)[1]
        )

    assert most("n/other", 49.9) == 9 - used - kept - resting
    assert most("n/web", 49.9) == 9 - used - resting
    assert most("n/other", 50.0) == 9 - used
