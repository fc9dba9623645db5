"""How many pods a gang has whose pods leave that to a PodGroup, and whether both say the same where both do.
A PodGroup is believed for a moment, since all its pods are bound at once; to refuse it is read anew."""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import NamedTuple

from berth.api.gang import LARGEST_GANG, Gang, gang_or_none, sized
from berth.api.pod_group import pod_group_of, pods_at_once
from berth.controller.line import AnyPod
from berth.errors import BerthError, ClusterRefusedError, RefusedError
from berth.kube.cluster import Cluster
from berth.kube.types import Pod
from berth.ledger import refusals

BELIEVED_SECONDS = 2.0
"""How long a PodGroup is not read again."""

_MOST = 1000  # PodGroups that are kept in mind
_MAY_NOT = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class _Read(NamedTuple):
    """How many pods a PodGroup wants at once, and until when that is believed (monotonic seconds)."""

    size: int
    until: float


class PodGroups:
    """Reads PodGroups one by one, as binds need them; safe for many calls at once."""

    def __init__(self, cluster: Cluster, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._monotonic = cluster, monotonic
        self._reads: dict[tuple[str, str], _Read] = {}
        self._lock = threading.Lock()

    def gang(self, pod: Pod, gang: Gang, timeout: float) -> Gang:
        """Return the pod's gang with its size, which its PodGroup says where the pod does not.

        Raises RefusedError where nobody says it, or where both do and differ."""
        if not (name := pod_group_of(pod)):
            return gang
        key = pod.namespace, name
        try:
            count, is_fresh = self._count(key, timeout)
            if not is_fresh and _refusal(gang, count) is not None:
                count = self._read(key, timeout)
        except ClusterRefusedError as error:
            if gang.size:
                return gang
            may_not = error.status in _MAY_NOT
            raise RefusedError(refusals.group_unread(gang.name, may_not=may_not)) from error
        if (refusal := _refusal(gang, count)) is not None:
            raise RefusedError(refusal)
        return gang._replace(size=gang.size or count or 0)

    def _count(self, key: tuple[str, str], timeout: float) -> tuple[int | None, bool]:
        """Return how many pods the PodGroup wants at once (None: it is not there), and whether that was read
        now."""
        with self._lock:
            read = self._reads.get(key)
        if read is not None and self._monotonic() < read.until:
            return read.size, False
        return self._read(key, timeout), True

    def _read(self, key: tuple[str, str], timeout: float) -> int | None:
        now, group = self._monotonic(), self._cluster.pod_group(*key, timeout)
        if group is None:
            return None
        count = pods_at_once(group)
        with self._lock:
            if len(self._reads) >= _MOST:
                self._reads.clear()
            self._reads[key] = _Read(count, now + BELIEVED_SECONDS)
        return count


def all_sized(
    cluster: Cluster, pods: Collection[AnyPod], problems: list[str]
) -> tuple[list[AnyPod], set[str]]:
    """Return the pods as if all of them said how many pods their gangs have, and the labels of the gangs that
    have no size or two. PodGroups are listed only where a pod waits that names one; what went wrong is added
    to `problems`."""
    counts: Mapping[tuple[str, str], int] = {}
    if any(pod.waiting and pod_group_of(pod) for pod in pods):
        try:
            counts = _counts(cluster)
        except BerthError as error:
            problems.append(
                f"PodGroups can't be read, so the sizes of gangs that name one are unknown: {error}"
            )
    unsized: set[str] = set()
    result: list[AnyPod] = []
    for pod in pods:
        name, gang = pod_group_of(pod), gang_or_none(pod)
        if not name or gang is None:
            result.append(pod)
            continue
        count = counts.get((pod.namespace, name))
        if _refusal(gang, count) is not None:
            unsized.add(gang.label)
            result.append(pod)
        else:
            result.append(sized(pod, count or 0))
    return result, unsized


def _counts(cluster: Cluster) -> dict[tuple[str, str], int]:
    groups = cluster.pod_groups()
    return {
        (group.metadata.namespace or "default", group.metadata.name): pods_at_once(group) for group in groups
    }


def _refusal(gang: Gang, count: int | None) -> str | None:
    """Return why the gang can't be had whose PodGroup wants so many pods at once (None: it is not there)."""
    if count is None:
        return None if gang.size else refusals.group_absent(gang.name)
    if gang.size and count > 1 and count != gang.size:
        return refusals.group_disagrees(gang.name, gang.size, count)
    return refusals.group_large(gang.name, count, LARGEST_GANG) if count > LARGEST_GANG else None
