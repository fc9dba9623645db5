"""`changes` on DynamoDB: an index that is behind, clocks that are wrong, deletions that are forgotten.

moto's index never lags, so it is held back (motodynamo.py): looks see it as it was. The time is a test's own;
the server's is the real one, which only moves on by what a test takes.
"""

import time as real
from collections.abc import Callable
from itertools import count
from typing import Any

import boto3
import pytest

from berth.server_clock import ServerClock
from berth.stores.base import EPOCH, Store
from berth.stores.dynamodb.client import Boto3Clients
from berth.stores.dynamodb.feed import TOMBSTONES, WIDE, WIDE_EVERY
from tests.support.builders.ledgers import Time
from tests.support.servers.dynamo import Table

HOUR = 3600.0


class FixedClock(ServerClock):
    """The server's time as a test sets it, whatever answers say."""

    def __init__(self, time: Time) -> None:
        super().__init__(time, wall=time)

    def learn(self, date: str | None, sent: float, received: float) -> None:
        """Nothing."""


def told(store: Store, cursor: str) -> dict[str, bytes | None]:
    found = store.changes(cursor)
    assert not found.snapshot
    return dict(found.documents)


@pytest.fixture
def time() -> Time:
    found = Time()
    found.now = 1_000_000.0
    return found


# The index is behind


def test_what_the_index_did_not_have_yet_is_told_once_it_has(table: Table) -> None:
    writer, reader = table.store(), table.store()
    writer.commit({"a": b"1", "b": b"1"}, {})
    first = reader.changes(None)
    table.server.lag(table.name, looks=2)
    writer.commit({"a": b"2", "b": None, "c": b"1"}, {})
    second = reader.changes(first.cursor)
    third = reader.changes(second.cursor)
    assert (dict(second.documents), dict(third.documents)) == ({}, {})
    assert told(reader, third.cursor) == {"a": b"2", "b": None, "c": b"1"}


def test_a_look_at_an_index_that_is_behind_never_goes_back_for_a_key(table: Table) -> None:
    """It names an older version; the body comes from the table."""
    writer, reader = table.store(), table.store()
    cursor = reader.changes(None).cursor
    writer.commit({"a": b"1"}, {})
    table.server.lag(table.name, looks=2)
    writer.commit({"a": b"2"}, {})
    found = reader.changes(cursor)
    assert dict(found.documents) == {"a": b"2"}
    writer.commit({"a": b"3"}, {})
    assert told(reader, found.cursor) == {"a": b"3"}


@pytest.mark.parametrize(("late", "is_told"), [(WIDE - 30, True), (WIDE + 30, False)])
def test_what_was_on_its_way_for_minutes_is_told_by_the_next_wide_look(
    table: Table, time: Time, late: float, is_told: bool
) -> None:
    """A wide look comes every WIDE_EVERY seconds; the looks between go back some seconds only."""
    reader = table.store(time, clock=FixedClock(time))
    cursor = reader.changes(None).cursor
    past = Time()
    past.now = time.now - late
    table.store(past, clock=FixedClock(past)).commit({"a": b"1"}, {})
    time.now += WIDE_EVERY - 1
    found = reader.changes(cursor)
    assert dict(found.documents) == {}
    time.now += 1
    assert told(reader, found.cursor) == ({"a": b"1"} if is_told else {})


def test_an_overlap_reads_no_document_twice(table: Table) -> None:
    store = table.store()
    cursor = store.changes(None).cursor
    store.commit({"a": b"1", "b": b"1"}, {})
    cursor = store.changes(cursor).cursor
    store.commit({"b": b"2"}, {})
    table.operations()
    found = store.changes(cursor)
    assert dict(found.documents) == {"b": b"2"}
    assert dict(store.changes(found.cursor).documents) == {}
    assert table.operations() == {"Query": 2, "BatchGetItem": 1}


def test_a_reader_that_comes_with_an_older_cursor_is_told_all_since_then_again(table: Table) -> None:
    store = table.store()
    first = store.changes(None).cursor
    store.commit({"a": b"1"}, {})
    second = store.changes(first).cursor
    assert dict(store.changes(second).documents) == {}
    assert dict(store.changes(first).documents) == {"a": b"1"}
    assert dict(table.store().changes(second).documents) == {"a": b"1"}


def test_more_changes_than_one_answer_holds_are_all_told(table: Table) -> None:
    store = table.store()
    cursor = store.changes(None).cursor
    for start in range(0, 240, 80):
        assert store.commit({f"domain/p/{i}": b"%d" % i for i in range(start, start + 80)}, {})
    found = store.changes(cursor)
    assert found.documents == {f"domain/p/{i}": b"%d" % i for i in range(240)}
    large = {f"large/{i}": real.time_ns().to_bytes(8, "big") * 40_000 for i in range(8)}
    assert store.commit(dict(large), {})
    assert {key: body for key, body in store.changes(None).documents.items() if key in large} == large


# A new epoch


def test_a_new_epoch_comes_with_what_was_committed_before_it_and_is_still_on_its_way(
    table: Table, time: Time
) -> None:
    """The index has the epoch, and does not tell of the Pool before the next wide look."""
    reader = table.store(time, clock=FixedClock(time))
    cursor = reader.changes(None).cursor
    past = Time()
    past.now = time.now - 60
    table.store(past, clock=FixedClock(past)).commit({"pool/ip": b"1"}, {})
    assert dict(reader.changes(cursor).documents) == {}
    assert table.store(time, clock=FixedClock(time)).commit({EPOCH: b"e"}, {EPOCH: None})
    found = reader.changes(cursor)
    assert (dict(found.documents), found.snapshot) == ({"pool/ip": b"1", EPOCH: b"e"}, True)
    assert told(reader, found.cursor) == {}


def test_an_epoch_that_comes_while_all_is_read_is_told_by_the_next_look(table: Table) -> None:
    """A scan is not of one moment: it may be past a Pool when that is written, and then come to the epoch."""
    writer = table.store()
    assert writer.commit({"pool/ip": b"1", EPOCH: b"old"}, {})
    late = table.store(clients=Boto3Clients(lambda: ScanningSession(meanwhile)))

    def meanwhile() -> None:
        assert writer.commit({"pool/ip": b"2"}, {})
        assert writer.commit({EPOCH: b"new"}, {})

    found = late.changes(None)
    assert dict(found.documents) == {"pool/ip": b"1", EPOCH: b"old"}
    found = late.changes(found.cursor)
    assert dict(found.documents) == {"pool/ip": b"2", EPOCH: b"new"}
    assert told(late, found.cursor) == {}


class ScanningSession:
    """Of boto3: its first scan comes to the epoch after all else, and others commit between."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = meanwhile

    def client(self, *arguments: Any, **options: Any) -> Any:
        client = boto3.session.Session().client(*arguments, **options)
        scan, turns = client.scan, count(1)

        def scanned(**request: Any) -> Any:
            first = scan(**request)
            if next(turns) > 1:
                return first
            self._meanwhile()
            found = {item["key"]["S"]: item for item in scan(**request)["Items"]}
            others = [item for item in first["Items"] if item["key"]["S"] != EPOCH]
            return {**first, "Items": [*others, found[EPOCH]]}

        client.scan = scanned
        return client


# Clocks


@pytest.mark.parametrize("wrong", [-HOUR, HOUR])
@pytest.mark.parametrize("who", ["writer", "reader"])
def test_a_process_whose_clock_is_wrong_hides_nothing_and_misses_nothing(
    table: Table, who: str, wrong: float
) -> None:
    """DynamoDB's answers tell the time; this machine's is not asked. (AWS itself refuses requests that are
    signed with a time so wrong; moto does not look.)"""

    def clock(of: str) -> ServerClock:
        error = wrong if who == of else 0.0
        return ServerClock(lambda: real.monotonic() + error, lambda: real.time() + error)

    writer, reader = table.store(clock=clock("writer")), table.store(clock=clock("reader"))
    cursor = reader.changes(None).cursor
    for i in range(3):
        writer.commit({"a": b"%d" % i, f"{i}": b"1"}, {})
        found = reader.changes(cursor)
        assert dict(found.documents) == {"a": b"%d" % i, f"{i}": b"1"}
        assert not found.snapshot
        cursor = found.cursor
    written = int(table.server.items(table.name)["a"]["written"]["N"])
    assert abs(written / 1000 - real.time()) < HOUR / 2


# Cursors and deletions that are old


@pytest.mark.parametrize("late", [-1.0, 1.0])
def test_a_cursor_from_before_the_deletions_that_are_remembered_gets_a_snapshot(
    table: Table, time: Time, late: float
) -> None:
    store = table.store(time, clock=FixedClock(time))
    store.commit({"a": b"1"}, {})
    cursor = store.changes(None).cursor
    time.now += TOMBSTONES / 2 + late
    assert store.changes(cursor).snapshot is (late > 0)


def test_what_is_left_of_a_deleted_document_expires_a_day_later(table: Table, time: Time) -> None:
    store = table.store(time, clock=FixedClock(time))
    store.commit({"a": b"1", "b": b"1"}, {})
    store.commit({"a": None}, {})
    items = table.server.items(table.name)
    assert int(items["a"]["expires"]["N"]) == int(time.now + TOMBSTONES)
    assert "expires" not in items["b"]
    store.commit({"a": b"2"}, {"a": None})
    assert "expires" not in table.server.items(table.name)["a"]


@pytest.mark.parametrize("before", ["", "x", "x{}", "a.1.b.c"])
def test_a_cursor_that_is_none_of_ours_gets_a_snapshot(table: Table, before: str) -> None:
    store = table.store()
    store.commit({"a": b"1"}, {})
    found = store.changes(before.format(store.changes(None).cursor))
    assert (dict(found.documents), found.snapshot) == ({"a": b"1"}, True)
