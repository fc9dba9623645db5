"""How a domain is cut into stripes, whatever it was before: nothing is lost, or written for nothing."""

from collections.abc import Iterator, Mapping
from itertools import chain, count, repeat
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from berth.api.units import MOST, Units
from berth.ledger import capacity as sizes
from berth.ledger import retained
from berth.ledger.capacity import Capacity, CapacityChange, amount
from berth.ledger.keys import stripe
from berth.ledger.model import Claim, Domain, Holding, RetainedUnits

NAMES = [f"u{number}" for number in range(12)]
SIZE = 4  # units of a stripe, so that a handful is in several

Documents = Mapping[str, Domain]


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with mock.patch.object(sizes, "STRIPE", SIZE):
        yield


def a_claim(uid: str, number: int, count: int, units: tuple[str, ...] = ()) -> Claim:
    held = (Holding("p", stripe("d", number), count, units),)
    return Claim(uid=uid, namespace="n", name=uid, node="n1", holdings=held, owner="me")


def cut(documents: Documents, capacity: Capacity, now: int = 0) -> dict[str, Domain]:
    """All documents after the domain got this capacity; what was written is checked to have changed."""
    stripe_count = documents["d"].stripes
    stripes = [documents[stripe("d", number)] for number in range(stripe_count)]
    changed = sizes.cut("p", "d", documents["d"], stripes, capacity, now=now)
    assert all(documents.get(name) != domain for name, domain in changed.items())
    return {**documents, **changed}


def of(documents: Documents) -> dict[str, Domain]:
    return {stripe("d", each): documents[stripe("d", each)] for each in range(documents["d"].stripes)}


def used(documents: Documents) -> int:
    return sum(each.used("p", name) for name, each in of(documents).items())


def held(documents: Documents) -> list[str]:
    return [unit for name, each in of(documents).items() for unit in each.held("p", name)]


def check(documents: Documents, total: int) -> None:
    head, stripes = documents["d"], of(documents)
    assert head.closed == (used(documents) > total)
    assert (head.capacity, len(stripes)) == (total, head.stripes)
    if not head.closed:
        assert sum(each.capacity or 0 for each in stripes.values()) == total
        assert all(each.used("p", name) <= (each.capacity or 0) for name, each in stripes.items())
    assert cut(documents, head.size) == documents


def filled(documents: Documents, wishes: list[int]) -> dict[str, Domain]:
    """Claims where there is room, one after the other."""
    found = dict(documents)
    for wish in wishes:
        which = wish % found["d"].stripes
        name = stripe("d", which)
        domain = found[name]
        if not domain.room("p", name, ["me"]) or found["d"].closed:
            continue
        resting = {unit for left in domain.retained if left.bars(["me"], 0) for unit in left.units}
        free = Units.of(domain.units or ()).free(1, domain.held("p", name) | resting)
        assert domain.units is None or free
        uid = next(uid for uid in map(str, count()) if uid not in domain.claims)
        found[name] = Domain(
            domain.capacity,
            {**domain.claims, uid: a_claim(uid, which, 1, free)},
            domain.units,
            domain.retained,
        )
    return found


def emptied(documents: Documents, gone: int) -> dict[str, Domain]:
    """Without every so-manieth claim."""
    found = dict(documents)
    for name, domain in of(documents).items():
        left = {
            uid: claim for number, (uid, claim) in enumerate(domain.claims.items()) if (number + 1) % gone
        }
        found[name] = Domain(domain.capacity, left, domain.units, domain.retained)
    return found


WISHES = st.lists(st.integers(0, 9), max_size=30)
STEPS = st.lists(st.tuples(st.integers(0, 40), WISHES, st.integers(1, 4)), min_size=1, max_size=5)
LISTS = st.lists(
    st.tuples(st.sets(st.sampled_from(NAMES)), WISHES, st.integers(1, 4)), min_size=1, max_size=5
)
EITHER = st.integers(0, 12) | st.sets(st.sampled_from(NAMES)).map(lambda found: Units.parse(found).entries())
SOME = st.lists(st.tuples(EITHER, WISHES, st.integers(1, 4)), min_size=1, max_size=5)
TIMES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)))


@given(STEPS)
def test_the_stripes_parts_are_the_capacity_and_never_less_than_what_is_used(
    steps: list[tuple[int, list[int], int]],
) -> None:
    documents: Documents = {"d": Domain()}
    for capacity, wishes, gone in steps:
        before = used(documents)
        documents = cut(documents, capacity)
        assert used(documents) == before
        check(documents, capacity)
        documents = filled(documents, wishes)
        check(documents, capacity)
        documents = emptied(documents, gone)


@given(STEPS, st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=4))
@example([(5, [1], 2), (1, [], 1), (1, [], 1)], [(0, 1)])
def test_units_that_rest_have_room_in_their_stripes_as_long_as_there_is_any(
    steps: list[tuple[int, list[int], int]], left: list[tuple[int, int]]
) -> None:
    """What is free of all stripes together is what is neither used nor at rest."""
    documents: Documents = {"d": Domain()}
    resting = 0
    for capacity, wishes, gone in steps:
        documents = cut(documents, capacity)
        if not resting and not documents["d"].closed:
            documents, resting = at_rest(documents, left)
        if not documents["d"].closed:
            free = sum(each.room("p", name, now=1.0) for name, each in of(documents).items())
            assert free == max(0, capacity - used(documents) - resting)
        documents = filled(documents, wishes)
        documents = emptied(documents, gone)


def at_rest(documents: Documents, left: list[tuple[int, int]]) -> tuple[Documents, int]:
    """Some of what is free rests in these stripes."""
    found, resting = dict(documents), 0
    for which, units in left:
        name = stripe("d", which % found["d"].stripes)
        units = min(units, found[name].room("p", name, now=1.0))
        if units:
            found[name] = replace(
                found[name], retained=(*found[name].retained, RetainedUnits(units, rest_until=9.0))
            )
            resting += units
    return found, resting


@given(WISHES, SOME, TIMES)
@settings(max_examples=500)  # names and units without are seldom in each other's way
def test_what_rests_or_is_kept_is_given_neither_early_nor_late_whatever_the_units_names_became(
    unnamed: list[int], steps: list[tuple[Capacity, list[int], int]], times: list[tuple[int, int]]
) -> None:
    """Units had no names when pods got them, or have some by now: so many of all stripes are nobody's."""
    documents: Documents = filled(cut({"d": Domain()}, len(NAMES)), unnamed)
    until = chain(times, repeat((9, 0)))
    for start, (capacity, wishes, gone) in enumerate(steps):
        documents = cut(documents, capacity, start)
        free = amount(capacity) - used(documents)
        enough = waiting(documents, [], start) <= free
        assert cut(documents, capacity, start) == documents or not enough
        for now in range(start, 10) if free >= 0 else ():
            assert room(documents, [], now) == max(0, free - waiting(documents, [], now))
            assert room(documents, ["me"], now) == free - waiting(documents, ["me"], now) or not enough
        documents = rested(filled(documents, wishes), gone, until)
        assert len(held(documents)) == len(set(held(documents)))


def test_it_does_not_matter_how_many_units_rest() -> None:
    """What is done is done with their counts: as many as can be are no more than a few."""
    documents = cut({"d": Domain()}, MOST)
    first = stripe("d", 0)
    documents[first] = replace(documents[first], retained=(RetainedUnits(MOST, rest_until=9.0),))
    documents = cut(documents, MOST - 1)
    assert (room(documents, [], 8), room(documents, [], 9)) == (0, MOST - 1)
    assert sum(left.count for each in of(documents).values() for left in each.retained) == MOST


def room(documents: Documents, owners: list[str], now: int) -> int:
    return sum(each.room("p", name, owners, now) for name, each in of(documents).items())


def waiting(documents: Documents, owners: list[str], now: int) -> int:
    """What would be given to nobody else if there were room for all."""
    large = {name: replace(each, capacity=99 + each.used("p", name)) for name, each in of(documents).items()}
    return sum(99 - each.room("p", name, owners, now) for name, each in large.items())


def rested(documents: Documents, gone: int, until: Iterator[tuple[int, int]]) -> dict[str, Domain]:
    """Without every so-manieth claim, whose units rest, and are kept for me."""
    found = dict(documents)
    for name, domain in emptied(documents, gone).items():
        if ended := documents[name].claims.keys() - domain.claims:
            units = tuple(sorted(documents[name].held("p", name) - domain.held("p", name)))
            left = RetainedUnits(len(ended), units, "me", *next(until))
            domain = replace(domain, retained=(*retained.without(domain.retained, units), left))
        found[name] = domain
    return found


@given(LISTS)
def test_each_unit_is_in_one_stripe_and_where_it_is_held(
    steps: list[tuple[set[str], list[int], int]],
) -> None:
    documents: Documents = {"d": Domain()}
    for wanted, wishes, gone in steps:
        capacity = Units.parse(sorted(wanted)).entries()
        documents = cut(documents, capacity)
        check(documents, len(capacity))
        listed = [unit for each in of(documents).values() for unit in each.units or ()]
        assert sorted(listed) == sorted(capacity)
        for name, domain in of(documents).items():
            assert domain.held("p", name) & set(capacity) <= set(domain.units or ())
        documents = filled(documents, wishes)
        assert len(held(documents)) == len(set(held(documents)))
        documents = emptied(documents, gone)


@given(STEPS)
def test_a_domain_that_goes_keeps_its_claims_and_gives_nothing(
    steps: list[tuple[int, list[int], int]],
) -> None:
    documents: Documents = {"d": Domain()}
    for capacity, wishes, _ in steps:
        documents = filled(cut(documents, capacity), wishes)
    before = used(documents)
    stripes = of(documents)
    gone = {**documents, **sizes.cut("p", "d", documents["d"], list(stripes.values()), None)}
    assert (used(gone), gone["d"].capacity) == (before, None)
    assert all(gone[name].room("p", name) == 0 for name in stripes)
    assert all(gone[name].empty for name in stripes if not gone[name].claims)
    if before:
        back = cut(gone, 40)
        assert used(back) == before
        check(back, 40)


def test_names_leave_the_list_they_were_in_before_another_gets_them() -> None:
    narrow = CapacityChange("p", "a", ("x", "y"), ("y", "z"))
    assert sizes.narrowed(narrow) == narrow._replace(after=("y",))
    assert sizes.narrowed(narrow._replace(after=None)) == narrow._replace(after=None)
    assert sizes.narrowed(narrow._replace(after=("y", "x", "z"))) is None
    assert sizes.narrowed(CapacityChange("p", "a", None, ("x",))) is None
    assert sizes.rest_of(narrow, [narrow._replace(after=("y",))]).before == ("y",)


def test_a_name_that_another_domain_lists_or_a_pod_holds_there_is_not_given() -> None:
    holder = a_claim("u", 0, 1, ("held",))
    documents = {"a": Domain(1, units=("listed",)), "d#0": Domain(0, {"u": holder}, ()), "b": Domain(0)}
    wanted = CapacityChange("p", "b", (), ("listed", "held", "free"))
    assert sizes.not_elsewhere("p", [wanted], documents)[0].after == ("free",)
    own = CapacityChange("p", "d", (), ("held", "free"))
    assert sizes.not_elsewhere("p", [own], documents)[0].after == ("held", "free")
