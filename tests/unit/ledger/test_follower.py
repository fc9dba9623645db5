"""One look at the store serves all who asked before it began; nobody is served by one that began earlier."""

import threading
from collections.abc import Callable, Iterator, Mapping

import pytest

from berth.errors import StoreUnavailableError
from berth.ledger.keys import domain_key
from berth.ledger.model import Epoch, encode
from berth.ledger.view import Follower, View
from berth.stores.base import EPOCH, Changes, Cursor

SECONDS = 30


class GatedStore:
    """Each look takes the number of writes so far, says that it began, and waits to be let go."""

    def __init__(self) -> None:
        self.writes = 0
        self.looks = 0
        self.began = threading.Semaphore(0)
        self.let_go = threading.Semaphore(0)
        self.down = False

    def changes(self, since: Cursor | None) -> Changes:
        self.looks += 1
        seen = self.writes
        self.began.release()
        assert self.let_go.acquire(timeout=SECONDS)
        if self.down:
            raise StoreUnavailableError("the store is away")
        documents = {domain_key("ip", f"n{number}"): b'{"capacity":1}' for number in range(seen)}
        return Changes(documents, str(seen), since is None)


class Asking(threading.Thread):
    """Asks once; what it was told is the number of domains it saw, or the error."""

    def __init__(self, follower: Follower) -> None:
        super().__init__(daemon=True)
        self._follower, self.told = follower, ""

    def run(self) -> None:
        try:
            self.told = str(len(self._follower.view().free.get("ip", {})))
        except StoreUnavailableError as error:
            self.told = str(error)

    def answer(self) -> str:
        self.join(SECONDS)
        assert not self.is_alive()
        return self.told


class Waiters(threading.Condition):
    """A condition that says how many wait on it."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = threading.Semaphore(0)

    def wait(self, timeout: float | None = None) -> bool:
        self.arrived.release()
        return super().wait(timeout)


@pytest.fixture
def store() -> GatedStore:
    return GatedStore()


def one_looks_and_others_wait(store: GatedStore, others: int) -> tuple[Asking, list[Asking]]:
    """One whose look began before a write, and others who asked after it."""
    follower = Follower(store.changes)
    follower._shared._turn = waiting = Waiters()
    first = Asking(follower)
    first.start()
    assert store.began.acquire(timeout=SECONDS)
    store.writes = 1
    late = [Asking(follower) for _ in range(others)]
    for each in late:
        each.start()
        assert waiting.arrived.acquire(timeout=SECONDS)
    return first, late


def test_all_who_come_during_a_look_share_the_next_one_and_see_what_was_written_before_they_came(
    store: GatedStore,
) -> None:
    first, late = one_looks_and_others_wait(store, 8)
    store.let_go.release(2)
    assert first.answer() == "0"
    assert [each.answer() for each in late] == ["1"] * 8
    assert store.looks == 2


def test_a_look_that_fails_fails_for_all_who_share_it_and_not_for_the_next(store: GatedStore) -> None:
    store.down = True
    first, late = one_looks_and_others_wait(store, 8)
    store.let_go.release(2)
    assert {each.answer() for each in (first, *late)} == {"the store is away"}
    assert store.looks == 2
    store.down = False
    store.let_go.release()
    view: View = Follower(store.changes).view()
    assert len(view.free["ip"]) == 1


class ReadSlowly(Mapping[str, bytes | None]):
    """Documents that let somebody look whenever one of them is read."""

    def __init__(self, documents: Mapping[str, bytes], look: Callable[[], None]) -> None:
        self._documents, self._look = documents, look

    def __getitem__(self, key: str) -> bytes | None:
        self._look()
        return self._documents[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._documents)

    def __len__(self) -> int:
        return len(self._documents)


class Reopened(GatedStore):
    """A ledger that was closed and empty at the first look, and is open and whole at the next."""

    def __init__(self, snapshot: bool) -> None:
        super().__init__()
        self._snapshot = snapshot
        self.look: Callable[[], None] = lambda: None

    def changes(self, since: Cursor | None) -> Changes:
        domains = {domain_key("ip", f"n{number}"): b'{"capacity":1}' for number in range(3)}
        documents = {EPOCH: encode(Epoch("e", 1.0)), **domains} if since else {}
        return Changes(ReadSlowly(documents, self.look), "1", self._snapshot)


@pytest.mark.parametrize("snapshot", [True, False])
def test_who_takes_the_view_while_the_next_look_is_under_way_gets_none_that_is_open_and_half_read(
    snapshot: bool,
) -> None:
    """As one does who shared a look and was late to be scheduled again."""
    store = Reopened(snapshot)
    follower = Follower(store.changes)
    assert not follower.view().open
    taken: list[tuple[bool, int]] = []

    def take() -> None:
        view = follower._shared._outcome()
        taken.append((view.open, len(view.free.get("ip", {}))))

    store.look = take
    assert follower.view().open
    assert taken
    assert {found for found in taken if found[0]} <= {(True, 3)}
