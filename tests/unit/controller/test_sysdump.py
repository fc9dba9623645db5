"""What a dump takes of objects, and what it leaves where it is."""

from typing import Any

import pytest
import yaml

from berth.controller import sysdump
from berth.redaction import Redactor
from tests.support.references import ROOT

SECRET = "planted-word"


def manifests(name: str) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all((ROOT / "infra" / "base" / name).read_text())]


def pod() -> dict[str, Any]:
    """One that has a secret in each place that a dump leaves out."""
    container = {
        "name": "main",
        "image": SECRET,
        "command": [SECRET],
        "args": [SECRET],
        "env": [{"name": "A", "value": SECRET}],
        "resources": {"limits": {"berth.dev/ip": "1"}},
    }
    said = {"type": "PodScheduled", "status": "False", "message": f"password={SECRET}"}
    return {
        "metadata": {
            "name": "a",
            "namespace": "team",
            "uid": "u",
            "labels": {"x": SECRET},
            "annotations": {"berth.dev/claims": "erc", "kubectl.kubernetes.io/last-applied": SECRET},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "a", "controller": True, "uid": SECRET}],
        },
        "spec": {"containers": [container], "initContainers": [container], "schedulerName": "berth"},
        "status": {"phase": "Pending", "podIP": SECRET, "conditions": [said]},
    }


def test_of_a_pod_is_taken_what_scheduling_is_about() -> None:
    listed = [{"name": "main", "resources": {"limits": {"berth.dev/ip": "1"}}}]
    assert sysdump.pod_of(pod(), Redactor()) == {
        "metadata": {
            "name": "a",
            "namespace": "team",
            "uid": "u",
            "annotations": {"berth.dev/claims": "erc"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "a", "controller": True}],
        },
        "spec": {"schedulerName": "berth", "containers": listed, "initContainers": listed},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "message": "password=***"}],
        },
    }


def test_of_a_node_no_annotation_and_no_address_is_taken() -> None:
    node = {
        "metadata": {"name": "n1", "labels": {"zone": "a"}, "annotations": {"x": SECRET}},
        "spec": {"unschedulable": True, "providerID": SECRET},
        "status": {"capacity": {"pods": "9"}, "addresses": [SECRET], "images": [SECRET], "conditions": []},
    }
    assert sysdump.node_of(node) == {
        "metadata": {"name": "n1", "labels": {"zone": "a"}},
        "spec": {"unschedulable": True},
        "status": {"capacity": {"pods": "9"}, "conditions": []},
    }


def test_of_a_knative_service_the_function_and_its_condition_are_taken() -> None:
    (service,) = manifests("services/release.yaml")
    ready = {"type": "Ready", "status": "False", "reason": "RevisionMissing", "message": "no image"}
    shown = sysdump.workload_of({**service, "status": {"conditions": [ready]}}, Redactor())
    (container,) = shown["spec"]["containers"]
    assert container["env"][0] == {"name": "FUNCTION_TARGET", "value": "release"}
    assert container["env"][2] == {"name": "THREADS", "value": "***"}  # it is none of Berth's own
    assert container["envFrom"] == [{"configMapRef": {"name": "berth-settings"}}]
    assert shown["spec"]["containerConcurrency"] == 16
    assert shown["status"]["conditions"] == [ready]


@pytest.mark.parametrize("source", manifests("events/sources.yaml"), ids=lambda one: one["metadata"]["name"])
def test_of_a_source_it_is_told_what_goes_where(source: dict[str, Any]) -> None:
    shown = sysdump.workload_of(source, Redactor())
    assert shown["metadata"]["name"] == source["metadata"]["name"]
    assert shown["spec"]["sink"] == source["spec"]["sink"]
