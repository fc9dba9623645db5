"""The extender in Go that Berth's pods a second stand beside: it must do the same work, or the ratio says
nothing. How fast it is, `make bench-e2e` measures."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench import __main__ as bench
from tests.bench import go_programs
from tests.bench.client import Client
from tests.bench.contender_processes import Server, server
from tests.controlplane.plane import ControlPlane
from tests.support.cluster import Cluster, wait

pytestmark = pytest.mark.long

UNITS = 2


@pytest.fixture
def up(plane: ControlPlane, cluster: Cluster, tmp_path: Path) -> Iterator[Server]:
    for name in ("node-1", "node-2"):
        cluster.create_node(name)
    kubeconfig = str(plane.kubeconfig(tmp_path / "kubeconfig"))
    command = [str(go_programs.binary("counter")), "-listen", "127.0.0.1:PORT", "-kubeconfig", kubeconfig]
    with server([*command, "-units", str(UNITS)], {}) as counter:
        yield counter


@pytest.fixture
def call(up: Server) -> Iterator[Callable[[str, object], Any]]:
    with Client(up.port) as client:
        yield lambda verb, body: json.loads(client.call(verb, json.dumps(body).encode()).body)


def _held(up: Server) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{up.port}/held", timeout=10) as answer:
        return int(answer.read())


def _binding(cluster: Cluster, pod: str, node: str) -> dict[str, str]:
    uid = cluster.create_pod(pod)["metadata"]["uid"]
    return {"PodName": pod, "PodNamespace": "default", "PodUID": uid, "Node": node}


def test_it_gives_a_nodes_units_and_no_more_and_takes_back_those_of_a_deleted_pod(
    up: Server, call: Callable[[str, object], Any], cluster: Cluster
) -> None:
    offered = {"Pod": {}, "NodeNames": ["node-1", "node-2"]}
    for pod in ("pod-1", "pod-2"):
        assert call("bind", _binding(cluster, pod, "node-1")) == {"Error": ""}
    assert cluster.bound() == {"pod-1": "node-1", "pod-2": "node-1"}
    answer = call("filter", offered)
    assert (answer["NodeNames"], list(answer["FailedNodes"])) == (["node-2"], ["node-1"])
    assert call("prioritize", offered) == [{"Host": "node-1", "Score": 0}, {"Host": "node-2", "Score": 10}]
    assert "no unit" in call("bind", _binding(cluster, "pod-3", "node-1"))["Error"]
    assert _held(up) == 2
    cluster.delete_pod("pod-1")
    wait(lambda: _held(up) == 1, 20, "the deleted pod's unit is free")
    assert set(call("filter", offered)["NodeNames"]) == {"node-1", "node-2"}


def test_a_bind_that_the_api_server_refuses_gives_its_unit_back(
    up: Server, call: Callable[[str, object], Any], cluster: Cluster
) -> None:
    wrong = {**_binding(cluster, "pod-1", "node-1"), "PodUID": "00000000-0000-4000-8000-000000000000"}
    assert call("bind", wrong)["Error"]
    assert (_held(up), cluster.bound()) == (0, {})


@pytest.mark.usefixtures("binaries", "redis_installed")
@pytest.mark.nightly
def test_pods_a_second_are_measured_beside_it_and_without_any_extender(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    tiny = ["scheduled", "--rounds", "2", "--nodes", "4", "--pods", "8", "--json", str(figures)]
    assert bench.main(tiny) in (0, 3)  # whether the mark is met is no matter here
    rows = json.loads(figures.read_text())["rows"]
    assert [row["contender"] for row in rows] == ["no extender", "Go, in memory", "sqlite", "redis"]
    assert all(len(row["rates"]) == 2 and min(row["rates"]) > 0 for row in rows)
    assert rows[1]["ratio"] == 1
    assert {name for row in rows[2:] for name in row["cpu"]} >= {"filter", "prioritize", "bind", "release"}
