"""PodGroups, by which Kubernetes itself names the pods of a gang: which one a pod is of, and what it says.
The size stands in the PodGroup, which only those can read who have an account."""

from berth.kube.types import Pod, PodGroup


def pod_group_of(pod: Pod) -> str:
    """Return the name of the PodGroup that the pod is of, one of its namespace; empty: it is of none."""
    group = pod.spec.scheduling_group
    return "" if group is None else group.pod_group_name or ""


def pods_at_once(group: PodGroup) -> int:
    """Return how many of its pods are to be placed together; 1 where its policy is no gang's."""
    policy = group.spec.scheduling_policy.gang
    return 1 if policy is None else max(1, policy.min_count)
