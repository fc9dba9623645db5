"""The store contract (stores/base.py), one suite for every store.
A store joins by its place (tests/support/fixtures.py), opened again and again as processes would."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from berth.stores import open_store
from berth.stores.base import LIMIT, Cursor, Store
from tests.support.builders.ledgers import LAG_SECONDS
from tests.support.builders.places import Place

Factory = Callable[[], Store]


@pytest.fixture
def store_factory(place: Place) -> Iterator[Factory]:
    opened: list[Store] = []

    def factory() -> Store:
        opened.append(open_store(place.url))
        return opened[-1]

    yield factory
    for each in opened:
        each.close()


@pytest.fixture
def store(store_factory: Factory) -> Store:
    return store_factory()


def bodies(store: Store, *keys: str) -> dict[str, bytes]:
    return {key: document.body for key, document in store.read(keys).items()}


def version(store: Store, key: str) -> str:
    return store.read([key])[key].version


class Reader:
    """Follows a store's changes, as a View does."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.known: dict[str, bytes] = {}
        self.cursor: Cursor | None = None

    def look(self) -> bool:
        """One look; whether it was a snapshot."""
        found = self.store.changes(self.cursor)
        known = {**({} if found.snapshot else self.known), **found.documents}
        self.known = {key: body for key, body in known.items() if body is not None}
        self.cursor = found.cursor
        return found.snapshot

    def catches_up_with(self, expected: dict[str, bytes]) -> bool:
        """Changes may lag; no store of ours lags for longer than this."""
        until = time.monotonic() + LAG_SECONDS
        while self.known != expected and time.monotonic() < until:
            self.look()
        return self.known == expected


def test_a_new_store_is_empty(store: Store) -> None:
    assert store.read(["a"]) == {}
    assert store.read([]) == {}
    found = store.changes(None)
    assert (dict(found.documents), found.snapshot) == ({}, True)


def test_what_one_opening_commits_another_reads(store_factory: Factory) -> None:
    first, second = store_factory(), store_factory()
    assert first.commit({"a": b"1", "b": b"\x00\xff"}, {"a": None, "b": None})
    assert bodies(second, "a", "b", "c") == {"a": b"1", "b": b"\x00\xff"}
    assert version(first, "a") == version(second, "a")


def test_a_store_that_was_closed_and_opened_again_has_kept_everything(store_factory: Factory) -> None:
    first = store_factory()
    first.commit({"a": b"1"}, {})
    before, cursor = version(first, "a"), first.changes(None).cursor
    first.close()
    second = store_factory()
    assert version(second, "a") == before
    again = second.changes(cursor)
    assert not again.snapshot
    assert again.documents.items() <= {"a": b"1"}.items()  # it may repeat what was told


def test_a_commit_on_an_old_version_changes_nothing(store: Store) -> None:
    store.commit({"a": b"1"}, {})
    old = version(store, "a")
    assert store.commit({"a": b"2"}, {"a": old})
    assert not store.commit({"a": b"3", "b": b"3"}, {"a": old})
    assert bodies(store, "a", "b") == {"a": b"2"}


@pytest.mark.parametrize("present", [True, False])
def test_expecting_that_a_document_is_not_there(store: Store, present: bool) -> None:
    if present:
        store.commit({"a": b"1"}, {})
    assert store.commit({"b": b"1"}, {"a": None}) is not present


def test_a_document_may_be_only_expected(store: Store) -> None:
    store.commit({"a": b"1"}, {})
    old = version(store, "a")
    assert store.commit({"b": b"1"}, {"a": old})
    assert version(store, "a") == old
    store.commit({"a": b"2"}, {})
    assert not store.commit({"b": b"2"}, {"a": old})
    assert bodies(store, "b") == {"b": b"1"}


def test_one_unmet_expectation_among_many_stops_all_writes(store: Store) -> None:
    store.commit({str(i): b"0" for i in range(50)}, {})
    expected = {key: found.version for key, found in store.read([str(i) for i in range(50)]).items()}
    store.commit({"49": b"other"}, {})
    assert not store.commit({str(i): b"1" for i in range(50)}, expected)
    assert Counter(bodies(store, *expected).values()) == {b"0": 49, b"other": 1}


def test_an_expectation_of_a_document_that_is_gone_is_not_met(store: Store) -> None:
    store.commit({"a": b"1"}, {})
    old = version(store, "a")
    store.commit({"a": None}, {"a": old})
    assert store.read(["a"]) == {}
    assert not store.commit({"a": b"2"}, {"a": old})
    assert store.commit({"a": b"2"}, {"a": None})


def test_no_version_comes_twice_also_not_over_deletions_and_equal_bodies(store: Store) -> None:
    seen = []
    for _ in range(5):
        for _ in range(3):
            store.commit({"a": b"same"}, {})
            seen.append(version(store, "a"))
        store.commit({"a": None}, {})
    assert len(set(seen)) == len(seen)


def test_deleting_what_is_not_there_is_no_error(store: Store) -> None:
    assert store.commit({"a": None}, {"a": None})
    assert store.read(["a"]) == {}


def test_as_many_documents_in_one_call_as_the_contract_allows(store: Store) -> None:
    writes = {f"domain/p/{i}": b"%d" % i for i in range(LIMIT)}
    assert store.commit(dict(writes), dict.fromkeys(writes))
    assert bodies(store, *writes) == writes
    assert dict(store.changes(None).documents) == writes


def test_batches_are_all_the_keys_once_and_each_can_be_committed_with_the_epoch(store: Store) -> None:
    keys = [f"domain/p/node-{i}" for i in range(1000)]
    batches = list(store.batches(keys))
    assert sorted(key for batch in batches for key in batch) == sorted(keys)
    assert list(store.batches([])) == []
    most = max(batches, key=len)
    assert store.commit(dict.fromkeys(most, b"1"), {"epoch": None, "cluster": None})


def test_a_ledger_s_documents_are_written_and_deleted_in_batches_that_expect_a_mark(store: Store) -> None:
    """All documents at once, the cluster's too, as by a copy: each commit expects that there is no epoch, and
    a mark."""
    store.commit({"rebuild": b"mark"}, {})
    expected = {"epoch": None, "rebuild": version(store, "rebuild")}
    writes = {"cluster": b"uid", **{f"domain/p/node-{i}": b"%d" % i for i in range(120)}}
    for batch in store.batches(writes):
        assert store.commit({key: writes[key] for key in batch}, expected)
    assert dict(store.changes(None).documents) == {**writes, "rebuild": b"mark"}
    for batch in store.batches(writes):
        assert store.commit(dict.fromkeys(batch), expected)
    assert dict(store.changes(None).documents) == {"rebuild": b"mark"}


def test_changes_are_a_snapshot_first_and_deltas_after(store: Store) -> None:
    store.commit({"a": b"1", "b": b"1"}, {})
    reader = Reader(store)
    assert reader.look()
    assert reader.known == {"a": b"1", "b": b"1"}
    store.commit({"a": b"2", "b": None, "c": b"1"}, {})
    assert reader.catches_up_with({"a": b"2", "c": b"1"})
    assert not reader.look()
    assert reader.known == {"a": b"2", "c": b"1"}


def test_a_cursor_the_store_can_t_serve_is_answered_by_a_snapshot(store: Store) -> None:
    store.commit({"a": b"1"}, {})
    for cursor in ("", ".", "no cursor", "0123456789abcdef.7", "{}", "\u00e9:1:"):
        found = store.changes(cursor)
        assert (dict(found.documents), found.snapshot) == ({"a": b"1"}, True), cursor


def test_a_refused_commit_is_in_no_changes(store: Store) -> None:
    cursor = store.changes(None).cursor
    store.commit({"a": b"1"}, {"b": "no such version"})
    assert dict(store.changes(cursor).documents) == {}
    assert dict(store.changes(None).documents) == {}


def test_a_reader_sees_the_last_of_many_writes_whatever_it_has_seen_before(store_factory: Factory) -> None:
    writer, reader, late = store_factory(), Reader(store_factory()), Reader(store_factory())
    for i in range(20):
        writer.commit({"a": b"%d" % i, f"k{i}": b"1", f"k{i - 2}": None}, {})
        if i % 3 == 0:
            reader.look()
    late.look()
    assert late.known == {"a": b"19", "k18": b"1", "k19": b"1"}
    assert reader.catches_up_with(late.known)


def test_no_reader_ever_goes_back(store_factory: Factory) -> None:
    """Of a document that only counts up, while it is written."""
    writer, reader = store_factory(), Reader(store_factory())

    def write() -> None:
        for i in range(1, 40):
            writer.commit({"a": b"%02d" % i}, {})

    thread = threading.Thread(target=write)
    thread.start()
    seen = []
    while thread.is_alive():
        reader.look()
        seen.append(reader.known.get("a", b"00"))
    thread.join()
    assert seen == sorted(seen)
    assert reader.catches_up_with({"a": b"39"})


def test_closing_a_store_lets_go_of_every_thread_s_files(store_factory: Factory) -> None:
    store = store_factory()
    threads = [threading.Thread(target=store.commit, args=({f"{i}": b"1"}, {})) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    again = store_factory()
    assert len(again.changes(None).documents) == 4


@pytest.mark.long
def test_threads_that_count_up_one_document_lose_no_update(store_factory: Factory) -> None:
    stores = [store_factory(), store_factory()]
    stores[0].commit({"n": b"0"}, {})

    def count(store: Store) -> None:
        for _ in range(10):
            while True:
                found = store.read(["n"])["n"]
                if store.commit({"n": b"%d" % (int(found.body) + 1)}, {"n": found.version}):
                    break

    threads = [threading.Thread(target=count, args=(stores[i % 2],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bodies(stores[0], "n") == {"n": b"80"}


def test_a_reader_never_sees_half_of_a_commit(store_factory: Factory) -> None:
    writer, reader = store_factory(), store_factory()
    keys = [f"domain/p/{i}" for i in range(12)]
    writer.commit(dict.fromkeys(keys, b"0"), {})

    def write() -> None:
        for round_ in range(1, 20):
            writer.commit(dict.fromkeys(keys, b"%d" % round_), {})

    thread = threading.Thread(target=write)
    thread.start()
    while thread.is_alive():
        assert len(set(bodies(reader, *keys).values())) == 1
    thread.join()
    assert set(bodies(reader, *keys).values()) == {b"19"}
