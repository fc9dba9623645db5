"""The ledger against a tiny model: random calls of two processes, late, doubled, reordered; a store that
fails before or after its commit, a ledger that is lost and rebuilt; one call at a time (not races)."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from berth.errors import BerthError, RebuildingError, RefusedError, StoreUnavailableError
from berth.ledger.keys import domain_key
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Domain, decode_domain
from berth.ledger.transitions import ElsewhereError, MissingClaimError, SupersededError
from berth.ledger.view import View
from berth.stores import open_store
from tests.support.builders.ledgers import FaultyStore, claim, drop_notes, ledger_on, resize
from tests.support.builders.places import Place
from tests.support.selection import examples

DEMANDS: dict[str, dict[str, int]] = {
    "a": {"ip": 1},
    "b": {"ip": 1, "seat": 1},
    "c": {"ip": 2, "seat": 1},
    "d": {"seat": 2},
    "e": {"ip": 1, "seat": 2},
}
NODES, POOLS = ("n1", "n2"), ("ip", "seat")
START = {(pool, node): 2 for pool in POOLS for node in NODES}

Standing = dict[str, tuple[str, str, str]]  # by UID: node, state, attempt


class Outcome(NamedTuple):
    """What a call should come to: an error's type or None, and the claims after it."""

    error: type[BerthError] | None
    claims: Standing
    adopts: bool = False


class LedgerMachine(RuleBasedStateMachine):
    calls = Bundle[Claim]("calls")

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        place.lose()  # what the example before left there
        self.bare = open_store(place.url)
        self.store = FaultyStore(self.bare)
        self.ledgers = [ledger_on(self.store) for _ in range(2)]
        self.claims: Standing = {}
        self.capacities: dict[tuple[str, str], int | None] = dict(START)
        self.used_before: dict[tuple[str, str], int] = {}
        self.open = self.adopted = False
        self.rebuild()

    def teardown(self) -> None:
        try:
            self._settle()
        finally:
            self.bare.close()

    def _settle(self) -> None:
        """Releasing who is dead and settling reservations leaves nothing."""
        if not self.open:
            self.rebuild()
        ledger = self.ledgers[0]
        for found in ledger.view().claims():
            freed = ledger.cancel(found) if found.state == "reserved" else ledger.release(found.uid)
            assert set(freed) == set(found.holdings)
        resize(ledger, dict.fromkeys(START))
        drop_notes(ledger)
        assert [key for key in self.bare.changes(None).documents if key.startswith("domain/")] == []

    # Rules

    @rule(
        target=calls,
        uid=st.sampled_from(sorted(DEMANDS)),
        node=st.sampled_from(NODES),
        attempt=st.sampled_from(["a1", "a2", "a3"]),
    )
    def a_call(self, uid: str, node: str, attempt: str) -> Claim:
        return claim(uid, node, attempt, **DEMANDS[uid])

    @rule(wanted=calls, again=st.booleans(), how=st.data())
    def reserve(self, wanted: Claim, again: bool, how: st.DataObject) -> None:
        now = self.claims.get(wanted.uid)
        error: type[BerthError] | None = None
        after = self._with(wanted, "reserved")
        if now is not None and now[0] != wanted.node:
            error = SupersededError if again else ElsewhereError
        elif again and (now is None or now[2] != wanted.attempt):
            error = SupersededError
        elif now is None and not self._room(wanted):
            error = RefusedError
        elif now is not None and now[1] == "bound":
            after = self.claims
        self._call(
            lambda ledger: ledger.reserve(wanted, after=wanted.attempt if again else None),
            Outcome(error, after),
            how,
        )

    @rule(mine=calls, how=st.data())
    def confirm(self, mine: Claim, how: st.DataObject) -> None:
        now = self.claims.get(mine.uid)
        missing = now is None or now[0] != mine.node
        after = self.claims if now is not None and now[1] == "bound" else self._with(mine, "bound")
        outcome = Outcome(MissingClaimError if missing else None, after)
        self._call(lambda ledger: ledger.confirm(mine), outcome, how)

    @rule(mine=calls, how=st.data())
    def cancel(self, mine: Claim, how: st.DataObject) -> None:
        mine_stands = self.claims.get(mine.uid) == (mine.node, "reserved", mine.attempt)
        after = self._without(mine.uid) if mine_stands else self.claims
        self._call(lambda ledger: ledger.cancel(mine), Outcome(None, after), how)

    @rule(uid=st.sampled_from(sorted(DEMANDS)), how=st.data())
    def release(self, uid: str, how: st.DataObject) -> None:
        self._call(lambda ledger: ledger.release(uid), Outcome(None, self._without(uid)), how)

    @rule(running=calls, how=st.data())
    def adopt(self, running: Claim, how: st.DataObject) -> None:
        so_already = self.claims.get(running.uid, ())[:2] == (running.node, "bound")
        after = self.claims if so_already else self._with(running, "bound")
        self._call(lambda ledger: ledger.adopt(running), Outcome(None, after, adopts=True), how)

    @precondition(lambda self: self.open)
    @rule(where=st.sampled_from(sorted(START)), units=st.sampled_from([0, 1, 2, 3, None]))
    def set_capacity(self, where: tuple[str, str], units: int | None) -> None:
        changes = resize(self.ledgers[0], {where: units})
        assert len(changes) == (self.capacities[where] != units)
        self.capacities[where] = units

    @precondition(lambda self: self.open)
    @rule()
    def lose(self) -> None:
        self.place.lose()
        self.open = False

    @precondition(lambda self: not self.open)
    @rule()
    def rebuild(self) -> None:
        """As reconcile does: what was bound runs, and is adopted; reservations are gone, pods fenced."""
        self.claims = {
            uid: (node, "bound", at) for uid, (node, was, at) in self.claims.items() if was == "bound"
        }
        keeper = ledger_on(self.store, while_closed=True)
        mark = keeper.begin_rebuild("r")
        for uid, (node, _, attempt) in self.claims.items():
            keeper.adopt(claim(uid, node, attempt, **DEMANDS[uid]))
        resize(keeper, self.capacities)
        keeper.open("e", mark)
        self.open = self.adopted = True

    # What always holds

    @invariant()
    def never_over_capacity_but_by_adoption_or_lowered_capacity(self) -> None:
        if not self.open:
            return
        domains = self._domains()
        used = {where: domains[where].used(*where) for where in START}
        for where, count in used.items():
            if count > (self.capacities[where] or 0):
                assert self.adopted or count <= self.used_before.get(where, 0), where
        self.used_before, self.adopted = used, False

    @invariant()
    def the_ledger_holds_what_the_model_holds_all_of_it_or_nothing(self) -> None:
        if not self.open:
            return
        expected = {
            (pool, node): {
                uid: at for uid, at in self.claims.items() if at[0] == node and pool in DEMANDS[uid]
            }
            for pool, node in START
        }
        for where, domain in self._domains().items():
            found = {uid: (each.node, each.state, each.attempt) for uid, each in domain.claims.items()}
            assert found == expected[where], where
            assert domain.capacity == self.capacities[where]
            assert all(each == claim_of(each) for each in domain.claims.values())

    @invariant()
    def every_process_sees_what_a_new_one_would_see(self) -> None:
        if not self.open:
            return
        fresh = View()
        fresh.update(self.bare.changes(None).documents)
        for view in (ledger.view() for ledger in self.ledgers):
            assert all(view.free.get(pool, {}) == fresh.free.get(pool, {}) for pool in POOLS)
            assert all(view.claims_of(uid) == fresh.claims_of(uid) for uid in DEMANDS)

    # Help

    def _call(self, call: Callable[[Ledger], object], outcome: Outcome, how: st.DataObject) -> None:
        """Make the call from either process, the store failing or not; it ends as the model says."""
        fault = how.draw(st.sampled_from(["", "", "", "conflict", "before", "after"]))
        self.store.faults = [fault]
        error = None
        try:
            call(self.ledgers[how.draw(st.integers(0, 1))])
        except BerthError as raised:
            error = type(raised)
        failed = fault if not self.store.faults else ""
        self.store.faults = []
        expected = outcome.error if self.open else RebuildingError
        if failed in ("before", "after"):
            assert error is StoreUnavailableError
            assert expected is None
        else:
            assert error is expected
        if expected is None and failed != "before":
            self.claims, self.adopted = outcome.claims, outcome.adopts

    def _with(self, one: Claim, state: str) -> Standing:
        return {**self.claims, one.uid: (one.node, state, one.attempt)}

    def _without(self, uid: str) -> Standing:
        return {other: standing for other, standing in self.claims.items() if other != uid}

    def _room(self, wanted: Claim) -> bool:
        def used(pool: str) -> int:
            return sum(DEMANDS[uid].get(pool, 0) for uid, at in self.claims.items() if at[0] == wanted.node)

        capacities = ((self.capacities[each.pool, each.domain], each) for each in wanted.holdings)
        return all(units is not None and used(each.pool) + each.count <= units for units, each in capacities)

    def _domains(self) -> Mapping[tuple[str, str], Domain]:
        found = self.bare.read([domain_key(*where) for where in START])
        bodies = {where: found.get(domain_key(*where)) for where in START}
        return {where: decode_domain(at.body if at else None) for where, at in bodies.items()}


def claim_of(found: Claim) -> Claim:
    """The claim as its pod would ask for it again."""
    asked = claim(found.uid, found.node, found.attempt, **DEMANDS[found.uid])
    return Claim(**{**{name: getattr(asked, name) for name in asked.__struct_fields__}, "state": found.state})


# One store will do: what is tested is the ledger. That the promises hold in every store: properties/.
@pytest.mark.drawn
@pytest.mark.slow
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_whatever_two_processes_call_the_ledger_holds_what_the_model_holds(place: Place) -> None:
    class Here(LedgerMachine):
        def __init__(self) -> None:
            super().__init__(place)

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=examples(20, 50),
            stateful_step_count=40,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
