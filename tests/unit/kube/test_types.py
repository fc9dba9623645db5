"""What is read of pods: which of them go to a cordoned node, and what is read only by who needs it."""

import msgspec
import pytest

from berth.kube.types import Meta, Pod, PodInFull, PodSpec, Toleration

KEY = "node.kubernetes.io/unschedulable"


@pytest.mark.parametrize(
    ("toleration", "goes"),
    [
        (Toleration(KEY, "Exists"), True),
        (Toleration(KEY, "Exists", effect="NoSchedule"), True),
        (Toleration(KEY), True),
        (Toleration(operator="Exists"), True),
        (Toleration(KEY, "Exists", effect="NoExecute"), False),
        (Toleration(KEY, "Equal", value="true"), False),
        (Toleration("node.kubernetes.io/not-ready", "Exists"), False),
        (Toleration(operator="Equal"), False),
    ],
)
def test_a_pod_goes_to_a_cordoned_node_if_it_tolerates_that(toleration: Toleration, goes: bool) -> None:
    assert Pod(Meta(), PodSpec(tolerations=[toleration])).goes_to_unschedulable == goes


def test_a_pod_without_tolerations_goes_to_no_cordoned_node() -> None:
    assert not Pod(Meta()).goes_to_unschedulable


def test_where_a_pod_may_go_is_read_only_by_who_asks_for_it() -> None:
    """The functions decode each pod of a large cluster, and kube-scheduler knows where it may go."""
    spec = {"nodeSelector": {"a": "b"}, "affinity": {"nodeAffinity": {}}, "priorityClassName": "high"}
    body = msgspec.json.encode({"metadata": {"name": "a"}, "spec": spec})
    pod = msgspec.json.decode(body, type=PodInFull)
    assert (pod.spec.node_selector, pod.spec.priority_class_name) == ({"a": "b"}, "high")
    assert {"node_selector", "affinity", "priority_class_name"} & set(PodSpec.__struct_fields__) == set()
