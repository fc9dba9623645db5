"""What a user gets who installs the wheel: berth in a new virtual environment, run in an empty directory.

No package index is asked: the new environment finds Berth's dependencies in that of this test run, by a .pth
file; berth itself comes from the wheel. That a package index has those dependencies is not shown here.
"""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.testing.api_server import StandIn
from tests.e2e import harness
from tests.e2e.harness import Berth, pool
from tests.support.builders.places import Place
from tests.support.cluster import Cluster, wait

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 180


def run(*command: str | Path, folder: Path) -> str:
    """Its standard output; nothing of the checkout is on its path."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "BERTH_"))
    }
    done = subprocess.run(
        [str(each) for each in command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def pip(*arguments: str | Path, folder: Path) -> None:
    run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments, folder=folder)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    pip(
        "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, ROOT, folder=folder
    )
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new virtual environment with the wheel in it."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    # Before the .pth file: pip must not see, let alone take away, the berth that runs this test.
    pip("--python", python, "install", "--no-deps", "--no-index", wheel, folder=folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def test_the_wheel_carries_the_functions_and_the_scripts_of_the_stores(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    functions = {path.relative_to(ROOT / "functions").as_posix() for path in ROOT.glob("functions/*/main.py")}
    scripts = {path.relative_to(ROOT / "shared").as_posix() for path in ROOT.glob("shared/berth/**/*.lua")}
    assert {f"berth/_functions/{name}" for name in functions} <= names
    assert scripts <= names
    assert "functions/bind/main.py" in {name.removeprefix("berth/_") for name in names}


def test_berth_comes_from_the_wheel(installed: Path, empty: Path) -> None:
    where = Path(run(installed / "python", "-c", "import berth; print(berth.__file__)", folder=empty).strip())
    assert installed.parent in where.parents
    assert "usage: berth" in run(installed / "berth", "--help", folder=empty)


def test_the_demo_runs_from_the_wheel_in_an_empty_directory(installed: Path, empty: Path) -> None:
    said = run(installed / "berth", "demo", "--json", folder=empty)
    assert json.loads(said.splitlines()[-1])
    assert list(empty.iterdir()) == []


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn() as served:
        yield served


def test_berth_up_runs_from_the_wheel_in_an_empty_directory(
    installed: Path,
    empty: Path,
    stand_in: StandIn,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name in [name for name in os.environ if name.startswith("PYTHON")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(harness, "BERTH", str(installed / "berth"))
    cluster = Cluster(stand_in.url, "")
    cluster.call("POST", "/api/v1/nodes", {"metadata": {"name": "node-1"}})
    berth = Berth(empty, stand_in.kubeconfig(tmp_path / "kubeconfig"), [pool(units=1)], store=place.url)
    try:
        berth.start(SECONDS)
        errors = [bound(cluster, berth, name) for name in ("first", "second")]
        wait(lambda: berth.claims() == [("first", "underlay-ip", 1)], SECONDS, "the claim of the first pod")
        assert berth.reconcile()["problems"] == []
    finally:
        berth.stop()
        cluster.close()
    assert errors[0] == ""
    assert "underlay-ip: 0 of 1 free, 1 asked" in errors[1]


def bound(cluster: Cluster, berth: Berth, name: str) -> str:
    """What bind says of a new pod."""
    pod = cluster.create_pod(name)["metadata"]
    call = {"PodName": name, "PodNamespace": "default", "PodUID": pod["uid"], "Node": "node-1"}
    error: str = berth.post("bind", call).body["Error"]
    return error
