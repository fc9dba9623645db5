"""Count units as taken by pods that filter has just let through, until bind has reserved them.

kube-scheduler tries the next pod while the last one is being bound. Let through for the same unit, the second
would be refused by bind: an error, and no wake shortens its back-off (docs/decisions/0068).
"""

import threading
from collections.abc import Collection, Iterator, Mapping
from math import inf
from typing import NamedTuple

from berth.api.gang import gang_label
from berth.kube.types import Pod
from berth.ledger import refusals
from berth.ledger.gang_note import GangNote
from berth.ledger.view import View

ASSUMED_SECONDS = 0.5
"""bind reserves some 0.05 s after filter; a pod that waits for its volume may take minutes."""

IN_VAIN_SECONDS = 60.0
"""For so long a pod that had no claim in time is not assumed again: others must not wait behind each of its
tries."""

_APART_SECONDS = 0.1
"""Calls that are further apart may not have seen a claim that came and went between them."""

_MOST = 1000  # pods that are kept in mind

_Place = tuple[str, str]  # pool and domain


class _Assumed(NamedTuple):
    """`documents` are those of its pools as they were, and `note` is its `gang`'s, to see that they were
    changed."""

    at: float
    units: Mapping[_Place, int]
    documents: Mapping[str, object]
    gang: str
    note: GangNote | None

    def is_refused(self, view: View) -> bool:
        """Whether something was noted since then of why its gang can't be had."""
        return view.gangs.get(self.gang) is not self.note

    def is_changed(self, view: View) -> bool:
        return any(view.domains.get(pool) is not before for pool, before in self.documents.items())


class AssumedPods:
    """The pods that one process let through just now and that have no claim yet; safe for many threads.

    Only those count for which one domain of a pool was left: of several, kube-scheduler chooses later.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, _Assumed] = {}
        self._looked = -inf

    def forget(self, view: View, now: float) -> None:
        """Forget pods that have a claim by now, may have had one, or came to nothing long ago."""
        with self._lock:
            apart, self._looked = now - self._looked > _APART_SECONDS, now
            if self._pods:
                self._pods = {
                    uid: each
                    for uid, each in self._pods.items()
                    if 0 <= now - each.at < IN_VAIN_SECONDS
                    and not view.keys_of(uid)
                    and not each.is_refused(view)
                    and not (apart and _counts(each, now) and each.is_changed(view))
                }

    def taken(
        self, pod: Pod, asked: Mapping[str, int], names: Collection[str], view: View, now: float
    ) -> Mapping[str, str]:
        """Return the nodes of these where too few units are left for what the pod asks, by pool, because of
        other pods that are assumed, in a refusal's words."""
        uid = pod.metadata.uid
        if not self._pods or pod.status.nominated_node_name or view.keys_of(uid):
            return {}
        with self._lock:
            others = [each.units for key, each in self._pods.items() if key != uid and _counts(each, now)]
        taken: dict[_Place, int] = {}
        for units in others:
            for place, count in units.items():
                taken[place] = taken.get(place, 0) + count
        reasons: dict[str, str] = {}
        for pool, units_asked in asked.items() if taken else ():
            for name, domain in _domains(pool, names, view):
                text = _lacking(pool, domain, units_asked, taken.get((pool, domain), 0), view)
                if text:
                    reasons.setdefault(name, text)
        return reasons

    def assume(
        self, pod: Pod, asked: Mapping[str, int], names: Collection[str], view: View, now: float
    ) -> None:
        """Note that the pod was let through to these nodes; not where it was just now, and has no claim."""
        uid = pod.metadata.uid
        # Else units may be the pod's own: kept for it, or held in line.
        pools = (pool for pool in asked if not (view.pools[pool].retains or view.held_in_line(pool, now)))
        places = ((pool, _only_domain(pool, names, view)) for pool in pools)
        units = {(pool, domain): asked[pool] for pool, domain in places if domain and not view.keys_of(uid)}
        if units:
            with self._lock:
                if uid not in self._pods and len(self._pods) < _MOST:
                    documents = {pool: view.domains.get(pool) for pool, _ in units}
                    gang = gang_label(pod)
                    self._pods[uid] = _Assumed(now, units, documents, gang, view.gangs.get(gang))


def _counts(assumed: _Assumed, now: float) -> bool:
    return now - assumed.at < ASSUMED_SECONDS


def _domains(pool: str, names: Collection[str], view: View) -> Iterator[tuple[str, str]]:
    """Yield these nodes, each with its domain of the pool."""
    is_node, places = view.pools[pool].spec.scope == "Node", view.places.get(pool, {})
    for name in names:
        yield name, name if is_node else places.get(name, "")


def _only_domain(pool: str, names: Collection[str], view: View) -> str:
    """Return the domain of the pool that all these nodes are in; empty: there are several, or none."""
    scope, domain = view.pools[pool].spec.scope, ""
    if scope == "Node" and len(names) > 1:
        return ""
    for _, each in _domains(pool, names, view):
        if scope == "Cluster":
            return each
        if domain not in ("", each):
            return ""
        domain = each
    return domain


def _lacking(pool: str, domain: str, asked: int, taken: int, view: View) -> str:
    """Return a refusal's words where the free units suffice, but for those that are taken."""
    rooms = view.free.get(pool)
    if not taken or rooms is None or domain not in rooms:
        return ""
    free, capacity = rooms[domain]
    if free < asked or free - taken >= asked:
        return ""  # where too few are free filter let it through for units of its own, such as a hold's
    return refusals.lacking(pool, (max(0, free - taken), capacity), asked)
