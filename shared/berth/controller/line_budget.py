"""Which pods of the line are read in a reconcile to see where they may go: the rest are read in later ones.
Each kind of ask has its own share, so that pods that can go nowhere keep no other pool's pods from a turn."""

from collections import Counter
from collections.abc import Iterable, Mapping

from berth.kube.types import Pod
from berth.ledger.last_reconcile import LineNote
from berth.scheduling.demand import Demand, owner_of

MOST_READ = 50
"""Pods without a turn that are read in a reconcile, of all pools together."""

MOST_ALIKE = 3
"""Pods of one owner that are read in a reconcile and may go nowhere: the others are of the same template."""

_AGAIN = 5
"""At least one in so many of those that are read was read before and could go nowhere then."""

Ask = frozenset[str]
"""The pools that a pod asks for."""


class LineBudget:
    """What may be read in one reconcile, at one time (Unix seconds)."""

    def __init__(self, notes: Mapping[str, LineNote], now: float) -> None:
        """`notes` say by UID which pods were seen to go nowhere."""
        self._notes, self._now = notes, now
        self._left: dict[Ask, Counter[bool]] = {}  # by whether it is another look
        self._turn: set[str] = set()  # UIDs of those that are looked at again
        self._read: set[str] = set()
        self._owners: Counter[str] = Counter()

    def share_out(self, line: Iterable[tuple[Pod, Demand]]) -> None:
        """Share out what may be read among the kinds of asks of these pods."""
        due: dict[Ask, list[Pod]] = {}
        for pod, demand in line:
            if demand.refusal is None and sum(demand.units.values()) > 1 and self._is_due(pod):
                due.setdefault(frozenset(demand.units), []).append(pod)
        share = max(1, MOST_READ // max(1, len(due)))
        for ask, pods in due.items():
            again = sorted((pod for pod in pods if self._looked(pod)), key=self._looked)
            fresh = len(pods) - len(again)
            for_again = max(share - fresh, -(-share // _AGAIN)) if again else 0
            self._turn |= {pod.metadata.uid for pod in again[:for_again]}
            self._left[ask] = Counter({True: for_again, False: share - min(for_again, share - 1)})

    def allows(self, pod: Pod, demand: Demand) -> bool:
        """Whether the pod may be read now."""
        is_again = bool(self._looked(pod))
        if is_again and pod.metadata.uid not in self._turn:
            return False
        left = self._left.get(frozenset(demand.units), Counter())
        return left[is_again] > 0 and self._owners[owner_of(pod)] < MOST_ALIKE

    def count(self, pod: Pod, demand: Demand) -> None:
        """Count the pod as read."""
        self._read.add(pod.metadata.uid)
        self._left.setdefault(frozenset(demand.units), Counter())[bool(self._looked(pod))] -= 1

    def was_read(self, pod: Pod) -> bool:
        return pod.metadata.uid in self._read

    def goes_nowhere(self, pod: Pod) -> None:
        """Note that the pod may go to no node: others of its owner are of the same template."""
        if owner := owner_of(pod):
            self._owners[owner] += 1

    def _looked(self, pod: Pod) -> float:
        return self._notes.get(pod.metadata.uid, LineNote()).looked

    def _is_due(self, pod: Pod) -> bool:
        return self._now >= self._notes.get(pod.metadata.uid, LineNote()).until
