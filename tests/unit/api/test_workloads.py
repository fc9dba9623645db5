"""Pods are read out of manifests as they stand there, or made as a workload's controller would make them."""

from typing import Any

import pytest

from berth.api.workloads import Manifests, with_priorities
from berth.errors import BadInputError
from berth.kube.types import Meta, PodInFull, PriorityClass, SpecInFull
from berth.scheduling.demand import owner_of
from berth.scheduling.node_fit import unseen

CONTAINERS: list[Any] = [{"name": "main", "resources": {"limits": {"berth.dev/ip": 1}}}]


def _pod(name: str = "a", spec: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **meta},
        "spec": {"containers": CONTAINERS, **(spec or {})},
    }


def _workload(kind: str, spec: dict[str, Any], **meta: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": CONTAINERS}}
    return {"kind": kind, "metadata": {"name": "web", **meta}, "spec": {"template": template, **spec}}


def _read(*documents: Any, namespace: str = "default") -> Manifests:
    manifests = Manifests()
    for document in documents:
        manifests.add(document, "pods.yaml", namespace)
    return manifests


@pytest.mark.parametrize(
    ("kind", "spec", "pods"),
    [
        ("Deployment", {"replicas": 3}, 3),
        ("Deployment", {}, 1),
        ("StatefulSet", {"replicas": 2}, 2),
        ("ReplicaSet", {"replicas": 0}, 0),
        ("Job", {"parallelism": 4}, 4),
        ("Job", {"parallelism": 4, "completions": 3}, 3),
        ("Job", {}, 1),
    ],
)
def test_a_workload_makes_its_pods_with_names_in_its_namespace(
    kind: str, spec: dict[str, Any], pods: int
) -> None:
    made = _read(_workload(kind, spec, namespace="team-a")).pods
    assert [pod.label for pod in made] == [f"team-a/web-{number}" for number in range(pods)]
    assert all(pod.metadata.labels == {"app": "x"} for pod in made)
    assert all(pod.spec.containers for pod in made)


def test_the_owner_is_the_one_for_whom_units_are_kept() -> None:
    (of_deployment,) = _read(_workload("Deployment", {})).pods
    (of_set,) = _read(_workload("StatefulSet", {})).pods
    assert owner_of(of_deployment) == "default/ReplicaSet:web"  # as a ReplicaSet web-5d4f with its hash
    assert owner_of(of_set) == "default/StatefulSet:web"


def test_a_namespace_is_filled_in_where_there_is_none() -> None:
    pods = _read(_pod("a"), _pod("b", namespace="own"), namespace="n").pods
    assert [pod.label for pod in pods] == ["n/a", "own/b"]


def test_what_is_there_twice_is_refused_but_not_what_only_looks_so() -> None:
    web = _workload("Deployment", {})
    generated = {"kind": "Pod", "metadata": {"generateName": "a-"}, "spec": {}}
    pods = _read(
        web, _workload("StatefulSet", {}), _workload("Deployment", {}, namespace="b"), generated, generated
    )
    assert len(pods.pods) == 5
    with pytest.raises(BadInputError, match=r"^pods\.yaml: Deployment web is there twice$"):
        _read(web, _workload("Deployment", {}, namespace="default"))


def test_other_kinds_are_counted_and_nodes_and_priority_classes_are_kept() -> None:
    node = {"kind": "Node", "metadata": {"name": "n1"}}
    classes = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7, "globalDefault": True}
    service = {"kind": "Service", "metadata": {"name": "s"}}
    other = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j"}, "spec": {}}
    daemons = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}}
    manifests = _read(node, classes, service, service, other, daemons)
    assert [one.metadata.name for one in manifests.nodes] == ["n1"]
    assert [(one.value, one.global_default) for one in manifests.priority_classes] == [(7, True)]
    assert manifests.skipped == {"Service": 2, "Job": 1, "DaemonSet": 1}


def test_the_pods_of_a_stateful_set_have_the_volumes_of_its_templates() -> None:
    (pod,) = _read(_workload("StatefulSet", {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]})).pods
    assert unseen(pod) == ["volumes"]
    (other,) = _read(_workload("StatefulSet", {"volumeClaimTemplates": []})).pods
    assert unseen(other) == []


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("text", "pods.yaml: each document should be a Kubernetes object, with a kind"),
        ({"metadata": {}}, "pods.yaml: each document should be a Kubernetes object, with a kind"),
        ({"kind": "Pod", "metadata": {}}, "pods.yaml: a Pod has no metadata.name"),
        (_pod("a", {"containers": 1}), "pods.yaml: Pod a: Expected `array | null`, got `int` - at `spec"),
        (_workload("Job", {"template": None}), "pods.yaml: Job web: Expected `object`, got `null`"),
        (
            _pod("a", {"volumes": 3}),
            "pods.yaml: Pod a: Expected `array | null`, got `int` - at `spec.volumes`",
        ),
        ({"kind": "Job", "metadata": {"name": "j"}, "spec": {}}, "pods.yaml: Job j: Object missing"),
        (
            _workload("Deployment", {"replicas": -1}),
            "pods.yaml: Deployment web: -1 pods; it should be from 0",
        ),
        (_workload("Deployment", {"replicas": "3"}), "pods.yaml: Deployment web: Expected `int | null`"),
    ],
)
def test_what_is_wrong_is_named_with_its_source_and_object(document: Any, text: str) -> None:
    with pytest.raises(BadInputError) as raised:
        _read(document)
    assert str(raised.value).startswith(text)


def test_a_pod_gets_the_priority_of_its_class_or_of_the_default_one() -> None:
    high = PriorityClass(Meta(name="high"), 1000)
    usual = PriorityClass(Meta(name="usual"), 5, global_default=True)
    specs = [
        SpecInFull(priority=3, priority_class_name="high"),
        SpecInFull(priority_class_name="high"),
        SpecInFull(),
    ]
    specs.append(SpecInFull(priority_class_name="system-node-critical"))
    pods = [PodInFull(Meta(name="a"), spec) for spec in specs]
    priorities = [pod.spec.priority for pod in with_priorities(pods, [high, usual])]
    assert priorities == [3, 1000, 5, 2_000_001_000]
    assert with_priorities([pods[2]], [high])[0].spec.priority == 0
    with pytest.raises(
        BadInputError, match="pod default/a: there is no PriorityClass high; there are: system-"
    ):
        with_priorities(pods, [usual])
