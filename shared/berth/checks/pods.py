"""Pods that Berth can't count, or that can't get what they ask for, as they are now.
It does not judge whether a pod that waits fits somewhere."""

from collections.abc import Iterator

from berth.checks.finding import AFTER, Check, Finding, Rule, listed
from berth.checks.inputs import Inputs, is_function
from berth.kube.configuration import PodWithVolumes, StorageClass, VolumeClaim
from berth.scheduling.demand import resources

_CLAIMS = "/api/v1/persistentvolumeclaims"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_WAITS = "WaitForFirstConsumer"

SCHEDULER = Rule(
    id="pods.scheduler",
    severity="error",
    meaning=(
        "A pod asks for Berth's resources by another scheduler, which does not ask Berth. It waits for ever."
    ),
    action="Set the pod's spec.schedulerName to Berth's.",
    more="docs/install.md#without-the-admission-policies",
)
POOL = Rule(
    id="pods.pool",
    severity="error",
    meaning="A pod of Berth's scheduler asks for a resource of Berth's group that no Pool has.",
    action="Make the Pool, or correct the resource's name in the pod.",
    more="docs/reference/pool.md#resource",
)
VOLUMES = Rule(
    id="pods.volumes",
    severity="warning",
    meaning=(
        "A pod that waits has a volume that is made on its node before Berth's bind is asked. Where the "
        "node's last unit goes to another pod meanwhile, the pod waits for that node alone."
    ),
    action="Nothing while units are plenty. See the page for what to do with one that is stuck.",
    more="docs/concepts/claims-and-waking.md#volumes-that-wait-for-their-first-pod",
)
FUNCTION = Rule(
    id="pods.functions",
    severity="error",
    meaning="A function of Berth's is placed by Berth's own scheduler. While none runs, none can start.",
    action="Leave out schedulerName in the functions' Services: the default scheduler places them.",
    more="docs/kubernetes.md#functions-are-pods-too",
)


def _scheduler(inputs: Inputs) -> Iterator[Finding]:
    foreign: dict[str, list[str]] = {}
    for pod in inputs.pods:
        name = pod.spec.scheduler_name or "default-scheduler"
        if name not in inputs.scheduler_names and any(map(inputs.is_ours, resources(pod))):
            foreign.setdefault(name, []).append(pod.label)
    for name, pods in sorted(foreign.items()):
        yield SCHEDULER.finding(f"scheduler {name} has {listed(sorted(pods))}", *sorted(pods))


def _ours(inputs: Inputs) -> list[PodWithVolumes]:
    return [pod for pod in inputs.pods if pod.spec.scheduler_name in inputs.scheduler_names]


def _pool(inputs: Inputs) -> Iterator[Finding]:
    asking: dict[str, list[str]] = {}
    for pod in _ours(inputs):
        for resource in resources(pod):
            if inputs.is_ours(resource) and resource not in inputs.resources:
                asking.setdefault(resource, []).append(pod.label)
    for resource, pods in sorted(asking.items()):
        yield POOL.finding(f"no Pool has {resource}, for which {listed(sorted(pods))} asks", resource, *pods)


def _volumes(inputs: Inputs) -> Iterator[Finding]:
    waiting = {pod.label: names for pod in _ours(inputs) if pod.waiting and (names := _claims(pod))}
    if not waiting:
        return
    classes = inputs.cluster.all(StorageClass, _CLASSES, lambda kind: kind.volume_binding_mode == _WAITS)
    late = {storage.metadata.name for storage in classes}
    unbound = {
        f"{claim.metadata.namespace}/{claim.metadata.name}"
        for claim in inputs.cluster.all(VolumeClaim, _CLAIMS)
        if not claim.spec.volume_name and claim.spec.storage_class_name in late
    }
    if pods := sorted(pod for pod, names in waiting.items() if unbound & names):
        yield VOLUMES.finding(f"{listed(pods)} waits, and so does its volume", *pods)


def _claims(pod: PodWithVolumes) -> set[str]:
    """Return the pod's PersistentVolumeClaims as namespace/name."""
    volumes = [volume.persistent_volume_claim for volume in pod.spec.volumes or ()]
    return {f"{pod.namespace}/{volume.claim_name}" for volume in volumes if volume is not None}


def _function(inputs: Inputs) -> Iterator[Finding]:
    # Where that one has other pods as well, scheduler.default tells whether it calls Berth for these.
    schedulers = set(inputs.scheduler_names) - {"default-scheduler"}
    names = {pod.label for pod in inputs.pods if pod.spec.scheduler_name in schedulers and is_function(pod)}
    names |= {
        function.label
        for function in inputs.functions
        if function.spec.template.spec.scheduler_name in schedulers
    }
    if names:
        yield FUNCTION.finding(f"{listed(sorted(names))} names Berth's scheduler", *sorted(names))


CHECKS = (
    Check("pods of other schedulers", _scheduler, (SCHEDULER,)),
    Check("the resources of pods", _pool, (POOL,), AFTER),
    Check("the volumes of pods", _volumes, (VOLUMES,), AFTER),
    Check("the functions' pods", _function, (FUNCTION,), AFTER),
)
