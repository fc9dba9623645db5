"""The fixture `system_of`; a failed test's report also ends with what berth and its functions said.

It adds nothing to the control plane's own fixtures (tests/support/fixtures.py).
"""

from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.harness import Berth, System
from tests.support.builders.accounts import FUNCTIONS, Accounts
from tests.support.builders.places import Place
from tests.support.cluster import Cluster, Object
from tests.support.fixtures import PLACES, missing
from tests.support.reports import add_logs
from tests.support.schemas import KNATIVE


class Systems:
    """Makes this test's systems, all on its one control plane. Every function holds its own account's token
    alone, with infra's rights."""

    def __init__(self, plane: ControlPlane, cluster: Cluster, folder: Path) -> None:
        self._plane, self._cluster, self._folder = plane, cluster, folder
        self._accounts = Accounts(plane, cluster, folder)
        self.made: list[System] = []

    def __call__(
        self,
        nodes: int | Mapping[str, Mapping[str, Any]] = 0,
        start_scheduler: bool = True,
        start_berth: bool = True,
        functions: Path = FUNCTIONS,
        **berth: Any,
    ) -> System:
        """`nodes`: a number makes node-1 to node-n; a mapping gives create_node's options by name.

        `berth`: what class Berth takes (pools, environment, port, store)."""
        plenty = {f"node-{number}": {} for number in range(1, nodes + 1)} if isinstance(nodes, int) else nodes
        with ThreadPoolExecutor(8) as workers:
            list(workers.map(lambda name: self._cluster.create_node(name, **plenty[name]), plenty))
        folder = self._folder / f"berth-{len(self.made)}"
        folder.mkdir()
        kubeconfig = self._plane.kubeconfig(folder / "kubeconfig")
        functions = self._accounts.functions(folder, functions)
        started = Berth(folder, kubeconfig, functions=functions, **berth)
        system = System(self._plane, self._cluster, started, self._accounts)
        self.made.append(system)
        if start_berth:
            system.berth.start()
            if start_scheduler:
                system.start_scheduler()
        return system

    def stop(self) -> None:
        for system in self.made:
            system.berth.end()

    def logs(self) -> Iterator[tuple[str, str]]:
        for system in self.made:
            lines: list[Object] = system.berth.lines
            yield f"end of berth up's lines ({system.berth.folder.name})", "\n".join(map(str, lines[-30:]))
            yield f"end of berth up's stderr ({system.berth.folder.name})", system.berth.said()


@pytest.fixture(params=["redis", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """One store of each kind, a file and a server: the others are under load in tests/chaos."""
    return PLACES[request.param](request, tmp_path)


@pytest.fixture(scope="session")
def knative() -> Path:
    """The folder of Knative's CustomResourceDefinitions."""
    if not KNATIVE.is_dir():
        missing(f"Knative's CRDs are not at {KNATIVE}: run make controlplane")
    return KNATIVE


@pytest.fixture
def system_of(plane: ControlPlane, cluster: Cluster, tmp_path: Path) -> Iterator[Systems]:
    systems = Systems(plane, cluster, tmp_path)
    yield systems
    systems.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    add_logs(item, report, Systems, Systems.logs)
    return report
