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


class PromptStore(GatedStore):
    """Tells at once what it would tell, unless it `waits`; others come `meanwhile`."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.snapshot, self.asked = False, False, 0
        self.meanwhile: Callable[[], object] = lambda: None

    def changes_at_once(self, since: Cursor) -> Changes | None:
        self.asked += 1
        seen = self.writes
        self.meanwhile()
        if self.down:
            raise StoreUnavailableError("the store is away")
        if self.waits:
            return None
        documents = {domain_key("ip", f"n{number}"): b'{"capacity":1}' for number in range(seen)}
        return Changes(documents, f"{since}.{seen}", self.snapshot)


@pytest.fixture
def prompt() -> PromptStore:
    return PromptStore()


def followed(prompt: PromptStore) -> Follower:
    """Who follows the store, and has looked once."""
    follower = Follower(prompt.changes, at_once=prompt.changes_at_once)
    prompt.let_go.release()
    follower.view()
    prompt.began.acquire()
    return follower


def domains(view: View | None) -> int | None:
    return None if view is None else len(view.free.get("ip", {}))


def test_a_look_at_once_sees_what_was_written_before_it_and_comes_after_a_first_one(
    prompt: PromptStore,
) -> None:
    assert Follower(prompt.changes, at_once=prompt.changes_at_once).view_at_once() is None
    assert Follower(prompt.changes).view_at_once() is None
    follower = followed(prompt)
    for writes in (0, 1, 5):
        prompt.writes = writes
        assert domains(follower.view_at_once()) == writes
    assert (prompt.looks, prompt.asked) == (1, 3)


def test_what_is_much_to_take_in_is_left_for_a_look_that_may_take_its_time(prompt: PromptStore) -> None:
    follower = followed(prompt)
    prompt.writes = 201
    assert follower.view_at_once() is None
    prompt.writes = 200
    assert domains(follower.view_at_once()) == 200
    prompt.snapshot = True
    assert follower.view_at_once() is None


def test_nobody_looks_at_once_while_a_look_is_under_way(prompt: PromptStore) -> None:
    follower = followed(prompt)
    first = Asking(follower)
    first.start()
    assert prompt.began.acquire(timeout=SECONDS)
    assert follower.view_at_once() is None
    prompt.let_go.release()
    assert first.answer() == "0"
    assert domains(follower.view_at_once()) == 0
    assert prompt.asked == 1


@pytest.mark.parametrize("how", ["told", "waits", "down"])
def test_who_comes_while_somebody_looks_at_once_looks_after_that_whatever_becomes_of_it(
    prompt: PromptStore, how: str
) -> None:
    follower = followed(prompt)
    follower._shared._turn = waiting = Waiters()
    late = [Asking(follower) for _ in range(4)]

    def come() -> None:
        prompt.writes = 1
        for each in late:
            each.start()
            assert waiting.arrived.acquire(timeout=SECONDS)

    prompt.meanwhile = come
    prompt.waits, prompt.down = how == "waits", how == "down"
    if how == "down":
        with pytest.raises(StoreUnavailableError):
            follower.view_at_once()
        prompt.down = False
    else:
        assert domains(follower.view_at_once()) == (0 if how == "told" else None)
    prompt.let_go.release(len(late))
    assert [each.answer() for each in late] == ["1"] * 4


def test_those_who_look_at_once_and_those_who_wait_see_what_was_written_before_they_asked(
    prompt: PromptStore,
) -> None:
    follower, guard = followed(prompt), threading.Lock()
    prompt.let_go.release(10_000)
    seen: list[bool] = []

    def look(hurries: bool) -> None:
        for _ in range(40):
            with guard:
                prompt.writes = before = prompt.writes + 1
            told = domains(follower.view_at_once()) if hurries else None
            seen.append((domains(follower.view()) or 0 if told is None else told) >= before)

    threads = [threading.Thread(target=look, args=(number % 2 == 0,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 160


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
