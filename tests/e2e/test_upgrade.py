"""An older Berth upgraded in place on a real API server, by what docs/upgrade.md says, while pods come.

Knative itself is not there: nothing of it runs. What its Broker makes of the Triggers is in tests/knative.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.controlplane.plane import ControlPlane
from tests.support.builders.earlier import TRIGGERS, documented_step, earlier, garbage_collected
from tests.support.builders.earlier import triggers as eleven
from tests.support.builders.manifests import INFRA, NAMESPACE, rendered, token_of
from tests.support.cluster import UNDERLAY_IP, Cluster, Object, Reply, pod_document, wait
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import OVERLAY, has

PODS = "/api/v1/namespaces/default/pods"
SETTINGS = f"/api/v1/namespaces/{NAMESPACE}/configmaps/berth-settings"
ONE = {UNDERLAY_IP: 1}
LABEL = "berth.dev/scheduled"
MORE = 50  # answers before the upgrade, and again after it


@dataclass
class Asking:
    """Asks the same again and again, from its beginning to its end; `replies` are all answers, by number."""

    ask: Callable[[int], Reply]
    replies: list[Reply] = field(default_factory=list)

    def run(self, ended: threading.Event) -> None:
        while not ended.is_set():
            self.replies.append(self.ask(len(self.replies)))

    def wait_more(self) -> None:
        wanted = len(self.replies) + MORE
        wait(lambda: len(self.replies) >= wanted, 60, f"{wanted} answers, not {len(self.replies)}")

    def odd(self, status: int) -> list[tuple[int, int, str]]:
        """The answers that are not this one: number, status and message."""
        return [
            (number, each.status, str(each.body.get("message", "")))
            for number, each in enumerate(self.replies)
            if each.status != status
        ]


@contextmanager
def asked(*all_of_them: Asking) -> Iterator[None]:
    ended = threading.Event()
    threads = [threading.Thread(target=each.run, args=(ended,), daemon=True) for each in all_of_them]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        ended.set()
        for each in threads:
            each.join(60)


@pytest.fixture
def kubectl(plane: ControlPlane, cluster: Cluster, knative: Path, tmp_path: Path) -> Kubectl:
    """On a cluster that has the earlier form, with its policies in force."""
    made = Kubectl(plane, tmp_path)
    made("apply", "--server-side", "-f", knative)
    made("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    before = tmp_path / "earlier.json"
    before.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": earlier(OVERLAY)}))
    made("apply", "-f", before, "--validate=strict")
    runtime = {"metadata": {"name": "boxed"}, "handler": "none", "overhead": {"podFixed": {UNDERLAY_IP: "1"}}}
    cluster.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
    cluster.create_pod("waits")
    bind = token_of(cluster, "berth-bind")
    wait(lambda: foreign(cluster, 0).status == 422, 60, "pods of other schedulers are refused", every=0.1)
    wait(
        lambda: labelled(ours(cluster, 0, "?dryRun=All")) == has("1.36"),
        60,
        "our pods have the label",
        every=0.1,
    )
    wait(lambda: allocated(cluster, plane.admin_token).status == 403, 60, "Bindings are looked at", every=0.1)
    assert allocated(cluster, bind).status == 201
    assert boxed(cluster).status == 201  # what the earlier policies did not see
    return made


def foreign(cluster: Cluster, number: int) -> Reply:
    """A pod that asks for a unit and has another scheduler: it must be refused."""
    document = pod_document(f"foreign-{number}", ONE, scheduler="default-scheduler")
    return cluster.request("POST", PODS, document)


def ours(cluster: Cluster, number: int, how: str = "") -> Reply:
    return cluster.request("POST", f"{PODS}{how}", pod_document(f"ours-{number}", ONE))


def labelled(reply: Reply) -> bool:
    return LABEL in reply.body["metadata"].get("labels", {})


def plain(cluster: Cluster, number: int) -> Reply:
    """A pod that is none of Berth's."""
    document = pod_document(f"plain-{number}", {"cpu": 1}, scheduler="default-scheduler")
    return cluster.request("POST", PODS, document)


def boxed(cluster: Cluster) -> Reply:
    """A pod of another scheduler that asks in its overhead: only today's policies refuse it."""
    spec = {"runtimeClassName": "boxed"}
    document = pod_document("boxed", {"cpu": 1}, scheduler="default-scheduler", spec=spec)
    return cluster.request("POST", f"{PODS}?dryRun=All", document)


def allocated(cluster: Cluster, token: str) -> Reply:
    """A Binding that says what was allocated: bind's account may make it, and nobody else."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "waits", "annotations": {"berth.dev/allocated": "[]"}},
        "target": {"kind": "Node", "name": "n1"},
    }
    return cluster.request("POST", f"{PODS}/waits/binding?dryRun=All", body, token)


def names_of(items: list[Object]) -> set[str]:
    return {each["metadata"]["name"] for each in items}


@pytest.mark.long
@pytest.mark.nightly
def test_while_the_policies_are_upgraded_nothing_slips_through_and_nothing_good_is_refused(
    kubectl: Kubectl, plane: ControlPlane, cluster: Cluster
) -> None:
    bind = token_of(cluster, "berth-bind")
    refused = Asking(lambda number: foreign(cluster, number))
    forged = Asking(lambda _: allocated(cluster, plane.admin_token))
    taken = Asking(lambda number: ours(cluster, number))
    others = Asking(lambda number: plain(cluster, number))
    bindings = Asking(lambda _: allocated(cluster, bind))
    everything = (refused, forged, taken, others, bindings)
    with asked(*everything):
        for each in everything:
            each.wait_more()
        kubectl("apply", "-k", INFRA / "overlays" / OVERLAY, "--validate=strict")
        wait(lambda: boxed(cluster).status == 422, 60, "today's policies are in force", every=0.05)
        in_force = len(forged.replies), len(bindings.replies)
        for each in everything:
            each.wait_more()
    assert refused.odd(422) == []
    assert taken.odd(201) == []
    assert others.odd(201) == []
    assert {labelled(each) for each in taken.replies} == {has("1.36")}
    # The ConfigMap is applied before the policies that read it: until they follow, no Binding passes.
    for asking, right, last in ((forged, 403, in_force[0]), (bindings, 201, in_force[1])):
        odd = asking.odd(right)
        assert {status for _, status, _ in odd} <= {422}
        assert all("no such key: accountsThatAllocate" in message for _, _, message in odd), odd
        assert all(number <= last for number, _, _ in odd), (odd[-1], last)


@pytest.mark.nightly
def test_the_documented_step_deletes_all_that_an_upgrade_leaves_over(
    kubectl: Kubectl, cluster: Cluster
) -> None:
    assert "accountsThatAllocate" in cluster.get(SETTINGS)["data"]
    kubectl("apply", "-k", INFRA / "overlays" / OVERLAY, "--validate=strict")
    assert "accountsThatAllocate" not in cluster.get(SETTINGS)["data"]
    now = rendered(OVERLAY)
    today = {(each["kind"], each["metadata"]["name"]) for each in now}
    left = {(each["kind"], each["metadata"]["name"]) for each in earlier(OVERLAY)} - today
    assert left == {("Trigger", name) for name in names_of(eleven())}
    assert names_of(cluster.get(TRIGGERS)["items"]) == names_of(rendered(OVERLAY, "Trigger") + eleven())
    with garbage_collected(cluster):
        for command in documented_step():
            kubectl(*command)
    assert names_of(cluster.get(TRIGGERS)["items"]) == names_of(rendered(OVERLAY, "Trigger"))
