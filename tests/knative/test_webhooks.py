"""infra's overlays through Knative's own webhooks, Eventing's and Serving's: what they take, add and refuse.

The webhooks' rules and certificates are those that Knative's own programs write.
"""

import copy
from typing import Any

import pytest

from tests.knative.overlay import Overlay
from tests.support.builders.manifests import INFRA, NAMESPACE, rendered
from tests.support.builders.manifests import OVERLAYS as SHIPPED
from tests.support.cluster import Object

DELETE = object()
POD = ("spec", "template", "spec")
WRONG: list[tuple[str, tuple[str | int, ...], Any, str]] = [
    ("ApiServerSource", ("spec", "mod"), "Resource", 'json: unknown field "mod"'),
    ("ApiServerSource", ("spec", "mode"), "Resources", "invalid value: Resources: spec.mode"),
    ("ApiServerSource", ("spec", "resources", 0, "apiVersion"), "a/b/c", "spec.resources[0].apiVersion"),
    ("ApiServerSource", ("spec", "sink"), DELETE, "expected at least one, got none: spec.sink"),
    ("PingSource", ("spec", "schedule"), "* * * *", "invalid value: "),
    (
        "PingSource",
        ("spec", "dataBase64"),
        "e30=",
        "expected exactly one, got both: spec.data, spec.dataBase64",
    ),
    (
        "Broker",
        ("spec", "delivery", "backoffDelay"),
        "0.1s",
        "invalid value: 0.1s: spec.delivery.backoffDelay",
    ),
    ("Broker", ("spec", "delivery", "retry"), -1, "invalid value: -1: spec.delivery.retry"),
    ("Trigger", ("spec", "broker"), DELETE, "missing field(s): spec.broker"),
    ("Trigger", ("spec", "subscriber", "ref", "name"), DELETE, "missing field(s): spec.subscriber.ref.name"),
    (
        "Service",
        (*POD, "schedulerName"),
        "berth",
        "must not set the field(s): spec.template.spec.schedulerName",
    ),
    ("Service", (*POD, "containerConcurrency"), -1, "expected 0 <= -1 <= 1000: spec.template.spec"),
    (
        "Service",
        (*POD, "timeoutSeconds"),
        3600,
        "expected 0 <= 3600 <= 600: spec.template.spec.timeoutSeconds",
    ),
    (
        "Service",
        ("spec", "template", "metadata", "annotations", "autoscaling.knative.dev/min-scale"),
        "one",
        "autoscaling.knative.dev/min-scale",
    ),
]


@pytest.mark.parametrize("name", SHIPPED)
def test_an_overlay_is_admitted_by_knatives_webhooks(overlay: Overlay, name: str) -> None:
    dry = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    said = overlay.knative.kubectl("apply", *dry, "-k", INFRA / "overlays" / name)
    assert len(said.splitlines()) == len(rendered(name))
    assert all(line.endswith("(server dry run)") for line in said.splitlines())


def test_the_webhooks_complete_what_infra_leaves_out(overlay: Overlay) -> None:
    broker = overlay.cluster.get(f"/apis/eventing.knative.dev/v1/namespaces/{NAMESPACE}/brokers/berth")
    assert broker["metadata"]["annotations"]["eventing.knative.dev/broker.class"] == "MTChannelBasedBroker"
    assert broker["spec"]["config"]["name"] == "config-br-default-channel"
    services = f"/apis/serving.knative.dev/v1/namespaces/{NAMESPACE}/services"
    release = overlay.cluster.get(f"{services}/release")
    assert "serving.knative.dev/creator" in release["metadata"]["annotations"]
    assert release["spec"]["traffic"] == [{"latestRevision": True, "percent": 100}]


def manifest(kind: str) -> Object:
    """One of the default overlay's, with a name of its own."""
    api = ("sources.knative.dev/v1", "eventing.knative.dev/v1", "serving.knative.dev/v1")
    found = (each for each in rendered("per-verb", kind) if each["apiVersion"] in api)
    document = copy.deepcopy(next(found))
    document["metadata"]["name"] = "another"
    return document


def path_of(document: Object) -> str:
    plural = f"{document['kind'].lower()}s"
    return f"/apis/{document['apiVersion']}/namespaces/{NAMESPACE}/{plural}?dryRun=All"


@pytest.mark.parametrize(("kind", "path", "value", "why"), WRONG)
def test_what_is_written_wrong_is_refused_by_knatives_own_webhook(
    overlay: Overlay, kind: str, path: tuple[str | int, ...], value: Any, why: str
) -> None:
    document = manifest(kind)
    right = overlay.cluster.request("POST", path_of(document), document)
    assert right.status == 201, right.body
    at: Any = document
    for key in path[:-1]:
        at = at[key]
    if value is DELETE:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    reply = overlay.cluster.request("POST", path_of(document), document)
    said = reply.body["message"]
    assert reply.status in (400, 422), said
    assert "admission webhook" in said
    assert why in said
