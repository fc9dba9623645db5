"""docs/tutorial.md as it stands there, on a real kube-scheduler; only URLs, ports and nodes are the tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.lent import Planes
from tests.e2e.conftest import Systems
from tests.e2e.scenarios import Scenario, documents_of, emptied, stop_schedulers
from tests.support.cluster import Cluster, wait

pytestmark = pytest.mark.long

PAGE = "../tutorial.md"
THIRD = "matlab-3"


@pytest.fixture
def systems(planes: Planes, tmp_path: Path) -> Iterator[Systems]:
    with planes.lent() as plane:
        cluster = Cluster(plane.url, plane.admin_token, plane.ca_file)
        made = Systems(plane, cluster, tmp_path)
        yield made
        stop_schedulers(plane)
        made.stop()
        emptied(plane)
        cluster.close()


def test_the_tutorial_does_what_it_says(systems: Systems) -> None:
    system = systems(2, start_berth=False, pools=documents_of(PAGE, "pools.yaml"))
    page, cluster, berth = Scenario(PAGE, system), system.cluster, system.berth
    berth.environment = {"BERTH_POOLS": str(berth.pools_file), "BERTH_STORE": berth.store}
    page.run("berth validate -f pools.yaml")
    berth.start()
    system.plane.start_scheduler(system.scheduler_config("tutorial"), "tutorial")
    assert "2 of 3 " in page.run("berth simulate -f matlab.yaml", ends_with=1)
    assert "3 of 3 " in page.run("berth simulate -f matlab.yaml --pools more.yaml")

    page.run("kubectl apply -f matlab.yaml")
    assert page.pods_of("matlab")[-1] == THIRD
    wait(lambda: system.cluster.condition(THIRD, "PodScheduled"), 60, "kube-scheduler refuses the third pod")
    assert set(cluster.bound()) == {"matlab-1", "matlab-2"}
    assert THIRD in page.run("berth waiting")
    why = page.run(f"berth explain pod default/{THIRD}")
    assert "matlab-seat: 0 of 2 free, 1 asked" in why
    assert "default/matlab-1" in why
    assert "seat-1" in page.run("berth claims --units")

    assert "+" in page.run("berth diff -f more.yaml", ends_with=1)
    page.run("berth apply -f more.yaml")
    cluster.wait_bound(THIRD, seconds=30)
    assert "seat-3" in page.run(f"berth explain pod default/{THIRD}")
    page.run("berth status")
    page.run("berth doctor")
    # The functions run here by infra's accounts, so for `check` Berth is installed, and most of it missing.
    assert "versions.knative" in page.run("berth check", ends_with=1)
    page.run("kubectl delete deployment matlab")
    page.remove_pods()
    wait(lambda: not berth.claims(), 60, "all seats free")
