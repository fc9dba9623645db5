"""Events on pods on the real API server: what a person sees of them, and what an account may say by them."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from berth.controller.notices import REASONS
from berth.kube.cluster import connect
from berth.kube.event_queue import BURST, RATE, PodEvent
from berth.kube.event_recorder import EventRecorder
from tests.controlplane.lent import Planes
from tests.controlplane.plane import ControlPlane
from tests.e2e.conftest import Systems
from tests.e2e.harness import pool, settled
from tests.support.builders.accounts import Accounts
from tests.support.cluster import Cluster, Object, wait
from tests.support.kubectl import Kubectl

pytestmark = pytest.mark.long

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
SECONDS = 60.0
WRITERS = ("bind", "extender", "release", "inventory", "reconcile")
KUBE_SYSTEM = "/apis/events.k8s.io/v1/namespaces/kube-system/events"


def events_of(cluster: Cluster, pod: str) -> dict[str, Object]:
    """Berth's events about the pod, by reason."""
    there = cluster.get(EVENTS)["items"]
    mine = [event for event in there if event["reportingController"].startswith("berth.dev/")]
    return {event["reason"]: event for event in mine if event["regarding"]["name"] == pod}


def told(cluster: Cluster, pod: str, reason: str) -> Object:
    """The event of this reason, once it is there."""
    wait(lambda: reason in events_of(cluster, pod), SECONDS, f"{reason} of {pod}")
    return events_of(cluster, pod)[reason]


def test_kubectl_describe_shows_what_a_pod_was_given_and_gave_back(
    system_of: Systems, plane: ControlPlane, cluster: Cluster, tmp_path: Path
) -> None:
    named = pool("k80")
    named["spec"] = {"units": {"node-1": ["k80-0", "k80-1"]}}
    system = system_of(1, pools=[pool("underlay-ip", 2), named], environment={"BERTH_EVENTS": "on"})
    kubectl = Kubectl(plane, tmp_path)
    cluster.create_pod("a", {"berth.dev/underlay-ip": 1, "berth.dev/k80": 2})
    cluster.wait_bound("a")
    event = told(cluster, "a", "UnitsAllocated")
    note = "Has 2 k80 (k80-0, k80-1), 1 underlay-ip on node-1"
    assert (event["note"], event["type"], event["action"]) == (note, "Normal", "Binding")
    assert event["regarding"]["uid"] == cluster.get_pod("a")["metadata"]["uid"]
    assert note in line_of(kubectl, "a", "UnitsAllocated", "berth.dev/bind")
    cluster.finish_pod("a")
    told(cluster, "a", "ClaimReleased")
    described = line_of(kubectl, "a", "ClaimReleased", "berth.dev/")
    assert "Freed 2 k80 (k80-0, k80-1), 1 underlay-ip: the pod has finished" in described
    cluster.create_pod("foreign", {"berth.dev/underlay-ip": 1}, node_name="node-1")
    system.berth.reconcile()
    assert told(cluster, "foreign", "Adopted")["note"].startswith("Runs on node-1; ")
    settled(system, 30)


def line_of(kubectl: Kubectl, pod: str, reason: str, source: str) -> str:
    """The line of `kubectl describe pod` with the event of this reason."""
    lines = kubectl("describe", "pod", pod).splitlines()
    (line,) = (line for line in lines if f" {reason} " in line)
    assert source in line
    return line


def test_where_events_are_off_none_is_written(system_of: Systems, cluster: Cluster) -> None:
    system_of(1, environment={"BERTH_EVENTS": "off"})
    cluster.create_pod("a")
    cluster.wait_bound("a")
    cluster.create_pod("b")  # its own bind comes after all that a's had to say
    cluster.wait_bound("b")
    assert events_of(cluster, "a") == {}


class Stage:
    """A pod, and the accounts with their rights."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.cluster = Cluster(plane.url, plane.admin_token, plane.ca_file)
        self.accounts = Accounts(plane, self.cluster, folder)
        self.uid = self.cluster.create_pod("pod", {})["metadata"]["uid"]
        wait(lambda: self.said("bind", reason="Scheduled"), SECONDS, "the policy in force", every=0.1)

    def said(self, account: str, path: str = EVENTS, **changes: Any) -> str:
        """The API server's refusal of an event with these changes, empty if it would take it."""
        token = self.accounts.token(account)
        reply = self.cluster.request("POST", f"{path}?dryRun=All", self.event(**changes), token)
        return "" if reply.status < 300 else str(reply.body["message"])

    def event(self, **changes: Any) -> Object:
        return {
            "metadata": {"name": "pod.1", "namespace": "default"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "berth.dev/bind",
            "reportingInstance": "a",
            "action": "Binding",
            "reason": "UnitsAllocated",
            "regarding": self.regarding(),
            "note": "Has 1 ip on n1",
            "type": "Normal",
            **changes,
        }

    def regarding(self, **changes: str) -> Mapping[str, str]:
        pod = {"kind": "Pod", "apiVersion": "v1", "namespace": "default", "name": "pod", "uid": self.uid}
        return {**pod, **changes}


@pytest.fixture(scope="module")
def stage(planes: Planes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with planes.lent() as plane:
        made = Stage(plane, tmp_path_factory.mktemp("events"))
        yield made
        made.cluster.close()


@pytest.fixture
def recorder(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventRecorder]:
    """That of bind, with its account's rights."""
    monkeypatch.setenv("KUBECONFIG", str(stage.accounts.kubeconfig("bind")))
    made = EventRecorder(connect().aside(), "bind")
    yield made
    made.close(SECONDS)


@pytest.mark.parametrize("account", WRITERS)
@pytest.mark.parametrize("reason", REASONS)
def test_each_function_may_tell_what_berth_does(stage: Stage, account: str, reason: str) -> None:
    assert stage.said(account, reason=reason) == ""


@pytest.mark.parametrize("account", WRITERS)
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (lambda _: {"reason": "FailedMount"}, "and of nothing else"),
        (lambda _: {"reportingController": "kubelet"}, "under its own name"),
        (lambda stage: {"regarding": stage.regarding(kind="Node", apiVersion="v1")}, "tells of pods"),
        (lambda stage: {"regarding": stage.regarding(apiVersion="v2")}, "tells of pods"),
        (lambda stage: {"related": stage.regarding(kind="Secret")}, "tells of pods"),
        (lambda _: {"regarding": None}, "tells of pods"),
    ],
)
def test_no_account_of_a_function_tells_anything_else(
    stage: Stage, account: str, changes: Callable[[Stage], Mapping[str, Any]], why: str
) -> None:
    assert why in stage.said(account, **changes(stage))


def test_no_account_of_a_function_tells_of_another_namespaces_pod(stage: Stage) -> None:
    metadata = {"name": "pod.1", "namespace": "kube-system"}
    said = stage.said("bind", KUBE_SYSTEM, metadata=metadata)
    assert said  # the policy's, or Kubernetes' own rule


def test_no_account_of_a_function_changes_an_event_of_somebody_else(stage: Stage) -> None:
    made = stage.event(metadata={"name": "kubelets", "namespace": "default"}, reportingController="kubelet")
    stage.cluster.call("POST", EVENTS, made)
    body = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}
    token = stage.accounts.token("bind")
    reply = stage.cluster.request("PATCH", f"{EVENTS}/kubelets", body, token, "application/merge-patch+json")
    assert reply.status in (403, 422)
    assert "a function of berth" in reply.body["message"]


def test_the_series_of_an_event_is_written_by_the_account(stage: Stage, recorder: EventRecorder) -> None:
    event = PodEvent("default", "pod", stage.uid, "FailedClaim", "Claiming", "holds 1 of ip", warning=True)
    recorder.record(event)
    told(stage.cluster, "pod", "FailedClaim")
    for _ in range(4):
        recorder.record(event)
    recorder.close(SECONDS)
    made = events_of(stage.cluster, "pod")["FailedClaim"]
    assert (made["series"]["count"], made["type"]) == (5, "Warning")


def test_a_thousand_events_are_sent_at_the_stated_rate_at_most(stage: Stage, recorder: EventRecorder) -> None:
    began = time.monotonic()
    for number in range(1000):
        pod = f"many-{number}"
        recorder.record(PodEvent("default", pod, f"uid-{number}", "UnitsAllocated", "Binding", "Has 1 ip"))
    wait(lambda: sent(stage) >= BURST + RATE, SECONDS, "events beyond the burst")
    recorder.close(0)
    count, seconds = sent(stage), time.monotonic() - began
    assert BURST + RATE <= count <= BURST + RATE * seconds + 1


def sent(stage: Stage) -> int:
    """How many events of the pods are there."""
    there = stage.cluster.get(EVENTS)["items"]
    return sum(event["regarding"]["name"].startswith("many-") for event in there)
