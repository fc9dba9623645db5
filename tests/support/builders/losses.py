"""A store's loss, and what must then be so; for stores that keep some documents over it."""

from collections.abc import Callable

from berth.stores.base import EPOCH, Changes, Store
from tests.support.cluster import wait


def life(store: Store) -> str:
    return store.changes(None).cursor.partition(".")[0]


def fill(store: Store) -> None:
    """With an epoch and two documents, one of them of its second version, after a deletion."""
    assert store.commit({EPOCH: b"e", "a": b"1", "b": b"1", "c": b"1"}, {EPOCH: None})
    assert store.commit({"a": b"2", "c": None}, {})


def check_lost(
    store: Store, before: Store, lose: Callable[[], object], *kept: str, within: float = 0.0
) -> None:
    """After `lose` the store, which may be new, has no epoch, keeps these, and takes nothing from before.
    `within` so many seconds `changes` tells of it, and of nothing else until then."""
    old = before.read([EPOCH, "a", "b"])
    assert len(old) == 3
    cursor = before.changes(None).cursor
    lose()

    def told() -> Changes | None:
        found = store.changes(cursor)
        assert found.snapshot or not found.documents
        return found if found.snapshot else None

    found = wait(told, within, "the loss in changes", every=0.05)
    assert found is not None
    assert set(found.documents) == set(kept)
    for key, document in old.items():
        assert not store.commit({"x": b"1"}, {key: document.version})
    assert {document.version for document in store.read(list(old)).values()}.isdisjoint(
        document.version for document in old.values()
    )
    now = life(store)
    assert now != cursor.partition(".")[0]
    assert store.commit({EPOCH: b"e2"}, {EPOCH: None})
    assert (life(store), set(store.read([EPOCH]))) == (now, {EPOCH})
