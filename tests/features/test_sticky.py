"""Pools whose freed units are kept a while for a pod's or an owner's next one, and refused to others.
Units that rest before anybody gets them are in test_named.py."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from berth.handlers import filter as filter_verb
from berth.http.extender_v1 import Candidates
from berth.kube.types import PodStatus
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged

POOLS = {
    "ip": {"units": {"n1": ["a", "b"], "n2": ["c"]}, "sticky": {"by": "Pod", "forSeconds": 60}},
    "slot": {"capacity": {"perDomain": 2}, "sticky": {"by": "Owner", "forSeconds": 60}},
    "seat": {
        "scope": "Cluster",
        "capacity": {"perDomain": 1},
        "sticky": {"by": "Pod", "forSeconds": 60},
        "reuseAfterSeconds": 5,
    },
}


CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # the rest are shown by others


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS) as found:
        yield found


@CHEAP
@pytest.mark.parametrize("more", [{}, {"reuseAfterSeconds": 5}])
def test_what_was_in_use_outside_the_cluster_is_free_at_once(stage: PoolsStage, more: dict[str, Any]) -> None:
    """It was no pod's: no next one comes for it, and nothing of a pod's is to fade."""
    spec = {**POOLS["seat"], "capacity": {"perDomain": 2}, "reuseAfterSeconds": 0, **more}
    stage.pools(seat={**spec, "external": 2})
    first, second = stage.pod(seat=1), stage.pod(seat=1)
    assert stage.bind(first) == "seat: 0 of 2 free, 1 asked"
    stage.pools(seat={**spec, "external": 1})
    assert stage.bind(first) == ""
    stage.pools(seat=spec)
    assert stage.bind(second) == ""
    stage.check_well()


def test_a_pod_of_the_same_name_gets_its_unit_back_and_others_get_it_after_the_time(
    stage: PoolsStage,
) -> None:
    first = stage.bound_pod("web-0", ip=1)
    stage.gone(first)
    other = stage.bound_pod("other", ip=1)
    assert stage.of(other, "ip")[2] == ("b",)
    waiter, full = stage.pod("waiter", ip=1), "ip: 0 of 2 free, 1 asked"
    assert (stage.why(waiter, "n1"), stage.bind(waiter)) == ({"n1": full}, full)
    again = stage.pod("web-0", ip=1)
    kept = "units are kept for this pod on other nodes"
    assert stage.why(again, "n1", "n2") == {"n2": kept}
    assert stage.bind(again) == ""
    assert stage.of(again, "ip")[2] == ("a",)
    stage.check_well()
    stage.check_survives_a_loss()
    stage.gone(again)
    stage.time.now += 60 - 0.001
    assert (stage.why(waiter, "n1"), stage.bind(waiter)) == ({"n1": full}, full)
    stage.time.now += 0.001
    assert (stage.why(waiter, "n1"), stage.bind(waiter)) == ({}, "")
    assert stage.of(waiter, "ip")[2] == ("a",)
    assert stage.bind(stage.pod("web-0", ip=1)) == full
    stage.check_well()


@CHEAP
def test_what_is_kept_is_kept_once_and_not_while_its_pod_has_it_again(stage: PoolsStage) -> None:
    """However often the pod comes and goes, the other unit is free; also when its bind fails."""
    for _ in range(3):
        stage.gone(stage.bound_pod("web-0", slot=1, owner="web"))
    web = stage.bound_pod("web-0", slot=1, owner="web")
    assert stage.free("slot", "n1") == (1, 2)
    other = stage.bound_pod("other", slot=1)
    stage.gone(other)
    stage.gone(web)
    assert stage.free("slot", "n1") == (1, 2)
    fails = stage.pod("web-1", slot=1, owner="web")
    free = []

    def step() -> None:
        if "web-1" in stage.states():
            free.append(stage.free("slot", "n1"))
            stage.delete(fails) if "web-1" in stage.pods() else None

    assert stage.bind(fails, step=step) != ""
    assert set(free[:-1]) == {(1, 2)}
    stage.check_well()


@CHEAP
def test_an_owner_s_next_pods_are_sent_where_its_units_are_kept(stage: PoolsStage) -> None:
    gone = stage.bound_pod("web-x", "n2", slot=1, owner="web")
    stays = stage.bound_pod("web-y", "n1", slot=2, owner="web")
    stage.gone(gone)
    follower = stage.pod("web-z", slot=1, owner="web")
    assert stage.passes(follower, "n1", "n2") == {"n2"}
    assert stage.bind(follower, "n2") == ""
    another = stage.pod("web-w", slot=1, owner="web")
    assert stage.passes(another, "n1", "n2") == {"n2"}
    stage.gone(stays)
    assert stage.passes(another, "n1", "n2") == {"n1"}
    assert stage.passes(stage.pod("stranger", slot=1), "n1", "n2") == {"n2"}
    stage.check_well()


@CHEAP
@pytest.mark.parametrize("seat", ["a-seat", "z-seat"])
def test_a_unit_that_is_kept_on_all_nodes_sends_no_pod_away_from_those_that_are_kept_on_one(
    stage: PoolsStage, seat: str
) -> None:
    """Whichever Pool's name comes first, and when another node is nominated and offered alone."""
    stage.pools(**{seat: {"scope": "Cluster", "capacity": {"perDomain": 1}, "sticky": POOLS["ip"]["sticky"]}})
    asked: dict[str, Any] = {"ip": 1, seat: 1}
    stage.gone(stage.bound_pod("web-0", **asked))
    again = stage.pod("web-0", **asked)
    pod = replace(stage.get("web-0"), status=PodStatus(nominated_node_name="n2"))
    alone = filter_verb.run(stage._ledger(stage.store).view, Candidates(pod, ["n2"], True, None), stage.time)
    kept = {"n2": "units are kept for this pod on other nodes"}
    assert (stage.why(again, "n1", "n2"), dict(alone.reasons)) == (kept, kept)


@CHEAP
def test_a_unit_that_rests_and_is_kept_is_its_pod_s_only_after_the_rest(stage: PoolsStage) -> None:
    stage.gone(stage.bound_pod("web-0", seat=1))
    again, other = stage.pod("web-0", seat=1), stage.pod("other", seat=1)
    full = "seat: 0 of 1 free, 1 asked"
    stage.time.now += 5 - 0.001
    assert (stage.bind(again), stage.bind(other)) == (full, full)
    stage.time.now += 0.001
    assert (stage.bind(other), stage.bind(again)) == (full, "")
    stage.check_well()


@CHEAP
@pytest.mark.parametrize("sticky", [{"sticky": {"by": "Owner", "forSeconds": 60}}, {}], ids=["kept", "plain"])
@pytest.mark.parametrize("owner", ["web", ""], ids=["owned", "bare"])
def test_a_unit_rests_to_its_end_though_the_owner_s_next_pod_gets_another(
    stage: PoolsStage, sticky: dict[str, object], owner: str
) -> None:
    """Units have no names here: which one the next pod has can only be told by what was free."""
    stage.pools(port={"capacity": {"perDomain": 2}, "reuseAfterSeconds": 5, **sticky})
    stage.gone(stage.bound_pod("web-0", port=1, owner=owner))
    stage.bound_pod("web-1", port=1, owner=owner)
    other, full = stage.pod("other", port=1), "port: 0 of 2 free, 1 asked"
    stage.time.now += 5 - 0.001
    assert (stage.why(other, "n1"), stage.bind(other)) == ({"n1": full}, full)
    stage.check_well()


@CHEAP
def test_pods_without_a_controller_can_t_use_up_what_rests_by_coming_one_after_the_other(
    stage: PoolsStage,
) -> None:
    """Nobody made these pods, and what rests is kept for nobody: that does not make it theirs."""
    stage.pools(port={"capacity": {"perDomain": 2}, "reuseAfterSeconds": 600})
    for _ in range(2):
        stage.time.now += 1
        stage.gone(stage.bound_pod(port=1))
    full = "port: 0 of 2 free, 1 asked"
    for _ in range(4):
        stage.time.now += 1
        late = stage.pod(port=1)
        assert (stage.why(late, "n1"), stage.bind(late)) == ({"n1": full}, full)
    stage.time.now += 600 - 5 - 0.001
    assert stage.bind(late) == full
    stage.time.now += 0.001
    assert stage.bind(late) == ""
    stage.check_well()
