"""docs/scenarios as they stand there, on a real kube-scheduler; only URLs, ports and nodes are the tests'.
All pages on one control plane, which each finds empty; the rest of what they say, other tests show."""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import pytest
import yaml

from berth.local.ports import free_port, is_free
from tests.controlplane.lent import Planes
from tests.controlplane.plane import ControlPlane
from tests.e2e.conftest import Systems
from tests.e2e.harness import CONTROL_PLANE, System
from tests.e2e.scenarios import Scenario, documents_of, emptied, files_of, stop_schedulers
from tests.support.builders.manifests import serve_pools
from tests.support.cluster import Cluster, Object, pod_path, wait
from tests.support.kubectl import Kubectl

pytestmark = pytest.mark.long

IP_SCHEDULER, DEMO, CONFIGURATION = "ip-scheduler.md", "demo-extender.md", "extender-configuration.md"
CLAIMS, NAMES, ADDRESSES = "claims.md", "node-names.md", "addresses.md"
POOL = "underlay-ip"
TODAY = "no bindings today"
POOL_CLAIMS = "/apis/berth.dev/v1alpha1/namespaces/default/poolclaims"
FULL = "seat: 0 of 3 free, 1 asked"
EXTENDER = 7  # ports after the first


@pytest.fixture(scope="module")
def plane(planes: Planes) -> Iterator[ControlPlane]:
    with planes.lent() as lent:
        yield lent


@pytest.fixture(scope="module")
def systems(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Systems]:
    cluster = Cluster(plane.url, plane.admin_token, plane.ca_file)
    yield Systems(plane, cluster, tmp_path_factory.mktemp("systems"))
    cluster.close()


@pytest.fixture
def system_of(plane: ControlPlane, systems: Systems) -> Iterator[Systems]:
    yield systems
    stop_schedulers(plane)
    systems.stop()
    emptied(plane)


def _with_pool_objects(name: str, system: System) -> Scenario:
    """The page as far as its start: its Pools are objects, and all runs."""
    page, berth = Scenario(name, system), system.berth
    serve_pools(system.cluster)
    page.run("kubectl apply -f pools.yaml")
    berth.environment = {"BERTH_STORE": berth.store}
    berth.start()
    scheduler = name.removesuffix(".md")
    system.plane.start_scheduler(system.scheduler_config(scheduler), scheduler)
    return page


# claims.md


def test_the_page_on_claims_does_what_it_says(system_of: Systems) -> None:
    system = system_of({"node-1": {}, "node-2": {}, "node-3": {}}, start_berth=False, pools=None)
    page, cluster = _with_pool_objects(CLAIMS, system), system.cluster
    page.run("kubectl cordon node-1")
    page.run("kubectl apply -f deployment.yaml")
    (first,) = page.pods_of("gpu")
    page.event(first, "there is no PoolClaim k80-erc in the pod's namespace")
    before = cluster.get(POOL_CLAIMS)["metadata"]["resourceVersion"]
    page.run("kubectl apply -f k80-erc.yaml")
    assert cluster.wait_bound(first, seconds=30) == {first: "node-2"}
    seen = wait(lambda: _shown(page) if "Bound" in _shown(page) else "", 60, "the PoolClaim Bound")
    assert seen.split()[:6] == ["k80-erc", "Bound", "k80", '["k80-2"]', "node-2", first]
    assert _phases(system, before) == ["Available", "Reserved", "Bound"]

    page.run("kubectl uncordon node-1")
    page.remove_pods()
    wait(lambda: _shown(page).split()[:3] == ["k80-erc", "Available", "k80"], 60, "the PoolClaim Available")
    assert cluster.wait_bound(*page.pods_of("gpu")) == {first: "node-2"}

    page.run("kubectl scale deployment gpu --replicas=2")
    *_, second = page.pods_of("gpu")
    page.event(second, "k80: another pod holds PoolClaim k80-erc")
    held = page.run("berth claims --units")
    assert re.search(rf"k80-2 .*{first}", held), held
    cluster.delete_pod(first)
    assert cluster.wait_bound(second, seconds=30) == {second: "node-2"}
    wait(lambda: f'["k80-2"] node-2 {second}' in " ".join(_shown(page).split()), 60, "the second pod's name")
    page.run("kubectl delete deployment gpu")
    page.remove_pods()
    wait(lambda: "Available" in _shown(page), 60, "the PoolClaim Available again")


def _shown(page: Scenario) -> str:
    """The one PoolClaim's line."""
    return page.run("kubectl get poolclaims").splitlines()[1]


def _phases(system: System, since: str) -> list[str]:
    """Those that the PoolClaim has had since this version of the list, one after the other."""
    kubectl = Kubectl(system.plane, system.berth.folder)
    seen = kubectl("get", "--raw", f"{POOL_CLAIMS}?watch=1&resourceVersion={since}&timeoutSeconds=1")
    found = (json.loads(line)["object"].get("status", {}).get("phase") for line in seen.splitlines())
    return [phase for phase, _ in groupby(filter(None, found))]


# addresses.md


@pytest.mark.nightly
def test_the_page_on_addresses_does_what_it_says(system_of: Systems) -> None:
    rack = {"labels": {"rack": "r1"}}
    system = system_of({"node-1": rack, "node-2": rack}, start_berth=False, pools=None)
    page, cluster, berth = _with_pool_objects(ADDRESSES, system), system.cluster, system.berth
    page.run("kubectl apply -f deployment.yaml")
    pods = page.pods_of("web")
    cluster.wait_bound(*pods)
    columns = "NAME:.metadata.name,IP:.metadata.annotations.example\\\\.com/office-ip"
    shown = page.run(f"kubectl get pods -o custom-columns={columns}")
    assert dict(map(str.split, shown.splitlines()[1:])) == {"web-1": "10.0.3.17", "web-2": "10.0.3.18"}
    explained = berth.run("explain", "web-1").stdout
    assert 'annotation   cni.projectcalico.org/ipAddrs: ["10.0.3.17"]' in explained
    assert "annotation   example.com/office-ip: 10.0.3.17" in explained

    page.run("kubectl apply -f office-1.yaml")
    page.run("kubectl apply -f fixed.yaml")
    cluster.wait_bound("fixed")
    assert _told(cluster, "fixed") == "10.0.3.33"
    page.run("kubectl apply -f forger.yaml")
    why = "the pod has the annotation example.com/office-ip, which berth writes: leave it out"
    page.event("forger", f"office-ip: {why}")
    assert _told(cluster, "forger") == "10.0.3.17"
    assert "forger" not in cluster.bound()

    cluster.patch(pod_path("web-1"), {"metadata": {"annotations": {"example.com/office-ip": "10.0.3.18"}}})
    found = json.loads(berth.run("doctor", "-o", "json").stdout)["findings"]
    assert [(each["kind"], each["pod"]) for each in found] == [("mistold", "default/web-1")]


def _told(cluster: Cluster, pod: str) -> str:
    return str(cluster.get_pod(pod)["metadata"]["annotations"]["example.com/office-ip"])


# node-names.md


@pytest.mark.nightly
def test_the_page_on_node_names_does_what_it_says(system_of: Systems) -> None:
    nodes: dict[str, Object] = {"node-1": {}, "node-2": {}, "gpu-7": {}}
    system = system_of(nodes, start_berth=False, pools=documents_of(NAMES, "pools.yaml"))
    page, cluster, berth = Scenario(NAMES, system), system.cluster, system.berth
    berth.environment = {"BERTH_POOLS": str(berth.pools_file)}
    berth.start()
    system.plane.start_scheduler(system.scheduler_config("names"), "names")
    page.run("kubectl apply -f deployment.yaml")
    cluster.wait_bound(*page.pods_of("named"))
    assert set(cluster.bound().values()) == {"node-2"}
    page.run("kubectl scale deployment named --replicas=4")
    *_, third, fourth = page.pods_of("named")
    assert cluster.wait_bound(third, fourth) == {third: "gpu-7", fourth: "node-1"}
    page.run("berth apply -f other-names.yaml")
    wait(lambda: berth.ledger().free["seat"]["node-2"] == (8, 10), 60, "the other names in the ledger")
    page.run("kubectl scale deployment named --replicas=5")
    *_, fifth = page.pods_of("named")
    assert cluster.wait_bound(fifth) == {fifth: "node-2"}


# ip-scheduler.md


def test_the_page_on_ip_scheduler_does_what_it_says(system_of: Systems) -> None:
    nodes = {"worker-1": {}, "worker-2": {}, "master": {"labels": CONTROL_PLANE}}
    system = system_of(nodes, start_berth=False, pools=documents_of(IP_SCHEDULER, "pools.yaml"))
    page, cluster, berth = Scenario(IP_SCHEDULER, system), system.cluster, system.berth
    names = {"BERTH_SCHEDULER_NAMES": "blueking-ip-scheduler"}
    berth.environment = {**names, "BERTH_POOLS": str(berth.pools_file)}
    berth.start()
    system.start_scheduler()
    page.run("kubectl apply -f deployment.yaml")
    cluster.wait_bound(*page.pods_of("bk-demo"))
    assert cluster.per_node() == {"worker-1": 2, "worker-2": 2}

    page.run("kubectl annotate node worker-2 example.com/ip-count=2")
    wait(lambda: _free(system, "worker-2") == (0, 2), 60, "the annotation's number in the ledger")
    page.run("kubectl scale deployment bk-demo --replicas=6")
    cluster.wait_bound(*page.pods_of("bk-demo"))
    assert cluster.per_node() == {"worker-1": 4, "worker-2": 2}

    page.run("berth apply -f fewer.yaml")
    wait(lambda: _free(system, "worker-1") == (1, 5), 60, "the Pool's new number in the ledger")
    page.run("kubectl scale deployment bk-demo --replicas=8")
    *_, eighth = page.pods_of("bk-demo")
    why = ("0 of 2 free, 1 asked", "0 of 5 free, 1 asked", "none on this node")
    page.event(eighth, *(f"{POOL}: {text}" for text in why))
    cluster.create_node("worker-3")
    assert cluster.wait_bound(eighth) == {eighth: "worker-3"}

    _bindings_fail(page, system)
    page.run("kubectl delete deployment bk-demo")
    page.remove_pods()
    wait(lambda: not berth.claims(), 60, "all addresses free")


def _bindings_fail(page: Scenario, system: System) -> None:
    page.run("kubectl apply -f no-bindings.yaml")
    wait(lambda: TODAY in _tried(system), 60, "the policy in force", every=0.1)
    held = system.berth.claims()
    page.run("kubectl scale deployment bk-demo --replicas=9")
    *_, ninth = page.pods_of("bk-demo")
    page.event(ninth, TODAY)
    # An attempt may be on its way, but each of them ends with nothing held.
    wait(lambda: system.berth.claims() == held, 60, "what the failed bind reserved given back")
    assert ninth not in system.cluster.bound()
    page.run("kubectl delete -f no-bindings.yaml")
    system.cluster.wait_bound(ninth)
    wait(lambda: system.berth.claims() == sorted([*held, (ninth, POOL, 1)]), 60, "the ninth claim")


def _tried(system: System) -> str:
    """What the API server says to a Binding that is only tried."""
    body = {"metadata": {"name": "nobody"}, "target": {"kind": "Node", "name": "worker-1"}}
    path = "/api/v1/namespaces/default/pods/nobody/binding?dryRun=All"
    return str(system.cluster.request("POST", path, body).body["message"])


def _free(system: System, node: str) -> tuple[int, int]:
    return system.berth.ledger().free[POOL][node]


# demo-extender.md


@pytest.mark.nightly
def test_the_page_on_the_extender_demo_does_what_it_says(system_of: Systems) -> None:
    pools, port = documents_of(DEMO, "pools.yaml"), _first_of_eight()
    system = system_of(2, start_berth=False, single=True, port=port, pools=pools)
    page, cluster, plane = Scenario(DEMO, system), system.cluster, system.plane
    plane.start_scheduler(_of_demo(system), "demo")
    page.run("kubectl apply -f deployment.yaml")
    (first,) = page.pods_of("demo")
    page.event(first, "connection refused")
    system.berth.start()
    cluster.wait_bound(first)

    plane.stop_scheduler("demo")
    page.run("kubectl scale deployment demo --replicas=2")
    *_, second = page.pods_of("demo")
    plane.restart_scheduler("demo")
    cluster.wait_bound(second)

    page.run("kubectl scale deployment demo --replicas=7")
    *six, seventh = page.pods_of("demo")
    assert f"2 {FULL}" in page.event(seventh, FULL)
    bound = cluster.bound()
    one, other = bound[six[0]], bound[six[3]]
    assert {one, other} == {"node-1", "node-2"}
    assert [bound[name] for name in six] == [one] * 3 + [other] * 3
    assert _allocated(page) == {**bound, seventh: None}


def _of_demo(system: System) -> Path:
    """The page's configuration, at the port and with the account of this test."""
    text = files_of(DEMO)["scheduler.yaml"].replace(":8087/", f":{system.berth.port + EXTENDER}/")
    document = yaml.safe_load(text)
    document["clientConnection"] = {"kubeconfig": str(system.accounts.kubeconfig("scheduler"))}
    path = system.berth.folder / "scheduler-of-page.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def _allocated(page: Scenario) -> dict[str, str | None]:
    """The domain that bind wrote into each pod, as the page's command shows it."""
    columns = "NAME:.metadata.name,GOT:.metadata.annotations.berth\\\\.dev/allocated"
    rows = page.run(f"kubectl get pods -o custom-columns={columns}").splitlines()[1:]
    cells = (row.split(None, 1) for row in rows)
    return {name: None if got == "<none>" else json.loads(got)[0]["domain"] for name, got in cells}


def _first_of_eight() -> int:
    """The first of eight free ports in a row, as many as `berth up --single` counts through."""
    for _ in range(100):
        first = free_port()
        if all(is_free(first + more) for more in range(EXTENDER + 1)):
            return first
    raise AssertionError("no eight free ports in a row")


# extender-configuration.md


def test_the_page_on_the_extenders_configuration_does_what_it_says(system_of: Systems) -> None:
    system = system_of(2, start_scheduler=False, pools=documents_of(CONFIGURATION, "pools.yaml"))
    page, cluster, plane = Scenario(CONFIGURATION, system), system.cluster, system.plane
    (heavy,), (short,) = (documents_of(CONFIGURATION, file) for file in ("scheduler.yaml", "short.yaml"))

    plane.start_scheduler(system.scheduler_config("written"), "written")
    page.run("kubectl apply -f prefers-node-2.yaml")
    cluster.wait_bound("holder")
    (light,) = page.pods_of("prefers-node-2")
    assert cluster.wait_bound(light) == {light: "node-2"}
    plane.stop_scheduler("written")

    plane.start_scheduler(page.scheduler_config("heavy", heavy), "heavy")
    page.run("kubectl scale deployment prefers-node-2 --replicas=2")
    *_, scored = page.pods_of("prefers-node-2")
    assert cluster.wait_bound(scored) == {scored: "node-1"}
    plane.stop_scheduler("heavy")

    plane.start_scheduler(page.scheduler_config("short", {**heavy, **short}), "short")
    page.run("kubectl scale deployment prefers-node-2 --replicas=3")
    with _stopped(system, "prioritize"):
        *_, unscored = page.pods_of("prefers-node-2")
        assert cluster.wait_bound(unscored) == {unscored: "node-2"}
    page.run("kubectl scale deployment prefers-node-2 --replicas=4")
    with _stopped(system, "filter"):
        *_, late = page.pods_of("prefers-node-2")
        page.event(late, "Client.Timeout exceeded")
    assert cluster.wait_bound(late) == {late: "node-1"}


@contextmanager
def _stopped(system: System, function: str) -> Iterator[None]:
    """The function stands still for the block, with its workers; connections to it are still taken."""
    pid = system.berth.pids[function]
    os.killpg(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(pid, signal.SIGCONT)
