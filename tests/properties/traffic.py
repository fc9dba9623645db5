"""Pods that come, run for a while and go, at random, on a ledger in memory with its line: kube-scheduler and
the functions that act on it in a few lines each. What must hold is asserted as it goes on."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from berth.api.pool import Pool, parse
from berth.controller.capacity_sync import sync_all
from berth.controller.line import in_line
from berth.controller.line_hold import LineHolds
from berth.controller.settle import claim_of
from berth.errors import RefusedError
from berth.kube.types import Node, PodInFull
from berth.ledger.keys import domain_of
from berth.ledger.last_reconcile import LineNotes
from berth.ledger.ledger import Ledger
from berth.ledger.model import LineHold, Rank
from berth.ledger.view import View
from berth.scheduling.demand import rank_of, terms_of
from berth.scheduling.fit import evaluate
from berth.testing.api_server.rules import timestamp
from tests.properties.memory import MemoryStore
from tests.support.builders.ledgers import Time
from tests.support.builders.objects import pool_document

NODES = ("n1", "n2")
TICK, STEP = 60, 10
AFTER, WHILE, LONGEST = 60, 30, 120
"""Seconds until a pod has a turn, that all it asks for is held, and that pods run at most."""

RESTS = 20
"""Seconds that units with names rest."""

BOUND = AFTER + TICK + LONGEST + RESTS + TICK + 2 * STEP
"""Seconds that the first in line waits at most: until its turn, until those before it are gone and their
units have rested and, where an event is lost, until reconcile knows."""

HELD_FOR_NOTHING = WHILE + 2 * TICK


@dataclass(frozen=True)
class Kind:
    """What kind of traffic it is: whether priorities differ, whether some pods lack CPU for ever, and whether
    units have names."""

    priorities: bool
    hopeless: bool
    named: bool = False


@dataclass
class Traffic:
    """`first` is who is first in line, and since when; `whole` since when all is held for a pod."""

    dice: Random
    kind: Kind
    time: Time = field(default_factory=Time)
    waiting: dict[str, PodInFull] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    unheard: set[str] = field(default_factory=set)
    bound: list[str] = field(default_factory=list)
    made: int = 0
    first: tuple[str, float] = ("", 0.0)
    whole: dict[str, float] = field(default_factory=dict)
    line: LineNotes = LineNotes()  # noqa: RUF009 - it can't be changed

    def __post_init__(self) -> None:
        self.ledger = Ledger(MemoryStore(), clock=self.time, while_closed=True)
        self.ledger.open("epoch", self.ledger.begin_rebuild("anew"))
        units = {"n1": ["a1", "a2", "a3"], "n2": ["b1", "b2", "b3"]}
        named = {"units": units, "capacity": None, "reuseAfterSeconds": RESTS}
        scopes: dict[str, Any] = {"ip": named if self.kind.named else {"capacity": {"perDomain": 3}}}
        scopes["seat"] = {"scope": "Cluster", "capacity": {"perDomain": 5}}
        self.pools: dict[str, Pool] = dict(
            parse((pool_document(name, **spec) for name, spec in scopes.items()), "traffic")
        )
        documents = ({"metadata": {"name": name, "labels": {}}, "spec": {}} for name in NODES)
        self.nodes = [msgspec.convert(document, Node) for document in documents]
        self.ledger.apply_pools(self.pools)
        sync_all(self.ledger, self.pools, lambda: self.nodes)

    # The cluster that LineHolds asks

    def pod_with_conditions(self, _: str, name: str) -> PodInFull | None:
        return self.waiting.get(name)

    # What happens

    def go_on(self, steps: int) -> None:
        """Let so many steps pass, and all that wait go after them."""
        for number in range(steps):
            self.time.now += STEP
            for _ in range(self.dice.randrange(3)):
                self.come()
            for name in [name for name, end in self.ends.items() if end <= self.time.now]:
                self.end(name)
            if self.dice.random() < 0.05 and self.waiting:
                self.delete(self.dice.choice(sorted(self.waiting)))
            if number * STEP % TICK == 0:
                self.tick()
            self.schedule()
            self.look()
        self.waiting.clear()  # all are deleted, and no event tells of it
        self.tick()

    def come(self) -> None:
        self.made += 1
        small = self.dice.random() < 0.8
        seats = 1 if small else self.dice.randint(0, 5)
        asks = {"seat": seats, "ip": self.dice.randint(0 if seats else 1, 1 if small else 3)}
        hopeless = self.kind.hopeless and self.dice.random() < 0.1
        name = f"{'hopeless' if hopeless else 'pod'}-{self.made}"
        limits = {f"berth.dev/{pool}": str(units) for pool, units in asks.items() if units}
        document = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "creationTimestamp": timestamp(self.time.now),
            },
            "spec": {
                "schedulerName": "berth",
                "priority": self.dice.randrange(3) if self.kind.priorities else 0,
                "containers": [{"resources": {"limits": limits, "requests": limits}}],
            },
        }
        self.waiting[name] = msgspec.convert(document, PodInFull)

    def end(self, name: str) -> None:
        del self.ends[name]
        if self.dice.random() < 0.1:
            self.unheard.add(name)  # its event is lost
        else:
            self.ledger.release(name)

    def delete(self, name: str) -> None:
        """A pod that waits is deleted; its event may be lost."""
        del self.waiting[name]
        if self.dice.random() < 0.5:
            self.ledger.view()
            self.ledger.drop_line_hold(name)

    def tick(self) -> None:
        """One reconcile; what it remembers, or what is held, may be lost before it."""
        for name in self.unheard:
            self.ledger.release(name)
        self.unheard.clear()
        if self.dice.random() < 0.05:
            for uid in {hold.uid for hold in self.ledger.view().line_holds.values()}:
                self.ledger.drop_line_hold(uid)
            self.first, self.whole, self.line = ("", 0.0), {}, LineNotes()
        cluster: Any = self
        turns = LineHolds(self.ledger, cluster, self.nodes, self.time.now, self.line)
        self.line = turns.give(self.waiting.values())
        gone = {hold.uid for hold in self.ledger.view().line_holds.values()} - self.waiting.keys()
        assert not gone, f"something is held for pods that are gone: {gone}"

    def schedule(self) -> None:
        """Each pod that waits is tried, in any order; some as if filter had said yes a moment ago."""
        names = sorted(self.waiting)
        self.dice.shuffle(names)
        for name in names:
            pod, view = self.waiting[name], self.ledger.view()
            refused = evaluate(pod, NODES, view, self.time.now).reasons
            late = self.dice.random() < 0.3
            nodes = [node for node in NODES if late or node not in refused]
            if nodes and not name.startswith("hopeless"):
                self.bind(pod, self.dice.choice(nodes))

    def bind(self, pod: PodInFull, node: str) -> None:
        view, name = self.ledger.view(), pod.metadata.name
        terms = terms_of(view)
        attempt = f"{name} {self.time.now}"
        claim = claim_of(pod, node, terms, terms.demand(pod), attempt, self.time.now)
        before = self.kept_for_others(pod)
        try:
            held = self.ledger.reserve(claim, rank=rank_of(pod))
        except RefusedError:
            return
        finally:
            after = self.kept_for_others(pod)
            taken = {key for key, units in before.items() if after.get(key, 0) < units}
            assert not taken, f"{name} took what is held for others: {taken}"
        if self.dice.random() < 0.1:
            self.ledger.cancel(held)  # its Binding was refused
            return
        self.ledger.confirm(held)
        self.ledger.drop_line_hold(name)
        del self.waiting[name]
        self.bound.append(name)
        self.ends[name] = self.time.now + self.dice.randint(STEP, LONGEST)

    # What must hold

    def kept_for_others(self, pod: PodInFull) -> dict[str, int]:
        """By document, how much of what is held is there now, of holds for pods before this one."""
        view, kept = self.ledger.view(), {}
        for key, hold in view.line_holds.items():
            if hold.uid != pod.metadata.uid and not _is_before(pod, hold):
                room = view.at(key).room(*domain_of(key), (), self.time.now, rank=Rank(hold.uid))
                kept[key] = min(hold.count, room)
        return kept

    def look(self) -> None:
        view = self.ledger.view()
        for pool, domains in view.domains.items():
            for where, domain in domains.items():
                assert domain.used(pool, where) <= (domain.capacity or 0) or domain.stripes
        for pool in self.pools:
            line = {hold.uid for key, hold in view.line_holds.items() if key.startswith(f"domain/{pool}/")}
            assert len(line) <= 1, f"two have their turn in the line of {pool}: {line}"
        self.whole = {
            uid: self.whole.get(uid, self.time.now) for uid in self.waiting if self.is_whole(view, uid)
        }
        late = {uid for uid, since in self.whole.items() if self.time.now - since > HELD_FOR_NOTHING}
        assert not late, f"all that they ask for is held for too long: {late}"
        self.look_at_the_first()

    def is_whole(self, view: View, uid: str) -> bool:
        """Whether all that the pod asks for is held for it, and free."""
        held = {key: hold for key, hold in view.line_holds.items() if hold.uid == uid}
        rooms = {key: view.at(key).room(*domain_of(key), (), self.time.now, rank=Rank(uid)) for key in held}
        return bool(held) and all(rooms[key] >= hold.count for key, hold in held.items())

    def look_at_the_first(self) -> None:
        """Without priorities and hopeless pods, nobody who asks for more than one is first for ever."""
        terms = terms_of(self.ledger.view())
        line = [pod for pod in in_line(self.waiting.values()) if sum(terms.demand(pod).units.values()) > 1]
        first = line[0].metadata.name if line else ""
        if first != self.first[0]:
            self.first = (first, self.time.now)
        if first and not (self.kind.priorities or self.kind.hopeless):
            waited = self.time.now - self.first[1]
            assert waited <= BOUND, f"{first} is first in line for {waited:g} s"


def _is_before(pod: PodInFull, hold: LineHold) -> bool:
    priority, made = pod.spec.priority or 0, pod.made_at or 0.0
    return priority > hold.priority or (priority == hold.priority and made < hold.made)
