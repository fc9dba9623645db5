"""Gangs whose pods name a PodGroup: Berth reads their size from it, where the pods do not say it themselves.
What can't be read is told with what to do, and ends with the next reconcile after it was mended."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from berth.api.gang import GANG, GANG_SIZE, LARGEST_GANG
from berth.errors import ClusterRefusedError, ClusterUnavailableError
from berth.http.extender_v1 import BindingCall
from berth.kube.types import GangPolicy, Meta, PodGroup, PodGroupSpec, SchedulingPolicy
from berth.testing.api_server import StandIn
from tests.features.test_gangs import NODES, POOLS, Gangs
from tests.support.builders.places import Place

pytestmark = pytest.mark.parametrize("place", ["sqlite"], indirect=True)

ABSENT = (
    "gang train: there is no PodGroup of this name, so its size is not known: make one, or give its pods the "
    "annotations berth.dev/gang and berth.dev/gang-size"
)
UNREAD = (
    "gang train: Berth may not read its PodGroup, so its size is not known: let Berth get podgroups of "
    "scheduling.k8s.io, or give its pods the annotations berth.dev/gang and berth.dev/gang-size"
)
DISAGREES = (
    "gang train: its pods say that it has 2 pods (berth.dev/gang-size), and its PodGroup 3 (minCount): make "
    "them equal, or leave out the annotations"
)


class WithPodGroups:
    """A cluster that serves PodGroups as well; the rest is the cluster's."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.sizes: dict[str, int | None] = {}
        self.error: Exception | None = None
        self.reads: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def pod_group(self, namespace: str, name: str, _: float = 0.0) -> PodGroup | None:
        self.reads.append(name)
        if self.error is not None:
            raise self.error
        return self._made(namespace, name) if name in self.sizes else None

    def pod_groups(self) -> list[PodGroup]:
        self.reads.append("")
        if self.error is not None:
            raise self.error
        return [self._made("default", name) for name in self.sizes]

    def _made(self, namespace: str, name: str) -> PodGroup:
        size = self.sizes[name]
        policy = SchedulingPolicy(None if size is None else GangPolicy(size))
        return PodGroup(Meta(name=name, namespace=namespace), PodGroupSpec(policy))


class Groups(Gangs):
    """With pods that name PodGroups."""

    groups: WithPodGroups

    def grouped(self, group: str, count: int, **asked: int) -> list[BindingCall]:
        """So many waiting pods of a PodGroup, which need not be there."""
        units = asked or {"seat": 1}
        return [self.member(group, f"{group}-{number}", None, **units) for number in range(count)]

    def member(self, group: str, name: str, noted: dict[str, str] | None = None, **asked: int) -> BindingCall:
        limits = {f"berth.dev/{pool}": str(units) for pool, units in asked.items() if units}
        containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
        spec = {
            "schedulerName": "berth",
            "containers": containers,
            "schedulingGroup": {"podGroupName": group},
        }
        meta = {"name": name, "annotations": noted or {}}
        self.cluster.create("/api/v1/namespaces/default/pods", {"metadata": meta, "spec": spec})
        return BindingCall(name, "default", self.get(name).metadata.uid, "n1")

    def said_to(self, pods: list[BindingCall]) -> set[str]:
        """What filter says of these pods, of whatever node."""
        return {text for why in self.whys(pods) for text in why.values()}


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Groups]:
    made: list[Groups] = []
    with StandIn(clock=lambda: made[0].time() if made else 0.0) as api:
        made.append(Groups(api, tmp_path, place, POOLS, NODES))
        made[0].groups = made[0].cluster = WithPodGroups(made[0].cluster)
        with closing(made[0].store), closing(made[0].raw):
            yield made[0]


def test_the_pods_of_a_pod_group_are_a_gang_of_the_size_that_it_says(stage: Groups) -> None:
    stage.groups.sizes["train"] = 3
    pods = stage.grouped("train", 3)
    assert stage.whys(pods) == [{}, {}, {}]
    assert stage.bind(pods[0]) == ""
    assert stage.seats() == {"train-1": "n1", "train-2": "n1"}
    assert [stage.bind(pod) for pod in pods[1:]] == ["", ""]
    stage.check_well()


def test_four_of_a_pod_group_beside_three_units_get_none(stage: Groups) -> None:
    single = stage.bound_pod("single", seat=1)
    stage.groups.sizes["train"] = 4
    pods = stage.grouped("train", 4)
    for pod in pods:
        assert stage.bind(pod).startswith("gang train: no room for 4 pods of it at once")
    assert stage.said_to(pods) == {"seat: 3 free, 4 asked by 4 pods of gang train together"}
    assert stage.states() == {"single": "bound"}
    stage.delete_with_event(single)
    assert stage.said_to(pods) == set()
    assert [stage.bind(pod) for pod in pods] == [""] * 4
    stage.check_well()


def test_a_pod_group_of_which_pods_are_missing_says_how_many(stage: Groups) -> None:
    stage.groups.sizes["train"] = 4
    pods = stage.grouped("train", 3)
    assert stage.bind(pods[0]) == "gang train: 3 of its 4 pods are there"
    assert stage.said_to(pods) == {"gang train: 3 of its 4 pods are there"}
    last = stage.member("train", "train-3", seat=1)
    assert [stage.bind(pod) for pod in (last, *pods)] == [""] * 4
    stage.check_well()


def test_a_pod_group_without_a_gang_s_policy_is_no_gang(stage: Groups) -> None:
    stage.groups.sizes["loose"] = None
    pods = stage.grouped("loose", 5)
    assert [stage.bind(pod) for pod in pods] == ["", "", "", "", "seat: 0 of 4 free, 1 asked"]
    stage.check_well()


def test_pods_beyond_the_smallest_number_are_served_one_by_one(stage: Groups) -> None:
    stage.groups.sizes["wide"] = 3
    *first, last = stage.grouped("wide", 5)
    assert [stage.bind(pod) for pod in first] == [""] * 4
    assert "seat: 0 of 4 free, 1 asked" in stage.bind(last)
    stage.check_well()


def test_a_pod_group_that_grows_gets_the_new_ones_together(stage: Groups) -> None:
    stage.groups.sizes["train"] = 2
    assert [stage.bind(pod) for pod in stage.grouped("train", 2)] == ["", ""]
    later = [stage.member("train", f"later-{number}", seat=1) for number in range(3)]
    assert [stage.bind(pod) for pod in later[:2]] == ["", ""]
    stage.check_well()


def test_pods_that_say_the_size_themselves_are_of_the_same_gang(stage: Groups) -> None:
    stage.groups.sizes["train"] = 2
    annotated = stage.member("train", "leader", {GANG: "train", GANG_SIZE: "2"}, seat=1)
    (worker,) = stage.grouped("train", 1)
    assert stage.bind(annotated) == ""
    assert stage.seats() == {"train-0": "n1"}
    assert stage.bind(worker) == ""
    stage.check_well()


def test_pods_that_only_bear_the_group_s_name_are_another_gang(stage: Groups) -> None:
    stage.groups.sizes["train"] = 2
    (grouped,) = stage.grouped("train", 1)
    stage.pod("bare", annotations={GANG: "train", GANG_SIZE: "2"}, seat=1)
    assert stage.bind(grouped).startswith("gang train: 1 of its 2 pods is there")


@pytest.mark.parametrize(
    ("error", "refusal"),
    [(None, ABSENT), (ClusterRefusedError("may not", 403), UNREAD)],
    ids=["absent", "forbidden"],
)
def test_a_size_that_is_not_known_is_told_until_it_is(
    stage: Groups, error: Exception | None, refusal: str
) -> None:
    stage.groups.error = error
    pods = stage.grouped("train", 2)
    assert stage.bind(pods[0]) == refusal
    assert stage.said_to(pods) == {refusal}
    assert stage.states() == {}
    stage.reconcile()
    assert stage.said_to(pods) == {refusal}, "nothing has changed"
    stage.groups.error, stage.groups.sizes["train"] = None, 2
    stage.reconcile()
    assert stage.woken() == {"train-0", "train-1"}
    assert stage.said_to(pods) == set()
    assert [stage.bind(pod) for pod in pods] == ["", ""]
    stage.check_well()


@pytest.mark.parametrize("error", [None, ClusterRefusedError("may not", 403)], ids=["absent", "forbidden"])
def test_annotations_do_without_a_pod_group(stage: Groups, error: Exception | None) -> None:
    stage.groups.error = error
    noted = {GANG: "train", GANG_SIZE: "2"}
    pods = [stage.member("train", f"train-{number}", noted, seat=1) for number in range(2)]
    assert [stage.bind(pod) for pod in pods] == ["", ""]
    stage.check_well()


def test_annotations_and_a_pod_group_that_differ_are_told_both_until_they_agree(stage: Groups) -> None:
    stage.groups.sizes["train"] = 3
    noted = {GANG: "train", GANG_SIZE: "2"}
    pods = [stage.member("train", f"train-{number}", noted, seat=1) for number in range(3)]
    assert stage.bind(pods[0]) == DISAGREES
    assert stage.said_to(pods) == {DISAGREES}
    stage.reconcile()
    assert stage.said_to(pods) == {DISAGREES}
    stage.groups.sizes["train"] = 2
    stage.reconcile()
    assert stage.said_to(pods) == set()
    assert [stage.bind(pod) for pod in pods] == [""] * 3


def test_another_name_in_the_annotation_is_refused_by_filter_alone(stage: Groups) -> None:
    pod = stage.member("train", "lost", {GANG: "other", GANG_SIZE: "2"}, seat=1)
    why = (
        "annotation berth.dev/gang says 'other', and spec.schedulingGroup names PodGroup 'train': name the "
        "same one, or leave out the annotations"
    )
    assert stage.said_to([pod]) == {why}
    assert stage.bind(pod) == why
    assert stage.groups.reads == []


def test_a_pod_group_larger_than_a_gang_may_be_is_refused(stage: Groups) -> None:
    stage.groups.sizes["huge"] = LARGEST_GANG + 1
    (pod,) = stage.grouped("huge", 1)
    assert (
        stage.bind(pod)
        == "gang huge: its PodGroup wants 513 pods at once (minCount), and a gang has 512 at most"
    )


def test_an_api_server_that_does_not_answer_refuses_nothing_for_long(stage: Groups) -> None:
    stage.groups.sizes["train"] = 2
    pods = stage.grouped("train", 2)
    stage.groups.error = ClusterUnavailableError("down")
    assert stage.bind(pods[0]) == "down"
    assert stage.said_to(pods) == set()
    stage.groups.error = None
    assert [stage.bind(pod) for pod in pods] == ["", ""]


def test_a_seat_is_taken_though_the_pod_group_is_gone(stage: Groups) -> None:
    stage.groups.sizes["train"] = 2
    pods = stage.grouped("train", 2)
    assert stage.bind(pods[0]) == ""
    del stage.groups.sizes["train"]
    assert stage.bind(pods[1]) == ""
    stage.check_well()


def test_nobody_reads_pod_groups_where_no_pod_names_one(stage: Groups) -> None:
    assert [stage.bind(pod) for pod in stage.gang("train", 2, seat=1)] == ["", ""]
    stage.pod("waits", seat=3)
    stage.reconcile()
    assert stage.groups.reads == []


def test_a_pod_that_another_scheduler_bound_counts_also_after_a_reconcile(stage: Groups) -> None:
    """Reconcile does not read it, as it asks for nothing; bind does."""
    stage.groups.sizes["train"] = 3
    spec = {
        "schedulerName": "default-scheduler",
        "nodeName": "n1",
        "containers": [{"name": "main", "resources": {}}],
        "schedulingGroup": {"podGroupName": "train"},
    }
    stage.cluster.create("/api/v1/namespaces/default/pods", {"metadata": {"name": "launcher"}, "spec": spec})
    pods = stage.grouped("train", 2)
    stage.reconcile()
    assert stage.whys(pods) == [{}, {}]
    assert stage.bind(pods[0]) == ""


def test_of_more_pods_than_are_needed_those_are_let_through_that_find_room_together(stage: Groups) -> None:
    """The large ones come first in line, and there is not enough for two of these."""
    stage.groups.sizes["train"] = 2
    stage.bound_pod("holder", many=40)
    large = [stage.member("train", f"a-large-{number}", many=200) for number in range(2)]
    small = [stage.member("train", f"b-small-{number}", many=50) for number in range(2)]
    assert stage.bind(large[0]) != ""
    stage.time.now += 60
    stage.reconcile()
    assert all(stage.whys(large))
    assert stage.whys(small) == [{}, {}]
    assert stage.bind(small[0]) == ""
