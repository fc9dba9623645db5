"""A commit over several ConfigMaps that ends after any of its requests: done or not done, never half, and
what it left is in nobody's way for long. On a real API server; time passes only as the tests say."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count

import pytest

from berth.errors import BerthError, ClusterUnavailableError, StoreUnavailableError
from berth.stores.base import Store
from berth.stores.configmap import ConfigMapStore
from berth.stores.configmap.feed import CONSISTENT_SECONDS
from berth.stores.configmap.intents import UNDECIDED_SECONDS
from tests.support.builders.races import in_threads, persistently
from tests.support.builders.stage import KilledError
from tests.support.servers.configmaps import Opened

LONG = 3600.0


def bodies(store: Store, keys: list[str]) -> set[bytes]:
    found = store.read(keys)
    assert len(found) == len(keys)
    return {document.body for document in found.values()}


def versions(store: Store, keys: list[str]) -> dict[str, str]:
    return {key: document.version for key, document in store.read(keys).items()}


def stopped_after(number: int, error: Callable[[], BaseException]) -> Callable[[str, str], None]:
    numbers = count(1)

    def stop(*_: str) -> None:
        if next(numbers) == number:
            raise error()

    return stop


def write_all(store: Store, keys: list[str], body: bytes, **expected: str) -> bool:
    return store.commit(dict.fromkeys(keys, body), expected or versions(store, keys))


def each_stop(
    configmaps: Opened, keys: list[str], error: Callable[[], BaseException]
) -> Iterator[tuple[ConfigMapStore, bytes, object]]:
    """Stop a commit after its first request, another after its second, and so on: yield how it ended, and
    what it would have written."""
    for number in count(1):
        api = configmaps.api()
        dying, body = configmaps.store(api), b"%d" % number
        expected = versions(dying, keys)
        api.after = stopped_after(number, error)
        outcome: object = "stopped"
        with suppress(KilledError, StoreUnavailableError):
            outcome = write_all(dying, keys, body, **expected)
        api.after = lambda *_: None
        yield dying, body, outcome
        if outcome is True and number > 8:
            return


def test_a_commit_over_several_that_is_killed_at_any_request_is_done_or_not_and_leaves_nothing(
    configmaps: Opened,
) -> None:
    keys = configmaps.apart()
    other, follower = configmaps.store(), configmaps.store()
    assert other.commit(dict.fromkeys(keys, b"0"), {})
    cursor = follower.changes(None).cursor
    done = 0
    for _, body, outcome in each_stop(configmaps, keys, KilledError):
        (seen,) = bodies(other, keys)
        assert set(configmaps.store().changes(None).documents.values()) == {seen}
        done += seen == body
        assert outcome is not True or seen == body
        configmaps.time.now += UNDECIDED_SECONDS
        assert write_all(other, keys, b"other")
        configmaps.time.now += CONSISTENT_SECONDS  # until then the follower's list may lag
        changes = follower.changes(cursor)
        cursor = changes.cursor
        assert {key: changes.documents[key] for key in keys} == dict.fromkeys(keys, b"other")
        assert [found.intent for found in configmaps.contents().values() if found.intent] == []
    assert done > 3
    configmaps.time.now += LONG
    assert write_all(other, keys, b"end")
    configmaps.time.now += LONG
    assert write_all(other, keys, b"end")
    assert [len(found.committed) for found in configmaps.contents().values()] == [0, 0, 0, 0]


def test_a_commit_over_several_whose_answers_are_lost_tells_no_untruth(configmaps: Opened) -> None:
    keys = configmaps.apart()
    other = configmaps.store()
    assert other.commit(dict.fromkeys(keys, b"0"), {})
    for _, body, outcome in each_stop(configmaps, keys, lambda: ClusterUnavailableError("no answer")):
        (seen,) = bodies(other, keys)
        assert outcome in ("stopped", seen == body)
        configmaps.time.now += UNDECIDED_SECONDS
        assert write_all(other, keys, b"other")


def test_what_is_undecided_is_waited_for_and_taken_out_when_it_is_left_behind(configmaps: Opened) -> None:
    keys = configmaps.apart()
    other = configmaps.store()
    assert other.commit(dict.fromkeys(keys, b"0"), {})
    _leave_behind(configmaps, keys, configmaps.time)
    assert bodies(other, keys) == {b"0"}
    began = configmaps.time.now
    assert write_all(other, keys[:1], b"1")
    assert UNDECIDED_SECONDS <= configmaps.time.now - began < UNDECIDED_SECONDS + 0.2
    assert [found.intent for found in configmaps.contents().values() if found.intent] != []
    assert write_all(other, keys, b"2")
    assert [found.intent for found in configmaps.contents().values() if found.intent] == []


def test_what_others_left_and_others_settled_is_not_remembered_for_ever(configmaps: Opened) -> None:
    keys = configmaps.apart()
    watcher, other = configmaps.store(), configmaps.store()
    assert other.commit(dict.fromkeys(keys, b"0"), {})
    for body in (b"1", b"2", b"3"):
        _leave_behind(configmaps, keys, configmaps.time)
        watcher.changes(None)
        configmaps.time.now += UNDECIDED_SECONDS
        assert write_all(other, keys, body)
        assert len(watcher._transactions._intents._met) == 1


@pytest.mark.parametrize("wrong", [LONG, -LONG])
def test_a_clock_that_is_wrong_neither_blocks_nor_halves_a_commit(configmaps: Opened, wrong: float) -> None:
    keys = configmaps.apart()
    other = configmaps.store()
    assert other.commit(dict.fromkeys(keys, b"0"), {})
    _leave_behind(configmaps, keys, lambda: configmaps.time.now + wrong)
    began = configmaps.time.now
    assert write_all(other, keys, b"1")
    assert configmaps.time.now - began < UNDECIDED_SECONDS + 0.2
    assert bodies(configmaps.store(), keys) == {b"1"}


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_commit_that_was_taken_out_while_it_stood_still_is_tried_again(
    configmaps: Opened, which: int
) -> None:
    """By somebody who met it in only one of its ConfigMaps, the primary or another."""
    keys = configmaps.apart()
    api = configmaps.api()
    slow, other = configmaps.store(api), configmaps.store()
    assert other.commit(dict.fromkeys(keys, b"0"), {})
    expected = versions(slow, keys)
    requests = count()

    def stand_still(method: str, _: str) -> None:
        if method == "PUT" and next(requests) == 3:  # all intents are there, and this would decide
            configmaps.time.now += UNDECIDED_SECONDS
            assert write_all(other, [keys[which]], b"between")

    api.before = stand_still
    assert not slow.commit(dict.fromkeys(keys, b"1"), expected)
    seen = {key: other.read([key])[key].body for key in keys}
    assert seen == {**dict.fromkeys(keys, b"0"), keys[which]: b"between"}


def test_of_two_commits_over_the_same_one_is_done_and_the_other_told_so(configmaps: Opened) -> None:
    """Started at once, from either end, again and again: what was there is never mixed."""
    keys = configmaps.apart()
    stores = [configmaps.store() for _ in range(4)]
    assert stores[0].commit(dict.fromkeys(keys, b"-"), {})
    for turn in range(3):
        won = _race(stores, keys, turn)
        assert len(won) == 1
        assert bodies(stores[0], keys) == {b"%d-%d" % (turn, won[0])}


def _race(stores: list[ConfigMapStore], keys: list[str], turn: int) -> list[int]:
    won: list[int] = []
    expected = versions(stores[0], keys)
    barrier = threading.Barrier(len(stores))

    def write(number: int) -> None:
        writes = dict.fromkeys(keys if number % 2 else keys[::-1], b"%d-%d" % (turn, number))
        barrier.wait(60)
        if persistently(lambda: stores[number].commit(writes, expected)):
            won.append(number)

    in_threads(write, len(stores))
    return won


def test_a_reader_never_sees_a_unit_that_moves_between_configmaps_twice_or_not_at_all(
    configmaps: Opened,
) -> None:
    keys = configmaps.apart()
    stores = [configmaps.store() for _ in range(3)]
    assert stores[0].commit(dict.fromkeys(keys, b"5"), {})
    wrong, over = list[int](), threading.Event()

    def move(number: int) -> None:
        if number == 2:
            while not over.is_set():
                with suppress(BerthError):  # too busy
                    total = sum(int(found.body) for found in stores[2].read(keys).values())
                    wrong.extend([total] if total != 15 else [])
            return
        try:
            for turn in range(8):
                giver, taker = keys[(number + turn) % 3], keys[(number + turn + 1) % 3]
                persistently(lambda giver=giver, taker=taker: _move(stores[number], giver, taker))  # type: ignore[misc]
        finally:
            over.set()

    in_threads(move, 3)
    assert wrong == []
    assert sum(int(found.body) for found in stores[0].read(keys).values()) == 15


def _move(store: Store, giver: str, taker: str) -> None:
    while True:
        found = store.read([giver, taker])
        left, right = int(found[giver].body) - 1, int(found[taker].body) + 1
        expected = {key: document.version for key, document in found.items()}
        if store.commit({giver: b"%d" % left, taker: b"%d" % right}, expected):
            return


def _leave_behind(configmaps: Opened, keys: list[str], clock: Callable[[], float]) -> None:
    """A commit that is killed when its intents are in all ConfigMaps, and nothing is decided."""
    api = configmaps.api()
    dying = configmaps.store(api, clock)
    expected = versions(dying, keys)
    puts = count(1)

    def kill(method: str, _: str) -> None:
        if method == "PUT" and next(puts) == len(keys):
            raise KilledError

    api.after = kill
    with pytest.raises(KilledError):
        dying.commit(dict.fromkeys(keys, b"left"), expected)
