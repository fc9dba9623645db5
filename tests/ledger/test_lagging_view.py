"""A store whose `changes` lag, as DynamoDB's index does: nothing that a verb claimed itself a moment before
stays in the ledger because its View does not tell of it yet."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from berth.controller import adopt
from berth.handlers.reconcile import Report
from berth.http.extender_v1 import BindingCall
from berth.ledger.keys import domain_key
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.stores.base import Changes, Cursor, Store
from tests.properties.bugs import a_pod_with_two_claims_that_are_bound_is_taken_for_well
from tests.support.builders.ledgers import claim as a_claim
from tests.support.builders.ledgers import held, ledger_on
from tests.support.builders.objects import pool_document
from tests.support.builders.places import Place
from tests.support.builders.stage import Stage, staged


class Lagging:
    """Tells all there is at first, and nothing of what came later; the rest is the store's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.read, self.commit = store.read, store.commit
        self.batches, self.close = store.batches, store.close

    def changes(self, since: Cursor | None) -> Changes:
        return self._store.changes(None) if since is None else Changes({}, since, snapshot=False)


class Hiding(Lagging):
    """Tells of all but one document: changes of two need not come in their order."""

    def __init__(self, store: Lagging, key: str) -> None:
        super().__init__(store._store)
        self._key = key

    def changes(self, since: Cursor | None) -> Changes:
        found = self._store.changes(since)
        return found._replace(documents={k: body for k, body in found.documents.items() if k != self._key})


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    place = Place("sqlite", f"sqlite:///{tmp_path}/ledger.db", (tmp_path / "ledger.db").unlink)
    with staged(tmp_path, place, fresh=False) as found:
        found.reconcile()
        found.store = Lagging(found.store)
        yield found


@pytest.fixture
def seats(stage: Stage) -> Stage:
    """A stage with 300 units for the whole cluster, in stripes."""
    assert stage.settings.pools is not None
    pool = pool_document("ip", scope="Cluster", capacity={"domains": {"*": 300}})
    stage.settings.pools.write_text(json.dumps(pool))
    stage.reconcile()
    return stage


def at(step: int, action: Callable[[], object]) -> Callable[[], object]:
    steps = count()
    return lambda: action() if next(steps) == step else None


def claims(stage: Stage) -> dict[str, tuple[str, str]]:
    """As the store has them, by UID: a first look does not lag."""
    return held(ledger_on(stage.store, while_closed=True))


def steps_of(call: Callable[[Callable[[], object]], object]) -> range:
    seen = count()
    call(lambda: next(seen))
    return range(next(seen))


def test_a_pod_that_goes_while_it_is_bound_leaves_no_claim(stage: Stage) -> None:
    refused = 0
    for step in steps_of(lambda step: stage.bind(stage.add_pod(), step=step)):
        stage.reconcile()
        call = stage.add_pod()
        gone = at(step, lambda call=call: stage.delete(call))  # type: ignore[misc]  # bound now
        if stage.bind(call, "n2", step=gone):
            refused += 1
            assert call.uid not in claims(stage)
        stage.reconcile()
        assert call.uid not in claims(stage)
    assert refused


def test_a_pod_that_is_bound_elsewhere_meanwhile_has_one_claim_on_its_node(stage: Stage) -> None:
    for step in steps_of(lambda step: stage.bind(stage.add_pod(), step=step)):
        call = stage.add_pod()

        def binds_elsewhere(call: BindingCall = call) -> None:
            pod = stage.cluster.pod("default", call.name)
            if pod is not None and not pod.spec.node_name:
                stage.cluster.bind(pod, "n1", {}, 5.0)

        if stage.bind(call, "n2", step=at(step, binds_elsewhere)):
            found = claims(stage).get(call.uid)
            assert found in (("bound", "n1"), None)
        stage.delete(call)
        stage.reconcile()


def test_a_reservation_that_nobody_saw_goes_when_another_bind_has_bound_its_pod_elsewhere(
    stage: Stage,
) -> None:
    """Not even the bind that made it: its View has the other bind's claim, and not yet its own."""
    store, refused = stage.store, 0
    assert isinstance(store, Lagging)
    for step in steps_of(lambda step: stage.bind(stage.add_pod(), step=step)):
        stage.clear()
        call, other = stage.add_pod(), ledger_on(store, time=stage.time)
        other.view()

        def binds_elsewhere(call: BindingCall = call, other: Ledger = other) -> None:
            pod = stage.cluster.pod("default", call.name)
            if pod is not None and not pod.spec.node_name:
                other.confirm(other.reserve(stage.claim(pod, "n1")))
                stage.cluster.bind(pod, "n1", {}, 5.0)

        stage.store = Hiding(store, domain_key("ip", "n2"))
        answer = stage.bind(call, "n2", step=at(step, binds_elsewhere))
        stage.store = store
        if answer:
            refused += 1
            assert [(each.node, each.state) for each in left(stage)] == [("n1", "bound")], (step, answer)
    assert refused


@pytest.mark.parametrize("few", [100, 0], ids=["asked for", "listed again"])
@pytest.mark.long
def test_a_pod_that_goes_while_reconcile_adopts_it_leaves_no_claim(
    few: int, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopt, "_FEW", few)

    def bound() -> BindingCall:
        call = stage.add_pod()
        pod = stage.cluster.pod("default", call.name)
        assert pod is not None
        stage.cluster.bind(pod, "n1", {}, 5.0)
        return call

    bound()
    for step in steps_of(stage.reconcile):
        call = bound()
        stage.reconcile(at(step, lambda call=call: stage.delete_with_event(call)))  # type: ignore[misc]
        assert stage.cluster.pod("default", call.name) is None
        assert call.uid not in claims(stage)


def two_reserve(stage: Stage, call: BindingCall, attempts: tuple[str, str], node: str = "n1") -> list[Claim]:
    """What two binds reserve that see nothing of each other, the second one on this node.

    It believes that the stripe is full which the first one takes."""
    first, second = (ledger_on(stage.store, time=stage.time) for _ in attempts)
    first.view()
    view = second.view()
    pod = stage.cluster.pod("default", call.name)
    assert pod is not None
    one = first.reserve(replace(stage.claim(pod, "n1"), attempt=attempts[0]))
    taken = one.holdings[0].domain
    full = replace(view.domains["ip"][taken], capacity=0)
    view.domains["ip"] = view.domains["ip"].with_changes({taken: full})
    other = second.reserve(replace(stage.claim(pod, node), attempt=attempts[1]))
    assert other.holdings[0].domain != taken
    return [one, other]


def left(stage: Stage) -> list[Claim]:
    return ledger_on(stage.store, while_closed=True).view().claims()


@pytest.mark.parametrize("states", ["bound bound", "bound reserved", "reserved bound", "reserved reserved"])
@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_pod_with_two_claims_has_one_after_a_reconcile_and_the_others_units_are_free(
    seats: Stage, states: str, node: str
) -> None:
    """Two reserves for it that saw nothing of each other, on one node or on two."""
    call = seats.add_pod(units="5")
    claims = two_reserve(seats, call, ("one", "other"), node)
    for claim, state in zip(claims, states.split(), strict=True):
        if state == "bound":
            ledger_on(seats.store, time=seats.time).confirm(claim)
    pod = seats.cluster.pod("default", call.name)
    assert pod is not None
    seats.cluster.bind(pod, "n1", {}, 5.0)
    assert len(left(seats)) == 2
    report = seats.reconcile()
    assert (report.settled, report.adopted) == (1, 0)
    (one,) = left(seats)
    assert (one.node, one.state, sum(each.count for each in one.holdings)) == ("n1", "bound", 5)
    assert ledger_on(seats.store).view().free["ip"]["*"] == (295, 300)
    assert seats.reconcile() == Report(woken=0)


def reconciled_after_two_adoptions(seats: Stage) -> tuple[int, int]:
    """What is free after a reconcile; two callers had adopted a pod in two stripes.

    They bear the same attempt, none: only their documents tell that they are two."""
    call = seats.add_pod()
    for claim in two_reserve(seats, call, ("", "")):
        ledger_on(seats.store, time=seats.time).confirm(claim)
    pod = seats.cluster.pod("default", call.name)
    assert pod is not None
    seats.cluster.bind(pod, "n1", {}, 5.0)
    assert ledger_on(seats.store).view().free["ip"]["*"] == (298, 300)
    seats.reconcile()
    return ledger_on(seats.store).view().free["ip"]["*"]


def test_a_pod_that_two_callers_adopted_in_two_stripes_has_one_claim_after_a_reconcile(seats: Stage) -> None:
    assert reconciled_after_two_adoptions(seats) == (299, 300)


def test_that_it_keeps_two_is_seen(seats: Stage) -> None:
    with a_pod_with_two_claims_that_are_bound_is_taken_for_well():
        assert reconciled_after_two_adoptions(seats) == (298, 300)


def test_a_claim_that_went_with_its_domain_is_nobody_s(seats: Stage) -> None:
    """The View has both still. The clock goes on with each look at it: adoption tries without a pause."""
    ticks, store = count(), seats.store
    ledger = ledger_on(store, time=seats.time)
    wanted = replace(a_claim("u"), holdings=(Holding("ip", "*", 1),))
    reserved = ledger.reserve(wanted)
    ledger.confirm(reserved)
    late = Ledger(Lagging(store), clock=seats.time, monotonic=lambda: next(ticks) / 10)
    late.view()
    ledger = ledger_on(store, time=seats.time)
    ledger.release("u")
    ledger.set_capacities({("ip", "*"): None}, {("ip", "*"): 300})
    assert late.view().claims_of("u")
    for known in (wanted, reserved):
        assert late.adopt(known, anew=False) is None
    assert late.adopt(reserved) == ()
    assert held(ledger_on(store, time=seats.time)) == {"u": ("bound", "n1")}
