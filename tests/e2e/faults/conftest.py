"""One world for all tests of failing binds; each gets it empty, with no fault and no rule.
Whoever needs a kube-scheduler starts one by `world.scheduling()`.
"""

from collections.abc import Iterator

import pytest

from tests.controlplane.lent import Planes
from tests.e2e.faults.checks import UNITS, A, B
from tests.e2e.faults.fault_world import World, world_of
from tests.support.cluster import Object

CONTROL_PLANE = {"labels": {"node-role.kubernetes.io/control-plane": ""}}


@pytest.fixture(scope="package")
def shared(planes: Planes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    nodes = {A: {}, B: {}, "outside": CONTROL_PLANE}
    with world_of(planes, tmp_path_factory.mktemp("bind"), nodes, UNITS) as world:
        yield world


@pytest.fixture
def world(shared: World) -> Iterator[World]:
    with shared.fresh():
        yield shared


@pytest.fixture
def pod(world: World) -> Object:
    return world.cluster.create_pod("pod")
