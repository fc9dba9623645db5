"""The parts of Kubernetes' objects that Berth reads, as msgspec decodes them.
A field that is absent or null in JSON is None or empty here; unknown fields are skipped unread."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

Quantity = str | int | float
"""A resource quantity as JSON carries it; the API server sends strings, people write numbers."""

Anything = dict[str, Any]
"""An object of which is read only that it is there."""


class _Object(msgspec.Struct, frozen=True, rename="camel", gc=False):
    # Without gc: a large cluster has 50,000 pods, of ten such objects each, and they hold no cycles.
    pass


FINISHED = ("Succeeded", "Failed")
"""The phases of a pod in which no container can run any more."""

_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_REFUSED_WITHIN = 30.0
"""Seconds after its Binding in which a kubelet that refuses a pod has said so."""
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


class Owner(_Object, kw_only=True, frozen=True):
    """One of metadata.ownerReferences; the controller is the one that replaces the pod."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(_Object, kw_only=True, frozen=True):
    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None


class Resources(_Object, frozen=True):
    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class Container(_Object, frozen=True):
    resources: Resources | None = None
    restart_policy: str | None = None
    name: str = ""


class Gate(_Object, frozen=True):
    name: str = ""


class Toleration(_Object, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, key: str, effect: str, value: str = "") -> bool:
        """Whether a taint with this key, effect and value is tolerated.

        Source: k8s.io/api/core/v1, Toleration.ToleratesTaint."""
        matches = self.key == key or (not self.key and self.operator == "Exists")
        return matches and self.effect in ("", effect) and (self.operator == "Exists" or self.value == value)


class NodeSelectorRequirement(_Object, frozen=True):
    """One expression of a node selector term, on a label or on a field."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(_Object, frozen=True):
    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(_Object, frozen=True):
    """A node has to match one of the terms."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(_Object, frozen=True):
    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(_Object, frozen=True):
    """In which namespaces it is about pods; with neither it is the pod's own."""

    namespaces: list[str] | None = None
    namespace_selector: Anything | None = None


class PodAntiAffinity(_Object, frozen=True):
    required: list[PodAffinityTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Object, frozen=True):
    """Which nodes a pod must have, and whether it minds what other pods there are."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: Anything | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class TopologySpread(_Object, frozen=True):
    when_unsatisfiable: str = "DoNotSchedule"


class Volume(_Object, frozen=True):
    """A pod's volume, if it is of a kind that not every node may have: without any of these it is."""

    persistent_volume_claim: Anything | None = None
    ephemeral: Anything | None = None
    aws_elastic_block_store: Anything | None = None
    gce_persistent_disk: Anything | None = None
    iscsi: Anything | None = None
    rbd: Anything | None = None


class Port(_Object, frozen=True):
    host_port: int | None = None


class ContainerInFull(Container, frozen=True):
    ports: list[Port] | None = None


class SchedulingGroup(_Object, frozen=True):
    """Which PodGroup a pod is of."""

    pod_group_name: str | None = None


class PodSpec(_Object, kw_only=True, frozen=True):
    node_name: str | None = None
    scheduler_name: str | None = None
    containers: Sequence[Container] | None = None
    init_containers: Sequence[Container] | None = None
    overhead: dict[str, Quantity] | None = None
    scheduling_gates: list[Gate] | None = None
    priority: int | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    tolerations: list[Toleration] | None = None
    scheduling_group: SchedulingGroup | None = None


class SpecInFull(PodSpec, kw_only=True, frozen=True):
    containers: Sequence[ContainerInFull] | None = None
    init_containers: Sequence[ContainerInFull] | None = None
    priority_class_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    topology_spread_constraints: list[TopologySpread] | None = None
    volumes: list[Volume] | None = None
    host_network: bool | None = None
    resource_claims: list[Anything] | None = None
    resources: Anything | None = None
    runtime_class_name: str | None = None


class Terminated(_Object, frozen=True):
    finished_at: str | None = None


class ContainerState(_Object, frozen=True):
    terminated: Terminated | None = None


class ContainerStatus(_Object, frozen=True):
    state: ContainerState | None = None


class Condition(_Object, frozen=True):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None

    @property
    def since(self) -> float | None:
        """Return when it came to this status (Unix seconds); None where it does not say when."""
        return unix_seconds(self.last_transition_time)


class PodStatus(_Object, frozen=True):
    phase: str | None = None
    nominated_node_name: str | None = None
    conditions: Sequence[Condition] | None = None
    container_statuses: Sequence[ContainerStatus] | None = None


class Pod(_Object, frozen=True):
    """A v1 Pod: who it is, what it requests, where it runs, whether it has finished."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or "default"

    @property
    def label(self) -> str:
        """Return the pod's name in messages: namespace/name."""
        return f"{self.namespace}/{self.metadata.name}"

    @property
    def finished(self) -> bool:
        """Whether no container can run any more (docs/kubernetes.md#a-finished-pod)."""
        return self.status.phase in FINISHED

    @property
    def made_at(self) -> float | None:
        """Return when it was created (Unix seconds)."""
        return unix_seconds(self.metadata.creation_timestamp)

    @property
    def bound_at(self) -> float | None:
        """Return when it was bound (Unix seconds); the API server says so in whole seconds."""
        conditions = self.status.conditions or ()
        bound = (one for one in conditions if one.type == "PodScheduled" and one.status == "True")
        return next((one.since for one in bound), None)

    @property
    def finished_at(self) -> float | None:
        """Return when its last container ended (Unix seconds); None while one may run, or where nobody says
        when."""
        if not self.finished or not self.status.container_statuses:
            return None
        states = (one.state for one in self.status.container_statuses)
        ended = [None if state is None else state.terminated for state in states]
        times = [unix_seconds(one.finished_at) for one in ended if one is not None]
        return max((time for time in times if time is not None), default=None)

    @property
    def waiting(self) -> bool:
        """Whether it is unbound, alive and free to be scheduled."""
        return self._to_be_placed and not self.spec.scheduling_gates

    @property
    def never_runs(self) -> bool:
        """Whether it is being deleted and is on no node, as where a finalizer keeps it.

        The API server binds no such pod (source: pkg/registry/core/pod/storage, setPodNodeAndMetadata)."""
        return self.metadata.deletion_timestamp is not None and not self.spec.node_name

    @property
    def gated(self) -> bool:
        """Whether it is in no scheduler's queue, because of its scheduling gates."""
        return self._to_be_placed and bool(self.spec.scheduling_gates)

    @property
    def gates(self) -> str:
        """Return the names of its scheduling gates, for a message."""
        return ", ".join(gate.name for gate in self.spec.scheduling_gates or ())

    @property
    def _to_be_placed(self) -> bool:
        return not self.finished and self.metadata.deletion_timestamp is None and not self.spec.node_name

    @property
    def goes_to_unschedulable(self) -> bool:
        """Whether kube-scheduler would put it on a cordoned node (source: plugin NodeUnschedulable)."""
        tolerations = self.spec.tolerations or ()
        return any(toleration.tolerates(_UNSCHEDULABLE, "NoSchedule") for toleration in tolerations)


class PodCondition(Condition, frozen=True):
    """One of a pod's conditions: kube-scheduler says in PodScheduled why it has placed the pod nowhere."""

    reason: str | None = None
    message: str | None = None


class StatusWithConditions(PodStatus, frozen=True):
    conditions: Sequence[PodCondition] | None = None


class PodToBind(Pod, frozen=True):
    """A Pod with its conditions, one of which says when it was woken."""

    status: StatusWithConditions = StatusWithConditions()


class PodInFull(Pod, frozen=True):
    """A Pod with what is said of it and which nodes it may have: for who asks why it waits, or where it would
    go. The functions need none of that, and would decode it for each pod."""

    spec: SpecInFull = SpecInFull()
    status: StatusWithConditions = StatusWithConditions()

    @property
    def scheduled(self) -> PodCondition | None:
        """Return what its scheduler said of it last; None where none has said anything."""
        conditions = self.status.conditions or ()
        return next((condition for condition in conditions if condition.type == "PodScheduled"), None)

    @property
    def unscheduled(self) -> PodCondition | None:
        """Return what its scheduler said of its last attempt; None while no attempt has failed."""
        said = self.scheduled
        return said if said is not None and said.status == "False" else None


class Taint(_Object, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(_Object, frozen=True):
    taints: list[Taint] | None = None
    unschedulable: bool | None = None


class NodeStatus(_Object, frozen=True):
    conditions: list[Condition] | None = None
    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None


class Node(_Object, frozen=True):
    """A v1 Node: its name, labels and annotations, and whether it may be trusted to have stopped its pods."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def lost(self) -> bool:
        """Whether it is not ready, and nobody has said that it is shut down.

        Source: kubernetes.io/docs, Non-graceful node shutdown (the taint out-of-service).
        """
        return self._ready is None and not any(
            taint.key == _OUT_OF_SERVICE for taint in self.spec.taints or ()
        )

    @property
    def ready_since(self) -> float:
        """Return when the node became ready (Unix seconds); 0 where it is not ready, or does not say when."""
        return (self._ready.since if self._ready is not None else None) or 0.0

    @property
    def _ready(self) -> Condition | None:
        conditions = self.status.conditions or ()
        ready = (condition for condition in conditions if condition.type == "Ready")
        return next((condition for condition in ready if condition.status == "True"), None)


class FieldsWrite(_Object, frozen=True):
    """One of metadata.managedFields: when somebody last wrote something of the object, or of its status."""

    subresource: str | None = None
    time: str | None = None


class WrittenMeta(Meta, kw_only=True, frozen=True):
    managed_fields: list[FieldsWrite] | None = None


class StateInFull(_Object, frozen=True):
    """A container's state; with neither of these it waits."""

    running: Anything | None = None
    terminated: Anything | None = None


class StatusInFull(_Object, kw_only=True, frozen=True):
    """A container's status, by which one that never ran is known."""

    state: StateInFull | None = None
    last_state: StateInFull | None = None
    restart_count: int | None = None
    started: bool | None = None
    container_id: str | None = msgspec.field(default=None, name="containerID")

    @property
    def may_have_run(self) -> bool:
        states = [state for state in (self.state, self.last_state) if state is not None]
        ran = any(state.running is not None or state.terminated is not None for state in states)
        return ran or bool(self.restart_count or self.started or self.container_id)


class EndedStatus(PodStatus, kw_only=True, frozen=True):
    conditions: Sequence[PodCondition] | None = None
    container_statuses: Sequence[StatusInFull] | None = None  # type: ignore[assignment]
    init_container_statuses: Sequence[StatusInFull] | None = None
    ephemeral_container_statuses: Sequence[StatusInFull] | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    pod_ips: list[Anything] | None = msgspec.field(default=None, name="podIPs")


class EndedPod(Pod, frozen=True):
    """A Pod with all that tells whether anything of it ever ran: read for those that failed alone."""

    metadata: WrittenMeta
    status: EndedStatus = EndedStatus()

    @property
    def never_ran(self) -> bool:
        """Whether its kubelet refused it, or gave it up before its sandbox had an address and a container
        ran (docs/kubernetes.md#a-pod-that-never-ran)."""
        status = self.status
        if status.phase != "Failed":
            return False
        if not self.spec.node_name:
            return True
        lists = (
            status.init_container_statuses,
            status.container_statuses,
            status.ephemeral_container_statuses,
        )
        had_address = bool(status.pod_ip or status.pod_ips)
        may_have_run = any(container.may_have_run for statuses in lists for container in statuses or ())
        return not (had_address or may_have_run or self._was_disrupted or self._was_written_late)

    @property
    def _was_disrupted(self) -> bool:
        """Whether another than its kubelet may have failed it, who does not know what runs."""
        conditions = self.status.conditions or ()
        return any(one.type == "DisruptionTarget" and one.status == "True" for one in conditions)

    @property
    def _was_written_late(self) -> bool:
        """Whether its status was written long after it was bound. A kubelet that was restarted may refuse a
        pod that ran, and then writes nothing of what ran. Both times are the API server's."""
        fields = self.metadata.managed_fields or ()
        times = [unix_seconds(write.time) for write in fields if write.subresource == "status"]
        written = max((time for time in times if time is not None), default=None)
        bound = self.bound_at
        return written is not None and bound is not None and written - bound > _REFUSED_WITHIN


class PriorityClass(_Object, frozen=True):
    """A scheduling.k8s.io/v1 PriorityClass: what the pods that name it are worth."""

    metadata: Meta
    value: int = 0
    global_default: bool = False


class GangPolicy(_Object, frozen=True):
    """How many pods of a PodGroup are to be placed at once, at least."""

    min_count: int = 0


class SchedulingPolicy(_Object, frozen=True):
    """How the pods of a PodGroup are placed: as a gang, or else one by one."""

    gang: GangPolicy | None = None


class PodGroupSpec(_Object, frozen=True):
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()


class PodGroup(_Object, frozen=True):
    """A scheduling.k8s.io PodGroup: which of its pods are to be placed together."""

    metadata: Meta
    spec: PodGroupSpec = PodGroupSpec()


def unix_seconds(time_stamp: str | None) -> float | None:
    """Return a time stamp of Kubernetes in Unix seconds; None where it is none."""
    try:
        return datetime.fromisoformat(time_stamp or "").timestamp()
    except ValueError:
        return None
