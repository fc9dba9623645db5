"""release: a pod event says that a pod may be gone or finished; if the API server agrees, free its units.
A delete event alone frees nothing: see docs/kubernetes.md#a-delete-event-of-a-pod-that-lives."""

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

from berth.api.names import is_name
from berth.controller.poolclaims import told_free
from berth.controller.requeue import SharedWake, room_in, wake
from berth.controller.retention import still_held
from berth.errors import BadInputError
from berth.handlers import wiring
from berth.handlers.wiring import ledger_and_cluster
from berth.http import cloudevents
from berth.http.cloudevents import Event
from berth.http.endpoint import Endpoint
from berth.kube.cluster import Cluster
from berth.kube.types import Pod
from berth.ledger.ledger import Ledger
from berth.scheduling.demand import demand_of, might_ask
from berth.settings import Settings


def run(
    ledger: Ledger,
    cluster: Cluster,
    schedulers: tuple[str, ...],
    event: Event,
    clock: Callable[[], float] = time.time,
    again: SharedWake | None = None,
) -> dict[str, object]:
    """What came of the event: units released, pods woken. Raises BadInputError, store and cluster errors."""
    if event.kind() != "Pod":
        raise BadInputError(f"release takes events of Pods, and this is about a {event.kind()}")
    pod: Pod = event.about(Pod)
    if not pod.metadata.uid or not pod.metadata.name:
        raise BadInputError("the event's Pod has no UID or no name")
    if not (event.deletion or pod.finished):
        return {"released": 0, "why": "the pod is neither deleted nor finished"}
    if not might_ask(pod):
        # Where the source can't select by label (before Kubernetes 1.36), most events are of such pods.
        return {"released": 0, "why": "the pod asks for no extended resource, so it holds no unit"}
    found = cluster.pod(pod.metadata.namespace or "default", pod.metadata.name)
    if found is not None and found.metadata.uid != pod.metadata.uid:
        found = None
    if found is not None and not found.finished:
        return {"released": 0, "why": f"the API server says that pod {pod.label} lives"}
    view = ledger.view()
    held = still_held(view.claims_of(pod.metadata.uid), found, view.pools, cluster.node, clock())
    freed = ledger.release(pod.metadata.uid, pod.label, keep=held.pools, keep_as=held.state)
    told_free(cluster, freed)
    asked = demand_of(pod, view.resources).units
    room = room_in(freed) or {pool: units for pool, units in asked.items() if pool not in held.pools}
    if held.state == "lost":
        # Units that are lost with their node are no longer what the next pod of that name waits for.
        room = {**dict.fromkeys(held.pools, 1), **room}
    node = pod.spec.node_name or ""
    left = node if is_name(node) else ""  # a forged one would be asked for again and again
    if freed:
        woken = _wake(ledger, cluster, schedulers, clock, room, [left])
    else:
        # A repeated event frees nothing, but the first may have failed before it woke anyone.
        woken = (again or _again(ledger, cluster, schedulers, clock))(room, left)
    return {
        "released": sum(each.count for each in freed if not each.bound),
        "woken": woken,
        **({"held": sorted(held.pools)} if held.pools else {}),
    }


def _wake(
    ledger: Ledger,
    cluster: Cluster,
    schedulers: tuple[str, ...],
    clock: Callable[[], float],
    room: Mapping[str, int],
    left: Collection[str],
) -> int:
    """How many were woken for this room; those of the nodes that were left which take no pods are none."""

    def shut() -> set[str]:
        nodes = {name: cluster.node(name) for name in left if name}
        return {name for name, node in nodes.items() if node is not None and node.spec.unschedulable}

    return wake(ledger, cluster, schedulers, room, clock(), shut=shut)


def _again(
    ledger: Ledger, cluster: Cluster, schedulers: tuple[str, ...], clock: Callable[[], float]
) -> SharedWake:
    return SharedWake(partial(_wake, ledger, cluster, schedulers, clock))


def endpoint(settings: Settings) -> Endpoint:
    ledger, cluster = ledger_and_cluster(settings)
    again = _again(ledger, cluster, settings.scheduler_names, time.time)

    def handle(headers: Mapping[str, str], body: bytes) -> Mapping[str, object]:
        return run(ledger, cluster, settings.scheduler_names, cloudevents.decode(headers, body), again=again)

    return wiring.subscriber("release", ledger, settings, handle)
