"""infra/components/monitoring on each overlay: Prometheus Operator's kinds take it, each pod is scraped with
a token that each function knows, and no more of the network is open. No operator runs here."""

import json
from pathlib import Path

import pytest
import yaml

from tests.monitoring.board import board
from tests.monitoring.rules import rules
from tests.support.builders.manifests import OVERLAYS, component
from tests.support.cluster import Object
from tests.support.schemas import schema_of, wrong

pytestmark = pytest.mark.usefixtures("binaries")
SECRET = {"name": "berth-metrics", "key": "token"}
FUNCTION = {"app.kubernetes.io/component": "function"}
TOKEN = {"name": "BERTH_METRICS_TOKEN", "valueFrom": {"secretKeyRef": SECRET}}


@pytest.fixture(scope="module")
def kinds(monitoring_kinds: list[Path]) -> list[Object]:
    return [yaml.safe_load(file.read_text()) for file in monitoring_kinds]


def one(objects: list[Object], kind: str) -> Object:
    (only,) = (document for document in objects if document["kind"] == kind)
    return only


def services(objects: list[Object]) -> dict[str, Object]:
    """The template of each function: of its Knative Service, or of its Deployment."""
    return {
        document["metadata"]["name"]: document["spec"]["template"]
        for document in objects
        if FUNCTION.items()
        <= document.get("spec", {}).get("template", {}).get("metadata", {}).get("labels", {}).items()
    }


def test_what_it_adds_are_fields_that_prometheus_operator_has(kinds: list[Object]) -> None:
    for kind in ("PodMonitor", "PrometheusRule"):
        document = one(component("monitoring"), kind)
        schema = schema_of(kinds, document)
        assert schema is not None
        assert wrong(schema, document) == []
        document["spec"]["misspelt"] = {}
        assert wrong(schema, document)


def test_it_brings_all_alerts_and_the_board() -> None:
    added = component("monitoring")
    assert {document["kind"] for document in added} == {
        "PodMonitor",
        "PrometheusRule",
        "NetworkPolicy",
        "ConfigMap",
    }
    assert one(added, "PrometheusRule")["spec"]["groups"][0]["rules"] == rules()
    assert json.loads(one(added, "ConfigMap")["data"]["berth.json"]) == board()


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.long
def test_every_function_is_scraped_at_its_own_port_with_a_token_that_it_knows(overlay: str) -> None:
    objects = component("monitoring", overlay=overlay)
    (endpoint,) = one(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"]["credentials"] == SECRET
    assert len(services(objects)) >= 5
    selected = one(objects, "PodMonitor")["spec"]["selector"]
    for template in services(objects).values():
        assert selected["matchLabels"].items() <= template["metadata"]["labels"].items()
        (container,) = template["spec"]["containers"]
        assert TOKEN in container["env"]
        (port,) = container["ports"]
        assert port["containerPort"] == 8080
        assert port.get("name", "user-port") == "user-port"  # as Knative calls it
    assert selected == {"matchLabels": {"app.kubernetes.io/part-of": "berth", **FUNCTION}}


def test_the_network_is_opened_to_prometheus_alone_in_a_namespace_that_was_labelled() -> None:
    policies = {
        document["metadata"]["name"]: document["spec"]
        for document in component("monitoring", "NetworkPolicy", overlay="per-verb")
    }
    opened, base = policies["berth-metrics"], policies["berth-functions"]
    assert opened["podSelector"] == base["podSelector"]
    assert opened["policyTypes"] == ["Ingress"]
    (rule,) = opened["ingress"]
    (peer,) = rule["from"]
    assert set(peer) == {"namespaceSelector", "podSelector"}
    assert rule["ports"] == [{"protocol": "TCP", "port": 8080}]
    assert 8080 not in {port["port"] for rule in base["ingress"] for port in rule["ports"]}
