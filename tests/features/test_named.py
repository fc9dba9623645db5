"""Named units through the verbs: who gets which, that no unit has two holders, and adoption of who uses some.
What a list stands for is tested with policy; who holds a PoolClaim in test_poolclaims_in_ledger.py."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, mended, pools_staged

POOLS: dict[str, Any] = {
    "ip": {"units": {"n1": ["10.0.3.0/29"], "n2": ["a", "b"]}, "adoptFrom": "example.com/ip"},
    "gpu": {"scope": "Topology", "topologyKey": "zone", "units": {"x": ["k80-0", "k80-1"], "y": ["k80-2"]}},
    "late": {"units": {"n1": ["l0", "l1"]}, "reuseAfterSeconds": 30},
}


CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # the rest are shown by others


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS, {"n1": {"zone": "x"}, "n2": {"zone": "y"}}) as found:
        yield found


def noted(pool: str, domain: str, *units: str) -> dict[str, str]:
    found = {"pool": pool, "domain": domain, "count": len(units), "units": units}
    return {"berth.dev/allocated": json.dumps([found])}


def test_what_is_excluded_is_given_to_nobody_and_who_holds_it_keeps_it(stage: PoolsStage) -> None:
    holder = stage.bound_pod(ip=1)
    assert stage.of(holder, "ip")[2] == ("10.0.3.1",)
    stage.pools(ip={**POOLS["ip"], "exclude": ["10.0.3.1", "10.0.3.4/31", "b"]})
    assert stage.of(holder, "ip")[2] == ("10.0.3.1",)
    assert stage.of(stage.bound_pod(ip=2), "ip")[2] == ("10.0.3.2", "10.0.3.3")
    assert stage.of(stage.bound_pod(on="n2", ip=1), "ip")[2] == ("a",)
    waiter = stage.pod(ip=1)
    assert stage.why(waiter, "n1", "n2") == {
        "n1": "ip: 0 of 3 free, 1 asked",
        "n2": "ip: 0 of 1 free, 1 asked",
    }
    stage.check_survives_a_loss()
    assert stage.of(holder, "ip")[2] == ("10.0.3.1",)
    stage.gone(holder)
    assert stage.bind(waiter) == ""
    assert stage.of(waiter, "ip")[2] == ("10.0.3.6",)
    late = stage.pod(ip=1)
    assert "ip: 0 of 3 free, 1 asked" in stage.bind(late)
    stage.pools(ip=POOLS["ip"])
    assert stage.bind(late) == ""
    assert stage.of(late, "ip")[2] == ("10.0.3.1",)
    stage.check_well()


def test_each_unit_has_one_holder_and_the_pod_is_told_its_name(stage: PoolsStage) -> None:
    calls = [stage.bound_pod(ip=2, gpu=1), stage.bound_pod(ip=4, gpu=1)]
    held = [stage.of(call, "ip")[2] for call in calls]
    assert sorted(held[0] + held[1]) == [f"10.0.3.{number}" for number in range(1, 7)]
    notes = stage.get(calls[0].name).metadata.annotations or {}
    told = {each["pool"]: each for each in json.loads(notes["berth.dev/allocated"])}
    assert told["ip"] == {"pool": "ip", "domain": "n1", "count": 2, "units": list(held[0])}
    assert (told["gpu"]["domain"], told["gpu"]["count"]) == ("x", 1)
    waiter = stage.pod(ip=1, gpu=1)
    text, gpu = "gpu: 0 of 2 free, 1 asked; ip: 0 of 6 free, 1 asked", "gpu: 0 of 2 free, 1 asked"
    assert stage.why(waiter, "n1", "n2") == {"n1": text}
    assert stage.bind(waiter) == gpu
    stage.check_well()
    stage.check_survives_a_loss()
    assert stage.bind(waiter) == gpu
    stage.gone(calls[0])
    assert stage.bind(waiter) == ""
    assert stage.of(waiter, "ip")[2][0] in held[0]


@CHEAP
@pytest.mark.parametrize("besides", [{}, {"gpu": 1}])
def test_after_a_loss_a_unit_that_two_pods_name_is_the_older_one_s(
    stage: PoolsStage, besides: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users can write the annotation where no policy keeps them from it, but not when a pod was made."""
    stage.api.memory._clock = stage.time
    # A ledger adopts in parts what lies in one of them; who holds units in two parts is the last.
    monkeypatch.setattr(type(stage.store), "batches", lambda _, keys: [[key] for key in sorted(keys)])
    victim = stage.bound_pod("z-victim", ip=1, **besides)
    stage.time.now += 3600
    forger = stage.bound_pod("a-forger", ip=1)
    assert [stage.of(each, "ip")[2] for each in (victim, forger)] == [("10.0.3.1",), ("10.0.3.2",)]
    stage.note("a-forger", noted("ip", "n1", "10.0.3.1"))
    stage.lose_ledger()
    said = "".join(stage.reconcile().problems)
    assert "pod default/a-forger holds 1 of ip in n1, 0 of them by name" in said
    assert [stage.of(each, "ip")[2] for each in (victim, forger)] == [("10.0.3.1",), ()]
    stage.gone(forger)
    assert "10.0.3.1" not in stage.of(stage.bound_pod(ip=5), "ip")[2]


def test_a_freed_unit_rests_and_is_given_when_it_has(stage: PoolsStage) -> None:
    first = stage.bound_pod(late=1)
    assert stage.of(first, "late")[2] == ("l0",)
    stage.gone(first)
    assert stage.of(stage.bound_pod("other", late=1), "late")[2] == ("l1",)
    waiter, full = stage.pod(late=1), "late: 0 of 2 free, 1 asked"
    stage.time.now += 30 - 0.001
    assert (stage.bind(waiter), stage.why(waiter, "n1")) == (full, {"n1": full})
    stage.check_well()
    stage.time.now += 0.001
    assert (stage.why(waiter, "n1"), stage.bind(waiter)) == ({}, "")
    assert stage.of(waiter, "late")[2] == ("l0",)
    stage.time.now += 1
    stage.check_survives_a_loss()


def test_a_unit_that_moves_to_another_list_stays_its_holder_s_until_that_is_gone(stage: PoolsStage) -> None:
    holder = stage.bound_pod(ip=1)
    assert stage.of(holder, "ip") == ("n1", 1, ("10.0.3.1",))
    moved = {"n1": ["10.0.3.2-10.0.3.6"], "n2": ["a", "b", "10.0.3.1"]}
    stage.pools(ip={**POOLS["ip"], "units": moved})
    assert stage.of(holder, "ip") == ("n1", 1, ("10.0.3.1",))
    assert stage.of(stage.bound_pod(on="n2", ip=2), "ip")[2] == ("a", "b")
    assert stage.bind(stage.pod(ip=1), "n2") == "ip: 0 of 2 free, 1 asked"
    stage.check_well()
    assert stage.of(holder, "ip") == ("n1", 1, ("10.0.3.1",))
    stage.gone(holder)
    stage.reconcile()
    assert stage.of(stage.bound_pod(on="n2", ip=1), "ip")[2] == ("10.0.3.1",)
    stage.check_well()


@CHEAP
def test_a_unit_is_never_in_two_lists_while_it_moves_between_racks(stage: PoolsStage) -> None:
    """Whoever is bound between two of the commits gets no unit that another holds."""
    moved = {"x": ["k80-1"], "y": ["k80-2", "k80-0"]}
    stage.write_pools(gpu={**POOLS["gpu"], "units": moved})
    names = iter(f"w{number}" for number in range(1000))

    def step() -> None:
        for node in ("n1", "n2"):
            stage.bind(stage.pod(next(names), gpu=1), node)
        held = [unit for mine in stage.held().values() for _, units in mine.values() for unit in units]
        assert len(held) == len(set(held))

    stage.reconcile(step=step)
    stage.reconcile()
    assert len(stage.held()) == 3
    stage.check_well()


def test_a_running_pod_is_adopted_with_the_unit_it_names_unless_another_has_it(stage: PoolsStage) -> None:
    holder = stage.bound_pod("holder", ip=1)
    thief = stage.pod("thief", node="n1", annotations=noted("ip", "n1", "10.0.3.1"), ip=1)
    own = stage.pod("own", node="n1", annotations={"example.com/ip": "10.0.3.5"}, ip=1)
    around = stage.pod("around", node="n2", annotations=noted("ip", "n2", "no-such"), ip=1)

    def line(name: str, domain: str) -> str:
        return (
            f"pod default/{name} holds 1 of ip in {domain}, 0 of them by name: what it uses besides is "
            "another pod's, or not of the pool"
        )

    lines = [line("thief", "n1"), line("around", "n2")]
    report = mended(stage.reconcile())
    assert sorted(report.pop("problems")) == sorted(lines)
    assert report == {"adopted": 3}
    assert [stage.of(call, "ip")[2] for call in (holder, thief, own, around)] == [
        ("10.0.3.1",),
        (),
        ("10.0.3.5",),
        (),
    ]
    assert stage.free("ip", "n1") == (3, 6)
    stage.gone(holder)
    stage.reconcile()
    assert stage.of(thief, "ip")[2] == ("10.0.3.1",)


@CHEAP
def test_a_bound_pod_s_rewritten_annotation_changes_nothing(stage: PoolsStage) -> None:
    """Neither for a unit of its own node, nor for one of another's, free or not."""
    holder, other = stage.bound_pod(ip=1), stage.bound_pod(on="n2", ip=1)
    for units in ("10.0.3.4", "a", "b"):
        notes = noted("ip", "n1", units)
        stage.note(holder.name, notes)
        stage.check_well()
        stage.inventory_of_pool()
        assert stage.of(holder, "ip") == ("n1", 1, ("10.0.3.1",))
    assert stage.of(other, "ip") == ("n2", 1, ("a",))
