"""What Berth reads out of pods: which of them kube-scheduler puts on a cordoned node."""

import pytest

from berth.kube.types import Meta, Pod, PodSpec, Toleration

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
