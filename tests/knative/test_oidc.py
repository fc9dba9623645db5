"""infra's component events-oidc on Knative's own programs, with `authentication-oidc: enabled`.

Its senders show tokens of accounts that it names itself, and the functions take events of nobody else.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
import urllib3

from tests.knative.install import EVENTING
from tests.knative.overlay import SOURCES, TICKER, Overlay
from tests.knative.programs import DOMAIN, wait_port
from tests.knative.test_pingsource import clock, ticks
from tests.support.builders.earlier import TRIGGERS
from tests.support.builders.manifests import NAMESPACE
from tests.support.cluster import Object, wait
from tests.support.neighbours import MEASURED

OVERLAYS = ("per-verb+events-oidc", "direct+events-oidc")
UNITS = 500
PINGS = f"/apis/sources.knative.dev/v1/namespaces/{NAMESPACE}/pingsources"
ACCOUNTS = "/api/v1/namespaces/{}/serviceaccounts"
TRIGGER = "release-oidc-eventing.knative.dev-trigger"
SOURCE = "berth-pods-oidc-sources.knative.dev-apiserversource"
INGRESS = f"http://broker-ingress.{EVENTING}.{DOMAIN}/{NAMESPACE}/berth"
BROKER = f"eventing.knative.dev/broker/{NAMESPACE}/berth"  # the audience that Knative gives it
FUNCTIONS = ("release", "inventory", "reconcile")


def function_url(name: str) -> str:
    return f"http://{name}.{NAMESPACE}.{DOMAIN}"


def send(overlay: Overlay, url: str, event: str, data: Object, headers: Mapping[str, str]) -> int:
    """An event as ApiServerSource sends it, that says that this pod was deleted; the status of the answer."""
    attributes = {
        "Content-Type": "application/json",
        "Ce-Specversion": "1.0",
        "Ce-Id": event,
        "Ce-Source": "forged",
        "Ce-Type": "dev.knative.apiserver.resource.delete",
        "Ce-Kind": "Pod",
    }
    with urllib3.ProxyManager(overlay.names.url, retries=False) as http:
        return http.request("POST", url, body=json.dumps(data), headers={**attributes, **headers}).status


def sender(overlay: Overlay) -> str:
    """The account of whoever sends release its events."""
    return TRIGGER if overlay.through_broker else SOURCE


@contextmanager
def gone_unseen(overlay: Overlay) -> Iterator[Object]:
    """A pod that was bound and is gone, which no event has told of: whoever is told of it frees its unit."""
    overlay.cluster.create_pod("unseen")
    overlay.cluster.wait_bound("unseen")
    overlay.wait_quiet()
    pod: Object = overlay.cluster.get("/api/v1/namespaces/default/pods/unseen")
    overlay.adapter("berth-pods").stop()
    try:
        overlay.cluster.delete_pod("unseen")
        assert overlay.free() == UNITS - 1
        yield pod
    finally:
        overlay.restart_adapter("berth-pods")


@contextmanager
def stranger(overlay: Overlay, namespace: str) -> Iterator[str]:
    """An account of somebody else."""
    path = ACCOUNTS.format(namespace)
    overlay.cluster.call("POST", path, {"metadata": {"name": "stranger"}})
    try:
        yield "stranger"
    finally:
        overlay.cluster.call("DELETE", f"{path}/stranger")


def vouches(overlay: Overlay, header: Mapping[str, str]) -> bool:
    """Whether the API server still says that the token is one. It remembers for 10 s what it said."""
    spec = {"token": header["Authorization"].removeprefix("Bearer "), "audiences": ["berth"]}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    found: Object = overlay.cluster.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    return bool(found["status"].get("authenticated"))


def test_knative_names_its_senders_accounts_as_the_component_does(overlay: Overlay) -> None:
    paths = [SOURCES, PINGS, *([TRIGGERS] if overlay.through_broker else [])]
    senders = [each for path in paths for each in overlay.cluster.get(path)["items"]]
    made = {f"{NAMESPACE}/{each['status']['auth']['serviceAccountName']}" for each in senders}
    assert len(made) == len(senders) == (5 if overlay.through_broker else 3)
    named: dict[str, set[str]] = {}
    for each in overlay.objects("Service"):
        (container,) = each["spec"]["template"]["spec"]["containers"]
        for one in container["env"]:
            if one["name"] == "BERTH_EVENTS_ACCOUNTS":
                named[each["metadata"]["name"]] = set(one["value"].split())
    assert set(named) == set(FUNCTIONS)
    assert f"{NAMESPACE}/{sender(overlay)}" in named["release"] & made
    assert f"{NAMESPACE}/{TICKER}" in named["reconcile"] & made
    if not overlay.through_broker:  # there the sources send to the Broker, and it names nobody but Knative's
        assert made <= set().union(*named.values())


def test_an_event_of_knative_s_comes_with_a_token_and_frees_a_unit(overlay: Overlay) -> None:
    overlay.cluster.create_pod("pod")
    overlay.cluster.wait_bound("pod")
    overlay.wait_quiet()
    assert overlay.free() == UNITS - 1
    since = overlay.names.count()
    overlay.cluster.delete_pod("pod")
    seconds = overlay.wait_free(UNITS, 30)
    print(f"{MEASURED}{overlay.name}: a delete, tokens asked for: freed after {seconds:.2f} s")
    overlay.wait_quiet()
    assert {each.status for each in overlay.calls("release", since)} == {204}


def test_a_node_s_event_comes_with_a_token_and_changes_the_capacity(overlay: Overlay) -> None:
    since = overlay.names.count()
    overlay.cluster.delete_node("node-5")
    try:
        overlay.wait_free(UNITS - 100, 30)
        wait(lambda: overlay.calls("inventory", since), 30, "inventory has answered")
        assert {each.status for each in overlay.calls("inventory", since)} == {204}
    finally:
        overlay.cluster.create_node("node-5")
    overlay.wait_free(UNITS, 30)


def test_a_forged_event_gets_401_and_nothing_is_looked_at(overlay: Overlay) -> None:
    with gone_unseen(overlay) as pod, stranger(overlay, NAMESPACE) as account:
        forged = [
            {},
            {"Authorization": "Bearer s3cret"},
            overlay.bearer(account),
            overlay.bearer(sender(overlay), audience="https://kubernetes.default.svc"),
            overlay.bearer("berth-release"),  # a function's own
        ]
        for headers in forged:
            told = [send(overlay, function_url(name), "forged", pod, headers) for name in FUNCTIONS]
            assert told == [401, 401, 401]
        assert send(overlay, function_url("release"), "forged", pod, overlay.bearer(TICKER)) == 401
        assert overlay.free() == UNITS - 1
        assert send(overlay, function_url("release"), "true", pod, overlay.bearer(sender(overlay))) == 204
        assert overlay.free() == UNITS


def test_a_tick_of_knative_s_clock_comes_with_a_token(overlay: Overlay) -> None:
    since = overlay.names.count()
    with clock(overlay):
        wait(lambda: ticks(overlay, since), 90, "a tick reaches reconcile", every=0.2)
    assert [each.status for each in ticks(overlay, since)] == [204]


def test_the_broker_takes_events_of_its_namespace_s_accounts_alone(overlay: Overlay) -> None:
    if not overlay.through_broker:
        pytest.skip("there is no Broker")
    with gone_unseen(overlay) as pod, stranger(overlay, "default") as tenant:
        assert send(overlay, INGRESS, "forged", pod, {}) == 401
        assert send(overlay, INGRESS, "forged", pod, overlay.bearer(SOURCE)) == 401  # for another audience
        assert send(overlay, INGRESS, "forged", pod, overlay.bearer(tenant, BROKER, "default")) == 403
        assert overlay.free() == UNITS - 1
        assert send(overlay, INGRESS, "true", pod, overlay.bearer(SOURCE, BROKER)) == 202
        overlay.wait_free(UNITS, 30)


def test_a_dead_letter_comes_with_the_trigger_s_token_and_makes_reconcile_look(overlay: Overlay) -> None:
    if not overlay.through_broker:
        pytest.skip("there is no Broker")
    with gone_unseen(overlay):
        assert send(overlay, INGRESS, "wrong", {"kind": "Pod"}, overlay.bearer(SOURCE, BROKER)) == 202
        overlay.wait_free(UNITS, 30)
        told = [
            (each.name.partition(".")[0], each.status)
            for each in overlay.names.calls()
            if each.event == "wrong"
        ]
        assert ("release", 400) in told
        assert ("reconcile", 204) in told


def test_an_account_that_is_made_anew_is_refused_until_knative_asks_for_a_new_token(overlay: Overlay) -> None:
    """As after a removal: Knative's programs keep a token for 55 minutes, and the API server knows that it is
    of an account that is no more. The tick mends what such events told of."""
    if not overlay.through_broker:
        pytest.skip("the source's adapter is started anew with its Deployment")
    overlay.wait_quiet()
    path = f"{ACCOUNTS.format(NAMESPACE)}/{TRIGGER}"
    before, token = overlay.cluster.get(path)["metadata"]["uid"], overlay.bearer(TRIGGER)
    assert vouches(overlay, token)
    overlay.cluster.call("DELETE", path)
    wait(lambda: overlay.cluster.request("GET", path).status == 200, 60, "Knative makes the account anew")
    assert overlay.cluster.get(path)["metadata"]["uid"] != before
    wait(lambda: not vouches(overlay, token), 60, "the API server sees that the token's account is gone")
    overlay.stop_function("release")  # which believes it for a minute
    overlay.start_functions("release")
    since = overlay.names.count()
    overlay.cluster.create_pod("pod")
    overlay.cluster.wait_bound("pod")
    overlay.cluster.delete_pod("pod")

    def refused() -> bool:
        return any(each.change == "delete" and each.status == 401 for each in overlay.calls("release", since))

    wait(refused, 60, "release refuses what tells of the pod's end", every=0.1)
    assert overlay.tick()["released"] <= 1
    assert overlay.free() == UNITS
    program = overlay.knative.pods.programs["mt-broker-filter"]
    program.stop()
    program.start()
    wait_port(program, "FILTER_PORT", "/healthz")
    overlay.wait_quiet()
