"""kube-scheduler's queue in a few lines, on the world of the property test: whom it tries, when, how often.
It has one thread, and no plugin but one for CPU, which some pods lack for ever (docs/kubernetes.md)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from tests.properties.calls import Order
from tests.properties.pools import NODES
from tests.properties.random_world import World

ATTEMPT_SECONDS = 0.05
FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 10.0
FLUSH_SECONDS = 300.0


class Chance(Protocol):
    """What goes wrong, and which of some nodes is the best."""

    def trouble(self) -> Sequence[Order]: ...

    def choice(self, nodes: Sequence[str]) -> str: ...

    def volume_is_missing(self) -> bool: ...


class Scheduler:
    """`calls` counts how often filter was asked about each pod, by UID."""

    def __init__(self, world: World, chance: Chance) -> None:
        self._world, self._chance = world, chance
        self.calls = Counter[str]()
        self._due: dict[str, float] = {}
        self._backoff: dict[str, float] = {}  # until when each pod is not tried
        self._attempts = Counter[str]()
        self._last: dict[str, float] = {}  # when each was tried last
        self._versions: dict[str, str] = {}

    def run(self, seconds: float) -> None:
        """Let so many seconds pass, and try each pod when it is its turn."""
        time, until = self._world.time, self._world.time() + seconds
        while True:
            self._watch()
            due = [uid for uid in self._due if self._due[uid] <= time()]
            if due:
                if time() >= until:
                    return
                self._try(min(due, key=self._order))
                time.now += ATTEMPT_SECONDS
            else:
                time.now = min([until, *self._due.values()])
                if time() >= until:
                    return

    def event(self) -> None:
        """A pod was deleted or has ended, or a node has changed: every pod is tried again."""
        for uid in self._due:
            self._again(uid)

    def _watch(self) -> None:
        """See which pods wait, and which of them somebody has written to."""
        pods = self._world.api.pods()
        waiting = self._world.model.waiters(pods)
        self._due = {uid: due for uid, due in self._due.items() if uid in waiting}
        for uid in waiting:
            version = pods[uid]["metadata"]["resourceVersion"]
            if self._versions.get(uid) != version:
                self._versions[uid] = version
                self._again(uid)

    def _again(self, uid: str) -> None:
        soon = max(self._world.time(), self._backoff.get(uid, 0.0))
        self._due[uid] = min(soon, self._due.get(uid, soon))

    def _order(self, uid: str) -> tuple[int, float, str]:
        priority = self._world.model.wishes[uid].priority
        return -priority, self._last.get(uid, self._world.model.made[uid]), uid

    def _try(self, uid: str) -> None:
        now = self._world.time()
        self._attempts[uid] += 1
        self._last[uid], self._due[uid] = now, now + FLUSH_SECONDS
        seconds = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** (self._attempts[uid] - 1))
        self._backoff[uid] = now + seconds
        usable = [name for name, node in self._world.api.nodes().items() if not node.cordoned]
        if self._world.model.wishes[uid].hopeless:
            self._says(uid, "Insufficient cpu")
            return
        self.calls[uid] += 1
        answer = self._world.filter(uid)
        if not isinstance(answer.result, Mapping):
            self._says(uid, str(answer.answer))
            self._due[uid] = self._backoff[uid]
            return
        nodes = [name for name in usable if name not in answer.result]
        if not nodes:
            reasons = Counter(answer.result[name] for name in NODES if name in answer.result)
            self._says(uid, ", ".join(f"{count} {text}" for text, count in sorted(reasons.items())))
            return
        if self._chance.volume_is_missing():
            self._says(uid, "running PreBind plugin VolumeBinding: timed out")
            self._due[uid] = self._backoff[uid]
            return
        bind = self._world.bind(uid, self._chance.choice(nodes), self._chance.trouble())
        if bind.answer != "":
            self._says(uid, str(bind.answer))
            self._due[uid] = self._backoff[uid]  # an error is tried again by the back-off

    def _says(self, uid: str, text: str) -> None:
        """Its own write wakes the pod, if it says another thing than before."""
        if uid in self._world.model.waiters(self._world.api.pods()):
            self._world.api.say_why_not(self._world.names[uid], text)
