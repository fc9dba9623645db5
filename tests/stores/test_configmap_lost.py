"""A ledger of which a ConfigMap was deleted, damaged or put back: a new life, closed, whole, no late write.
On a real API server; `kubectl` of an operator is played by its requests."""

import base64
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest

from berth.errors import StoreUnavailableError
from berth.stores.base import EPOCH, Changes
from berth.stores.configmap import ConfigMapStore
from berth.stores.configmap.url import parse
from tests.support.builders.losses import check_lost, fill, life
from tests.support.builders.races import in_threads
from tests.support.builders.stage import KilledError
from tests.support.cluster import Object, wait
from tests.support.servers.configmaps import CONFIGMAPS, Opened, Tapped

Loss = Callable[[Opened], object]


def shard(ledger: Opened) -> str:
    return min(ledger.contents().keys() - {ledger.ledger})


def delete_shard(ledger: Opened) -> None:
    ledger.server.delete_one(shard(ledger))


def delete_head(ledger: Opened) -> None:
    ledger.server.delete_one(ledger.ledger)


def delete_all(ledger: Opened) -> None:
    ledger.server.delete(ledger.ledger)


def delete_all_shards(ledger: Opened) -> None:
    for name in ledger.contents().keys() - {ledger.ledger}:
        ledger.server.delete_one(name)


def restore(*chosen: Callable[[Opened], str]) -> Loss:
    """Deleted and made again from copies; without a choice all."""

    def lose(ledger: Opened) -> None:
        copies = ledger.server.objects(ledger.ledger)
        names = [each(ledger) for each in chosen] or list(copies)
        for name in names:
            ledger.server.delete_one(name)
        for name in names:
            ledger.server.put_back(copies[name])

    return lose


def damage(chosen: Callable[[Opened], str], data: bytes) -> Loss:
    def lose(ledger: Opened) -> None:
        found = ledger.server.objects(ledger.ledger)[chosen(ledger)]
        (key,) = found["binaryData"]
        found["binaryData"] = {key: base64.b64encode(data).decode()}
        ledger.server.put_back(found)

    return lose


def unlabel(ledger: Opened) -> None:
    ledger.server.admin.patch(
        f"{CONFIGMAPS}/{shard(ledger)}", {"metadata": {"labels": {"berth.dev/ledger": None}}}
    )


def head(ledger: Opened) -> str:
    return ledger.ledger


LOSSES: dict[str, Loss] = {
    "the head deleted": delete_head,
    "a shard deleted": delete_shard,
    "all shards deleted": delete_all_shards,
    "all deleted": delete_all,
    "a shard made again": restore(shard),
    "the head made again": restore(head),
    "all made again": restore(),
    "a shard damaged": damage(shard, b"rubbish"),
    "a shard emptied": damage(shard, b""),
    "the head damaged": damage(head, b"rubbish"),
    "a shard without its label": unlabel,
}


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("running", [True, False], ids=["running", "restarted"])
@pytest.mark.long
def test_a_loss_begins_a_new_life_that_takes_nothing_from_before(
    configmaps: Opened, how: str, running: bool
) -> None:
    before = configmaps.store()
    fill(before)
    assert before.commit(dict.fromkeys(configmaps.apart(), b"1"), {})
    store = before if running else configmaps.store()
    check_lost(store, before, lambda: LOSSES[how](configmaps), within=5)  # the bound that ConfigMaps state
    assert whole(configmaps)


@pytest.mark.parametrize("which", [head, shard], ids=["the head", "a shard"])
def test_a_configmap_put_back_to_what_it_held_before_is_noticed_by_who_saw_more(
    configmaps: Opened, which: Callable[[Opened], str]
) -> None:
    store = configmaps.store()
    keys = configmaps.apart()
    assert store.commit({EPOCH: b"e", **dict.fromkeys(keys, b"1")}, {})
    copy: Object = configmaps.server.objects(configmaps.ledger)[which(configmaps)]
    for body in (b"2", b"3"):
        assert store.commit({"cluster": body, **dict.fromkeys(keys, body)}, {})
    cursor = store.changes(None).cursor
    configmaps.server.put_back(copy)
    # changes may lag by what the API server's cache does; it never shows what was put back as news.
    told: list[Changes] = []

    def seen() -> bool:
        told.append(store.changes(cursor))
        return told[-1].snapshot

    wait(seen, 10, "the loss in changes", every=0.05)
    assert [dict(found.documents) for found in told] == [{}] * len(told)
    assert whole(configmaps)


def test_a_shard_that_is_gone_is_noticed_by_whoever_reads_or_writes_there(configmaps: Opened) -> None:
    store = configmaps.store()
    key, *_ = configmaps.apart()
    for call in (
        lambda: store.read([key]),
        lambda: store.commit({key: b"2"}, {EPOCH: store.read([EPOCH])[EPOCH].version}),
    ):
        assert store.commit({EPOCH: b"e", key: b"1"}, {})
        delete_shard(configmaps)
        assert not call()
        assert store.read([EPOCH]) == {}


def test_a_write_that_was_held_up_over_a_loss_lands_nowhere(configmaps: Opened) -> None:
    """It had looked at the head, and was about to write, when the ledger was lost and made anew."""
    api = configmaps.api()
    slow, other = configmaps.store(api), configmaps.store()
    keys = configmaps.apart()
    for held in (keys[:1], keys):
        other.commit({EPOCH: b"e"}, {})
        epoch = slow.read([EPOCH])[EPOCH].version

        def lose_all(method: str, _: str) -> None:
            if method == "PUT":
                api.before = lambda *_: None
                delete_all(configmaps)
                assert dict(other.changes(None).documents) == {}

        api.before = lose_all
        assert not slow.commit(dict.fromkeys(held, b"late"), {EPOCH: epoch})
        assert dict(other.changes(None).documents) == {}
        assert whole(configmaps)


@pytest.mark.parametrize("shards", [3, 5])
def test_many_that_meet_no_ledger_at_once_make_one(configmaps: Opened, shards: int) -> None:
    """Also where they do not agree on how many shards it should have."""
    urls = [f"configmap://default/{configmaps.ledger}?shards={n}&timeout=30" for n in (3, shards)]
    stores = [ConfigMapStore(parse(urls[i % 2]), configmaps.api()) for i in range(4)]
    seen: list[str] = []
    in_threads(lambda number: seen.append(life(stores[number % 4])), 8)
    assert len(set(seen)) == 1
    for store in stores:
        store.close()
    assert whole(configmaps)


@pytest.mark.parametrize(
    "there", [False, pytest.param(True, marks=pytest.mark.long)], ids=["a new ledger", "after a loss"]
)
def test_who_is_killed_at_any_request_while_it_makes_a_ledger_leaves_it_to_the_next(
    configmaps: Opened, there: bool
) -> None:
    for number in count(1):
        delete_all(configmaps)
        if there:
            fill(configmaps.store())
            delete_shard(configmaps)
        api = configmaps.api()
        _stop_after(api, number)
        done = False
        with suppress(KilledError):
            configmaps.store(api).changes(None)
            done = True
        other = configmaps.store()
        assert dict(other.changes(None).documents) == {}
        assert other.commit({EPOCH: b"e"}, {EPOCH: None})
        assert whole(configmaps)
        if done:
            assert number > 8
            return


def test_who_was_overtaken_while_it_made_a_ledger_leaves_nothing_behind(configmaps: Opened) -> None:
    """It makes its shards only when the head it made is gone again, and another one is there."""
    api = configmaps.api()
    slow, other = configmaps.store(api), configmaps.store()

    def overtake(method: str, _: str) -> None:
        if method == "POST" and len(configmaps.contents()) == 1:
            api.before = lambda *_: None
            delete_all(configmaps)
            assert other.commit({EPOCH: b"e"}, {EPOCH: None})

    api.before = overtake
    assert dict(slow.changes(None).documents) == {EPOCH: b"e"}
    assert whole(configmaps)


def test_a_ledger_that_goes_again_and_again_while_it_is_made_is_said_to_be_busy(configmaps: Opened) -> None:
    api = configmaps.api()
    store = configmaps.store(api)

    def lose_it(method: str, _: str) -> None:
        if method == "PUT":
            delete_head(configmaps)

    api.before = lose_it
    with pytest.raises(StoreUnavailableError, match=r"^berth's ledger is busy \(configmap://default/ledger-"):
        store.read([EPOCH])
    api.before = lambda *_: None
    assert store.read([EPOCH]) == {}
    assert whole(configmaps)


def whole(ledger: Opened) -> bool:
    """Whether there are one life's ConfigMaps, and no others."""
    contents = ledger.contents()
    present = contents[ledger.ledger].generation
    assert present is not None
    return contents.keys() == {ledger.ledger, *present.names(ledger.ledger)}


def _stop_after(api: Tapped, number: int) -> None:
    requests = count(1)

    def stop(*_: str) -> None:
        if next(requests) == number:
            raise KilledError

    api.after = stop
