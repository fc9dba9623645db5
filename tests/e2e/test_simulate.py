"""`berth simulate` says what the real kube-scheduler then does, on clusters drawn from seeds.

Which clusters those are, and why the number of pods that fit in them is determined although kube-scheduler
breaks ties at random, is told in tests/support/builders/generated_clusters.py. Part of the pods run before
the simulation, or wait; the others are then created in the order in which kube-scheduler's queue takes them,
by priority, each wave once the one before is placed or refused.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from berth.cli import main
from tests.e2e.conftest import Systems
from tests.e2e.harness import System
from tests.support.builders.generated_clusters import NAMESPACES, PRIORITIES, Generated, alike, pinned
from tests.support.cluster import Cluster, Object, pods_path, wait

pytestmark = pytest.mark.long

SECONDS = 30.0

Say = Callable[[Sequence[Object], Sequence[str]], Object]


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(3), id="3"), pytest.param(range(20), marks=pytest.mark.nightly, id="20")],
)
def test_as_many_pods_are_placed_as_was_said(
    system_of: Systems,
    seeds: range,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = system_of()
    for name, value in PRIORITIES.items():
        system.cluster.create_priority_class(name, value)
    for name in NAMESPACES:
        system.cluster.create_namespace(name)
    for variable in ("KUBECONFIG", "BERTH_STORE", "BERTH_POOLS"):  # main sets them; this takes it back
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    monkeypatch.delenv("BERTH_POOLS")

    def simulated(pods: Sequence[Object], options: Sequence[str]) -> Object:
        path = tmp_path / "pods.json"
        path.write_text(json.dumps({"kind": "List", "items": pods}))
        common = ["--kubeconfig", str(system.berth.kubeconfig), "--store", system.berth.store]
        code = main(["simulate", "-f", str(path), *common, "-o", "json", *options])
        report: Object = json.loads(capsys.readouterr().out)
        assert code == int(report["summary"]["fit"] != len(pods))
        return report

    told = Counter[str]()
    for seed in seeds:
        drawn = pinned(seed) if seed % 3 == 2 else alike(seed)
        _make(system, drawn)
        told.update(_compare(system, drawn, simulated, f"seed {seed}"))
        _clear(system)
    # Both ways of ending were met, and each thing that may bind did.
    assert min(told[what] for what in ("placed", "refused", "by CPU", "by a pool")) > len(seeds)


def _compare(system: System, drawn: Generated, simulated: Say, seed: str) -> Counter[str]:
    """Place the pods for real as was said they would be; how many were placed and refused, and why."""
    early = drawn.waves[:6] if drawn.pinned else drawn.waves[:1]
    late = drawn.waves[len(early) :]
    told = Counter[str]()
    for waves, options in ((early, []), (late, ["--with-waiting"] if len(late) % 2 else [])):
        report = simulated([pod for wave in waves for pod in wave], options)
        said = {one["pod"]: one["node"] for one in report["placed"]}
        for wave in waves:
            _create(system.cluster, wave)
            decided = partial(_decided, system.cluster, wave, said)
            wait(decided, SECONDS, _texts(seed, report))
        _agree(system, waves, report, drawn, seed)
        told += _counted(report)
    return told


def _agree(
    system: System, waves: Iterable[Sequence[Object]], report: Object, drawn: Generated, seed: str
) -> None:
    """Once all are placed or refused: how many of each wave are placed, and what they hold by pool."""
    said = {one["pod"]: one for one in report["placed"]}
    bound = {pod: node for namespace in NAMESPACES for pod, node in system.cluster.bound(namespace).items()}
    for wave in waves:
        names = {pod["metadata"]["name"] for pod in wave}
        placed = {name: said[name]["node"] for name in names & said.keys()}
        there = {name: bound[name] for name in names & bound.keys()}
        assert len(there) == len(placed), f"{seed}: {report}"
        if drawn.pinned:
            assert there == placed, f"{seed}: {report}"
    # A bind that was answered has reserved what it gives, if not confirmed it yet.
    mine = {pod["metadata"]["name"] for wave in waves for pod in wave}
    held = Counter[str]()
    for claim in system.berth.ledger().claims():
        for holding in claim.holdings if claim.name in mine else ():
            held[holding.pool] += 0 if holding.is_quota else holding.count
    units = Counter[str]()
    for one in report["placed"]:
        for part in one["units"]:
            units[part["pool"]] += part["count"]
    assert held == units, f"{seed}: {report}"


def _counted(report: Object) -> Counter[str]:
    reasons = [" ".join(one["reasons"]) for one in report["refused"]]
    return Counter(
        {
            "placed": len(report["placed"]),
            "refused": len(report["refused"]),
            "by CPU": sum("Insufficient cpu" in text for text in reasons),
            "by a pool": sum("asked" in text for text in reasons),
        }
    )


def _make(system: System, drawn: Generated) -> None:
    with ThreadPoolExecutor(8) as workers:
        made = workers.map(lambda name: system.cluster.create_node(name, **drawn.nodes[name]), drawn.nodes)
        list(made)
    for name in drawn.cordoned:
        system.cluster.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
    system.berth.write_pools(drawn.pools)
    # Events of the new nodes look at the Pools meanwhile, and may be ahead of it.
    wait(lambda: not system.berth.reconcile()["problems"], 60, "the Pools are taken over")


def _create(cluster: Cluster, pods: Iterable[Object]) -> None:
    with ThreadPoolExecutor(8) as workers:
        list(
            workers.map(lambda pod: cluster.call("POST", pods_path(pod["metadata"]["namespace"]), pod), pods)
        )


def _decided(cluster: Cluster, wave: Sequence[Object], said: Object) -> bool:
    """Whether as many of these pods are bound as was said, and kube-scheduler has refused all others."""
    names = {pod["metadata"]["name"] for pod in wave}
    pods = [pod for pod in cluster.list_pods(None) if pod["metadata"]["name"] in names]
    bound = [pod for pod in pods if pod["spec"].get("nodeName")]
    refused = [pod for pod in pods if pod not in bound and _is_refused(pod)]
    return len(bound) == len(names & said.keys()) and len(bound) + len(refused) == len(names)


def _is_refused(pod: Object) -> bool:
    """Whether kube-scheduler found no node for it; one whose bind was refused comes again."""
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)


def _texts(seed: str, report: Object) -> str:
    return f"{seed}: pods are placed or refused as was said: {report}"


def _clear(system: System) -> None:
    cluster = system.cluster
    for namespace in NAMESPACES:
        cluster.call("DELETE", f"{pods_path(namespace)}?gracePeriodSeconds=0")
    wait(lambda: not any(cluster.list_pods(name) for name in NAMESPACES), SECONDS, "all pods are gone")
    system.berth.reconcile()
    # Before their nodes go: units with names stay held on a node that is lost.
    wait(lambda: not _held(system), SECONDS, "nobody holds anything")
    cluster.call("DELETE", "/api/v1/nodes")


def _held(system: System) -> list[str]:
    return [claim.label for claim in system.berth.ledger().claims() if not claim.is_external]
