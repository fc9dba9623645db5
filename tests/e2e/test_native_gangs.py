"""Gangs that Kubernetes itself names (PodGroup): kube-scheduler tries all pods of a group before it binds
one, and asks filter for each of them. Berth reads the group's size from the PodGroup."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from berth.api.gang import GANG, GANG_SIZE
from tests.controlplane.plane import ControlPlane
from tests.e2e.conftest import Systems
from tests.e2e.counting import CountedFilter
from tests.e2e.harness import System, pool, settled
from tests.support.cluster import wait
from tests.support.kubernetes import POD_GROUPS, POD_GROUPS_ON, has, since

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not has("1.36"), reason="needs Kubernetes 1.36: PodGroups"),
]

SEAT = pool("seat", 4, scope="Cluster")
PATH = f"/apis/{POD_GROUPS}/namespaces/default/podgroups"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
IDLE_SECONDS = 30
_SECONDS = 60.0


@pytest.fixture
def plane(binaries: Path, tmp_path: Path) -> Iterator[ControlPlane]:
    flags = [POD_GROUPS_ON, f"--runtime-config={POD_GROUPS}=true"]
    with ControlPlane(binaries, tmp_path / "plane", apiserver_flags=flags) as started:
        yield started


def with_groups(system_of: Systems, nodes: int = 2, **berth: Any) -> System:
    """Start a system whose kube-scheduler knows PodGroups."""
    system = system_of(nodes, start_scheduler=False, **berth)
    system.plane.start_scheduler(system.scheduler_config("berth"), flags=[POD_GROUPS_ON])
    return system


def pod_group(system: System, name: str, size: int | None) -> None:
    """Make a PodGroup that wants so many pods at once (None: its policy is basic)."""
    policy: dict[str, Any] = {"basic": {}} if size is None else {"gang": {"minCount": size}}
    metadata = {"name": name, "namespace": "default"}
    spec = {"schedulingPolicy": policy}
    body = {"apiVersion": POD_GROUPS, "kind": "PodGroup", "metadata": metadata, "spec": spec}
    system.cluster.call("POST", PATH, body)


def pods(
    system: System, group: str, count: int, asks: Mapping[str, int] | None = None, **how: Any
) -> list[str]:
    """Make so many pods of a PodGroup."""
    names = [f"{group}-{number}" for number in range(count)]
    for name in names:
        spec = {"schedulingGroup": {"podGroupName": group}}
        system.cluster.create_pod(name, asks or {"berth.dev/seat": 1}, spec=spec, **how)
    return names


def bound(system: System, *groups: list[str]) -> list[int]:
    """Return how many pods of each group are bound."""
    there = system.cluster.bound()
    return [sum(name in there for name in names) for names in groups]


def says(system: System, pod: str, text: str) -> None:
    wait(lambda: any(text in event for event in system.cluster.events_of(pod)), _SECONDS, f"{pod}: {text}")


def test_four_pods_of_a_pod_group_for_three_units_wait_and_say_why(
    system_of: Systems, tmp_path: Path
) -> None:
    counted = CountedFilter(tmp_path)
    system = with_groups(system_of, pools=[SEAT], functions=counted.functions)
    system.cluster.create_pod("single", {"berth.dev/seat": 1})
    system.cluster.wait_bound("single")
    pod_group(system, "train", 4)
    names = pods(system, "train", 4)
    for name in names:  # once all are too many kube-scheduler asks about the first of them alone
        says(system, name, "gang train")
    why = "seat: 3 free, 4 asked by 4 pods of gang train together"
    wait(lambda: any(why in system.cluster.events_of(name)[-1] for name in names), _SECONDS, why)
    before = counted.calls
    time.sleep(IDLE_SECONDS)  # what is counted is what is done in this time
    made = counted.calls - before
    if has("1.37"):  # the kube-scheduler of 1.36 tries a refused group without a pause
        assert made.total() <= 2 * len(names), made
    assert set(system.cluster.bound()) == {"single"}
    assert system.berth.claims() == [("single", "seat", 1)]
    system.cluster.delete_pod("single")
    assert set(system.cluster.wait_bound(*names, seconds=_SECONDS)) == {*names}
    settled(system)


def test_of_two_pod_groups_one_is_served_whole_and_then_the_other(system_of: Systems) -> None:
    system = with_groups(system_of, pools=[SEAT, pool("gpu", 2)])
    groups = []
    for name in ("one", "two"):
        pod_group(system, name, 3)
        groups.append(pods(system, name, 3, {"berth.dev/seat": 1, "berth.dev/gpu": 1}))
    assert system.cluster.get_pod("one-0")["spec"]["schedulingGroup"] == {"podGroupName": "one"}
    wait(lambda: 3 in bound(system, *groups), _SECONDS, "one of them is bound")
    first, second = groups if bound(system, *groups)[0] else reversed(groups)
    for name in first:
        assert not bound(system, second)[0]
        system.cluster.delete_pod(name)
    assert set(system.cluster.wait_bound(*second, seconds=2 * _SECONDS)) == {*second}
    settled(system)


@pytest.mark.nightly
def test_pod_groups_whose_pods_are_annotated_as_well_are_the_same_gangs(system_of: Systems) -> None:
    system = with_groups(system_of, pools=[SEAT])
    groups = []
    for name in ("one", "two"):
        pod_group(system, name, 3)
        groups.append(pods(system, name, 3, annotations={GANG: name, GANG_SIZE: "3"}))
    wait(lambda: 3 in bound(system, *groups), _SECONDS, "one of them is bound")
    first, second = groups if bound(system, *groups)[0] else reversed(groups)
    for name in first:
        assert not bound(system, second)[0]
        system.cluster.delete_pod(name)
    assert set(system.cluster.wait_bound(*second, seconds=2 * _SECONDS)) == {*second}
    settled(system)


@pytest.mark.nightly
def test_pods_of_a_pod_group_that_is_no_gang_are_bound_one_by_one(system_of: Systems) -> None:
    system = with_groups(system_of, pools=[pool("seat", 3, scope="Cluster")])
    pod_group(system, "loose", None)
    names = pods(system, "loose", 4)
    wait(lambda: bound(system, names) == [3], _SECONDS, "three of four are bound")
    (waiting,) = {*names} - system.cluster.bound().keys()
    says(system, waiting, "seat: 0 of 3 free, 1 asked")
    settled(system)


@pytest.mark.nightly
def test_pods_beyond_the_smallest_number_are_served_one_by_one(system_of: Systems) -> None:
    system = with_groups(system_of, pools=[pool("seat", 5, scope="Cluster")])
    pod_group(system, "wide", 4)
    names = pods(system, "wide", 6)
    wait(lambda: bound(system, names) == [5], _SECONDS, "five of six are bound")
    (waiting,) = {*names} - system.cluster.bound().keys()
    says(system, waiting, "seat: 0 of 5 free, 1 asked")
    settled(system)


@pytest.mark.nightly
def test_a_size_that_can_t_be_read_is_told_with_what_to_do(system_of: Systems) -> None:
    system = with_groups(system_of, pools=[SEAT])
    role = system.cluster.get(f"{ROLES}/berth-bind")
    fewer = [rule for rule in role["rules"] if rule["resources"] != ["podgroups"]]
    assert len(fewer) == len(role["rules"]) - 1
    system.cluster.patch(f"{ROLES}/berth-bind", {"rules": fewer})
    pod_group(system, "train", 3)
    names = pods(system, "train", 3)
    says(
        system,
        names[0],
        "gang train: Berth may not read its PodGroup, so its size is not known: let Berth get podgroups of "
        "scheduling.k8s.io, or give its pods the annotations berth.dev/gang and berth.dev/gang-size",
    )
    assert bound(system, names) == [0]
    system.cluster.patch(f"{ROLES}/berth-bind", {"rules": role["rules"]})
    system.berth.reconcile()
    assert set(system.cluster.wait_bound(*names, seconds=_SECONDS)) == {*names}
    settled(system)


@since("1.37", "minCount can be changed")
def test_pods_and_pod_group_that_disagree_are_told_both(system_of: Systems) -> None:
    system = with_groups(system_of, pools=[SEAT])
    pod_group(system, "train", 3)
    names = pods(system, "train", 3, annotations={GANG: "train", GANG_SIZE: "2"})
    says(
        system,
        names[0],
        "gang train: its pods say that it has 2 pods (berth.dev/gang-size), and its PodGroup 3 (minCount): "
        "make them equal, or leave out the annotations",
    )
    assert bound(system, names) == [0]
    system.cluster.patch(f"{PATH}/train", {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})
    system.berth.reconcile()
    assert set(system.cluster.wait_bound(*names, seconds=_SECONDS)) == {*names}
    settled(system)


def test_a_scheduler_without_pod_groups_waits_for_the_pod_group_all_the_same(system_of: Systems) -> None:
    """Its API server has them, and keeps the pods' field."""
    system = system_of(2, pools=[SEAT])
    names = pods(system, "train", 3)
    says(
        system,
        names[0],
        "gang train: there is no PodGroup of this name, so its size is not known: make one, or give its pods "
        "the annotations berth.dev/gang and berth.dev/gang-size",
    )
    pod_group(system, "train", 3)
    system.berth.reconcile()
    assert set(system.cluster.wait_bound(*names, seconds=_SECONDS)) == {*names}
    settled(system)
