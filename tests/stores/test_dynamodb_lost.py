"""A table that was made anew, restored from a backup, taken away, or is none of ours.

moto gives no TableId and restores nothing: motodynamo.py gives each new table another one, and puts the items
of before into it. AWS takes minutes for what happens here between two calls.
"""

from collections.abc import Callable

import pytest

from berth.errors import BerthError, StoreFailedError, StoreUnavailableError
from berth.stores.base import EPOCH, Store
from berth.stores.dynamodb.generation import CHECK_SECONDS
from tests.support.builders.ledgers import Time
from tests.support.builders.losses import check_lost, fill
from tests.support.servers.dynamo import Table


def said(kind: type[BerthError], call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(kind) as caught:
        call(*arguments)
    return str(caught.value)


def other(store: Store) -> None:
    """A document that is there again when the table is restored."""
    assert store.commit({"cluster": b"c"}, {})


@pytest.mark.parametrize("fresh", [True, False])
def test_a_table_made_anew_has_lost_everything(table: Table, fresh: bool) -> None:
    before = table.store()
    fill(before)
    other(before)
    check_lost(table.store() if fresh else before, before, lambda: table.server.lose(table.name))


def test_a_new_process_takes_a_restored_table_for_a_loss(table: Table) -> None:
    """The documents of the backup stay, and reconcile goes through them; the epoch does not."""
    before = table.store(Time())
    fill(before)
    other(before)
    table.server.backup(table.name)
    assert before.commit({"a": b"3"}, {})
    found = before.read([EPOCH, "a"])
    table.server.restore(table.name)
    after = table.store()
    assert set(after.read([EPOCH, "a", "b", "cluster"])) == {"a", "b", "cluster"}
    assert after.read(["a"])["a"].body == b"2"
    assert not before.commit({"x": b"1"}, {EPOCH: found[EPOCH].version})
    assert before.changes(None).cursor.partition(".")[0] == after.changes(None).cursor.partition(".")[0]
    versions = {key: each.version for key, each in after.read(["cluster"]).items()}
    assert after.commit({EPOCH: b"e2"}, {EPOCH: None, **versions})


def test_a_process_that_goes_on_notices_a_restored_table_after_some_seconds(table: Table) -> None:
    time = Time()
    store = table.store(time)
    fill(store)
    cursor, epoch = store.changes(None).cursor, store.read([EPOCH])[EPOCH].version
    table.server.backup(table.name)
    table.server.restore(table.name)
    time.now += CHECK_SECONDS - 1
    assert store.read([EPOCH])[EPOCH].version == epoch
    time.now += 1
    assert store.read([EPOCH]) == {}
    assert store.changes(cursor).snapshot
    assert not store.commit({"x": b"1"}, {EPOCH: epoch})


def test_a_commit_by_a_process_that_stood_still_over_a_restore_is_not_answered_for(table: Table) -> None:
    """It was checked, stood still for minutes, and went on: what it wrote belongs to nobody."""
    time = Time()
    store = table.store(time)
    fill(store)
    epoch = store.read([EPOCH])[EPOCH].version
    table.server.backup(table.name)
    table.server.restore(table.name)
    time.now += CHECK_SECONDS - 1
    passed = iter([0.0, 0.0, 0.0])
    store._client.clock.local = lambda: time.now + next(passed, 300.0)
    assert "made anew during a commit" in said(
        StoreUnavailableError, store.commit, {"x": b"1"}, {EPOCH: epoch}
    )
    assert store.read([EPOCH]) == {}


def test_a_ledger_whose_mark_was_taken_away_begins_a_new_life(table: Table) -> None:
    store = table.store()
    fill(store)
    cursor = store.changes(None).cursor
    table.server.forget(table.name, "\0life")
    found = store.changes(cursor)
    assert found.snapshot
    assert set(found.documents) == {"a", "b"}
    assert found.cursor.partition(".")[0] != cursor.partition(".")[0]


def test_many_processes_begin_one_life_together(table: Table) -> None:
    stores = [table.store() for _ in range(3)]
    lives = {store.changes(None).cursor.partition(".")[0] for store in stores}
    assert len(lives) == 1
    assert stores[0].commit({EPOCH: b"e"}, {EPOCH: None})
    table.server.lose(table.name)
    cursors = [store.changes(store.changes(None).cursor) for store in stores]
    assert len({found.cursor.partition(".")[0] for found in cursors}) == 1


def test_an_index_that_is_behind_a_new_table_is_no_loss(table: Table) -> None:
    table.server.lag(table.name, looks=2)
    store = table.store()
    cursor = store.changes(None).cursor
    store.commit({EPOCH: b"e"}, {})
    found = store.changes(cursor)
    assert (dict(found.documents), found.snapshot) == ({}, False)
    assert dict(store.changes(found.cursor).documents) == {EPOCH: b"e"}


def test_without_a_table_every_call_says_how_to_make_one_and_goes_on_once_it_is_there(table: Table) -> None:
    old, new = table.store(), table.store()
    fill(old)
    cursor = old.changes(None).cursor
    table.server.drop(table.name)
    calls: list[Callable[[Store], object]] = [
        lambda store: store.read(["a"]),
        lambda store: store.commit({"a": b"1"}, {}),
        lambda store: store.changes(None),
        lambda store: store.changes(cursor),
    ]
    for store in (old, new):
        for call in calls:
            text = said(StoreFailedError, call, store)
            assert text.endswith(f": there is no such table; make it with: berth store init '{table.url}'")
    table.server.make(table.name)
    found = old.changes(cursor)
    assert (dict(found.documents), found.snapshot) == ({}, True)
    assert new.read([EPOCH, "a"]) == {}


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"TableStatus": "CREATING"}, StoreUnavailableError, "is not ready (CREATING)"),
        ({"TableStatus": "ARCHIVED"}, StoreFailedError, "its status is ARCHIVED"),
        ({"KeySchema": []}, StoreFailedError, "is not a table that berth made"),
        ({"GlobalSecondaryIndexes": []}, StoreFailedError, "is not a table that berth made"),
        ({"Replicas": [{"RegionName": "eu-west-1"}]}, StoreFailedError, "global table (also in eu-west-1)"),
    ],
    ids=["being made", "archived", "other keys", "no index", "global"],
)
def test_a_table_that_can_t_be_a_ledger_is_refused_and_not_written_to(
    table: Table, change: dict[str, object], kind: type[BerthError], text: str
) -> None:
    table.server.describe(table.name, change)
    store = table.store()
    assert text in said(kind, store.read, ["a"])
    assert text in said(kind, store.commit, {"a": b"1"}, {})
    assert table.server.items(table.name) == {}
    table.server.describe(table.name, {})
    assert store.commit({"a": b"1"}, {"a": None})
