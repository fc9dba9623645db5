"""Looks at the Pools that overlap: what an older look has read never undoes what a newer one has written, at
whatever step it is overtaken, and no tick is needed to mend it."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any
from unittest.mock import Mock

import pytest

from berth.api.units import Units
from berth.handlers import inventory
from berth.ledger.keys import LOOK
from berth.ledger.ledger import Ledger
from tests.properties.calls import KilledError
from tests.properties.pools import small_stripes
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged
from tests.support.builders.races import in_threads, persistently
from tests.support.builders.steps import each_step
from tests.support.selection import IS_LONG

pytestmark = pytest.mark.slow

EVERY = 4 if IS_LONG else 8  # steps of a look, of which one is tried
Take = Callable[[PoolsStage], object]
VERBS = pytest.mark.parametrize("take", [PoolsStage.reconcile, PoolsStage.inventory_of_pool])
ONE_STORE = pytest.mark.parametrize("place", ["sqlite"], indirect=True)  # the steps are the verbs' own
SEAT: dict[str, Any] = {"scope": "Cluster", "capacity": {"domains": {"*": 5}}}
CALLERS = 6


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, {"seat": SEAT}) as found:
        yield found


def overtaken(stage: PoolsStage, place: Place, take: Take, before: Any, after: Any) -> Iterator[int]:
    """At each of these steps of a look that takes over `before`, `after` is written, and taken over at once.
    In the slow stores they are few: the steps are the verbs' own."""
    for step in each_step(every=EVERY if place.name == "sqlite" else 36):
        stage.write_pools(ip=None)
        stage.clear_pods()
        stage.write_pools(**before)
        stage.stepping(take, step.doing(partial(stage.pools, **after)))
        if step.reached:
            yield step.number


@pytest.mark.drawn
@VERBS
def test_a_unit_that_was_taken_off_the_list_is_not_listed_again(
    stage: PoolsStage, place: Place, take: Take
) -> None:
    before, after = ({"ip": {"units": {"n1": units}}} for units in (["a", "b"], ["b"]))
    for at in overtaken(stage, place, take, before, after):
        listed = stage._ledger(stage.store).view().capacity("ip", "n1")
        assert listed == ("b",), f"step {at}"
        assert Units.of(listed).size == 1


@pytest.mark.drawn
@VERBS
def test_external_use_that_was_just_told_stays(stage: PoolsStage, place: Place, take: Take) -> None:
    before, after = {"seat": SEAT, "ip": {}}, {"seat": {**SEAT, "external": 5}}
    for at in overtaken(stage, place, take, before, after):
        assert stage.free("seat", "*") == (0, 5), f"step {at}"
        assert stage.bind(stage.pod(seat=1)) == "seat: 0 of 5 free, 1 asked"


@pytest.mark.drawn
@VERBS
def test_a_pool_that_was_just_suspended_gives_nothing(stage: PoolsStage, place: Place, take: Take) -> None:
    for at in overtaken(stage, place, take, {"ip": {}}, {"ip": {"suspended": True}}):
        assert stage.bind(stage.pod(ip=1)) == "ip: suspended, no new pods", f"step {at}"


@pytest.mark.drawn
@VERBS
@pytest.mark.parametrize("units", [1, 3], ids=["lowered", "edited there and back"])
def test_a_capacity_is_what_the_pool_said_last(
    stage: PoolsStage, place: Place, take: Take, units: int
) -> None:
    before, after = (
        {"ip": {"capacity": {"perDomain": number}}} for number in (3 if units == 1 else 1, units)
    )
    for at in overtaken(stage, place, take, before, after):
        assert (stage.free("ip", "n1"), stage.free("ip", "n2")) == ((units, units),) * 2, f"step {at}"


@ONE_STORE
@pytest.mark.long
def test_a_look_that_begins_in_the_middle_of_a_node_s_event_keeps_no_pods_where_the_node_was(
    stage: PoolsStage,
) -> None:
    """The event begins again, and must not take the node's place, which it has written, for the pods' own."""
    stage.pools(ip={"scope": "Topology", "topologyKey": "rack", "capacity": {"perDomain": 2}})
    for step in each_step():
        stage.write_node("n1", rack="a")
        stage.inventory("n1")
        stage.clear_pods()
        stage.bound_pod(ip=2)
        stage.write_node("n1", rack="b")
        stage.stepping(lambda staged: staged.inventory("n1"), step.doing(stage._ledger(stage.store).look))
        assert stage.free("ip", "b") == (0, 2), f"step {step.number}"


@pytest.mark.drawn
@ONE_STORE
def test_a_node_that_comes_in_the_middle_of_a_look_gives_by_the_new_pool(stage: PoolsStage) -> None:
    def joins() -> None:
        stage.add_node("n3")
        stage.inventory("n3")

    for step in each_step(every=EVERY):
        stage.pools(ip={"capacity": {"perDomain": 3}})
        stage.write_pools(ip={"capacity": {"perDomain": 1}})
        stage.stepping(PoolsStage.inventory_of_pool, step.doing(joins))
        if step.reached:
            assert stage.free("ip", "n3") == (1, 1), f"step {step.number}"
            remove_node(stage, "n3")


@pytest.mark.drawn
@ONE_STORE
def test_a_look_in_the_middle_of_a_new_node_s_event_has_it_give_by_the_new_pool(stage: PoolsStage) -> None:
    changes = partial(stage.pools, ip={"capacity": {"perDomain": 1}})
    for step in each_step(every=EVERY):
        stage.pools(ip={"capacity": {"perDomain": 3}})
        stage.add_node("n3")
        stage.stepping(lambda staged: staged.inventory("n3"), step.doing(changes))
        if step.reached:
            assert stage.free("ip", "n3") == (1, 1), f"step {step.number}"
            remove_node(stage, "n3")


def remove_node(stage: PoolsStage, name: str) -> None:
    stage.cluster.delete(f"/api/v1/nodes/{name}")
    stage.inventory(name)


@pytest.mark.drawn
@ONE_STORE
def test_a_poolclaim_that_came_while_reconcile_looked_is_there(stage: PoolsStage) -> None:
    for step in each_step(every=EVERY):
        stage.stepping(PoolsStage.reconcile, step.doing(lambda: stage.claim_object("erc", "seat")))
        if step.reached:
            claims = stage._ledger(stage.store).view().domains["seat"]
            assert claims["!default/erc"].poolclaim, f"step {step.number}"
            del stage.objects.documents[("default", "erc")]
            stage.inventory_of_claim("erc")


@pytest.mark.drawn
@ONE_STORE
def test_who_was_overtaken_wakes_those_for_whom_it_made_room(stage: PoolsStage) -> None:
    for step in each_step(every=EVERY):
        stage.clear_pods()
        stage.pools(ip={"capacity": {"perDomain": 0}})
        waiter = stage.pod(ip=1)
        stage.write_pools(ip={"capacity": {"perDomain": 1}})
        stage.stepping(PoolsStage.inventory_of_pool, step.doing(stage.inventory_of_pool))
        assert stage.woken() == {waiter.name}, f"step {step.number}"


def test_who_is_refused_while_a_look_counts_pods_of_others_is_woken(
    stage: PoolsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is put into the first stripe, which has room for one: the domain is closed for a moment."""
    monkeypatch.setattr("berth.ledger.allocation._first", Mock(return_value=0))
    with small_stripes():
        stage.pools(seat={**SEAT, "capacity": {"domains": {"*": 6}}})
        for _ in range(2):
            stage.pod(node="n1", seat=2)
        waiter = stage.pod(seat=1)
        assert stage.inventory_of_pool()["woken"] == 1
        assert stage.free("seat", "*") == (2, 6)
    assert stage.woken() == {waiter.name}


def test_who_may_use_a_node_that_a_look_finds_moved_is_woken(stage: PoolsStage) -> None:
    """The node's own event comes after, and finds nothing new."""
    stage.pools(ip={"scope": "Topology", "topologyKey": "rack", "capacity": {"domains": {"a": 1}}})
    waiter = stage.pod(ip=1)
    stage.write_node("n1", rack="a")
    stage.inventory_of_pool()
    assert stage.woken() == {waiter.name}


@pytest.mark.drawn
@ONE_STORE
def test_a_look_that_died_is_made_good_when_its_event_comes_again(stage: PoolsStage) -> None:
    def dies() -> None:
        raise KilledError

    for step in each_step(every=EVERY):
        stage.clear_pods()
        stage.pools(ip={"capacity": {"perDomain": 0}})
        waiter = stage.pod(ip=1)
        stage.write_pools(ip={"capacity": {"perDomain": 1}})
        with suppress(KilledError):
            stage.stepping(PoolsStage.inventory_of_pool, step.doing(dies))
        stage.inventory_of_pool()
        assert stage.woken() == {waiter.name}, f"step {step.number}"


@ONE_STORE
def test_a_reconcile_that_is_overtaken_again_and_again_ends_and_says_so(stage: PoolsStage) -> None:
    """And mends what has nothing to do with Pools."""
    call = stage.bound_pod(seat=1)
    stage.cluster.delete(f"/api/v1/namespaces/default/pods/{call.name}")
    numbers = count(1)

    def edited() -> None:
        stage.write_pools(ip={"capacity": {"perDomain": next(numbers)}})
        stage._ledger(stage.store).look()

    report: Any = stage.stepping(PoolsStage.reconcile, edited)
    assert (
        "the Pools kept changing while they were looked at; the later looks take them over" in report.problems
    )
    stage.reconcile()
    assert stage.claims() == {}


def test_many_changes_at_once_end_as_the_pools_were_written_last(stage: PoolsStage) -> None:
    writing = Lock()

    def change(number: int) -> None:
        ledger = Ledger(stage.store, clock=stage.time, cluster=stage.objects.identity)
        take = inventory.Inventory(ledger, stage.cluster, stage.settings, stage.time).take_pools
        for turn in range(3):
            with writing:
                stage.write_pools(ip={"capacity": {"perDomain": 10 * number + turn + 1}})
            persistently(take)

    in_threads(change, CALLERS)
    units = stage.specs["ip"]["capacity"]["perDomain"]
    assert (stage.free("ip", "n1"), stage.free("ip", "n2")) == ((units, units),) * 2
    assert len(stage.store.read([LOOK])) == 1
    stage.check_well()
