"""The store in memory keeps the store contract, as far as one thread can see it."""

from berth.stores.base import Changes
from berth.stores.memory import MemoryStore


def test_it_holds_what_it_was_made_of_and_never_changes_that() -> None:
    bodies = {"a": b"1", "gone": None}
    store = MemoryStore(bodies)
    assert store.bodies() == {"a": b"1"}
    assert store.commit({"a": b"2", "b": b"3"}, {"gone": None})
    assert bodies == {"a": b"1", "gone": None}
    assert store.bodies() == {"a": b"2", "b": b"3"}


def test_it_writes_all_or_nothing_by_the_versions_that_are_expected() -> None:
    store = MemoryStore({"a": b"1"})
    first = store.read(["a", "b"])["a"]
    assert not store.commit({"a": b"2", "b": b"2"}, {"a": first.version, "b": "1"})
    assert store.bodies() == {"a": b"1"}
    assert store.commit({"a": b"1"}, {"a": first.version, "b": None})
    assert not store.commit({"a": b"3"}, {"a": first.version})  # written since, though with the same body
    second = store.read(["a"])["a"]
    assert store.commit({"a": None}, {"a": second.version})
    assert store.read(["a"]) == {}
    assert store.commit({}, {"a": None})


def test_changes_are_a_snapshot_first_and_then_what_was_written_last() -> None:
    store = MemoryStore({"a": b"1", "b": b"1"})
    snapshot = store.changes(None)
    assert (snapshot.documents, snapshot.snapshot) == ({"a": b"1", "b": b"1"}, True)
    assert store.changes(snapshot.cursor) == Changes({}, snapshot.cursor, False)
    store.commit({"b": None, "c": b"1"}, {})
    store.commit({"c": b"2"}, {})
    later = store.changes(snapshot.cursor)
    assert (later.documents, later.snapshot) == ({"b": None, "c": b"2"}, False)
    store.commit({"b": b"3"}, {})
    assert store.changes(later.cursor).documents == {"b": b"3"}
    assert store.changes(None).documents == {"a": b"1", "b": b"3", "c": b"2"}
