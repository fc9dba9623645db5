"""The fixtures for tests on the real control plane; a failed test's report ends with its components' logs.

They start no scheduler and none of berth's functions.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.controlplane.lent import Planes
from tests.controlplane.plane import ControlPlane
from tests.support.builders.places import Place
from tests.support.cluster import Cluster
from tests.support.kubernetes import ASKED, BINARIES, CONTROLPLANE
from tests.support.patience import be_patient
from tests.support.reports import add_logs
from tests.support.servers import haproxy, prometheus
from tests.support.servers.configmaps import ConfigMapServer
from tests.support.servers.motoserver import ENVIRONMENT, PATIENT, MotoServer
from tests.support.servers.rediscluster import RedisCluster
from tests.support.servers.redisserver import MISSING, RedisServer, redis_binary

_NO_GO = 3
_OPERATOR = "github.com/prometheus-operator/prometheus-operator"


def missing(why: str) -> NoReturn:
    """Skip the test for what is not installed here; in CI it fails."""
    if os.environ.get("CI") != "true":
        pytest.skip(why)
    pytest.fail(why, pytrace=False)


@pytest.fixture(scope="session")
def binaries(request: pytest.FixtureRequest) -> Path:
    """The folder of etcd, kube-apiserver, kube-scheduler and kubectl, built first if they are not there."""
    build(request, *([] if ASKED == "newest" else [f"--{ASKED}"]))
    return BINARIES[ASKED]


@pytest.fixture(scope="session")
def helm(request: pytest.FixtureRequest) -> Path:
    """The program, built first if it is not there."""
    build(request, "--helm")
    return CONTROLPLANE / ".bin-helm" / "helm"


@pytest.fixture(scope="session")
def cni(request: pytest.FixtureRequest) -> Path:
    """The folder of Multus' reading of annotations, and of static IPAM, built first if they are not there."""
    build(request, "--cni")
    return CONTROLPLANE / ".bin-cni"


@pytest.fixture(scope="session")
def monitoring_kinds() -> list[Path]:
    """Prometheus Operator's CustomResourceDefinitions, of its own module; without Go the test is skipped."""
    if shutil.which("go") is None:
        missing("no go here: Prometheus Operator's kinds are not at hand")
    command = ["go", "mod", "download", "-json", _OPERATOR]
    place = CONTROLPLANE.parent / "monitoring" / "operator"
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = Path(json.loads(done.stdout)["Dir"]) / "example" / "prometheus-operator-crd"
    return [folder / f"monitoring.coreos.com_{name}.yaml" for name in ("podmonitors", "prometheusrules")]


def build(request: pytest.FixtureRequest, *options: str) -> None:
    """Run tests/controlplane/build; without Go the test is skipped, and in CI it fails."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    command = [sys.executable, str(CONTROLPLANE / "build"), "--quiet", *options]
    # Six minutes of silence look like a hang, so the first build's progress goes past pytest's capture.
    with capture.global_and_fixture_disabled():
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode == _NO_GO and os.environ.get("CI") != "true":
        pytest.skip(done.stderr.strip())
    if done.returncode:
        pytest.fail(f"tests/controlplane/build: {done.stderr.strip()}", pytrace=False)


def _sqlite(_: pytest.FixtureRequest, folder: Path) -> Place:
    path = folder / "a b%" / "ledger.db"
    return Place("sqlite", f"sqlite:///{path}", lambda: path.unlink(missing_ok=True))


def _redis(request: pytest.FixtureRequest, _: Path) -> Place:
    server: RedisServer = request.getfixturevalue("redis_server")
    server.flush()
    return Place("redis", f"{server.url}/0", server.flush)


def _redis_cluster(request: pytest.FixtureRequest, _: Path) -> Place:
    cluster: RedisCluster = request.getfixturevalue("redis_cluster")
    cluster.flush()
    return Place("redis-cluster", cluster.url, cluster.flush)


def _configmap(request: pytest.FixtureRequest, _: Path) -> Place:
    servers: ConfigMapServer = request.getfixturevalue("configmap_server")
    # Stores find their API server as everything does: by the environment, also in processes that are spawned.
    monkeypatch = request.getfixturevalue("monkeypatch")
    monkeypatch.setenv("KUBECONFIG", str(servers.kubeconfig))
    be_patient(monkeypatch)
    name = servers.new_name()
    request.addfinalizer(lambda: servers.delete(name))
    return Place("configmap", servers.url(name), lambda: servers.delete(name))


def _dynamodb(request: pytest.FixtureRequest, _: Path) -> Place:
    server: MotoServer = request.getfixturevalue("moto_server")
    monkeypatch = request.getfixturevalue("monkeypatch")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    be_patient(monkeypatch)
    table = server.new_table()
    server.make(table)
    request.addfinalizer(lambda: server.drop(table))
    return Place("dynamodb", server.url(table, PATIENT), lambda: server.lose(table))


PLACES: dict[str, Callable[[pytest.FixtureRequest, Path], Place]] = {
    "configmap": _configmap,
    "dynamodb": _dynamodb,
    "redis": _redis,
    "redis-cluster": _redis_cluster,
    "sqlite": _sqlite,
}


@pytest.fixture(scope="session")
def configmap_server(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfigMapServer]:
    """The session's etcd and API server for ledgers in ConfigMaps, each with a name of its own."""
    with ConfigMapServer(binaries, tmp_path_factory.mktemp("configmaps")) as server:
        yield server


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    """The session's stand-in for DynamoDB; each test has a table of its own."""
    with MotoServer(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def redis_installed() -> Path:
    """For tests that start servers of their own; the program."""
    if (found := redis_binary()) is not None:
        return found
    missing(MISSING)


@pytest.fixture(scope="session")
def haproxy_program() -> Path:
    """The HAProxy that is installed here."""
    if (found := haproxy.haproxy_binary()) is not None:
        return found
    missing(haproxy.MISSING)


@pytest.fixture(scope="session")
def skopeo_program() -> Path:
    """The skopeo that is installed here."""
    if (program := shutil.which("skopeo")) is not None:
        return Path(program)
    missing("no skopeo here: run `make skopeo`, or install it (apt-get install skopeo)")


@pytest.fixture(scope="session")
def promtool_installed() -> Path:
    """The promtool that is installed here, with Prometheus beside it."""
    if (found := prometheus.prometheus_binaries()) is not None:
        return found[1]
    missing(prometheus.MISSING)


@pytest.fixture(scope="session")
def redis_server(redis_installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The session's server, for tests that do not harm it; `place` empties it before each."""
    assert redis_installed.exists()
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster(redis_installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """The session's Cluster, for tests that do not harm it; `place` empties it before each."""
    assert redis_installed.exists()
    with RedisCluster(tmp_path_factory.mktemp("redis-cluster")) as cluster:
        yield cluster


@pytest.fixture
def own_redis(redis_installed: Path, tmp_path: Path) -> Iterator[RedisServer]:
    """A server of this test's own, which it may harm."""
    assert redis_installed.exists()
    with RedisServer(tmp_path / "redis") as server:
        yield server


@pytest.fixture(params=sorted(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place for a ledger, once for each store."""
    return PLACES[request.param](request, tmp_path)


@pytest.fixture(scope="session")
def planes(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planes]:
    """Lends control planes that are used again once they were emptied."""
    lender = Planes(binaries, tmp_path_factory.mktemp("planes"))
    yield lender
    lender.stop()


@pytest.fixture
def plane(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlPlane]:
    """An empty control plane; an indirect parameter gives it users ({token: (user, groups)})."""
    if hasattr(request, "param"):
        own = ControlPlane(request.getfixturevalue("binaries"), tmp_path / "plane", request.param)
        with own:
            yield own
            own.require_no_flush()
        return
    planes: Planes = request.getfixturevalue("planes")
    with planes.lent() as lent:
        yield lent


@pytest.fixture
def cluster(plane: ControlPlane) -> Iterator[Cluster]:
    """The plane's API server as its admin sees it."""
    admin = Cluster(plane.url, plane.admin_token, plane.ca_file)
    yield admin
    admin.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    add_logs(item, report, ControlPlane, _logs)
    return report


def _logs(plane: ControlPlane) -> Iterator[tuple[str, str]]:
    for name, text in plane.logs().items():
        yield f"end of {name}'s log", text
