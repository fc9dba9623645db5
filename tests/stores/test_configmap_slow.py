"""Commits over several ConfigMaps at a slow API server, while others look on: what goes on is let go on,
what stands still is not. On one in memory: requests take as long as a test says, and nobody waits for it."""

from itertools import count

import pytest

from berth.errors import StoreUnavailableError
from berth.stores.base import EPOCH
from berth.stores.configmap.content import Intent, replaced
from berth.stores.configmap.feed import CONSISTENT_SECONDS
from berth.stores.configmap.intents import UNDECIDED_SECONDS
from tests.support.fakes.configmapapi import Memory, Reader


@pytest.mark.parametrize(("shards", "latency", "number"), [(32, 0.08, 6), (512, 0.006, 1), (32, 0.4, 1)])
def test_what_closes_the_whole_ledger_is_written_at_once_however_many_look_on(
    shards: int, latency: float, number: int
) -> None:
    """It holds all shards for much longer than an intent may stand still."""
    memory = Memory(shards)
    stores = [memory.store(wall=60.0 * i) for i in range(1 + number)]
    assert stores[0].commit({EPOCH: b"e", "domain/ip/n1": b"1"}, {})
    readers = [Reader(store) for store in stores[1:]]
    epoch, done, began = stores[0].read([EPOCH])[EPOCH].version, list[bool](), memory.time.now

    def play(number: int) -> None:
        if number == 0:
            done.append(stores[0].commit({EPOCH: b"closed"}, {EPOCH: epoch}))
        while not done and memory.time.now < began + 100:
            readers[number - 1].look()
            memory.time.advance(0.3)

    memory.play(play, len(stores), latency=latency)
    assert done == [True]
    assert memory.time.now - began > 2 * UNDECIDED_SECONDS
    for reader in readers:
        reader.look()
        assert reader.known == {EPOCH: b"closed"}


def test_writers_who_need_a_shard_do_not_end_what_goes_on() -> None:
    """They wait for some seconds, and are told that it is busy; a clock that is wrong changes nothing."""
    memory = Memory(32)
    keys = memory.apart(32)
    stores = [memory.store(), memory.store(wall=3600.0), memory.store(wall=-3600.0)]
    assert stores[0].commit({EPOCH: b"e", keys[0]: b"1", keys[1]: b"1"}, {})
    epoch, ended, refused = stores[0].read([EPOCH])[EPOCH].version, list[bool](), list[float]()
    start = memory.time.now

    def play(number: int) -> None:
        if number == 0:
            ended.append(stores[0].commit({EPOCH: b"closed"}, {EPOCH: epoch}))
        while not ended and memory.time.now < start + 100:
            began = memory.time.now
            try:
                stores[number].commit({keys[number - 1]: b"2"}, {EPOCH: None})
            except StoreUnavailableError:
                refused.append(memory.time.now - began)
            memory.time.advance(0.1)

    memory.play(play, len(stores), latency=0.2)
    assert ended == [True]
    assert len(refused) > 1
    assert max(refused) < 3 * UNDECIDED_SECONDS


def test_a_writer_waits_long_enough_to_end_what_was_left_behind_which_it_meets_for_the_first_time() -> None:
    """Commands of an operator's are processes that meet everything for the first time."""
    memory = Memory()
    keys = memory.apart(3)
    memory.leave_behind(keys)
    began = memory.time.now
    assert memory.store().commit({keys[2]: b"1"}, {})
    assert memory.time.now - began < UNDECIDED_SECONDS + 0.1


def test_readers_only_read_and_do_not_wait() -> None:
    memory = Memory()
    keys = memory.apart(3)
    reader = memory.store()
    cursor = reader.changes(None).cursor
    memory.leave_behind(keys)
    asked: list[str] = []
    memory.api.before = lambda method, name: asked.append(f"{method} {name}")
    for _ in range(3):
        memory.time.now += 10 * UNDECIDED_SECONDS
        began = memory.time.now
        found = reader.changes(cursor)
        assert (dict(found.documents), found.snapshot, memory.time.now) == ({}, False, began)
        cursor = found.cursor
    assert {each.partition(" ")[0] for each in asked} == {"GET"}


def test_a_reader_s_look_is_when_a_writer_of_its_process_begins_to_wait() -> None:
    """And what was ended in its primary is nothing to wait for, nor to look at again."""
    memory = Memory()
    first, second, third = memory.apart(3)
    store = memory.store()
    cursor = store.changes(None).cursor
    memory.leave_behind([first, second, third])
    cursor = store.changes(cursor).cursor
    memory.time.now += UNDECIDED_SECONDS
    began = memory.time.now
    assert store.commit({first: b"1"}, {})
    assert memory.time.now == began
    found = store.changes(cursor)
    assert dict(found.documents) == {first: b"1"}
    asked: list[str] = []
    memory.api.before = lambda method, name: asked.append(f"{method} {name}")
    assert dict(store.changes(found.cursor).documents) == {}
    assert asked == ["GET "]
    assert store.commit({second: b"2", third: b"2"}, {second: None})
    assert memory.time.now == began


@pytest.mark.parametrize("when", [1, 2, 3])
def test_a_primary_that_another_writes_while_a_reader_looks_ends_the_reader_s_question(when: int) -> None:
    """Before it asks for that first, and so on. The second ConfigMap keeps its intent, which is nothing to a
    reader any more."""
    memory = Memory()
    keys = memory.apart(2)
    reader, other = Reader(memory.store()), memory.store()
    memory.leave_behind(keys)
    other.changes(None)  # it meets the intent
    primary = min(name for name, each in memory.api.contents().items() if each.intent)
    asked, times = count(1), count(1)

    def settle_it(method: str, name: str) -> None:
        assert next(asked) < 100, "it goes on asking for ever"
        if (method, name) == ("GET", primary) and next(times) == when:
            memory.api.before = lambda *_: next(asked)
            memory.time.now += UNDECIDED_SECONDS
            assert other.commit({keys[0]: b"1"}, {})
            memory.api.before = settle_it

    memory.api.before = settle_it
    for _ in range(4):
        reader.look()
    assert reader.known == {keys[0]: b"1"}
    assert sum(each.intent is not None for each in memory.api.contents().values()) == 1


def test_a_reader_gives_up_on_a_configmap_that_changes_all_the_time() -> None:
    """Each time it has asked for the primary, there is another commit's intent."""
    memory = Memory()
    key, *_ = memory.apart(1)
    reader = memory.store()
    cursor = reader.changes(None).cursor
    shard, primary, *_ = sorted(memory.api.contents().keys() - {"ledger"})
    numbers = count(1)

    def change(method: str, name: str) -> None:
        if (method, name) == ("GET", primary):
            memory.time.now += 0.1
            announce()

    def announce() -> None:
        memory.api.before = lambda *_: None
        intent = Intent(f"tx-{next(numbers)}", primary, {key: b"1"})
        memory.rewrite(shard, lambda content: replaced(content, intent=intent))
        memory.api.before = change

    announce()
    with pytest.raises(StoreUnavailableError, match="is busy"):
        reader.changes(cursor)


def test_who_is_told_of_an_epoch_is_told_of_what_stood_there_before_also_if_its_list_was_older() -> None:
    """The list is answered, then the documents and the epoch are written, then the head is looked at."""
    memory = Memory()
    keys = memory.apart(3)
    writer, reader = memory.store(), memory.store()
    cursor = reader.changes(None).cursor
    memory.rewrite("ledger", lambda content: content)

    def write(method: str, name: str) -> None:
        if (method, name) == ("GET", "ledger"):
            memory.api.before = lambda *_: None
            assert writer.commit({keys[0]: b"1"}, {})
            assert writer.commit({keys[1]: b"1", keys[2]: b"1"}, {})
            assert writer.commit({EPOCH: b"e"}, {EPOCH: None})

    memory.api.before = write
    found = reader.changes(cursor)
    assert not found.snapshot
    assert found.documents == {EPOCH: b"e", **dict.fromkeys(keys, b"1")}


def test_a_list_that_does_not_lag_tells_of_a_configmap_that_went_back() -> None:
    """etcd was restored: whoever has seen more begins a new life."""
    memory = Memory()
    key, *_ = memory.apart(1)
    store = memory.store()
    assert store.commit({EPOCH: b"e", key: b"1"}, {})
    kept, version = dict(memory.api.objects), memory.api.version
    assert store.commit({key: b"2"}, {})
    cursor = store.changes(None).cursor
    memory.api.objects, memory.api.version = kept, version
    assert not store.changes(cursor).snapshot
    memory.time.now += CONSISTENT_SECONDS
    found = store.changes(cursor)
    assert (dict(found.documents), found.snapshot) == ({}, True)
