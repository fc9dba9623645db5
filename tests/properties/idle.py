"""No unit idles beside a pod that fits, and is barred by nothing but what is held for the first in line, for
longer than the Pool says. It goes by what the ledger has: that this is what pods hold, promise 3 says."""

from tests.properties.pools import NODES, Spec, resource_of
from tests.properties.random_world import World

SLACK_SECONDS = 2 * 60 + 30
"""Two ticks of reconcile, one of which dies or tells what an event should have told; and a back-off."""


class IdleUnits:
    def __init__(self, world: World) -> None:
        self._world = world
        self._since: dict[str, float] = {}  # since when each pod fits beside what idles

    def look(self) -> None:
        """Called after each step."""
        world, now = self._world, self._world.time()
        if not world.kept.open:
            self._since.clear()
            return
        fit = {uid for uid in world.promises.waiting(world.kept) if self._fits(uid)}
        self._since = {uid: self._since.get(uid, now) for uid in fit}
        for uid, since in self._since.items():
            most = self._most(uid)
            idle = now - since
            world.promises.keep(
                11,
                idle <= most + SLACK_SECONDS,
                f"units idle for {idle:g} s beside {uid}, which fits, and {most:g} s are the most",
            )

    def _fits(self, uid: str) -> bool:
        world = self._world
        if world.model.wishes[uid].hopeless or uid in world.api.refused:
            return False
        seen = world.promises.seen(world.kept, uid, sure=False, holds=False)
        usable = [name for name, node in world.api.nodes().items() if not node.cordoned]
        return any(not world.model.refusal(uid, node, seen) for node in NODES if node in usable)

    def _most(self, uid: str) -> float:
        """The most seconds that units idle for one turn in the pools that it asks for."""
        wish, specs = self._world.model.wishes[uid], self._world.model.pools
        return max(most_idle(spec) for name, spec in specs.items() if resource_of(name) in wish.units)


def most_idle(spec: Spec) -> float:
    line = spec.get("line", {})
    if line.get("holds") == "None":
        return 0.0
    return float(line.get("idleSeconds", 600))
