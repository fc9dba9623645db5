"""A cluster as others have it: services that never end, gangs that disagree, pods that lack CPU, clocks that
differ, pods that finalizers keep, in pools with every bound, for hours, before a queue like kube-scheduler's.

What must hold at each step is asserted as it goes on: the promises of promises.py, and what idles, and who is
tried in vain, in idle.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.properties import pools
from tests.properties.api import api_client, bound_node, finished
from tests.properties.calls import Order
from tests.properties.idle import IdleUnits
from tests.properties.memory import MemoryStore
from tests.properties.pools import SKEW, NodeIs
from tests.properties.random_world import World
from tests.properties.scheduler import Scheduler
from tests.properties.wish import Wish

STEP, TICK, LONGEST = 10, 60, 120
MOST_WAITING = 12
CALM_SECONDS = 3 * 3600
"""In which all that can be served is, when nobody else comes: pauses after turns in vain are an hour."""

AT_ONCE_SECONDS = 0.5
MOST_CALLS = 2
IDLE_SECONDS = 30
NEAR_SECONDS = 10.0
"""Between clocks; where they are further apart, filter and bind may disagree for as long."""

CHECKED = (1, 2, 3, 4, 5, 8, 9, 10, 11, 12)
"""The promises that are looked at after each step: what filter says, and who is woken, is the machine's."""

VERBS = ("filter", "bind", "release", "inventory", "reconcile")
NODES = {
    "n1": NodeIs({"ip": 3, "seat": 2}, "a"),
    "n2": NodeIs({"ip": 2, "seat": 1}, "b"),
    "a": NodeIs({"ip": 2, "seat": 1}, "a"),
}


@dataclass(frozen=True)
class Kind:
    """What is in a world beside pods that come, run for a while and go."""

    services: bool = False  # that never end
    gangs: bool = False
    hopeless: bool = False  # pods that lack CPU for ever
    trouble: bool = False  # binds and reconciles die, events are lost, a ledger is
    skewed: bool = False
    bounds: bool = False  # limits, reserved units, rests, sticky, use outside
    large: bool = False  # a pool of 300 units, in stripes


class WideWorld:
    """`ends` is when pods that run end; None: never."""

    def __init__(self, dice: Random, kind: Kind) -> None:
        self.dice, self.kind = dice, kind
        store = MemoryStore()
        self.world = World(store, store.lose, api_client(), CHECKED)
        self.time = self.world.time
        self.scheduler = Scheduler(self.world, self)
        self.idle = IdleUnits(self.world)
        self.ends: dict[str, float | None] = {}
        self.made = 0
        self.unit = 60 if kind.large else 1
        self.calm = self.idling = False
        self.world.assumes = True
        if kind.skewed:
            self.world.skews = {verb: dice.choice((0.0, 5.0, -5.0, SKEW, -SKEW)) for verb in VERBS}
        for name, spec in self._specs().items():
            self.world.set_pool(name, spec)
        for node, state in NODES.items():
            self.world.set_node(node, state)
        self.world.reconcile()

    def _specs(self) -> dict[str, pools.Spec]:
        holds, idle = self.dice.choice(("FirstInLine", "FirstInLine", "None")), self.dice.choice((120, 600))
        line = {"holds": holds, "idleSeconds": idle, **LINE}
        shared: dict[str, Any] = {"line": line, "gangSeconds": 60}
        seat: dict[str, Any] = {"scope": "Cluster", "capacity": {"domains": {"*": 5 * self.unit}}}
        ip: dict[str, Any] = {"capacity": {"nodeAnnotation": "example.com/ip"}}
        if self.kind.bounds:
            seat |= self.dice.choice(BOUNDS)
            if "limits" in seat:
                seat["limits"] = {"*": 3 * self.unit}
            ip |= self.dice.choice(BOUNDS)
        return {"seat": {**shared, **seat}, "ip": {**shared, **ip}}

    # What happens

    def go_on(self, steps: int) -> None:
        """Let so many steps pass; then nobody else comes, and all that can be served is."""
        for number in range(steps):
            for _ in range(self.dice.choice((0, 0, 1, 1, 2)) if len(self.waiting()) < MOST_WAITING else 0):
                self.come()
            if self.kind.trouble:
                self.disturb()
            self.step(number)
            if number % 10 == 9:
                self.rest_a_while()
        self.calm_down()

    def step(self, number: int) -> None:
        for uid in [uid for uid, end in self.ends.items() if end is not None and end <= self.time()]:
            self.end(uid)
        if self.calm or number * STEP % TICK == 0:
            trouble = [] if self.calm else self.trouble()
            done = self.world.reconcile(trouble)
            if not trouble and done.answer == "":
                self.look_at_holds()
        self.scheduler.run(TICK if self.calm else STEP)
        self.follow()
        self.look()

    def calm_down(self) -> None:
        self.calm, until = True, self.time() + CALM_SECONDS
        for uid, pod in self.world.api.pods().items():
            if self.ends.get(uid, 0.0) is None:
                self.ends[uid] = self.time()
            self.world.let_go(uid)
            if not bound_node(pod) and not self.can_run(uid) and uid in self.world.api.pods():
                self.world.end_pod(uid, "delete")  # else nobody would know what they wait for
        number = 0
        while self.waiters() and self.time() < until:
            self.step(number)
            number += 1
        left = {uid: self.world.model.wishes[uid] for uid in self.waiters()}
        assert not left, f"nobody else comes, and they wait for ever: {left}"
        self.world.rest(kill=True)
        self.look()

    def waiting(self) -> set[str]:
        return self.world.model.waiters(self.world.api.pods())

    def waiters(self) -> set[str]:
        """Those that wait and can be served."""
        return {uid for uid in self.waiting() if self.can_run(uid)}

    def can_run(self, uid: str) -> bool:
        """Whether it can be served once it is alone: it is of no gang, or of one that is there whole and can
        run: one that has lost a pod for good, before it was served whole, waits for it. Gangs of units on
        nodes may not find room side by side."""
        wish = self.world.model.wishes[uid]
        if not wish.together:
            return not wish.hopeless and self.is_satisfiable(wish)
        wishes = self.world.model.wishes
        mates = [
            wishes[other]
            for other, pod in self.world.api.pods().items()
            if wishes[other].together == wish.together and pod["status"]["phase"] != "Failed"
        ]
        agree = len(mates) == wish.size and all(
            (mate.size, mate.owner) == (wish.size, wish.owner) for mate in mates
        )
        return agree and not any(mate.hopeless for mate in mates) and self.is_satisfiable(*mates)

    def is_satisfiable(self, *wishes: Wish) -> bool:
        """Whether these together ask for no more than they may have where nobody else has any; of what is
        reserved they may have nothing."""
        for pool, most in (("seat", 5 * self.unit), ("ip", len(NODES))):
            spec = self.world.model.pools[pool]
            most -= spec.get("reserved", {}).get("units", 0) * (1 if pool == "seat" else len(NODES))
            asked = sum(wish.units.get(pool, 0) for wish in wishes)
            if asked > min(most, int(spec.get("limits", {}).get("*", most))) and (
                pool == "seat" or len(wishes) > 1
            ):
                return False
        return True

    def come(self) -> None:
        """A pod, or a gang."""
        self.made += 1
        if self.kind.gangs and self.dice.random() < 0.3:
            self.come_together()
            return
        hopeless = self.kind.hopeless and self.dice.random() < 0.1
        self.add(self.name(), self.units(), hopeless=hopeless, owner=self.owner())

    def come_together(self) -> None:
        """Pods of a gang: alike or not; some of them may disagree, be of another owner, or lack CPU."""
        gang, size, owner = f"gang-{self.made}", self.dice.randint(2, 4), self.owner()
        hopeless = self.kind.hopeless and self.dice.random() < 0.2
        odd = self.dice.random()
        for number in range(size):
            says, whose = size, owner
            if number == size - 1 and odd < 0.1:
                says = size - 1
            elif number == size - 1 and odd < 0.2:
                whose = "Job:other"
            units = {"seat": self.unit, "ip": self.dice.randint(0, 1)}
            units = {pool: count for pool, count in units.items() if count}
            lacks = hopeless and number == 0
            self.add(f"{gang}-{number}", units, gang=gang, size=says, owner=whose, hopeless=lacks)

    def add(self, name: str, units: dict[str, int], **says: Any) -> None:
        finalizer = self.dice.random() < 0.1
        runs_for = "" if self.dice.random() < 0.7 else f"{self.dice.randint(1, LONGEST)}s"
        priority = self.dice.choice((0, 0, 0, 5))
        wish = Wish(units, priority=priority, runs_for=runs_for, finalizer=finalizer, **says)
        self.world.create_pod(name, wish)

    def name(self) -> str:
        return f"{self.dice.choice(('pod', 'pod', 'pod', 'other'))}-{self.made}"

    def owner(self) -> str:
        return self.dice.choice(("", "Job:run", "StatefulSet:web", "ReplicaSet:web"))

    def units(self) -> dict[str, int]:
        small = self.dice.random() < 0.7
        seats = self.unit * (1 if small else self.dice.randint(1, 5))
        return {"seat": seats} if self.dice.random() < 0.5 else {"seat": seats, "ip": 1 if small else 2}

    def follow(self) -> None:
        """Note of pods that were bound since how long they run."""
        for uid, pod in self.world.api.pods().items():
            if bound_node(pod) and uid not in self.ends:
                forever = self.kind.services and not self.calm and self.dice.random() < 0.15
                says = self.world.model.wishes[uid].runs_for
                most = int(says.removesuffix("s")) if says else LONGEST
                self.ends[uid] = None if forever and not says else self.time() + self.dice.randint(1, most)

    def end(self, uid: str) -> None:
        """A pod that ran ends; its event may be lost, or come twice."""
        self.ends.pop(uid)
        if uid not in self.world.api.pods():
            return
        how = self.dice.choice(("finish", "fail", "delete"))
        self.world.end_pod(uid, how)
        if not finished(self.world.api.pods().get(uid, {"status": {"phase": "Failed"}})):
            self.world.api.finish_pod(self.world.names[uid])  # its finalizer keeps what has ended
        self.scheduler.event()  # kube-scheduler sees it as soon as berth does, and tries all before it
        self.scheduler.run(AT_ONCE_SECONDS)
        told = 1 if self.calm else self.dice.choice((0, 1, 1, 1, 1, 1, 1, 1, 2))
        for _ in range(told if self.kind.trouble else 1):
            self.world.deliver(self.world.events[-1], [] if self.calm else self.trouble())

    def disturb(self) -> None:
        """A pod that waits or runs is deleted, a finalizer is taken off, the ledger is lost, what others use
        changes, an old event comes again."""
        pods, chance = sorted(self.world.api.pods()), self.dice.random()
        if chance < 0.05 and pods:
            first = sorted(self.held_for() & {*pods}) or pods
            chosen = self.dice.choice(self.dice.choice((first, pods)))
            self.world.end_pod(chosen, self.dice.choice(("delete", "delete in time")))
            self.scheduler.event()
        elif chance < 0.1 and pods:
            self.world.let_go(self.dice.choice(pods))
        elif chance < 0.11:
            self.world.lose()
        elif chance < 0.15 and self.world.events:
            self.world.deliver(self.dice.choice(self.world.events))

    # What goes wrong, and how kube-scheduler chooses

    def trouble(self) -> Sequence[Order]:
        if self.calm or not self.kind.trouble or self.dice.random() < 0.9:
            return []
        what, point = self.dice.choice(("kill", "lose", "out")), self.dice.choice(POINTS)
        return [Order(what, point, self.dice.choice((1, 1, 2)))]

    def choice(self, nodes: Sequence[str]) -> str:
        return self.dice.choice(nodes)

    def volume_is_missing(self) -> bool:
        return self.kind.trouble and not (self.calm or self.idling) and self.dice.random() < 0.1

    # What must hold

    def look(self) -> None:
        assert not self.world.promises.broken, self.world.promises.broken
        self.idle.look()

    def look_at_holds(self) -> None:
        """What is held is held for pods that wait."""
        gone = {self.world.names[uid] for uid in self.held_for() - self.waiting()}
        assert not gone, f"something is held for pods that wait no more: {gone}"

    def held_for(self) -> set[str]:
        parts = self.world.kept.domains.values()
        return {part.line_hold.uid for part in parts if part.line_hold is not None and not part.empty}

    def rest_a_while(self) -> None:
        """Nothing happens for a while but reconcile's tick: nobody is tried again and again."""
        self.world.reconcile()
        self.scheduler.run(IDLE_SECONDS)
        before, self.idling = self.state(), True
        self.scheduler.calls.clear()
        self.scheduler.run(IDLE_SECONDS / 2)
        self.world.reconcile()
        self.scheduler.run(IDLE_SECONDS / 2)
        self.idling = False
        if self.state() == before and self.agree():
            often = {uid: count for uid, count in self.scheduler.calls.items() if count > MOST_CALLS}
            said = {self.world.names[uid]: (count, self.world.said(uid)) for uid, count in often.items()}
            assert not often, (
                f"in {IDLE_SECONDS} idle seconds kube-scheduler asked about pods too often: {said}"
            )
        self.follow()
        self.look()

    def agree(self) -> bool:
        """Whether filter's clock is near bind's: what one lets through, the other refuses until then."""
        skews = self.world.skews
        return abs(skews.get("filter", 0.0) - skews.get("bind", 0.0)) <= NEAR_SECONDS

    def state(self) -> Any:
        """What is claimed and held."""
        kept = self.world.kept
        holds = {key: part.line_hold for key, part in kept.domains.items() if part.line_hold is not None}
        claims = {uid: (claims[0].state, claims[0].node) for uid, claims in kept.claims.items()}
        return claims, holds, kept.open


LINE = {"holdAfterSeconds": 60, "whileHeldSeconds": 30}
BOUNDS: list[dict[str, Any]] = [
    {},
    {"limits": {"*": 3}},
    {"reserved": {"priorityAtLeast": 5, "units": 1}},
    {"reuseAfterSeconds": 20},
    {"sticky": {"by": "Owner", "forSeconds": 20}},
    {"sticky": {"by": "Pod", "forSeconds": 20}},
    {"releaseOn": "Deleted"},
]
POINTS = (
    "after commit", "before POST", "after POST", "before commit", "after read", "after changes", "after GET",
    "before PATCH", "after PATCH",
)  # fmt: skip
