"""What is asked of the cluster to explain a pod: the pod, its condition, the nodes, and who else waits.
Why it waits is for scheduling.explanation to say; nothing is written here."""

from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from berth.controller.line import lines
from berth.errors import BadInputError, ClusterRefusedError
from berth.kube.cluster import Cluster, list_waiting
from berth.kube.types import Meta, Node, Pod, PodCondition
from berth.ledger.holders import PodName
from berth.ledger.view import View
from berth.scheduling.explanation import Explanation, Line, SchedulerWord, explain, when, without_ledger
from berth.scheduling.fit import known_nodes

_MOST_BEFORE = 100  # pods that are named
_BEFORE = "what kube-scheduler says is from before, when a pool was short: it tries the pod again by itself"
_ELSEWHERE = "the reason is elsewhere, and kube-scheduler's to say: CPU, taints, volumes and the like"
_SILENT = (
    "no kube-scheduler has said anything of this pod yet: check that one runs that has schedulerName {} "
    "and calls berth's functions"
)


def explain_pod(
    cluster: Cluster,
    look: Callable[[], View],
    schedulers: Collection[str],
    label: tuple[str, str],
    now: float,
) -> Explanation:
    """Return why the pod, given as namespace and name, waits, or where it is.

    Raises BadInputError where there is no such pod, cluster errors and those of `look`, which is only called
    for a pod of ours that a scheduler may place or has placed.
    """
    pod = cluster.pod_with_conditions(*label)
    if pod is None:
        raise BadInputError(f"there is no pod {'/'.join(label)} in the cluster at {cluster.host}")
    said = _word(pod.scheduled)
    told = without_ledger(pod, schedulers)
    if told is None:
        told = _with_ledger(cluster, pod, look(), schedulers, now)
    return _with_word(told, pod, said)


def _with_ledger(
    cluster: Cluster, pod: Pod, view: View, schedulers: Collection[str], now: float
) -> Explanation:
    """Return the explanation of a pod of ours. Who may not list nodes, or all pods, gets what can be said
    without."""
    if pod.spec.node_name or pod.finished:
        return explain(pod, view, (), now)
    nodes, notes = _nodes(cluster, view)
    told = explain(pod, view, nodes, now)
    if told.verdict == "waits":
        notes += _notes_of_claims(cluster, pod, told)
        try:
            told = replace(told, lines=_lines(pod, told, view, list_waiting(cluster, schedulers)))
        except ClusterRefusedError as error:
            notes += (f"its place in line is not known: {error}",)
    return replace(told, notes=(*notes, *told.notes))


def _nodes(cluster: Cluster, view: View) -> tuple[Sequence[Node], tuple[str, ...]]:
    """Return the nodes; those that the ledger knows, and a note, where they may not be listed."""
    try:
        return cluster.nodes(), ()
    except ClusterRefusedError as error:
        note = f"these are the nodes that the ledger knows, whether they take pods or not: {error}"
        return [Node(Meta(name=name)) for name in sorted(known_nodes(view, view.pools))], (note,)


def _with_word(told: Explanation, pod: Pod, said: SchedulerWord | None) -> Explanation:
    """Return the explanation with what kube-scheduler says, and since when the pod waits."""
    if pod.spec.node_name or pod.finished:
        return told
    since = told.created
    if said is not None and said.status == "False" and said.since is not None:
        since = said.since
    notes = told.notes
    if said is None and told.verdict in ("waits", "fits", "nothingAsked", "rebuilding", "paused"):
        notes = (*notes, _SILENT.format(told.scheduler))
    elif told.verdict == "fits":
        before = any(f"{asked.pool}: " in (said.message if said else "") for asked in told.asks)
        notes = (*notes, _BEFORE if before else _ELSEWHERE)
    return replace(told, waits_since=since, scheduler_says=said, notes=notes)


def _word(condition: PodCondition | None) -> SchedulerWord | None:
    if condition is None:
        return None
    return SchedulerWord(
        status=condition.status,
        reason=condition.reason or "",
        message=condition.message or "",
        since=when(condition.last_transition_time),
    )


def _lines(pod: Pod, told: Explanation, view: View, waiting: Sequence[Pod]) -> tuple[Line, ...]:
    """Return the pod's place in the line of each pool that it lacks, or where it lacks none alone, of each
    that it asks of. It is in none where it can be given nothing, or has left meanwhile."""
    lacks = [pool.name for pool in told.pools if pool.lacks] or [pool.name for pool in told.pools]
    places, every = [], lines(waiting, view)
    for pool in lacks:
        uids = [other.metadata.uid for other in every.get(pool, ())]
        if pod.metadata.uid in uids:
            before = every[pool][: uids.index(pod.metadata.uid)]
            names = tuple(PodName(other.namespace, other.metadata.name) for other in before[:_MOST_BEFORE])
            places.append(Line(pool=pool, place=len(before) + 1, length=len(uids), before=names))
    return tuple(places)


def _notes_of_claims(cluster: Cluster, pod: Pod, told: Explanation) -> tuple[str, ...]:
    """Return a line for each PoolClaim that the cluster has and the ledger does not know."""
    notes = []
    for claim in told.pool_claims:
        try:
            there = claim.state == "unknown" and cluster.pool_claim(pod.namespace, claim.name) is not None
        except ClusterRefusedError:
            continue  # who explains may not be allowed to read it
        if there:
            notes.append(
                f"the cluster has PoolClaim {pod.namespace}/{claim.name}, and the ledger does not: "
                "berth reconcile takes it over, or says why not"
            )
    return tuple(notes)
