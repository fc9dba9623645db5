"""Pods, Nodes and PriorityClasses read out of manifests, and the pods that workloads would make.
Other kinds are counted and left out. It knows no cluster: what admission would fill in is not there."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from berth.errors import BadInputError
from berth.kube.types import Anything, Meta, Node, Owner, PodInFull, PriorityClass, SpecInFull, Volume

MOST_PODS = 100_000  # of one workload: a typo should not fill the memory

T = TypeVar("T")

_GROUPS = {
    "Pod": "",
    "Node": "",
    "PriorityClass": "scheduling.k8s.io",
    "Deployment": "apps",
    "StatefulSet": "apps",
    "ReplicaSet": "apps",
    "ReplicationController": "",
    "Job": "batch",
}
"""The API groups of the kinds that are read: other groups have a Job, too."""
_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class _Template(msgspec.Struct, frozen=True):
    metadata: Meta = Meta()
    spec: SpecInFull = SpecInFull()


class _ControllerSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What is read of a workload's spec; a Job has no replicas but parallelism and completions. A StatefulSet
    gives each pod volumes of its own, by templates."""

    template: _Template
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    volume_claim_templates: list[Anything] | None = None

    @property
    def pods(self) -> int:
        """Return how many pods there are at a time."""
        counts = (self.replicas, self.parallelism)
        most = next((count for count in counts if count is not None), 1)
        return most if self.completions is None else min(most, self.completions)


class _Controller(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: _ControllerSpec


class Manifests(msgspec.Struct):
    """What was read, in the order of the files; `skipped` counts objects of other kinds by kind.
    `seen` are the kinds, namespaces and names of what was read."""

    pods: list[PodInFull] = []
    nodes: list[Node] = []
    priority_classes: list[PriorityClass] = []
    skipped: Counter[str] = msgspec.field(default_factory=Counter)
    seen: set[tuple[str, str, str]] = set()

    def add(self, document: Any, source: str, namespace: str = "default") -> None:
        """Read this document too; a pod without a namespace gets this one. Raises BadInputError that names
        the source, the object and the field."""
        kind = document.get("kind") if isinstance(document, dict) else None
        if not isinstance(kind, str) or not kind:
            raise BadInputError(f"{source}: each document should be a Kubernetes object, with a kind")
        name = _name(document, source)
        where = f"{source}: {kind} {name}"
        if kind not in _GROUPS or _group(document) != _GROUPS[kind]:
            self.skipped[kind] += 1
            return
        self._require_new(document, where, namespace)
        if kind == "Pod":
            self._take(_convert(document, PodInFull, where), name, namespace)
        elif kind == "Node":
            self.nodes.append(_convert(document, Node, where))
        elif kind == "PriorityClass":
            self.priority_classes.append(_convert(document, PriorityClass, where))
        else:
            self._make(document, name, where, namespace)

    def _require_new(self, document: Mapping[str, Any], where: str, namespace: str) -> None:
        """Raise BadInputError for an object that is there twice: a cluster would have it once."""
        meta = document["metadata"]
        if meta.get("name"):
            identity = str(document["kind"]), str(meta.get("namespace") or namespace), str(meta["name"])
            if identity in self.seen:
                raise BadInputError(f"{where} is there twice")
            self.seen.add(identity)

    def _make(self, document: Mapping[str, Any], name: str, where: str, namespace: str) -> None:
        """Add the pods that the workload would have."""
        controller = _convert(document, _Controller, where)
        spec, meta = controller.spec, controller.metadata
        if not 0 <= spec.pods <= MOST_PODS:
            raise BadInputError(f"{where}: {spec.pods} pods; it should be from 0 to {MOST_PODS}")
        kind = "ReplicaSet" if document["kind"] == "Deployment" else document["kind"]
        made = replace(
            spec.template.metadata,
            namespace=meta.namespace,
            owner_references=[Owner(kind=kind, name=name, controller=True)],
        )
        claims = [Volume(persistent_volume_claim={"claimName": ""})] if spec.volume_claim_templates else []
        volumes = [*(spec.template.spec.volumes or ()), *claims]
        pod = PodInFull(made, replace(spec.template.spec, volumes=volumes))
        for number in range(spec.pods):
            self._take(pod, f"{name}-{number}", namespace)

    def _take(self, pod: PodInFull, name: str, namespace: str) -> None:
        meta = replace(pod.metadata, name=name, namespace=pod.metadata.namespace or namespace)
        self.pods.append(replace(pod, metadata=meta))


def with_priorities(pods: Iterable[PodInFull], classes: Iterable[PriorityClass]) -> list[PodInFull]:
    """Return the pods with the priorities that admission would give them. Raises BadInputError for a pod
    whose class there is not."""
    by_name = {one.metadata.name: one.value for one in classes} | _SYSTEM_CLASSES
    default = max((one.value for one in classes if one.global_default), default=0)
    return [_with_priority(pod, by_name, default) for pod in pods]


def _with_priority(pod: PodInFull, classes: Mapping[str, int], default: int) -> PodInFull:
    name = pod.spec.priority_class_name
    if pod.spec.priority is not None:
        return pod
    if name and name not in classes:
        known = ", ".join(sorted(classes))
        raise BadInputError(
            f"pod {pod.label}: there is no PriorityClass {name}; there are: {known} "
            "(one that is not in the cluster may stand in a file of -f)"
        )
    priority = classes[name] if name else default
    return replace(pod, spec=replace(pod.spec, priority=priority))


def _group(document: Mapping[str, Any]) -> str:
    """Return the document's API group; where it does not say, that of its kind."""
    if "apiVersion" not in document:
        return _GROUPS[document["kind"]]
    group, slash, _ = str(document["apiVersion"]).partition("/")
    return group if slash else ""


def _name(document: Mapping[str, Any], source: str) -> str:
    meta = document.get("metadata")
    name = (meta.get("name") or meta.get("generateName")) if isinstance(meta, dict) else None
    if not isinstance(name, str) or not name:
        raise BadInputError(f"{source}: a {document['kind']} has no metadata.name")
    return name


def _convert(document: Mapping[str, Any], shape: type[T], where: str) -> T:
    try:
        return msgspec.convert(document, shape)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{where}: {str(error).replace('`$.', '`')}") from error
