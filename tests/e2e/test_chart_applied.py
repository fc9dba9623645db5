"""What helm makes of values, each two of which meet, is taken by a real API server's dry run: by one that has
Knative's kinds, and by one that has none. Nothing of it runs."""

import json
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path

import pytest

from tests.chart.rendering import CHART, run
from tests.controlplane.plane import ControlPlane
from tests.support.kubectl import Kubectl

pytestmark = pytest.mark.long

Choice = tuple[str, str]
"""A value's name, and what it is."""
VALUES: Mapping[str, tuple[str, ...]] = {
    "calls": ("PerVerb", "Single"),
    "store.kind": ("ConfigMap", "Secret"),
    "store.readers": ("false", "true"),
    "events.broker": ("true", "false"),
    "events.label": ("true", "false"),
    "events.oidc": ("false", "true"),
    "scheduler.https": ("false", "true"),
    "sharedToken": ("false", "true"),
    "nativePreemption": ("false", "true"),
    "monitoring": ("false", "true"),
    "status": ("true", "false"),
    "networkPolicies": ("true", "false"),
    "size": ("Medium", "Small", "Large"),
}
KNATIVES = {("events.oidc", "true"), ("scheduler.https", "true")}
NOT_BOTH = [
    {("store.kind", "ConfigMap"), ("store.readers", "true")},
    {("store.kind", "ConfigMap"), ("size", "Large")},
    {("calls", "Single"), ("scheduler.https", "true")},
]
"""What the chart refuses: tests/chart/test_chart.py."""


def allowed(choices: set[Choice], knative: bool) -> bool:
    return not any(both <= choices for both in NOT_BOTH) and (knative or not choices & KNATIVES)


def matrix(knative: bool) -> Iterator[list[Choice]]:
    """Choices for all values, until each two that may be together have been."""
    every = [(name, one) for name, several in VALUES.items() for one in several]
    wanted = {
        frozenset(two)
        for two in combinations(every, 2)
        if two[0][0] != two[1][0] and allowed(set(two), knative)
    }
    while wanted:
        chosen = set(min(wanted, key=sorted))
        for name in VALUES:
            if name in {each for each, _ in chosen}:
                continue
            fitting = [(name, one) for one in VALUES[name] if allowed({*chosen, (name, one)}, knative)]
            chosen.add(max(fitting, key=lambda choice: _new(wanted, chosen, choice)))
        met = {two for two in wanted if two <= chosen}
        assert met, f"two that may be together need a third that may not: {min(wanted, key=sorted)}"
        wanted -= met
        yield sorted(chosen)


def _new(wanted: set[frozenset[Choice]], chosen: set[Choice], choice: Choice) -> int:
    return sum(frozenset((choice, other)) in wanted for other in chosen)


class Applied:
    """helm and kubectl on one API server."""

    def __init__(self, plane: ControlPlane, helm: Path, folder: Path) -> None:
        self.kubectl = Kubectl(plane, folder)
        self._helm, self._folder = helm, folder
        self._kubeconfig = plane.kubeconfig(folder / "kubeconfig-of-helm")

    def dry(self, *values: str) -> set[str]:
        """What the API server would make, by kind and name."""
        where = ("berth", CHART, "--namespace", "berth", "--kubeconfig", self._kubeconfig)
        done = run(self._helm, "template", *where, "--dry-run=server", "--no-hooks", *values)
        assert done.returncode == 0, done.stderr
        file = self._folder / "made.yaml"
        file.write_text(done.stdout)
        options = ("--server-side", "--dry-run=server", "--validate=strict", "-o", "json", "-f", file)
        made = json.loads(self.kubectl("apply", *options))["items"]
        return {f"{each['kind']}/{each['metadata']['name']}" for each in made}


@pytest.fixture
def applied(plane: ControlPlane, helm: Path, monitoring_kinds: list[Path], tmp_path: Path) -> Applied:
    found = Applied(plane, helm, tmp_path)
    for file in monitoring_kinds:
        found.kubectl("apply", "--server-side", "-f", file)
    found.kubectl("create", "namespace", "berth")
    # A dry run makes none, and what is in it needs it; helm takes it over as one of its own.
    found.kubectl("create", "namespace", "berth-ledger")
    found.kubectl("label", "namespace", "berth-ledger", "app.kubernetes.io/managed-by=Helm")
    release = [f"meta.helm.sh/release-{name}=berth" for name in ("name", "namespace")]
    found.kubectl("annotate", "namespace", "berth-ledger", *release)
    return found


def test_it_is_monitored_where_the_operators_kinds_and_the_token_are_there(applied: Applied) -> None:
    applied.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    monitored = {"PodMonitor/berth", "PrometheusRule/berth", "ConfigMap/berth-board"}
    assert not monitored & applied.dry()
    token = ("secret", "generic", "berth-metrics", "--namespace=berth", "--from-literal=token=for-prometheus")
    applied.kubectl("create", *token)
    assert monitored <= applied.dry()
    assert not monitored & applied.dry("--set", "monitoring=false")


@pytest.mark.nightly
@pytest.mark.parametrize("served", [False, True])
def test_an_api_server_takes_what_helm_makes_of_each_two_values(
    applied: Applied, request: pytest.FixtureRequest, served: bool
) -> None:
    if served:
        applied.kubectl("apply", "--server-side", "-f", request.getfixturevalue("knative"))
    applied.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    rounds = 0
    for choices in matrix(served):
        values = [f"{name}={one}" for name, one in choices]
        if ("calls", "Single") in choices:
            values.append("scheduler.resources={berth.dev/underlay-ip}")
        made = applied.dry(*(word for each in values for word in ("--set", each)))
        assert {"Deployment/berth-scheduler", "ClusterRole/berth-reconcile"} <= made, values
        assert ("PingSource/berth-reconcile" in made) == served, values  # found out of what is served
        assert ("Deployment/berth-relay" in made) == (not served), values
        rounds += 1
    assert rounds > 5
