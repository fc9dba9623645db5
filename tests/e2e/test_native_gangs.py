"""Gangs beside Kubernetes' own (PodGroup, alpha in 1.36), which tries all pods before it binds one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.api.gang import GANG, GANG_SIZE
from tests.controlplane.plane import ControlPlane
from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool, settled
from tests.support.cluster import wait

pytestmark = pytest.mark.long

API = "scheduling.k8s.io/v1alpha2"
GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
_SECONDS = 60.0


@pytest.fixture
def plane(binaries: Path, tmp_path: Path) -> Iterator[ControlPlane]:
    flags = [GATES, f"--runtime-config={API}=true"]
    with ControlPlane(binaries, tmp_path / "plane", apiserver_flags=flags) as started:
        yield started


def group(system: System, name: str, size: int) -> list[str]:
    """Make a PodGroup and its pods, which are a gang of Berth's as well."""
    policy = {"schedulingPolicy": {"gang": {"minCount": size}}}
    body = {"apiVersion": API, "kind": "PodGroup", "metadata": {"name": name}, "spec": policy}
    system.cluster.call("POST", f"/apis/{API}/namespaces/default/podgroups", body)
    names = [f"{name}-{number}" for number in range(size)]
    noted, spec = {GANG: name, GANG_SIZE: str(size)}, {"schedulingGroup": {"podGroupName": name}}
    for each in names:
        system.cluster.create_pod(
            each, {"berth.dev/seat": 1, "berth.dev/gpu": 1}, annotations=noted, spec=spec
        )
    return names


def test_gangs_that_are_pod_groups_are_served_whole_one_after_the_other(system_of: Systems) -> None:
    system = system_of(2, pools=[pool("seat", 4, scope="Cluster"), pool("gpu", 2)], start_scheduler=False)
    system.plane.start_scheduler(system.scheduler_config("berth"), flags=[GATES])
    groups = [group(system, "one", 3), group(system, "two", 3)]

    def bound() -> list[list[str]]:
        there = system.cluster.bound()
        return [[name for name in names if name in there] for names in groups]

    assert system.cluster.get_pod("one-0")["spec"]["schedulingGroup"] == {"podGroupName": "one"}
    wait(lambda: 3 in map(len, bound()), _SECONDS, "one of them is bound")
    first, second = groups if bound()[0] else reversed(groups)
    for name in first:
        assert sorted(map(len, bound())) in ([0, 3], [0, 2], [0, 1])
        system.cluster.delete_pod(name)
    system.cluster.wait_bound(*second, seconds=2 * _SECONDS)
    settled(system)
