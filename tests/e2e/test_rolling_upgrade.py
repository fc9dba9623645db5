"""From an earlier commit's functions and CRDs to these, one after the other, and back, while 500 pods come
and go: nothing is given twice, nothing is lost, and no pod is told of an error.

The earlier commit is this one's parent, or what BERTH_TEST_UPGRADE_FROM names.
"""

import os
import random
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from berth.controller.infra import STORE_SECRET
from berth.ledger.ledger import Ledger
from berth.ledger.view import View
from berth.stores import open_store
from tests.chaos.churn import Churn
from tests.chart.rendering import commands
from tests.controlplane.plane import ControlPlane
from tests.e2e.deployments import FUNCTIONS, RELAYS, Installed
from tests.e2e.invariant import difference, more_than_there_is
from tests.support.builders.objects import pool_document
from tests.support.cluster import Cluster, wait
from tests.support.neighbours import MEASURED
from tests.support.references import ROOT
from tests.support.servers.redisserver import RedisServer

pytestmark = pytest.mark.long

NODES, UNITS, PODS = 10, 10, 110
"""So ten pods wait at each moment."""
REPLACED = 500
_SECONDS = 120.0
_REFUSAL = re.compile(r"underlay-ip: 0 of \d+ free, 1 asked")
CRDS = Path("infra") / "base" / "crds"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The earlier commit, and its tree. A clone without history has this commit alone: that one then."""
    named = os.environ.get("BERTH_TEST_UPGRADE_FROM", "HEAD~1")
    commit = _git("rev-parse", "--verify", "--quiet", f"{named}^{{commit}}") or _git("rev-parse", "HEAD")
    folder = tmp_path_factory.mktemp("earlier")
    archive = folder / "tree.tar"
    _git("archive", "--output", str(archive), commit, "functions", "shared", str(CRDS))
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
    return commit, folder


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


@pytest.fixture
def installed(
    plane: ControlPlane, cluster: Cluster, helm: Path, own_redis: RedisServer, tmp_path: Path
) -> Iterator[Installed]:
    made = Installed(plane, cluster, helm, tmp_path)
    made.command(f"{commands()[0]} --set store.kind=Secret")
    made.command(
        f"kubectl create secret generic {STORE_SECRET} -n berth --from-literal=url={own_redis.url}/0"
    )
    yield made
    made.stop()


@pytest.mark.nightly
def test_an_upgrade_and_the_way_back_under_load_lose_nothing_and_tell_no_pod_of_an_error(
    installed: Installed, earlier: tuple[str, Path], own_redis: RedisServer, haproxy_program: Path
) -> None:
    cluster, (commit, tree) = installed.cluster, earlier
    for number in range(NODES):
        cluster.create_node(f"node-{number}")
    to_version(installed, tree)
    for which in RELAYS:
        installed.start_relay(which)
    cluster.call("POST", "/apis/berth.dev/v1alpha1/pools", pool_document(capacity={"perDomain": UNITS}))
    url = f"{own_redis.url}/0"
    wait(lambda: view(url).open, _SECONDS, "the ledger is made: until then pods are told that it is not")
    churn = Churn(cluster, "pod", PODS, keep=NODES * UNITS // 2, pace=0.2, dice=random.Random(1))
    with installed.scheduling(haproxy_program), cluster.watch_pods() as seen:
        with churn:
            wait_replaced(churn, REPLACED // 3)
            to_version(installed, ROOT)
            wait_replaced(churn, 2 * REPLACED // 3)
            to_version(installed, tree)
            wait_replaced(churn, REPLACED)
        wait(lambda: len(cluster.bound()) == NODES * UNITS, _SECONDS, "all that fits is bound")
        said = told(cluster)  # before kube-scheduler stops: what it asks then is broken off
        seen.settle()
    over = {node: peak for node, peak in seen.peak.items() if peak > UNITS}
    assert not over
    ledger = view(url)
    assert difference(ledger, cluster.list_pods(None)) == {}
    assert not more_than_there_is(ledger)
    assert said == set()
    print(f"{MEASURED}{len(churn.replaced)} pods replaced from {commit[:8]} to this version and back")


def wait_replaced(churn: Churn, count: int) -> None:
    wait(lambda: len(churn.replaced) >= count, _SECONDS, f"{count} pods were replaced")


def to_version(installed: Installed, tree: Path) -> None:
    """The CRDs, then each function, as `helm upgrade` and the Deployment controller would."""
    installed.command(f"kubectl apply --server-side --force-conflicts -f {tree / CRDS}")
    installed.command("kubectl wait --for=condition=Established crd pools.berth.dev poolclaims.berth.dev")
    for name in FUNCTIONS:
        installed.start_function(name, tree)


def view(url: str) -> View:
    with closing(open_store(url)) as store:
        return Ledger(store, while_closed=True).view()


def told(cluster: Cluster) -> set[str]:
    """What pods were told of why they wait, but for that nothing is free."""
    events = cluster.get("/api/v1/namespaces/default/events")["items"]
    failed = {each["message"] for each in events if each["reason"] == "FailedScheduling"}
    assert failed
    return {message for message in failed if not _REFUSAL.search(message)}
