"""A ledger copied to another store while claims are made: none is lost, none is in use in both.
What dies, fails or comes in between is in test_migrate_faults.py, the command in test_store_command.py."""

import threading
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from functools import partial
from pathlib import Path

import pytest

from berth.errors import MovedError, PausedError, RetryableError
from berth.http.endpoint import event_message
from berth.ledger.ledger import Ledger
from berth.ledger.migrate import Copied, Copy, CopyError, resume
from berth.ledger.model import Epoch, decode_epoch, encode
from berth.stores import open_store
from berth.stores.base import EPOCH
from tests.support.builders.copies import (
    CLAIMS,
    UNITS,
    Pair,
    check_moved,
    claims_in,
    copy,
    fill,
    gives,
    pause,
    state,
)
from tests.support.builders.ledgers import FaultyStore, claim, ledger_on, opened, reopen, resize
from tests.support.builders.races import SECONDS, in_threads, persistently
from tests.support.fixtures import PLACES
from tests.support.servers.redisserver import RedisServer

pytestmark = pytest.mark.long

NAMES = sorted(PLACES)
RING = list(zip(NAMES, NAMES[1:] + NAMES[:1], strict=True))  # each store is a source once, and a target


@pytest.fixture(params=RING, ids="-to-".join)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    source, target = (PLACES[name](request, tmp_path / name) for name in request.param)

    def lose() -> None:
        source.lose()
        target.lose()

    with closing(Pair(source.url, target.url, lose)) as opened:
        yield opened


@pytest.fixture
def quick(redis_server: RedisServer) -> Iterator[Pair]:
    """Where a copy costs milliseconds."""
    url = f"{redis_server.url}/0?prefix="
    with closing(Pair(f"{url}source", f"{url}target", redis_server.flush)) as opened:
        yield opened


# All goes well


def test_a_copy_holds_every_document_and_takes_the_source_s_place(pair: Pair) -> None:
    fill(pair)
    before = pair.stores["source"].changes(None).documents
    found = copy(pair)
    after = pair.stores["target"].changes(None).documents
    bodies = {key: body for key, body in before.items() if key != EPOCH and body is not None}
    assert {key: body for key, body in after.items() if key != EPOCH} == bodies
    assert found == Copied(len(bodies), 3, 5, sum(map(len, bodies.values())))
    check_moved(pair)
    assert copy(pair) == found  # made again it finds nothing left to do


def claim_and_free(
    ledger: Ledger, thread: int, sure: set[str], maybe: set[str], won: threading.Semaphore
) -> None:
    """One pod after the other, until the ledger has moved; `sure` are in it then, and none but `maybe`."""
    for number in range(1000):
        mine = claim(f"{thread}-{number}", f"n{thread}")
        maybe.add(mine.uid)
        persistently(partial(ledger.reserve, mine))
        sure.add(mine.uid)
        won.release()
        persistently(partial(ledger.confirm, mine))
        if number % 3 == 0:
            sure.discard(mine.uid)
            persistently(partial(ledger.release, mine.uid))
            maybe.discard(mine.uid)


def test_eight_threads_that_claim_all_through_a_copy_lose_nothing_and_get_nothing_twice(pair: Pair) -> None:
    pair.lose()
    reopen(pair.stores["source"], {("ip", f"n{node}"): 1000 for node in range(8)})
    sure, maybe, won = set[str](), set[str](), threading.Semaphore(0)

    def live(thread: int) -> None:
        with closing(open_store(pair.urls["source"])) as store, suppress(MovedError):
            claim_and_free(Ledger(store), thread, sure, maybe, won)

    running = threading.Thread(target=in_threads, args=(live, 8))
    running.start()
    for _ in range(16):
        assert won.acquire(timeout=SECONDS)
    found = Copy((pair.stores["source"], "here"), (pair.stores["target"], "there")).run()
    running.join(SECONDS)
    assert not running.is_alive()
    there = claims_in(pair.stores["target"])
    assert sure <= set(there) <= maybe
    assert claims_in(pair.stores["source"]) == there
    assert found.claims == found.units == len(there)
    assert state(pair) == ("MovedError", "yes")


def test_a_copy_can_be_taken_back_by_a_copy_the_other_way(quick: Pair) -> None:
    fill(quick)
    copy(quick)
    back = Pair(quick.urls["target"], quick.urls["source"], quick.lose)
    with closing(back):
        ledger_on(back.stores["source"]).release("third")
        assert copy(back).claims == 2
        assert state(back) == ("MovedError", "yes")
        assert set(claims_in(back.stores["target"])) == {"first", "second"}


# What is refused


def test_a_source_that_is_not_open_is_not_copied(quick: Pair) -> None:
    quick.lose()
    with pytest.raises(CopyError, match=r"is not open: let berth reconcile open it, then copy it"):
        copy(quick)


@pytest.mark.parametrize("there", ["a ledger in use", "documents", "a rebuild"])
def test_a_target_that_is_not_empty_is_left_alone(quick: Pair, there: str) -> None:
    fill(quick)
    target = quick.stores["target"]
    if there == "a rebuild":
        ledger_on(target, while_closed=True).begin_rebuild("r1")
    else:
        target.commit({EPOCH: encode(Epoch("e", 1.0))} if there == "a ledger in use" else {"a": b"1"}, {})
    before = dict(target.changes(None).documents)
    with pytest.raises(CopyError, match=r"is a ledger in use|holds documents that no copy left there"):
        copy(quick)
    assert target.changes(None).documents == before
    assert gives(quick.stores["source"]) == "yes"


def test_a_ledger_is_not_copied_onto_itself(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with closing(Pair(url, f"sqlite:///{tmp_path}/../{tmp_path.name}/ledger.db", lambda: None)) as pair:
        reopen(pair.stores["source"], UNITS)
        with pytest.raises(CopyError, match="is a ledger in use"):
            copy(pair)
        assert state(pair) == ("yes", "yes")


# The pause


TEXTS = {
    PausedError: "berth's ledger is being copied to redis://there; claims are paused until that is done "
    "(if the copy died: berth store resume, with this ledger's URL); the pod will be retried",
    MovedError: "berth's ledger was moved to redis://there; set BERTH_STORE to it",
}


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("while_closed", [False, True])
def test_nothing_is_decided_in_a_ledger_that_is_paused_or_moved(
    tmp_path: Path, moved: bool, while_closed: bool
) -> None:
    with closing(opened(f"sqlite:///{tmp_path}/ledger.db", UNITS)) as store:
        ledger = ledger_on(store, while_closed=while_closed)
        mine = claim("a")
        ledger.reserve(mine)
        pause(store, moved)
        before = store.changes(None).cursor
        wanted = MovedError if moved else PausedError
        for call in (
            lambda: ledger.reserve(claim("b")),
            lambda: ledger.confirm(mine),
            lambda: ledger.cancel(mine),
            lambda: ledger.release("a"),
            lambda: ledger.adopt(claim("c", "n2")),
            lambda: ledger.adopt_all([claim("c", "n2")]),
            lambda: resize(ledger, {("ip", "n1"): 9}),
            lambda: ledger.begin_rebuild("r1"),
            ledger.record_cluster,
            ledger.require_cluster,
        ):
            with pytest.raises(wanted) as caught:
                call()
            assert event_message(str(caught.value), isinstance(caught.value, RetryableError)) == TEXTS[wanted]
        with pytest.raises(MovedError) if moved else nullcontext():  # what /healthz asks
            ledger.check()
        assert store.changes(None).cursor == before


def test_filter_says_what_bind_says_and_who_only_looks_still_sees(tmp_path: Path) -> None:
    with closing(opened(f"sqlite:///{tmp_path}/ledger.db", UNITS)) as store:
        ledger_on(store).reserve(claim("a"))
        pause(store)
        with pytest.raises(PausedError):
            ledger_on(store).view()
        assert list(claims_in(store)) == ["a"]


def test_what_was_decided_before_the_pause_can_t_land_after_it(quick: Pair) -> None:
    fill(quick)
    store = FaultyStore(quick.stores["source"])
    store.meanwhile = iter([lambda: pause(quick.stores["source"])])
    with pytest.raises(PausedError):
        ledger_on(store).reserve(claim("late"))
    assert claims_in(quick.stores["source"]) == CLAIMS


# Resume


def test_resume_lets_claims_go_on_and_says_when_there_is_nothing_to_resume(tmp_path: Path) -> None:
    with closing(opened(f"sqlite:///{tmp_path}/ledger.db", UNITS)) as store:
        assert not resume(store, "it")
        pause(store)
        assert resume(store, "it")
        assert gives(store) == "yes"
        epoch = decode_epoch(store.read([EPOCH])[EPOCH].body)
        assert epoch is not None
        assert (epoch.to, epoch.moved, epoch.since) == ("", False, 1.0)
        pause(store, moved=True)
        with pytest.raises(MovedError, match="was moved to redis://there; set BERTH_STORE to it"):
            resume(store, "it")
        store.commit({EPOCH: None}, {})
        with pytest.raises(CopyError, match="it is not open, so nothing is paused"):
            resume(store, "it")
