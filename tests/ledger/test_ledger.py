"""The ledger's promises, call by call: all or nothing, idempotent, fenced by attempts, never over capacity.
Its epoch and what is lost with it: test_epoch.py; what claims draw from: test_capacities.py."""

from collections.abc import Iterator
from contextlib import closing

import msgspec
import pytest

from berth.errors import ContentionError, RefusedError, StoreUnavailableError
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.ledger.transitions import ElsewhereError, MissingClaimError, SupersededError
from tests.support.builders.ledgers import (
    FaultyStore,
    Time,
    claim,
    drop_notes,
    free,
    held,
    ledger_on,
    two_pools,
)
from tests.support.builders.places import Place


@pytest.fixture
def store(place: Place) -> Iterator[FaultyStore]:
    with closing(two_pools(place.url)) as made:
        yield FaultyStore(made)


@pytest.fixture
def ledger(store: FaultyStore) -> Ledger:
    return ledger_on(store)


# reserve


def test_a_reservation_takes_units_and_says_so(ledger: Ledger) -> None:
    assert ledger.reserve(claim("a", ip=2)) == claim("a", ip=2)
    assert ledger.view().free["ip"] == {"n1": (0, 2), "n2": (2, 2)}
    assert held(ledger) == {"a": ("reserved", "n1")}


def test_a_pod_that_asks_for_several_pools_gets_none_if_one_is_short(ledger: Ledger) -> None:
    ledger.reserve(claim("a", ip=2))
    with pytest.raises(RefusedError, match=r"^ip: 0 of 2 free, 1 asked$"):
        ledger.reserve(claim("b", ip=1, seat=1))
    assert free(ledger, "seat") == 3
    assert held(ledger) == {"a": ("reserved", "n1")}


def test_a_refusal_names_every_pool_that_is_short(ledger: Ledger) -> None:
    with pytest.raises(
        RefusedError, match=r"^gpu: none on this node; ip: 2 of 2 free, 3 asked; seat: 3 of 3"
    ):
        ledger.reserve(claim("a", gpu=1, ip=3, seat=4))


def test_a_repeated_reservation_takes_nothing_more_and_belongs_to_the_newest_attempt(ledger: Ledger) -> None:
    ledger.reserve(claim("a", "n1", "a1", ip=2))
    assert ledger.reserve(claim("a", "n1", "a2", ip=2)).attempt == "a2"
    assert free(ledger) == 0
    assert ledger.cancel(claim("a", "n1", "a1", ip=2)) == ()
    assert ledger.cancel(claim("a", "n1", "a2", ip=2)) == (Holding("ip", "n1", 2),)


def test_a_bound_claim_is_left_as_it_is_by_a_late_reservation(ledger: Ledger) -> None:
    ledger.confirm(ledger.reserve(claim("a", "n1", "a1")))
    assert (ledger.reserve(claim("a", "n1", "a2")).state, free(ledger)) == ("bound", 1)
    assert ledger.cancel(claim("a", "n1", "a2")) == ()


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_pod_with_a_claim_for_another_node_must_be_settled_there_first(
    ledger: Ledger, confirmed: bool
) -> None:
    first = ledger.reserve(claim("a", "n1", "a1"))
    if confirmed:
        ledger.confirm(first)
    with pytest.raises(ElsewhereError) as raised:
        ledger.reserve(claim("a", "n2", "a2"))
    assert (raised.value.claim.node, raised.value.claim.attempt) == ("n1", "a1")
    assert (free(ledger, "ip", "n1"), free(ledger, "ip", "n2")) == (1, 2)


def test_a_claim_for_other_units_on_the_same_node_must_be_settled_first(ledger: Ledger) -> None:
    ledger.reserve(claim("a", ip=1))
    for other in (claim("a", ip=2), claim("a", ip=1, seat=1)):
        with pytest.raises(ElsewhereError):
            ledger.reserve(other)
    assert (free(ledger), free(ledger, "seat")) == (1, 3)


def test_going_on_with_a_reservation_wants_it_to_be_the_same_attempt_s(ledger: Ledger) -> None:
    ledger.reserve(claim("a", "n1", "a1"))
    assert ledger.reserve(claim("a", "n1", "a1"), after="a1").attempt == "a1"
    ledger.reserve(claim("a", "n1", "a2"))
    with pytest.raises(SupersededError, match="a newer bind call for this pod has taken over"):
        ledger.reserve(claim("a", "n1", "a1"), after="a1")
    assert ledger.cancel(claim("a", "n1", "a2"))


@pytest.mark.parametrize("now_on", [None, "n2"])
def test_going_on_with_a_reservation_that_is_gone_reserves_nothing(
    ledger: Ledger, now_on: str | None
) -> None:
    ledger.cancel(ledger.reserve(claim("a", "n1", "a1")))
    if now_on:
        ledger.reserve(claim("a", now_on, "a2"))
    with pytest.raises(SupersededError):
        ledger.reserve(claim("a", "n1", "a1"), after="a1")
    assert free(ledger) == 2


def test_a_claim_of_nothing_is_no_claim(ledger: Ledger) -> None:
    ledger.reserve(msgspec.structs.replace(claim("a"), holdings=()))
    assert held(ledger) == {}


# confirm, cancel, release


def test_confirming_twice_is_confirming_once(ledger: Ledger) -> None:
    reserved = ledger.reserve(claim("a", ip=1, seat=2))
    for _ in range(2):
        ledger.confirm(reserved)
    assert held(ledger) == {"a": ("bound", "n1")}
    assert (free(ledger), free(ledger, "seat")) == (1, 1)


def test_the_older_attempt_may_confirm_too_because_its_binding_was_made(ledger: Ledger) -> None:
    older = ledger.reserve(claim("a", "n1", "a1"))
    newer = ledger.reserve(claim("a", "n1", "a2"))
    ledger.confirm(older)
    assert ledger.cancel(newer) == ()
    ledger.confirm(newer)
    assert (held(ledger), free(ledger)) == ({"a": ("bound", "n1")}, 1)


def test_confirming_what_is_gone_fails_and_takes_nothing(ledger: Ledger) -> None:
    gone = ledger.reserve(claim("a", ip=1, seat=1))
    ledger.release("a")
    with pytest.raises(MissingClaimError, match="reconcile will adopt it from the pod"):
        ledger.confirm(gone)
    assert (held(ledger), free(ledger)) == ({}, 2)


def test_confirming_other_units_than_the_claim_s_fails_and_leaves_it_whole(ledger: Ledger) -> None:
    """A Pool was added between two attempts: the older asked for less."""
    now = ledger.reserve(claim("a", "n1", "a2", ip=1, seat=1))
    with pytest.raises(MissingClaimError):
        ledger.confirm(claim("a", "n1", "a1", ip=1))
    assert ledger.view().claims() == [now]
    assert held(ledger) == {"a": ("reserved", "n1")}


def test_cancelling_frees_all_of_a_claim_once(ledger: Ledger) -> None:
    mine = ledger.reserve(claim("a", ip=1, seat=2))
    assert ledger.cancel(mine) == (Holding("ip", "n1", 1), Holding("seat", "n1", 2))
    assert ledger.cancel(mine) == ()
    assert (held(ledger), free(ledger), free(ledger, "seat")) == ({}, 2, 3)


def test_a_late_cancel_leaves_a_later_reservation_on_another_node(ledger: Ledger) -> None:
    old = ledger.reserve(claim("a", "n1", "a1"))
    ledger.cancel(old)
    ledger.reserve(claim("a", "n2", "a2"))
    assert ledger.cancel(old) == ()
    assert held(ledger) == {"a": ("reserved", "n2")}


def test_releasing_frees_what_a_pod_holds_anywhere_in_any_state_once(ledger: Ledger) -> None:
    ledger.confirm(ledger.reserve(claim("a", ip=1, seat=1)))
    ledger.reserve(claim("b"))
    assert set(ledger.release("a")) == {Holding("ip", "n1", 1), Holding("seat", "n1", 1)}
    assert ledger.release("a") == ledger.release("never seen") == ()
    assert held(ledger) == {"b": ("reserved", "n1")}


# adopt


def test_adopting_takes_units_where_the_pod_runs_room_or_not(ledger: Ledger) -> None:
    ledger.confirm(ledger.reserve(claim("a", ip=2)))
    assert ledger.adopt(claim("b")) is not None
    assert ledger.view().domains["ip"]["n1"].used("ip", "n1") == 3
    assert free(ledger) == 0
    ledger.release("a")
    assert free(ledger) == 1


def test_adopting_what_is_so_already_changes_nothing(ledger: Ledger) -> None:
    mine = ledger.reserve(claim("a", ip=1, seat=1))
    assert ledger.adopt(mine) is not None
    assert ledger.adopt(mine) is None
    assert ledger.adopt(claim("a", "n1", "other attempt", ip=1, seat=1)) is None


def test_adopting_ends_every_other_claim_of_the_pod(ledger: Ledger) -> None:
    ledger.reserve(claim("a", "n1", "a1", ip=1, seat=1))
    assert ledger.adopt(claim("a", "n2", "a2")) is not None
    assert held(ledger) == {"a": ("bound", "n2")}
    assert [free(ledger, *where) for where in (("ip", "n1"), ("seat", "n1"), ("ip", "n2"))] == [2, 3, 1]


def test_adopting_on_a_node_without_the_pool_is_kept_until_release(ledger: Ledger) -> None:
    assert ledger.adopt(claim("a", "n9")) is not None
    assert "n9" not in ledger.view().free["ip"]
    assert ledger.release("a") == (Holding("ip", "n9", 1),)
    drop_notes(ledger)
    assert "n9" not in ledger.view().domains["ip"]


# Conflicts and a store that fails


def test_a_conflict_is_decided_again_on_what_is_there_then(ledger: Ledger, store: FaultyStore) -> None:
    """Another pod takes the last units between our read and our commit."""
    other = ledger_on(store)
    store.meanwhile = iter([lambda: other.reserve(claim("b", ip=2))])
    with pytest.raises(RefusedError, match=r"^ip: 0 of 2 free, 1 asked$"):
        ledger.reserve(claim("a"))
    assert held(ledger) == {"b": ("reserved", "n1")}


def test_two_that_make_the_same_domain_at_once_both_stand_in_it(ledger: Ledger, store: FaultyStore) -> None:
    other = ledger_on(store)
    store.meanwhile = iter([lambda: other.adopt(claim("b", "n9"))])
    ledger.adopt(claim("a", "n9"))
    assert set(ledger.view().domains["ip"]["n9"].claims) == {"a", "b"}


def test_a_writer_that_never_wins_gives_up_in_time_and_changes_nothing(store: FaultyStore) -> None:
    time = Time()
    ledger = ledger_on(store, time=time)
    store.faults = ["conflict"] * 10_000
    with pytest.raises(ContentionError, match=r"too busy for 1 s$"):
        ledger.reserve(claim("a"))
    assert 1001 <= time.now < 1001.2
    assert held(ledger) == {}


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_call_repeated_after_a_lost_answer_ends_as_one_call(
    ledger: Ledger, store: FaultyStore, fault: str
) -> None:
    def twice(call: str, mine: Claim | str) -> None:
        store.faults = [fault]
        with pytest.raises(StoreUnavailableError):
            getattr(ledger, call)(mine)
        getattr(ledger, call)(mine)

    mine = claim("a", ip=1, seat=1)
    twice("reserve", mine)
    assert (held(ledger), free(ledger)) == ({"a": ("reserved", "n1")}, 1)
    twice("confirm", mine)
    assert (held(ledger), free(ledger)) == ({"a": ("bound", "n1")}, 1)
    twice("release", "a")
    twice("adopt", mine)
    assert (held(ledger), free(ledger)) == ({"a": ("bound", "n1")}, 1)
