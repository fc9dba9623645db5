"""The ledger in ConfigMaps on a real API server: what it asks of that, where documents lie, and its room.
Commits over several ConfigMaps: test_configmap_steps.py; losses: test_configmap_lost.py."""

import os
import re

import pytest

from berth.errors import StoreFailedError
from berth.stores.base import EPOCH, LIMIT
from berth.stores.configmap import ConfigMapStore, client
from berth.stores.configmap.feed import CONSISTENT_SECONDS
from tests.support.servers.configmaps import Opened


def put_requests(ledger: Opened) -> tuple[ConfigMapStore, list[str]]:
    """A store, and what it asks the API server, as `GET name`; `LIST`, with how old it may be."""
    api, asked = ledger.api(), list[str]()

    def note(method: str, path: str) -> None:
        name = path.rpartition("/")[2]
        if name.startswith("configmaps?"):
            age = "not older than" if "NotOlderThan" in name else "now"
            asked.append(f"LIST {age}")
        else:
            asked.append(f"{method} {'head' if name == ledger.ledger else 'shard'}")

    api.before = note
    return ledger.store(api), asked


# What it costs


def test_a_usual_commit_reads_the_head_and_writes_one_configmap(configmaps: Opened) -> None:
    key, *_ = configmaps.apart()
    store, asked = put_requests(configmaps)
    assert store.commit({EPOCH: b"e"}, {})
    asked.clear()
    for _ in range(2):
        found = store.read([EPOCH, key])
        expected = {each: found[each].version if each in found else None for each in (EPOCH, "cluster", key)}
        assert store.commit({key: b"1"}, expected)
        assert asked == ["GET shard", "GET head", "GET head", "PUT shard"]
        asked.clear()


def test_changes_ask_for_one_list_and_what_is_new(configmaps: Opened) -> None:
    key, *_ = configmaps.apart()
    store, asked = put_requests(configmaps)
    cursor = store.changes(None).cursor
    asked.clear()
    assert dict(store.changes(cursor).documents) == {}
    assert asked == ["LIST not older than"]
    assert store.commit({key: b"1"}, {})
    asked.clear()
    found = store.changes(cursor)
    assert dict(found.documents) == {key: b"1"}
    assert asked == ["LIST not older than"]
    assert configmaps.store().commit({key: b"2"}, {})
    configmaps.time.now += CONSISTENT_SECONDS
    asked.clear()
    found = store.changes(found.cursor)
    assert dict(found.documents) == {key: b"2"}
    assert asked == ["LIST now", "GET shard"]


def test_a_cursor_of_another_process_is_served_with_what_is_new_or_with_everything(
    configmaps: Opened,
) -> None:
    key, *_ = configmaps.apart()
    first, second = configmaps.store(), configmaps.store()
    cursor = first.changes(None).cursor
    assert not second.changes(cursor).snapshot
    assert first.commit({key: b"1"}, {})
    configmaps.time.now += CONSISTENT_SECONDS  # until then the list may lag
    found = second.changes(cursor)
    assert (dict(found.documents), found.snapshot) == ({key: b"1"}, True)


def test_documents_of_one_node_lie_together_and_batches_keep_them_so(configmaps: Opened) -> None:
    configmaps.apart()
    keys = [f"domain/{pool}/n{node}" for pool in ("ip", "seat") for node in range(400)]
    store = configmaps.store()
    parts = [list(part) for part in store.batches(keys)]
    present = configmaps.contents()[configmaps.ledger].generation
    assert present is not None
    assert sorted(key for part in parts for key in part) == sorted(keys)
    assert {len({present.place(configmaps.ledger, key) for key in part}) for part in parts} == {1}
    assert max(map(len, parts)) == LIMIT - 4
    assert present.place(configmaps.ledger, "domain/ip/n7") == present.place(
        configmaps.ledger, "domain/seat/n7"
    )


# Room


def test_a_configmap_is_not_filled_beyond_what_kubernetes_takes(configmaps: Opened) -> None:
    """Random bytes, which don't compress; what makes it smaller is taken all the same."""
    first, second, third = configmaps.apart()
    store = configmaps.store()
    assert store.commit({first: os.urandom(890_000), second: b"1"}, {})
    said = re.escape(
        f"berth's ledger configmap://default/{configmaps.ledger}: one of its ConfigMaps is full (900,000 "
        f"bytes; Kubernetes takes 1 MiB); copy it to one of more shards: berth store copy "
        f"configmap://default/{configmaps.ledger} 'configmap://default/OTHER?shards=N' (N up to 512), and "
        "set BERTH_STORE to that"
    )
    node = first.rpartition("/")[2]
    more = {f"domain/seat/{node}": os.urandom(20_000)}
    for writes in (more, {**more, second: b"2"}, {**more, second: b"2", third: b"2"}):
        with pytest.raises(StoreFailedError, match=f"^{said}$"):
            store.commit(writes, {})
    assert {key: found.body for key, found in store.read([second, third, *more]).items()} == {second: b"1"}
    assert [found.intent for found in configmaps.contents().values() if found.intent] == []
    assert store.commit({first: b"small", **more}, {})


def test_a_full_one_lets_go_of_what_it_holds(configmaps: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    key, other, *_ = configmaps.apart()
    store = configmaps.store()
    assert store.commit({key: os.urandom(3000)}, {})
    monkeypatch.setattr(client, "MOST_BYTES", 1000)
    with pytest.raises(StoreFailedError, match="is full"):
        store.commit({key: os.urandom(3100)}, {})
    assert store.commit({key: os.urandom(2000), other: b"1"}, {})
    assert store.commit({key: None}, {})
