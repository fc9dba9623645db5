"""filter counts what pods may take that it has just let through: kube-scheduler tries the next pod while they
are being bound, and bind would refuse it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.api.gang import GANG, GANG_SIZE
from berth.handlers import filter as filter_verb
from berth.http import extender_v1
from berth.kube.types import PodToBind
from berth.scheduling.assumed import ASSUMED_SECONDS, IN_VAIN_SECONDS, AssumedPods
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged

pytestmark = pytest.mark.parametrize("place", ["sqlite"], indirect=True)

POOLS: dict[str, Any] = {
    "seat": {"scope": "Cluster", "capacity": {"domains": {"*": 2}}},
    "ip": {"capacity": {"perDomain": 1}},
    "kept": {
        "scope": "Cluster",
        "capacity": {"domains": {"*": 2}},
        "sticky": {"by": "Pod", "forSeconds": 60},
    },
    "rack": {
        "scope": "Topology",
        "topologyKey": "rack",
        "capacity": {"domains": {"r1": 1, "r2": 1}},
    },
}
FULL = {"seat: 0 of 2 free, 1 asked"}


class Filter:
    """The filter of one process, and what it says of pods."""

    def __init__(self, stage: PoolsStage) -> None:
        self.stage, self.assumed = stage, AssumedPods()
        self.said = set[str]()

    def passes(self, call: extender_v1.BindingCall, *names: str) -> set[str]:
        path = f"/api/v1/namespaces/default/pods/{call.name}"
        pod = self.stage.cluster._get(PodToBind, path, 5.0)
        assert pod is not None
        offered = extender_v1.Candidates(pod, list(names or ("n1", "n2")), True, None)
        look = self.stage._ledger(self.stage.store).view
        refused = filter_verb.run(look, offered, self.stage.time, assumed=self.assumed)
        self.said = set(refused.reasons.values())
        return set(offered.names) - refused.reasons.keys()


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    nodes = {"n1": {"rack": "r1"}, "n2": {"rack": "r1"}, "n3": {"rack": "r2"}}
    with pools_staged(tmp_path, place, POOLS, nodes) as stage:
        yield stage


@pytest.fixture
def filtering(stage: PoolsStage) -> Filter:
    return Filter(stage)


def test_no_more_pods_pass_than_there_are_units_for(filtering: Filter) -> None:
    pods = [filtering.stage.pod(seat=1) for _ in range(4)]
    assert [len(filtering.passes(pod)) for pod in pods] == [2, 2, 0, 0]
    assert filtering.said == FULL  # the words of a pool that is full: no other text, so no write to the pod
    for pod in pods[:2]:
        assert filtering.stage.bind(pod, "n1") == ""
    assert filtering.passes(pods[2]) == set()
    filtering.stage.gone(pods[0])
    assert filtering.passes(pods[2]) == {"n1", "n2"}


def test_a_pod_that_has_not_come_to_bind_in_time_keeps_its_unit_from_nobody(filtering: Filter) -> None:
    stage = filtering.stage
    stage.bound_pod(seat=1)
    first, second = stage.pod(seat=1), stage.pod(seat=1)
    assert filtering.passes(first)
    assert not filtering.passes(second)
    assert filtering.passes(first)  # it is tried again
    stage.time.now += ASSUMED_SECONDS
    assert filtering.passes(second)


def test_a_pod_that_came_to_nothing_goes_before_nobody_for_a_while(filtering: Filter) -> None:
    """One whose volume can't be had is tried each time before the other, which would never have the unit."""
    stage = filtering.stage
    stage.bound_pod(seat=1)
    first, second = stage.pod(seat=1), stage.pod(seat=1)
    assert filtering.passes(first)
    stage.time.now += 10
    assert filtering.passes(first)
    assert filtering.passes(second)
    stage.time.now += IN_VAIN_SECONDS
    assert filtering.passes(first)
    assert not filtering.passes(second)


def test_a_pod_that_was_bound_and_went_keeps_its_unit_from_nobody(filtering: Filter) -> None:
    """Its successor may come before filter has seen its claim, and nobody would wake it."""
    stage = filtering.stage
    stage.bound_pod(seat=1)
    first = stage.pod(seat=1)
    assert filtering.passes(first)
    assert stage.bind(first, "n1") == ""
    stage.gone(first)
    stage.time.now += 0.2
    assert filtering.passes(stage.pod(seat=1))


def test_a_pod_with_a_unit_that_is_kept_for_it_takes_no_other(filtering: Filter) -> None:
    stage = filtering.stage
    stage.gone(stage.bound_pod("again", kept=1))
    assert filtering.passes(stage.pod("again", kept=1))
    assert filtering.passes(stage.pod("other", kept=1))


def test_a_unit_of_one_of_several_nodes_is_assumed_nowhere(filtering: Filter) -> None:
    """kube-scheduler chooses among them later."""
    pods = [filtering.stage.pod(ip=1) for _ in range(3)]
    assert [filtering.passes(pod) for pod in pods] == [{"n1", "n2"}] * 3


def test_a_pod_that_can_go_to_one_node_only_is_assumed_there(filtering: Filter) -> None:
    stage = filtering.stage
    stage.bound_pod(on="n2", ip=1)
    first, second = stage.pod(ip=1), stage.pod(ip=1)
    assert filtering.passes(first) == {"n1"}
    assert filtering.passes(second, "n1", "n2", "n3") == {"n3"}


def test_a_pod_that_can_go_to_one_rack_only_is_assumed_there(filtering: Filter) -> None:
    first, second = filtering.stage.pod(rack=1), filtering.stage.pod(rack=1)
    assert filtering.passes(first, "n1", "n2") == {"n1", "n2"}
    assert filtering.passes(second, "n1", "n2", "n3") == {"n3"}


def test_a_pod_with_units_of_its_own_is_let_through(filtering: Filter) -> None:
    """Those of its claim, and those of pods that preempt evicted for it."""
    stage = filtering.stage
    stage.bound_pod(seat=1)
    first, second, third = (stage.pod(seat=1) for _ in range(3))
    assert filtering.passes(first)
    nominated = {"status": {"nominatedNodeName": "n1"}}
    stage.cluster._merge(f"/api/v1/namespaces/default/pods/{second.name}/status", nominated)
    assert filtering.passes(second)
    stage._ledger(stage.store).reserve(stage.claim(stage.get(third.name), "n1"))
    assert filtering.passes(third)


@pytest.mark.parametrize("other", ["3", None])
def test_who_was_refused_for_a_unit_that_its_gang_did_not_take_is_woken(
    filtering: Filter, other: str | None
) -> None:
    """bind refuses the first one: another of its gang says another size, or is not there."""
    stage = filtering.stage
    stage.bound_pod(seat=1)
    first = stage.pod("first", annotations={GANG: "train", GANG_SIZE: "2"}, seat=1)
    noted = {GANG: "train", GANG_SIZE: other} if other else {}
    waiting = [stage.pod("second", annotations=noted, seat=1), stage.pod("single", seat=1)]
    assert filtering.passes(first)
    assert [len(filtering.passes(pod)) for pod in waiting] == [0, 0]
    before = stage.versions()
    assert "gang train: " in stage.bind(first, "n1")
    after = stage.versions()
    woken = {name for name, version in after.items() if version != before[name]}
    assert woken == {"second", "single"}
    assert len(filtering.passes(waiting[1])) == 2, "it is tried at once, and the first counts no more"
    assert "gang train: " in stage.bind(first, "n1")
    assert stage.versions() == after, "once is enough"
