"""Gangs of which a pod can't be served: no pod of them is, and all say why, for as long as that is so.
What mends it, a Pool, a PoolClaim, another pod in its place, has the gang served at once."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from berth.api.gang import GANG, GANG_SIZE
from berth.http.extender_v1 import BindingCall
from berth.ledger.gang_note import BELIEVED_SECONDS, STUCK_SECONDS
from berth.scheduling.explanation import explain
from berth.testing.api_server import StandIn
from tests.features.test_gangs import NODES, POOLS, Gangs
from tests.support.builders.places import Place

pytestmark = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)

NO_POOL = "berth.dev/key: no Pool has this resource; there are: berth.dev/desk, berth.dev/gpu, berth.dev/many"


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Gangs]:
    made: list[Gangs] = []
    pools = {pool: POOLS[pool] for pool in ("desk", "gpu", "many")}
    with StandIn(clock=lambda: made[0].time() if made else 0.0) as api:
        made.append(Gangs(api, tmp_path, place, pools, NODES))
        with closing(made[0].store), closing(made[0].raw):
            yield made[0]


def member(stage: Gangs, name: str, size: int = 2, **how: Any) -> BindingCall:
    return stage.pod(name, annotations={GANG: "train", GANG_SIZE: str(size)}, **how)


def check_all_say(stage: Gangs, pod: BindingCall, why: str) -> None:
    """bind, filter and `explain` do, and nothing is reserved."""
    assert stage.bind(pod) == why
    assert stage.why(pod, "n1", "n2") == {"n1": why, "n2": why}
    told = explain(stage.get(pod.name), stage.ledger().view(), stage.cluster.nodes(), stage.time.now)
    assert told.summary == f"waits: {why}"
    assert stage.states() == {}


def test_no_pod_of_a_gang_is_served_while_no_pool_has_what_one_of_them_asks_for(stage: Gangs) -> None:
    good, bad = member(stage, "good", gpu=1), member(stage, "bad", key=1)
    why = f"gang train: its pod bad can't be served: {NO_POOL}"
    check_all_say(stage, good, why)
    assert stage.bind(bad) == NO_POOL
    for seconds in (STUCK_SECONDS + 1, BELIEVED_SECONDS / 2, BELIEVED_SECONDS / 2):
        stage.time.now += seconds
        stage.reconcile()
        assert stage.why(good, "n1", "n2") == {"n1": why, "n2": why}, "it is not tried again in vain"
        check_all_say(stage, good, why)
    assert stage.woken() == set()
    stage.check_well()


def test_a_gang_is_served_at_once_when_the_pool_is_made(stage: Gangs) -> None:
    good, bad = member(stage, "good", gpu=1), member(stage, "bad", key=1)
    stage.bind(good)
    assert stage.pools(key={"scope": "Cluster", "capacity": {"perDomain": 1}})["woken"] == 2
    assert stage.woken() == {"good", "bad"}
    assert stage.whys([good, bad]) == [{}, {}]
    assert [stage.bind(good), stage.bind(bad)] == ["", ""]
    stage.check_well()


def test_a_gang_is_served_by_reconcile_where_the_pool_s_event_was_lost(stage: Gangs) -> None:
    good, bad = member(stage, "good", gpu=1), member(stage, "bad", key=1)
    stage.bind(good)
    stage.write_pools(key={"scope": "Cluster", "capacity": {"perDomain": 1}})
    stage.reconcile()
    assert stage.woken() == {"good", "bad"}
    assert [stage.bind(good), stage.bind(bad)] == ["", ""]


def test_a_gang_is_served_at_once_when_the_poolclaim_is_made_that_one_of_its_pods_names(stage: Gangs) -> None:
    good, bad = member(stage, "good", gpu=1), member(stage, "bad", gpu=1, claims="mine")
    check_all_say(
        stage,
        good,
        "gang train: its pod bad can't be served: there is no PoolClaim mine in the pod's namespace",
    )
    stage.claim_object("mine", "gpu")
    stage.inventory_of_claim("mine")
    assert stage.woken() == {"good", "bad"}
    assert [stage.bind(good), stage.bind(bad, "n2")] == ["", ""]
    stage.check_well()


def test_a_gang_is_served_when_the_pod_is_replaced_that_could_not_be(stage: Gangs) -> None:
    good, bad = member(stage, "good", gpu=1), member(stage, "bad", key=1)
    stage.bind(good)
    stage.gone(bad)
    absent = "gang train: 1 of its 2 pods is there"
    assert stage.why(good, "n1", "n2") == {"n1": absent, "n2": absent}
    better = member(stage, "better", gpu=1)
    assert stage.why(better, "n1", "n2") == {}
    assert stage.bind(better) == ""
    assert stage.woken() == {"good"}
    assert stage.bind(good) == ""
    stage.check_well()


def test_a_gang_goes_on_when_the_pod_goes_that_was_one_too_many(stage: Gangs) -> None:
    bad, good = member(stage, "bad", key=1), [member(stage, f"good-{number}", gpu=1) for number in range(2)]
    check_all_say(stage, good[0], f"gang train: its pod bad can't be served: {NO_POOL}")
    stage.gone(bad)
    assert stage.woken() == {pod.name for pod in good}
    assert [stage.bind(pod) for pod in good] == ["", ""]
    stage.check_well()


@pytest.mark.parametrize("lasts", [1.0, STUCK_SECONDS - 1])
def test_a_gang_waits_for_a_suspended_pool_and_no_longer(stage: Gangs, lasts: float) -> None:
    good, bad = member(stage, "good", gpu=1), member(stage, "bad", desk=1)
    stage.pools(desk={**POOLS["desk"], "suspended": True})
    stage.woken()
    check_all_say(
        stage,
        good,
        "gang train: no room for 2 pods of it at once (bad: desk: suspended, no new pods)",
    )
    stage.time.now += lasts
    stage.pools(desk=POOLS["desk"])
    assert stage.woken() == {"good", "bad"}
    assert [stage.bind(good), stage.bind(bad)] == ["", ""]
    stage.check_well()


def test_a_gang_that_lacks_units_is_not_tried_again_in_vain_however_long_it_waits(stage: Gangs) -> None:
    """Its note is believed for five minutes, and reconcile renews it while its pods wait."""
    holder = stage.bound_pod("holder", desk=3)
    pods = stage.gang("train", 2, desk=1)
    assert stage.bind(pods[0]) != ""
    said = stage.whys(pods)
    assert all(said)
    for _ in range(int(2 * BELIEVED_SECONDS / 60)):
        stage.time.now += 60
        stage.reconcile()
        assert stage.whys(pods) == said
    assert stage.woken() == set()
    stage.gone(holder)
    assert stage.whys(pods) == [{}, {}]


def test_reconcile_wakes_no_pod_of_a_gang_for_fewer_units_than_the_gang_needs(stage: Gangs) -> None:
    """No bind has looked at it yet: nodes were full whenever filter was asked."""
    stage.bound_pod("holder", desk=3)
    pods = stage.gang("train", 2, desk=1)
    stage.reconcile()
    assert stage.woken() == set()
    assert all(stage.whys(pods))
    late = stage.pod("late", desk=1)
    stage.reconcile()
    assert stage.woken() == {"late"}
    assert stage.bind(late) == ""


def test_a_leader_whose_gang_is_made_once_it_runs_is_refused_by_nothing_of_ours(stage: Gangs) -> None:
    """As JobSet's InOrder makes pods: the leader waits for a device that Berth does not count."""
    limits = {"nvidia.com/gpu": "1"}
    meta = {"name": "leader", "annotations": {GANG: "train", GANG_SIZE: "3"}}
    containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
    spec = {"schedulerName": "berth", "containers": containers}
    stage.cluster.create("/api/v1/namespaces/default/pods", {"metadata": meta, "spec": spec})
    leader = BindingCall("leader", "default", stage.get("leader").metadata.uid, "n1")
    for _ in range(3):
        stage.reconcile()
        stage.time.now += 60
        assert stage.why(leader, "n1") == {}


def test_a_pod_that_comes_while_reconcile_lists_the_others_has_its_gang_served(stage: Gangs) -> None:
    pods = [member(stage, f"train-{number}", 3, gpu=1) for number in range(2)]
    listed, came = stage.cluster.pods, list[BindingCall]()

    def pods_then(*arguments: Any, **options: Any) -> Any:
        found = listed(*arguments, **options)
        if not came:
            came.append(member(stage, "launcher", 3))
            stage.event_of(stage.get("launcher"), "add")
        return found

    with mock.patch.object(stage.cluster, "pods", pods_then):
        stage.reconcile()
    assert came
    assert stage.whys(pods) == [{}, {}]
