"""Which pods of a gang are there, and which of them are to be served together; pure functions.
It goes by the pods alone, so that a lost ledger changes nothing. What is free it does not know."""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate
from math import inf
from typing import Generic, NamedTuple

from berth.api.gang import (
    Gang,
    controller_of,
    fails_alone,
    family_of,
    gang_or_none,
    index_of,
    revision_of,
)
from berth.controller.line import AnyPod, in_line
from berth.kube.types import Pod
from berth.ledger import refusals


class Roll(NamedTuple, Generic[AnyPod]):
    """The pods of a gang that wait without a claim, as they are in line. The first `needed` of them are to be
    had together (0: each by itself), and `absent` are not there that should be. `refusal` says why they can't
    be had, whatever is free; it is empty where they may be."""

    waiting: Sequence[AnyPod]
    needed: int = 0
    absent: int = 0
    refusal: str = ""


def names_gang(name: str, pod: Pod) -> bool:
    """Whether the pod is of a gang of this name, whatever workload it is of."""
    gang = gang_or_none(pod)
    return gang is not None and gang.name == name


def roll_of(
    pod: Pod,
    gang: Gang,
    pods: Collection[AnyPod],
    schedulers: Collection[str],
    is_claimed: Callable[[Pod], bool],
) -> Roll[AnyPod]:
    """Return who is there of the gang of this pod, by all pods of its namespace that name such a gang.

    A pod that has succeeded counts; where none has a controller only one that was not done yet when the
    oldest of those that wait was made: others may be of a run before."""
    family, revision = family_of(pod), revision_of(pod)
    kin = [(other, of) for other in pods if (of := gang_or_none(other)) and family_of(other) == family]
    present = [(other, of) for other, of in kin if _is_present(other, schedulers)]
    alive = [(other, of) for other, of in present if not other.finished]
    waiting = in_line(other for other, _ in alive if other.waiting and not is_claimed(other))
    sizes = {of.size for other, of in alive if revision_of(other) == revision}
    if len(sizes) > 1:
        return Roll(waiting, refusal=refusals.gang_disagrees(gang.name, sizes))
    waiting = [other for other in waiting if gang_or_none(other) == gang]
    members = [other for other, of in kin if of == gang]
    if has_run(members, gang.size):
        return Roll(waiting)
    began = min((other.made_at or inf for other in waiting), default=inf)
    counted = [
        other
        for other, of in present
        if of == gang and (family.workload or not other.finished or (other.finished_at or 0.0) > began)
    ]
    needed = max(0, gang.size - (len(counted) - len(waiting)))
    absent = max(0, needed - len(waiting))
    if not absent:
        return Roll(waiting, needed)
    because = _because(pod, gang, pods, {of.size for _, of in alive}, [other for other, _ in present])
    text = refusals.gang_absent(gang.name, gang.size - absent, gang.size, because)
    return Roll(waiting, needed, absent, text)


def has_run(members: Sequence[Pod], size: int) -> bool:
    """Whether so many of these pods of one gang were bound at a time, and it goes on: then each of those that
    come in place of others needs its own units alone, and one that failed for good keeps nobody waiting.

    Where all of it has failed it begins anew, as a whole, unless its controller restarts each pod by itself.
    Of pods without a controller the finished ones may be of an earlier run."""
    bound = [pod for pod in members if pod.spec.node_name]
    if len(bound) < size:
        return False
    alive = any(not pod.finished for pod in bound)
    is_owned = controller_of(bound[0]) is not None
    succeeded = any(pod.status.phase == "Succeeded" for pod in bound)
    if not (alive or (is_owned and (succeeded or any(map(fails_alone, bound))))):
        return False
    indexes = {index for pod in bound if (index := index_of(pod))}
    return len(indexes) + _most_at_once(pod for pod in bound if not index_of(pod)) >= size


def _most_at_once(pods: Iterable[Pod]) -> int:
    """Return how many of these were bound at one time, at most."""
    changes: list[tuple[float, int]] = []
    for pod in pods:
        begin = pod.bound_at or pod.made_at or 0.0
        changes += [(begin, 1), (max(begin, _end_of(pod)), -1)]
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def _end_of(pod: Pod) -> float:
    """Return when the pod ended. Where nobody says when it counts as bound still, unless it may be of another
    run."""
    if not pod.finished:
        return inf
    unknown = 0.0 if controller_of(pod) is None else inf
    return unknown if pod.finished_at is None else pod.finished_at


def _is_present(pod: Pod, schedulers: Collection[str]) -> bool:
    """Whether it counts as one of its gang: it has succeeded, runs, or could be bound by us."""
    if pod.finished:
        return pod.status.phase == "Succeeded"
    is_ours = pod.waiting and pod.spec.scheduler_name in schedulers
    return is_ours or (bool(pod.spec.node_name) and pod.metadata.deletion_timestamp is None)


def _because(
    pod: Pod, gang: Gang, pods: Collection[Pod], sizes: Collection[int], present: Sequence[Pod]
) -> str:
    """Return what is to be said of why pods of the gang may be missing; empty: nothing.

    `sizes` are those of all pods of its workload that live, `present` the pods of it."""
    owner = controller_of(pod)
    if others := {size for size in sizes if size != gang.size}:
        return refusals.gang_updated(others)
    if owner is not None and owner.kind == "StatefulSet" and _is_made_in_turn(present):
        return refusals.MADE_IN_TURN
    if owner is None and any(other.finished for other in present):
        return refusals.RUN_UNKNOWN
    kin = {other.metadata.uid for other in present}
    if any(other.waiting and other.metadata.uid not in kin for other in pods):
        return refusals.OTHER_WORKLOADS
    return ""


def _is_made_in_turn(pods: Sequence[Pod]) -> bool:
    """Whether these pods of a StatefulSet are its first ones, of which one waits alone."""
    ordinals = sorted(pod.metadata.name.rpartition("-")[2] for pod in pods)
    first = sorted(str(number) for number in range(len(pods)))
    return ordinals == first and sum(pod.waiting for pod in pods) == 1
