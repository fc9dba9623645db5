"""Gangs: pods of one namespace that get their units together or not at all, by two annotations or a PodGroup.
A pod alone says which gang it is of. It does not know which pods there are, nor what they ask for."""

import hashlib
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from berth.api.names import GROUP, is_name
from berth.api.pod_group import pod_group_of
from berth.kube.types import Owner, Pod

AnyPod = TypeVar("AnyPod", bound=Pod)

GANG = f"{GROUP}/gang"
"""The pod's annotation that names its gang, one of its namespace."""

GANG_SIZE = f"{GROUP}/gang-size"
"""The pod's annotation that says how many pods its gang has."""

LARGEST_GANG = 512
"""Pods of a gang: what is known of it is one document."""

_WORKLOADS = (
    ("jobset.sigs.k8s.io/jobset-uid", "jobset.sigs.k8s.io/restart-attempt"),
    ("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/restart-attempt"),
    ("leaderworkerset.sigs.k8s.io/group-key",),
    ("training.kubeflow.org/job-name",),
    ("ray.io/cluster",),
)
"""Labels by which operators name a workload whose pods have several controllers: its pods are one gang."""

_INDEXES = (
    ("batch.kubernetes.io/job-completion-index",),
    ("training.kubeflow.org/replica-index", "training.kubeflow.org/replica-type"),
)
"""Labels of a pod that its replacement has as well, where a pod that has failed may stay without one."""

_INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"


class Gang(NamedTuple):
    """A gang as one of its pods names it.

    `label` is its namespace and name, and which workload's it is where its pods have a controller; that is
    opaque. Pods of one label and size are one gang. Its size is 0 where only a PodGroup says it: `sized`.
    """

    label: str
    size: int

    @property
    def name(self) -> str:
        return name_of(self.label)


class Family(NamedTuple):
    """The pods that name one gang and are of one workload; empty: they have no controller."""

    namespace: str
    name: str
    workload: str = ""


def gang_of(pod: Pod) -> Gang | None:
    """Return the gang that the pod is of; None: of none. Raises ValueError for what is no name or size."""
    annotations = pod.metadata.annotations or {}
    name, size = annotations.get(GANG), annotations.get(GANG_SIZE)
    group = pod_group_of(pod)
    if name is None and size is None:
        return Gang(_label(pod, group, 0), 0) if group else None
    if name is None or not is_name(name):
        raise ValueError(
            f"annotation {GANG}: {(name or '')[:64]!r} can't be the name of a gang, which has lower-case"
            " letters, digits, - and ."
        )
    if size is None or not (size.isascii() and size.isdigit() and len(size) <= 4):
        raise ValueError(f"annotation {GANG_SIZE}: {(size or '')[:64]!r} is no number of pods")
    if not 1 <= int(size) <= LARGEST_GANG:
        raise ValueError(f"annotation {GANG_SIZE}: {size} is not from 1 to {LARGEST_GANG}")
    if group not in ("", name):
        raise ValueError(
            f"annotation {GANG} says {name[:64]!r}, and spec.schedulingGroup names PodGroup {group[:64]!r}: "
            "name the same one, or leave out the annotations"
        )
    return Gang(_label(pod, name, int(size)), int(size))


def gang_or_none(pod: Pod) -> Gang | None:
    """Return the gang that the pod is of; None where it is of none, or says what is no gang."""
    try:
        return gang_of(pod)
    except ValueError:
        return None


def gang_label(pod: Pod) -> str:
    """Return the label of the pod's gang; empty where it is of none."""
    gang = gang_or_none(pod)
    return "" if gang is None else gang.label


def size_of(pod: Pod) -> int:
    """Return the size that the pod says of its gang; 0 where it is of none."""
    gang = gang_or_none(pod)
    return 0 if gang is None else gang.size


def sized(pod: AnyPod, size: int) -> AnyPod:
    """Return the pod as if it said itself how many pods its gang has, where it leaves that to a PodGroup."""
    if size == 0 or not is_sized_elsewhere(pod):
        return pod
    annotations = {**(pod.metadata.annotations or {}), GANG: pod_group_of(pod), GANG_SIZE: str(size)}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def is_sized_elsewhere(pod: Pod) -> bool:
    """Whether only its PodGroup says how many pods the pod's gang has."""
    gang = gang_or_none(pod)
    return gang is not None and gang.size == 0


def family_of(pod: Pod) -> Family:
    """Return which pods name the same gang as this one, which names one, and are of the same workload."""
    name = pod_group_of(pod) or (pod.metadata.annotations or {}).get(GANG, "")
    return Family(pod.namespace, name, _workload_of(pod))


def revision_of(pod: Pod) -> str:
    """Return which template of its controller the pod was made by; empty where a controller has only one."""
    owner, labels = controller_of(pod), pod.metadata.labels or {}
    if owner is None or pod_group_of(pod):
        return ""
    if owner.kind == "StatefulSet":
        return labels.get("controller-revision-hash", "")
    return owner.uid if _is_of_deployment(owner, pod) else ""


def controller_of(pod: Pod) -> Owner | None:
    """Return who replaces the pod; None: nobody."""
    return next((owner for owner in pod.metadata.owner_references or () if owner.controller), None)


def index_of(pod: Pod) -> tuple[str, ...]:
    """Return which of its workload's pods it is, as its replacement would be; empty: nobody knows."""
    owner, labels = controller_of(pod), pod.metadata.labels or {}
    for names in _INDEXES if owner is not None else ():
        if names[0] in labels:
            return ("" if owner is None else owner.uid, *(labels.get(name, "") for name in names))
    return ()


def fails_alone(pod: Pod) -> bool:
    """Whether its controller gives up this pod without the others when it has failed often enough (a Job with
    backoffLimitPerIndex; source: kubernetes.io/docs, Job, Backoff limit per index)."""
    return _INDEX_FAILURES in (pod.metadata.annotations or {})


def name_of(label: str) -> str:
    """Return the name that is in a gang's label."""
    return label.split("/")[1]


def label_before(label: str) -> str:
    """Return the label under which earlier versions of Berth kept the gang, whatever workload it was of."""
    return "/".join(label.split("/")[:2])


def _label(pod: Pod, name: str, size: int) -> str:
    workload = _workload_of(pod)
    if not workload:
        return f"{pod.namespace}/{name}"
    # The pods of an updated template are of the same gang only if that has the same size.
    parts = f"{workload} {size}" if revision_of(pod) else workload
    return f"{pod.namespace}/{name}/{hashlib.blake2b(parts.encode(), digest_size=8).hexdigest()}"


def _workload_of(pod: Pod) -> str:
    """Return which workload the pod is of: one that an operator names by a label, else its controller, of a
    ReplicaSet the Deployment. Users may write these: pods are told apart by them, and given nothing."""
    if pod_group_of(pod):
        return "PodGroup"  # whoever made them
    owner, labels = controller_of(pod), pod.metadata.labels or {}
    if owner is None:
        return ""
    for names in _WORKLOADS:
        if labels.get(names[0]):
            return " ".join((names[0], *(labels.get(name, "") for name in names)))
    if _is_of_deployment(owner, pod):
        return f"Deployment {owner.name.removesuffix('-' + labels['pod-template-hash'])}"
    return f"{owner.kind} {owner.uid or owner.name}"


def _is_of_deployment(owner: Owner, pod: Pod) -> bool:
    revision = (pod.metadata.labels or {}).get("pod-template-hash", "")
    return owner.kind == "ReplicaSet" and bool(revision) and owner.name.endswith(f"-{revision}")
