"""Who may have how much of a pool: limits by namespace, units reserved for the important, use outside the
cluster, and pools that are suspended."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.http.extender_v1 import BindingCall
from berth.ledger.keys import DOMAIN
from tests.support.builders.ledgers import ledger_on
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, mended, pools_staged
from tests.support.builders.stage import Tap

POOLS: dict[str, Any] = {
    "ip": {"capacity": {"perDomain": 4}, "limits": {"team-a": 3, "*": 5}},
    "gpu": {"capacity": {"perDomain": 3}, "reserved": {"priorityAtLeast": 1000, "units": 2}},
    "seat": {
        "scope": "Cluster",
        "capacity": {"perDomain": 400},
        "limits": {"team-a": 300},
        "reserved": {"priorityAtLeast": 10, "units": 50},
    },
}


CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # the rest are shown by others


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS) as found:
        yield found


def test_a_namespace_holds_no_more_than_its_limit_on_all_nodes_together(stage: PoolsStage) -> None:
    first = stage.bound_pod(ip=2, namespace="team-a")
    over = stage.pod(ip=2, namespace="team-a")
    text = "ip: 1 of the 3 that namespace team-a may hold are free, 2 asked"
    assert stage.why(over, "n1", "n2") == dict.fromkeys(("n1", "n2"), text)
    assert stage.bind(over, "n2") == text
    last = stage.bound_pod(on="n2", ip=1, namespace="team-a")
    assert stage.bound_pod(ip=2).namespace == "default"
    assert stage.bind(last, "n2") == ""
    stage.check_well()
    stage.check_survives_a_loss()
    assert stage.bind(stage.pod(ip=1, namespace="team-a"), "n2").startswith("ip: 0 of the 3 that")
    stage.pools(ip={**POOLS["ip"], "limits": {"team-a": 2}})
    stage.check_well()
    assert stage.bind(over, "n2") == "ip: 0 of the 2 that namespace team-a may hold are free, 2 asked"
    stage.gone(first)
    stage.gone(last)
    assert over.name in stage.woken()
    assert stage.bind(over, "n2") == ""
    stage.pools(ip={"capacity": {"perDomain": 4}})
    stage.check_well()
    stage.bound_pod(on="n2", ip=2, namespace="team-a")
    stage.pools(ip=POOLS["ip"])
    assert stage.bind(stage.pod(ip=1, namespace="team-a")).startswith("ip: 0 of the 3 that")
    stage.check_well()


@CHEAP
def test_a_large_limit_counts_every_pod_also_the_first_and_those_that_were_adopted(stage: PoolsStage) -> None:
    text = "seat: {} of the 300 that namespace team-a may hold are free, {} asked"
    first = stage.bound_pod(seat=200, namespace="team-a", priority=10)
    second = stage.pod(seat=150, namespace="team-a", priority=10)
    assert stage.bind(second) == text.format(100, 150)
    stage.check_well()
    stage.check_survives_a_loss()
    view = ledger_on(stage.store, time=stage.time).view()
    assert len(view.parts("seat", "@team-a")) == 3
    assert stage.bind(second) == text.format(100, 150)
    stage.bound_pod(seat=100, namespace="team-a", priority=10)
    assert stage.bind(stage.pod(seat=1, namespace="team-a", priority=10)) == text.format(0, 1)
    stage.gone(first)
    assert stage.bind(second) == ""
    stage.check_well()


def limits(stage: PoolsStage) -> set[str]:
    """Keys of limits' documents."""
    keys = stage.store.changes(None).documents
    return {key.removeprefix(DOMAIN) for key in keys if key.startswith(DOMAIN) and "/@" in key}


@CHEAP
def test_nothing_is_left_of_namespaces_that_are_gone(stage: PoolsStage) -> None:
    """Whose pods wait or run keeps its limit, and it is made anew for who comes again."""
    for number in range(12):
        stage.gone(stage.bound_pod(ip=1, namespace=f"team-{number}"))
    stage.gone(stage.bound_pod(seat=200, namespace="team-a", priority=10))
    runs, waits = stage.bound_pod(ip=1, namespace="runs"), stage.pod(ip=1, namespace="team-3")
    assert len(limits(stage)) == 12 + 4 + 1
    stage.check_well()
    assert limits(stage) == {"ip/@runs", "ip/@team-3"}
    stage.gone(runs)
    assert stage.bind(waits, "n2") == ""
    again = stage.bound_pod(seat=200, namespace="team-a", priority=10)
    text = "seat: 100 of the 300 that namespace team-a may hold are free, 200 asked"
    assert stage.bind(stage.pod(seat=200, namespace="team-a", priority=10)) == text
    stage.check_well()
    assert limits(stage) == {"ip/@team-3", *(f"seat/@team-a{part}" for part in ("", "#0", "#1", "#2"))}
    assert stage.of(again, "seat")[1] == 200


@CHEAP
@pytest.mark.parametrize(("pool", "units"), [("ip", 1), ("seat", 150)])
@pytest.mark.parametrize("times", [1, 2])
def test_a_pod_gets_its_units_when_its_namespace_s_limit_goes_at_any_moment_before(
    stage: PoolsStage, pool: str, units: int, times: int
) -> None:
    """Between two calls of reserve to the store, or at each two of them."""
    asked: Any = {pool: units}
    stage.gone(stage.bound_pod(namespace="team-a", priority=10, **asked))
    steps, done = 0, 0

    def drop() -> None:
        nonlocal steps
        if steps in range(done, done + times):
            ledger_on(stage.store, time=stage.time).drop_limits(())
        steps += 1
        assert steps < 1000, "it makes no limit any more, and looks for one for ever"

    while steps >= done:
        call, steps = stage.pod(namespace="team-a", priority=10, **asked), 0
        assert stage.bind(call, step=drop) == ""
        stage.gone(call)
        done += 1
    assert done > 5


@CHEAP
@pytest.mark.parametrize(("pool", "units", "limit"), [("ip", 1, 3), ("seat", 150, 300)])
def test_a_limit_that_is_drawn_from_while_it_is_dropped_tells_what_is_left_of_it(
    stage: PoolsStage, pool: str, units: int, limit: int
) -> None:
    """A pod is bound before the first call of drop_limits to the store, after the last, or between two."""
    how: dict[str, Any] = {"namespace": "team-a", "priority": 10, pool: units}
    left, asked = limit - units, limit - units + 1
    over = stage.pod(**{**how, pool: asked})
    text = f"{pool}: {left} of the {limit} that namespace team-a may hold are free, {asked} asked"
    stage.gone(stage.bound_pod(**how))
    steps = at = 0

    def comes() -> None:
        nonlocal steps
        if steps == at:
            bound.append(stage.bound_pod(**how))
        steps += 1

    while steps >= at:
        bound, steps = list[BindingCall](), 0
        tapped: Any = Tap(stage.store, comes)
        ledger_on(tapped, time=stage.time).drop_limits(())
        for each in bound:
            assert stage.why(over, "n1") == {"n1": text}
            stage.gone(each)
        at += 1
    assert at > 5


def test_reserved_units_are_had_by_important_pods_only(stage: PoolsStage) -> None:
    low = stage.bound_pod(gpu=1)
    waiter = stage.pod(gpu=1)
    text = "gpu: 0 of 1 free that are not reserved for a higher priority, 1 asked"
    assert stage.why(waiter, "n1", "n2") == {"n1": text}
    assert stage.bind(waiter) == text
    high = stage.bound_pod(gpu=2, priority=1000)
    assert stage.bind(stage.pod(gpu=1, priority=1000)) == "gpu: 0 of 3 free, 1 asked"
    stage.check_well()
    stage.check_survives_a_loss()
    stage.gone(high)
    assert stage.bind(waiter) == text
    stage.gone(low)
    assert stage.bind(waiter) == ""
    many = stage.bound_pod(seat=350)
    not_reserved = "seat: 0 of 350 free that are not reserved for a higher priority, 1 asked"
    assert stage.bind(stage.pod(seat=1)) == not_reserved
    stage.bound_pod(seat=50, priority=10)
    stage.check_well()
    stage.check_survives_a_loss()
    stage.gone(many)
    stage.check_well()


def test_a_suspended_pool_keeps_its_holders_and_takes_no_new_ones(stage: PoolsStage) -> None:
    ip = {"capacity": {"perDomain": 4}}
    holder, waiter = stage.bound_pod(ip=1), stage.pod(ip=1)
    text = "ip: suspended, no new pods"
    stage.pools(ip={**ip, "suspended": ["n1"]})
    assert stage.why(waiter, "n1", "n2") == {"n1": text}
    assert (stage.bind(waiter, "n1"), stage.bind(holder, "n1")) == (text, "")
    stage.pools(ip={**ip, "suspended": True})
    assert stage.why(waiter, "n1", "n2") == dict.fromkeys(("n1", "n2"), text)
    assert (stage.bind(waiter, "n2"), stage.bind(holder, "n1")) == (text, "")
    stage.check_well()
    stage.check_survives_a_loss()
    assert stage.bind(waiter, "n2") == text
    stage.gone(holder)
    assert stage.woken() == set()
    stage.pools(ip=ip)
    assert stage.woken() == {waiter.name}
    assert stage.bind(waiter, "n1") == ""


@CHEAP
def test_a_reservation_made_before_a_pool_was_suspended_is_bound_by_the_next_call(stage: PoolsStage) -> None:
    call = stage.pod(ip=1)
    ledger_on(stage.store, time=stage.time).reserve(stage.claim(stage.get(call.name), "n1"))
    stage.pools(ip={**POOLS["ip"], "suspended": True})
    assert stage.bind(call) == ""


def test_use_outside_the_cluster_counts_and_over_use_takes_nothing_away(stage: PoolsStage) -> None:
    seat = {"scope": "Cluster", "capacity": {"perDomain": 300}}
    stage.pools(seat={**seat, "external": 200})
    holder = stage.bound_pod(seat=90)
    waiter = stage.pod(seat=20)
    assert stage.why(waiter, "n1") == {"n1": "seat: 10 of 300 free, 20 asked"}
    assert stage.bind(waiter) == "seat: 10 of 300 free, 20 asked"
    stage.check_well()
    stage.pools(seat={**seat, "external": 250})
    assert stage.free("seat", "*") == (0, 300)
    assert stage.bind(stage.pod(seat=1)) == "seat: 0 of 300 free, 1 asked"
    assert stage.bind(holder) == ""
    stage.check_well()
    stage.check_survives_a_loss()
    assert stage.free("seat", "*") == (0, 300)
    stage.pools(seat={**seat, "external": 180})
    assert stage.woken() >= {waiter.name}
    assert stage.bind(waiter) == ""
    stage.write_pools(seat=seat)
    assert "problems" not in mended(stage.reconcile())
    assert stage.free("seat", "*") == (190, 300)
    stage.check_well()


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_use_of_named_units_outside_the_cluster_is_reported_as_no_pods_fault(stage: PoolsStage) -> None:
    stage.pools(seat={"scope": "Cluster", "units": {"*": ["a", "b"]}, "external": 1})
    assert stage.free("seat", "*") == (1, 2)
    stage.check_well()
