"""A copy of a ledger that dies, fails, or has something come in between, at each call that it makes: no claim
is lost, no two ledgers are in use, and there is a way on. Real stores; the process is a stand-in."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from berth.errors import MovedError, StoreUnavailableError
from berth.ledger.migrate import resume
from tests.support.builders.copies import (
    CLAIMS,
    UNITS,
    Calls,
    KilledError,
    Pair,
    calls_of,
    check_moved,
    claims_in,
    copy,
    dies_after,
    fill,
    gives,
    state,
    stopped,
)
from tests.support.builders.ledgers import reopen
from tests.support.servers.redisserver import RedisServer

pytestmark = pytest.mark.long

BEFORE, PAUSED = ("yes", "RebuildingError"), ("PausedError", "RebuildingError")
BETWEEN, AFTER = ("MovedError", "RebuildingError"), ("MovedError", "yes")


@pytest.fixture(params=["redis-to-sqlite", "sqlite-to-redis"])
def other_kinds(request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path: Path) -> Iterator[Pair]:
    file = tmp_path / "ledger.db"
    urls = {"redis": f"{redis_server.url}/0", "sqlite": f"sqlite:///{file}"}
    source, _, target = request.param.partition("-to-")

    def lose() -> None:
        redis_server.flush()
        file.unlink(missing_ok=True)

    with closing(Pair(urls[source], urls[target], lose)) as opened:
        yield opened


@pytest.fixture
def pair(redis_server: RedisServer) -> Iterator[Pair]:
    """Where a copy costs milliseconds."""
    url = f"{redis_server.url}/0?prefix="
    with closing(Pair(f"{url}source", f"{url}target", redis_server.flush)) as opened:
        yield opened


def at_call(number: int, action: Callable[[], object]) -> Calls:
    def before(call: int, _: str) -> None:
        if call == number:
            action()

    return Calls(before)


def failing(number: int, store: str, *, before: bool, once: bool = False) -> Calls:
    """From this call on the store is away, or just this once its answer is lost."""

    def fail(call: int, name: str) -> None:
        if store in (name, "any") and (call == number if once else call >= number):
            raise StoreUnavailableError("connection refused")

    return Calls(before=fail) if before else Calls(after=fail)


# What dies


def test_a_copy_killed_after_any_call_loses_nothing_and_is_made_again(other_kinds: Pair) -> None:
    outcomes = set[tuple[str, str]]()
    for last in calls_of(other_kinds):
        fill(other_kinds)
        with pytest.raises(KilledError):
            copy(other_kinds, dies_after(last))
        outcomes.add(state(other_kinds))
        assert copy(other_kinds).claims == 3
        check_moved(other_kinds)
    assert outcomes == {BEFORE, PAUSED, BETWEEN, AFTER}


def test_a_copy_killed_after_any_call_is_resumed_or_was_made(pair: Pair) -> None:
    for last in calls_of(pair):
        fill(pair)
        with pytest.raises(KilledError):
            copy(pair, dies_after(last))
        if gives(pair.stores["source"]) == "MovedError":
            with pytest.raises(MovedError):
                resume(pair.stores["source"], "it")
        else:
            resume(pair.stores["source"], "it")
            assert state(pair) == BEFORE
            assert claims_in(pair.stores["source"]) == CLAIMS
        assert copy(pair).claims == 3
        check_moved(pair)


def test_a_target_whose_copy_died_at_its_end_is_opened_by_reconcile_too(pair: Pair) -> None:
    between = 0
    for last in calls_of(pair):
        fill(pair)
        with pytest.raises(KilledError):
            copy(pair, dies_after(last))
        if state(pair) == BETWEEN:
            between += 1
            reopen(pair.stores["target"], UNITS)
            check_moved(pair)
            with pytest.raises(MovedError):
                copy(pair)
    assert between


# What fails


def test_an_answer_that_is_lost_at_any_call_does_not_stop_the_copy(pair: Pair) -> None:
    for number in calls_of(pair):
        fill(pair)
        assert copy(pair, failing(number, "any", before=False, once=True)).claims == 3
        check_moved(pair)


@pytest.mark.parametrize(("which", "before"), [("source", True), ("target", True), ("any", False)])
def test_a_store_that_goes_away_at_any_call_is_named_and_leaves_a_way_on(
    pair: Pair, which: str, before: bool
) -> None:
    """It does nothing any more, or (not `before`) it does what is asked, and all answers are lost."""
    outcomes = set[tuple[str, str]]()
    for number in calls_of(pair):
        fill(pair)
        why = stopped(pair, failing(number, which, before=before))
        now = state(pair)
        outcomes.add(now)
        assert now in (BEFORE, PAUSED, BETWEEN, AFTER)
        assert now != PAUSED or ("may stay paused" in why and "berth store resume" in why)
        assert ("connection refused" in why) == bool(why)
        assert copy(pair).claims == 3
        check_moved(pair)
    assert (PAUSED in outcomes) == (which != "target")


def test_a_copy_that_is_interrupted_at_any_call_is_undone_or_made(pair: Pair) -> None:
    """Ctrl-C, and SIGTERM."""
    outcomes = set[tuple[str, str]]()
    for number in calls_of(pair):
        fill(pair)

        def interrupt(call: int, _: str, number: int = number) -> None:
            if call == number:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            copy(pair, Calls(after=interrupt))
        outcomes.add(state(pair))
        assert copy(pair).claims == 3
        check_moved(pair)
    assert outcomes == {BEFORE, AFTER}


# What comes in between


def test_a_source_that_is_resumed_during_a_copy_goes_on_and_the_copy_stops(pair: Pair) -> None:
    stops = 0
    for number in calls_of(pair):
        fill(pair)
        resumed = list[bool]()

        def interfere(resumed: list[bool] = resumed) -> None:
            if gives(pair.stores["source"]) == "PausedError":
                resumed.append(resume(pair.stores["source"], "it"))

        why = stopped(pair, at_call(number, interfere))
        assert bool(why) == bool(resumed)
        if not why:
            check_moved(pair)
            continue
        stops += 1
        assert "Claims go on in" in why
        assert state(pair) == BEFORE
        assert claims_in(pair.stores["source"]) == CLAIMS
        assert claims_in(pair.stores["target"]) == {}
    assert stops > 3


def test_of_two_copies_of_a_ledger_one_is_made_and_the_other_stops(pair: Pair) -> None:
    whys = set[bool]()
    for number in calls_of(pair):
        fill(pair)
        whys.add(bool(stopped(pair, at_call(number, lambda: copy(pair)))))
        check_moved(pair)
    assert whys == {True, False}


def test_a_rebuild_of_the_target_during_a_copy_stops_the_copy_or_begins_with_all_of_it(pair: Pair) -> None:
    """As a reconcile would that was told of the target too early."""
    stops = 0

    def rebuild() -> None:
        if gives(pair.stores["target"]) != "yes":
            reopen(pair.stores["target"], UNITS)

    for number in calls_of(pair):
        fill(pair)
        stops += bool(stopped(pair, at_call(number, rebuild)))
        source, target = state(pair)
        assert (target, source in ("yes", "MovedError")) == ("yes", True)
        assert claims_in(pair.stores["source" if source == "yes" else "target"]) == CLAIMS
    assert stops > 3


@pytest.mark.parametrize("which", ["source", "target"])
def test_a_store_lost_during_a_copy_is_never_a_ledger_without_its_claims(pair: Pair, which: str) -> None:
    stops = 0

    def lose() -> None:
        store = pair.stores[which]
        store.commit(dict.fromkeys(store.changes(None).documents), {})

    for number in calls_of(pair):
        fill(pair)
        stops += bool(stopped(pair, at_call(number, lose)))
        given = dict(zip(pair.stores, state(pair), strict=True))
        assert list(given.values()) != ["yes", "yes"]
        for name, store in pair.stores.items():
            assert given[name] != "yes" or claims_in(store) == CLAIMS
    assert stops > 3


def test_a_target_that_lost_documents_before_it_was_opened_is_filled_again(pair: Pair) -> None:
    """As by a fail-over: the mark was written first, and so may be all that is left."""
    between = 0
    for last in calls_of(pair):
        fill(pair)
        with pytest.raises(KilledError):
            copy(pair, dies_after(last))
        if state(pair) == BETWEEN:
            between += 1
            assert pair.stores["target"].commit({"domain/ip/n2": None, "domain/ip/n9": b"{}"}, {})
            assert copy(pair).claims == 3
            check_moved(pair)
    assert between
