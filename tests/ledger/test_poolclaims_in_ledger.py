"""PoolClaims through the verbs: who may hold one, which units it gives, and what its status says.
What the API server takes as a PoolClaim is in test_poolclaims.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.http.extender_v1 import BindingCall
from tests.support.builders.ledgers import FaultyStore
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, mended, pools_staged
from tests.support.builders.stage import KilledError

POOLS = {
    "k80": {"units": {"n1": ["k80-0", "k80-1"], "n2": ["k80-2"]}},
    "ip": {"capacity": {"perDomain": 3}},
    "late": {"units": {"n1": ["l0", "l1"]}, "reuseAfterSeconds": 30},
    "seat": {"scope": "Cluster", "capacity": {"perDomain": 1}},
}


CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # the rest are shown by others


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS) as found:
        yield found


def given(call: BindingCall, phase: str = "Bound", node: str = "n1", *units: str) -> dict[str, object]:
    return {
        "phase": phase,
        "node": node,
        "domain": node,
        "units": list(units),
        "pod": call.name,
        "podUID": call.uid,
    }


def test_a_poolclaim_has_one_holder_at_a_time_and_gives_the_next_one_the_same_units(
    stage: PoolsStage,
) -> None:
    waiter = stage.pod(claims="erc", k80=1)
    missing = "there is no PoolClaim erc in the pod's namespace"
    assert (stage.why(waiter, "n1"), stage.bind(waiter)) == ({"n1": missing}, missing)
    other = stage.bound_pod("other", k80=1)
    assert stage.woken() == set()
    stage.claim_object("erc", "k80")
    assert stage.woken() == {waiter.name}
    assert stage.status("erc") == {"phase": "Available"}
    seen = []
    assert stage.bind(waiter, step=lambda: seen.append(stage.status("erc").get("phase"))) == ""
    assert list(dict.fromkeys(seen)) == ["Available", "Reserved", "Bound"]
    assert stage.status("erc") == given(waiter, "Bound", "n1", "k80-1")
    notes = stage.get(waiter.name).metadata.annotations or {}
    assert '"claim":"erc"' in notes["berth.dev/allocated"]
    stage.check_well()
    stage.check_survives_a_loss()
    second, held = stage.pod(claims="erc", k80=1), "k80: another pod holds PoolClaim erc"
    assert (stage.why(second, "n1", "n2"), stage.bind(second, "n2")) == ({"n1": held, "n2": held}, held)
    stage.gone(other)
    stage.gone(waiter)
    assert stage.status("erc") == {"phase": "Available"}
    assert second.name in stage.woken()
    # k80-0 is free too, and so is n2: but k80-1 is what it had.
    assert stage.passes(second, "n1", "n2") == {"n1"}
    assert stage.bind(second) == ""
    assert stage.of(second, "k80") == ("n1", 1, ("k80-1",))
    stage.check_well()


@CHEAP
def test_two_poolclaims_and_a_unit_besides_of_one_pool_are_three_units(stage: PoolsStage) -> None:
    stage.claim_object("one", "k80")
    stage.claim_object("two", "k80")
    greedy = stage.pod(claims="one,two", k80=3)
    text = "k80: 0 of 2 free, 1 asked"
    assert stage.bind(greedy) != ""
    assert stage.held() == {}
    both = stage.bound_pod(claims="one, two", k80=2)
    assert stage.of(both, "k80") == ("n1", 2, ("k80-0", "k80-1"))
    assert [stage.status(name)["phase"] for name in ("one", "two")] == ["Bound", "Bound"]
    assert stage.status("one")["units"] != stage.status("two")["units"]
    assert stage.bind(stage.pod(k80=1)) == text
    stage.check_well()
    stage.check_survives_a_loss()
    stage.gone(both)
    too_few = stage.pod(claims="one,two", k80=1)
    said = "k80: 1 asked, and the PoolClaims that the pod names are of 2"
    assert (stage.bind(too_few), stage.why(too_few, "n1")) == (said, {"n1": said})
    assert stage.of(stage.bound_pod(claims="two", k80=2), "k80")[1] == 2
    stage.check_well()


@CHEAP
def test_a_poolclaim_of_certain_units_gets_those_or_waits(stage: PoolsStage) -> None:
    stage.claim_object("third", "k80", units=["k80-2"])
    stage.claim_object("first", "k80", units=["k80-0"])
    elsewhere = "k80: the units of PoolClaim third are not here, or not free"
    pod = stage.pod(claims="third", k80=1)
    assert stage.why(pod, "n1", "n2") == {"n1": elsewhere}
    assert stage.bind(pod, "n1") == elsewhere
    assert stage.bind(pod, "n2") == ""
    taken = stage.bound_pod(k80=1)
    assert stage.of(taken, "k80")[2] == ("k80-0",)
    waits, not_here = stage.pod(claims="first", k80=1), elsewhere.replace("third", "first")
    assert stage.why(waits, "n1", "n2") == dict.fromkeys(("n1", "n2"), not_here)
    assert stage.bind(waits, "n1") == not_here
    stage.gone(taken)
    assert stage.bind(waits, "n1") == ""
    stage.check_well()
    stage.check_survives_a_loss()


@CHEAP
def test_a_bind_that_fails_leaves_the_poolclaim_available(stage: PoolsStage) -> None:
    stage.claim_object("erc", "k80")
    call = stage.pod(claims="erc", k80=1)

    def gone_before_the_binding() -> None:
        if stage.status("erc").get("phase") == "Reserved" and call.name in stage.pods():
            stage.delete(call)

    assert stage.bind(call, step=gone_before_the_binding) != ""
    assert stage.status("erc") == {"phase": "Available"}
    stage.check_well()


def test_two_of_a_pool_a_poolclaim_and_a_licence_are_had_together_or_not_at_all(stage: PoolsStage) -> None:
    stage.claim_object("erc", "k80")
    first = stage.pod(claims="erc", ip=2, k80=1, seat=1)
    store, stage.store = stage.store, FaultyStore(stage.store)
    stage.store.faults = ["before"]
    assert stage.bind(first) == "the store went away before the commit"
    stage.store = store
    assert stage.held() == {}
    seat = stage.bound_pod(seat=1)
    assert stage.bind(first) == "seat: 0 of 1 free, 1 asked"
    assert stage.why(first, "n1") == {"n1": "seat: 0 of 1 free, 1 asked"}
    assert (set(stage.held()), stage.status("erc")) == ({seat.name}, {"phase": "Available"})
    stage.gone(seat)

    def dies() -> None:
        if first.name in stage.states():
            raise KilledError

    with pytest.raises(KilledError):
        stage.bind(first, step=dies)
    assert len(stage.held()[first.name]) == 3
    stage.time.now += 10
    assert mended(stage.reconcile()) == {"settled": 1}
    assert (stage.held(), stage.status("erc")) == ({}, {"phase": "Available"})
    assert stage.bind(first) == ""
    assert len(stage.held()[first.name]) == 3
    stage.check_well()
    stage.check_survives_a_loss()
    assert stage.gone(first)["released"] == 4
    assert stage.held() == {}


@CHEAP
def test_a_poolclaim_that_is_deleted_keeps_its_holder_and_takes_no_other(stage: PoolsStage) -> None:
    stage.claim_object("erc", "k80")
    holder = stage.bound_pod(claims="erc", k80=1)
    del stage.objects.documents[("default", "erc")]
    stage.inventory_of_claim("erc")
    assert stage.of(holder, "k80")[1] == 1
    assert stage.bind(stage.pod(claims="erc", k80=1)) == "there is no PoolClaim erc in the pod's namespace"
    # Its unit counts like any other pod's now, against limits for instance.
    assert mended(stage.reconcile()) == {"settled": 1}
    assert stage.of(holder, "k80")[1] == 1
    stage.check_well()
    stage.gone(holder)
    assert stage.held() == {}
    stage.check_well()


@CHEAP
def test_a_poolclaim_s_units_rest_as_well_where_the_pool_says_so(stage: PoolsStage) -> None:
    stage.claim_object("erc", "late", units=["l0"])
    stage.gone(stage.bound_pod(claims="erc", late=1))
    assert stage.of(stage.bound_pod(late=1), "late")[2] == ("l1",)
    again = stage.pod(claims="erc", late=1)
    stage.time.now += 30 - 0.001
    assert stage.bind(again) == "late: the units of PoolClaim erc are not here, or not free"
    stage.time.now += 0.001
    assert stage.bind(again) == ""
    stage.check_well()
