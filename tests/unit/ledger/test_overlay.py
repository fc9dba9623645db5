"""Overlays: each is what a plain dict or set would be after its changes, and stays so while others are made
of it, with changes laid over, and after both were made one again."""

import threading
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from berth.ledger import overlay
from berth.ledger.overlay import Members, Overlay
from tests.support.builders.overlays import LIMITS, limited

NAMES = [f"n{number}" for number in range(12)]
ASKED = [*NAMES, "nobody"]

dicts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3))
changes = st.dictionaries(st.sampled_from(NAMES), st.none() | st.integers(0, 3), max_size=3)


def is_like(values: Overlay[int], plain: Mapping[str, int]) -> None:
    assert values.pick(ASKED) == [plain.get(name) for name in ASKED]
    assert [values.get(name) for name in ASKED] == [plain.get(name) for name in ASKED]
    assert [values.get(name, 9) for name in ASKED] == [plain.get(name, 9) for name in ASKED]
    assert [name in values for name in ASKED] == [name in plain for name in ASKED]
    assert {name: values[name] for name in plain} == plain


@given(dicts, st.lists(st.tuples(changes, st.booleans()), max_size=12), LIMITS)
def test_each_version_is_what_a_dict_would_be(
    start: dict[str, int], steps: list[tuple[dict[str, int | None], bool]], limits: tuple[int, int]
) -> None:
    with limited(limits):
        values, plain = Overlay(start), dict(start)
        versions = [(values, plain)]
        for step, is_walked in steps:
            if is_walked:  # which makes it one dict
                assert dict(values) == plain
            values = values.with_changes(step)
            plain = {name: value for name, value in {**plain, **step}.items() if value is not None}
            versions.append((values, plain))
            for other, then in versions:
                is_like(other, then)
        for other, then in versions:
            assert (dict(other), len(other), set(other)) == (then, len(then), set(then))
            assert dict(other.items()) == other == then
            assert sorted(other.items()) == sorted(then.items())
            assert (sorted(other.keys()), sorted(other.values())) == (sorted(then), sorted(then.values()))
            is_like(other, then)


@given(
    st.frozensets(st.sampled_from(NAMES)),
    st.lists(
        st.tuples(st.dictionaries(st.sampled_from(NAMES), st.booleans(), max_size=3), st.booleans()),
        max_size=12,
    ),
    LIMITS,
)
def test_each_version_is_what_a_set_would_be(
    start: frozenset[str], steps: list[tuple[dict[str, bool], bool]], limits: tuple[int, int]
) -> None:
    with limited(limits):
        members, plain = Members(start), start
        versions = [(members, plain)]
        for step, is_asked in steps:
            if is_asked:
                assert members.whole() == plain
            members = members.with_changes(step)
            plain = plain - step.keys() | {name for name, is_in in step.items() if is_in}
            versions.append((members, plain))
            for other, then in versions:
                assert sorted(other.missing(ASKED)) == sorted(set(ASKED) - then)
                assert [name in other for name in ASKED] == [name in then for name in ASKED]
        for other, then in versions:
            assert other.whole() == then
            assert sorted(other.missing(ASKED)) == sorted(set(ASKED) - then)


def test_a_change_costs_what_was_changed_and_both_are_made_one_now_and_then() -> None:
    """Seen by what is copied: the large dict, and the large set, is the same object until then."""
    names = [f"n{number}" for number in range(10_000)]
    values, members = Overlay(dict.fromkeys(names, 1)), Members(frozenset(names))
    dicts, sets = {id(values._layers[0])}, {id(members._layers[0])}
    kept: list[object] = [values._layers[0], members._layers[0]]  # an id is one object's while that lives
    for number, name in enumerate(names[:1000]):
        values = values.with_changes({name: number + 2})
        members = members.with_changes({name: False})
        assert values.pick([name, "other"]) == [number + 2, None]
        assert list(members.missing([name, names[-1]])) == [name]
        assert max(map(len, (values._layers[1], *members._layers[1:]))) <= overlay.MOST
        kept += [values._layers[0], members._layers[0]]
        dicts.add(id(values._layers[0]))
        sets.add(id(members._layers[0]))
    assert len(dicts) == len(sets) == 1 + 1000 // (overlay.MOST + 1)


def test_what_is_looked_up_again_and_again_is_made_one() -> None:
    names = [f"n{number}" for number in range(1000)]
    values = Overlay(dict.fromkeys(names, 1)).with_changes({"n1": 2, "n2": None})
    members = Members(frozenset(names)).with_changes({"n1": False, "more": True})
    for _ in range(overlay.PASSES):
        assert values.pick(names).count(1) == 998
        assert list(members.missing(names)) == ["n1"]
    assert values._layers[1]
    assert all(members._layers)
    assert values.pick(names).count(1) == 998
    assert list(members.missing(names)) == ["n1"]
    assert not values._layers[1]
    assert not any(members._layers[1:])
    assert values["n1"] == 2


def test_threads_that_read_versions_see_each_as_it_was_while_others_are_made_and_made_one() -> None:
    """Version k has the value k everywhere, so who saw two versions at once would see two values."""
    names, wrong = [f"n{number}" for number in range(200)], list[object]()
    values = Overlay(dict.fromkeys(names, 0))
    versions, done = [(values, 0)], threading.Event()

    def read() -> None:
        while not done.is_set():
            values, number = versions[-1]
            seen = {*values.pick(names), *dict(values).values(), *values.pick(names)}
            if seen != {number}:
                wrong.append((number, seen))

    readers = [threading.Thread(target=read, daemon=True) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, 300):
        for start in range(0, len(names), 5):
            values = values.with_changes(dict.fromkeys(names[start : start + 5], number))
        versions.append((values, number))
    done.set()
    for reader in readers:
        reader.join(30)
        assert not reader.is_alive()
    assert wrong == []
