"""An overlay on Knative's own programs, one at a time for the whole run.

A failed test's report ends with what they and Berth's functions said.
"""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.controlplane.plane import ControlPlane
from tests.knative.install import knative_on
from tests.knative.overlay import Overlay, overlay_on
from tests.support.fixtures import build
from tests.support.kubernetes import CONTROLPLANE
from tests.support.reports import add_logs

NODES = {f"node-{number}": 100 for number in range(1, 6)}


@pytest.fixture(scope="session")
def knative_binaries(binaries: Path, request: pytest.FixtureRequest) -> Path:
    """The folder of Knative's programs, built first if they are not there."""
    assert binaries.is_dir()
    build(request, "--knative")
    return CONTROLPLANE / ".bin-knative"


@pytest.fixture(scope="session")
def installed(
    request: pytest.FixtureRequest,
    binaries: Path,
    knative_binaries: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Overlay]:
    """The overlay that the test names, with 500 units on 5 nodes and a kube-scheduler; with +events-oidc that
    component of infra too, and Knative's senders show who they are."""
    name, _, more = request.param.partition("+")
    folder = tmp_path_factory.mktemp(name)
    with (
        ControlPlane(binaries, folder / "plane") as plane,
        knative_on(plane, knative_binaries, folder / "knative", oidc=bool(more)) as knative,
        overlay_on(knative, name, folder / "overlay", NODES, more) as overlay,
    ):
        yield overlay


@pytest.fixture
def overlay(installed: Overlay) -> Iterator[Overlay]:
    """Without pods, all units free, all functions and adapters running."""
    installed.clear()
    yield installed
    installed.clear()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Which overlays a module runs on is its OVERLAYS, but for the first at night; by default the one with a
    Broker."""
    if "installed" in metafunc.fixturenames:
        first, *others = getattr(metafunc.module, "OVERLAYS", ("per-verb",))
        names = [first, *(pytest.param(name, marks=pytest.mark.nightly) for name in others)]
        metafunc.parametrize("installed", names, indirect=True, scope="session")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    add_logs(item, report, Overlay, lambda overlay: [*overlay.logs(), *overlay.knative.pods.logs()])
    return report
