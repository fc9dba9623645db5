"""What docs/events.md says of events, on Knative's own programs: what goes wrong, what is left of it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from tests.knative.answering import Answering, answering
from tests.knative.overlay import SOURCES, Overlay
from tests.knative.programs import DOMAIN, Call
from tests.support.builders.earlier import TRIGGERS, garbage_collected
from tests.support.builders.manifests import NAMESPACE
from tests.support.cluster import Object, wait

RELEASE: Object = {"ref": {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "name": "release"}}
SLOW_SECONDS = 2.0
UNITS = 500


@contextmanager
def subscribed(overlay: Overlay, name: str, body: bytes) -> Iterator[Answering]:
    """A function of this name, which a Trigger sends each deletion of a pod to, three times at most.

    Its dead letters do not go to reconcile, which would mend what a test looks at. There are some: the
    filter answers 404 while it does not know the Trigger yet, or no more."""
    with answering(body) as function, answering(b"") as letters:
        overlay.names.lead(name, NAMESPACE, function.server_port)
        overlay.names.lead(f"{name}-letters", NAMESPACE, letters.server_port)
        spec = {
            "broker": "berth",
            "filter": {"attributes": {"type": "dev.knative.apiserver.resource.delete", "kind": "Pod"}},
            "subscriber": {"uri": f"http://{name}.{NAMESPACE}.{DOMAIN}"},
            "delivery": {
                "retry": 2,
                "backoffPolicy": "linear",
                "backoffDelay": "PT0.1S",
                "deadLetterSink": {"uri": f"http://{name}-letters.{NAMESPACE}.{DOMAIN}"},
            },
        }
        meta = {"name": name, "namespace": NAMESPACE}
        trigger = {"apiVersion": "eventing.knative.dev/v1", "kind": "Trigger", "metadata": meta, "spec": spec}
        overlay.cluster.call("POST", TRIGGERS, trigger)
        try:
            overlay.wait_ready(f"{TRIGGERS}/{name}")
            while not heard(function, overlay.wait_quiet()):
                pass
            yield function
        finally:
            function.go.set()
            with garbage_collected(overlay.cluster):
                overlay.knative.kubectl("-n", NAMESPACE, "delete", "trigger", name, "--cascade=foreground")
            overlay.wait_quiet()


def heard(function: Answering, pod: str) -> bool:
    """Whether the function gets the event that release has got, and so is sent all that follow."""
    with suppress(AssertionError):
        wait(lambda: function.told(pod), 3, "it has the event")
        return True
    return False


@contextmanager
def source(overlay: Overlay, name: str, mode: str, selector: Mapping[str, str]) -> Iterator[None]:
    """A source of pods with these labels, straight to release."""
    resource = {"apiVersion": "v1", "kind": "Pod", "selector": {"matchLabels": dict(selector)}}
    spec = {
        "serviceAccountName": "berth-events",
        "mode": mode,
        "namespaceSelector": {},
        "resources": [resource],
        "sink": RELEASE,
    }
    meta = {"name": name, "namespace": NAMESPACE}
    document = {
        "apiVersion": "sources.knative.dev/v1",
        "kind": "ApiServerSource",
        "metadata": meta,
        "spec": spec,
    }
    overlay.cluster.call("POST", SOURCES, document)
    try:
        overlay.start_adapter_of(name)
        overlay.wait_heard(2, **selector)  # infra's own source tells of the pod too
        yield
    finally:
        overlay.stop_adapter_of(name)
        overlay.cluster.call("DELETE", f"{SOURCES}/{name}")


def delete_bound(overlay: Overlay, name: str) -> None:
    overlay.cluster.create_pod(name)
    overlay.cluster.wait_bound(name)
    overlay.cluster.delete_pod(name)


def test_a_body_in_a_functions_answer_counts_as_a_failure(overlay: Overlay) -> None:
    since = overlay.names.count()
    body = json.dumps({"released": True}).encode()
    with subscribed(overlay, "talks", body) as talks:
        delete_bound(overlay, "pod")
        wait(lambda: talks.told("pod") == 3, 60, "the event is tried three times")
        overlay.wait_free(UNITS, 60)
    own = [each for each in overlay.filter_calls(since) if "/talks/" in each.path]
    about = [each.status for each in own if each.subject.endswith("/pod") and each.change == "delete"]
    assert about == [502, 502, 502]


def test_an_empty_answer_is_taken_at_once(overlay: Overlay) -> None:
    with subscribed(overlay, "silent", b"") as silent:
        delete_bound(overlay, "pod")
        overlay.wait_quiet()
        assert silent.told("pod") == 1


def test_a_function_that_is_slow_holds_up_its_source(overlay: Overlay) -> None:
    """Also other functions' events: the source sends the next event when all have taken the last."""
    overlay.cluster.create_pods("first", "second")
    overlay.cluster.wait_bound("first", "second")
    overlay.wait_quiet()
    with subscribed(overlay, "slow", b"") as slow:
        slow.go.clear()
        overlay.cluster.delete_pod("first")
        wait(lambda: slow.told("first") == 1, 60, "the slow function has the first event")
        overlay.wait_free(UNITS - 1, 30)
        overlay.cluster.delete_pod("second")
        overlay.stays_free(UNITS - 1, SLOW_SECONDS)
        slow.go.set()
        overlay.wait_free(UNITS, 30)


def test_mode_reference_is_refused_with_what_to_do(overlay: Overlay) -> None:
    since = overlay.names.count()
    with source(overlay, "references", "Reference", {"test": "reference"}):
        overlay.cluster.create_pod("pod", labels={"test": "reference"})
        overlay.cluster.wait_bound("pod")
        overlay.cluster.delete_pod("pod")
        # Each event is told when it is answered; a source that is stopped before gets no answer.
        wait(lambda: ends(overlay, since), 60, "its last event is answered")
    assert {each.status for each in refused(overlay, since)} == {400}
    assert "set spec.mode: Resource" in overlay.functions["release"].tail()
    overlay.wait_free(UNITS, 30)  # by the source that infra has


def refused(overlay: Overlay, since: int) -> list[Call]:
    return [each for each in overlay.calls("release", since) if ".ref." in each.type]


def ends(overlay: Overlay, since: int) -> list[Call]:
    """What a source of references told of the end of `pod`."""
    told = refused(overlay, since)
    return [each for each in told if each.change == "delete" and each.subject.endswith("/pods/pod")]


def test_a_label_taken_off_a_running_pod_sends_a_delete_that_frees_nothing(overlay: Overlay) -> None:
    since = overlay.names.count()
    overlay.cluster.create_pod("pod", labels={"test": "label"})
    overlay.cluster.wait_bound("pod")
    with source(overlay, "labelled", "Resource", {"test": "label"}):
        patch = {"metadata": {"labels": {"test": None}}}
        overlay.cluster.patch("/api/v1/namespaces/default/pods/pod", patch)
        wait(lambda: deletions(overlay, since), 60, "a delete event comes")
    assert deletions(overlay, since) == [204]
    assert overlay.free() == UNITS - 1
    assert overlay.tick()["released"] == 0


def deletions(overlay: Overlay, since: int) -> list[int]:
    calls = overlay.calls("release", since)
    return [each.status for each in calls if each.change == "delete" and each.subject.endswith("/pods/pod")]


def test_a_source_that_starts_anew_tells_nothing_of_what_it_missed(overlay: Overlay) -> None:
    overlay.cluster.create_pods("stays", "goes")
    overlay.cluster.wait_bound("stays", "goes")
    overlay.wait_quiet()
    since = overlay.names.count()
    adapter = overlay.adapter("berth-pods")
    adapter.stop()
    overlay.cluster.delete_pod("goes")
    overlay.restart_adapter("berth-pods")
    overlay.wait_quiet()
    told = {each.subject.rpartition("/")[2] for each in overlay.calls("release", since)}
    assert not told & {"stays", "goes"}
    assert overlay.free() == UNITS - 2
    assert overlay.tick()["released"] == 1
    assert overlay.free() == UNITS - 1
