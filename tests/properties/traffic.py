"""Pods that come, run for a while and go, at random, on a ledger in memory with its line: kube-scheduler and
the functions that act on it in a few lines each. What must hold is asserted as it goes on."""

from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any

import msgspec

from berth.api.pool import Pool, parse
from berth.api.run_time import MARGIN_SECONDS, RUNS_FOR
from berth.controller.adopt import held_by
from berth.controller.capacity_sync import sync_all
from berth.controller.line import in_line
from berth.controller.line_hold import LineHolds
from berth.controller.notices import SILENT
from berth.controller.overruns import note_overruns
from berth.controller.settle import allocated, claim_of
from berth.errors import RefusedError
from berth.kube.types import Node, PodInFull
from berth.ledger.keys import domain_of
from berth.ledger.last_reconcile import LineNotes
from berth.ledger.ledger import Ledger
from berth.ledger.model import FIRST, LineHold, Rank, place_in_line
from berth.ledger.transitions import ElsewhereError
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

MOST_WAITING = 20

IDLE = 300
"""Seconds that units may be idle for the first in line, as the Pools say."""

IDLE_AT_MOST = IDLE + 2 * TICK + STEP
"""Seconds that they are, by what reconcile can see of it: it looks once a tick."""

LATE = TICK + 2 * STEP + RESTS
"""Seconds that what came free is there later where an event was lost."""

GRACES = (0, 20)
SAID_AT_MOST = LONGEST - max(GRACES) - int(MARGIN_SECONDS)
"""Seconds that a pod says it runs, at most: it is gone by LONGEST."""


@dataclass(frozen=True)
class Kind:
    """What kind of traffic it is: whether priorities differ, whether some pods lack CPU for ever, whether
    units have names, whether pods say how long they run, and some of these run longer, whether some pods
    never end, and whether reconcile remembers the line all the time."""

    priorities: bool
    hopeless: bool
    named: bool = False
    says: bool = False
    lies: bool = False
    services: bool = False
    steady: bool = False


@dataclass
class Traffic:
    """`first` is who is first in line, and since when; `whole` since when all is held for a pod. `said` is
    when pods are gone by their word, `promised` when all is there of a hold, by document. `idle` is for how
    long units of a pool have been held in no use without a break, `idled` in all."""

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
    running: dict[str, PodInFull] = field(default_factory=dict)
    said: dict[str, float] = field(default_factory=dict)
    promised: dict[tuple[str, str, float], float] = field(default_factory=dict)
    lent: int = 0
    idle: dict[str, int] = field(default_factory=dict)
    idled: dict[str, int] = field(default_factory=dict)
    lost: int = 0

    def __post_init__(self) -> None:
        units = {"n1": ["a1", "a2", "a3"], "n2": ["b1", "b2", "b3"]}
        named = {"units": units, "capacity": None, "reuseAfterSeconds": RESTS}
        scopes: dict[str, Any] = {"ip": named if self.kind.named else {"capacity": {"perDomain": 3}}}
        scopes["seat"] = {"scope": "Cluster", "capacity": {"perDomain": 5}}
        line = {"line": {"idleSeconds": IDLE}}
        self.pools: dict[str, Pool] = dict(
            parse((pool_document(name, **spec, **line) for name, spec in scopes.items()), "traffic")
        )
        documents = ({"metadata": {"name": name, "labels": {}}, "spec": {}} for name in NODES)
        self.nodes = [msgspec.convert(document, Node) for document in documents]
        self.began = self.time.now
        self.begin_ledger()

    def begin_ledger(self) -> None:
        """A new ledger, with what running pods hold."""
        self.ledger = Ledger(MemoryStore(), clock=self.time, while_closed=True)
        mark = self.ledger.begin_rebuild("anew")
        self.ledger.apply_pools(self.pools)
        sync_all(self.ledger, self.pools, lambda: self.nodes)
        terms = terms_of(self.ledger.view())
        claims = (held_by(pod, terms, self.time.now) for pod in self.running.values())
        self.ledger.adopt_all([claim for claim in claims if claim is not None], self.pools)
        self.ledger.open("epoch", mark)

    # The cluster that LineHolds asks

    def pod_with_conditions(self, _: str, name: str) -> PodInFull | None:
        return self.waiting.get(name)

    # What happens

    def go_on(self, steps: int) -> None:
        """Let so many steps pass, and all that wait go after them."""
        for number in range(steps):
            self.time.now += STEP
            for _ in range(self.dice.randrange(3) if len(self.waiting) < MOST_WAITING else 0):
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
        says = self.kind.says and self.dice.random() < 0.8
        limits = {f"berth.dev/{pool}": str(units) for pool, units in asks.items() if units}
        document = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "creationTimestamp": timestamp(self.time.now),
                "annotations": {RUNS_FOR: str(self.dice.randint(1, SAID_AT_MOST))} if says else {},
            },
            "spec": {
                "schedulerName": "berth",
                "terminationGracePeriodSeconds": self.dice.choice(GRACES),
                "priority": self.dice.randrange(3) if self.kind.priorities else 0,
                "containers": [{"resources": {"limits": limits, "requests": limits}}],
            },
        }
        self.waiting[name] = msgspec.convert(document, PodInFull)

    def end(self, name: str) -> None:
        del self.ends[name], self.running[name]
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
        for claim in self.ledger.view().claims():
            if claim.state == "reserved":
                self.ledger.cancel(claim)  # its bind has died
        if self.kind.says and self.dice.random() < 0.1:
            self.begin_ledger()
            self.forget_the_line()
        note_overruns(self.ledger, self.running.values(), self.time.now, SILENT)
        if self.dice.random() < 0.05 and not self.kind.steady:
            for uid in {hold.uid for hold in self.ledger.view().line_holds.values()}:
                self.ledger.drop_line_hold(uid)
            self.forget_the_line()
        cluster: Any = self
        turns = LineHolds(self.ledger, cluster, self.nodes, self.time.now, self.line)
        self.line = turns.give(self.waiting.values())
        gone = {hold.uid for hold in self.ledger.view().line_holds.values()} - self.waiting.keys()
        assert not gone, f"something is held for pods that are gone: {gone}"

    def forget_the_line(self) -> None:
        """What reconcile remembers of turns is lost, and for how long units were idle with it."""
        self.first, self.whole, self.line = ("", 0.0), {}, LineNotes()
        self.idle, self.lost = {}, self.lost + 1

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
        before, promised = self.kept_for_others(pod), self.promises(pod)
        try:
            held = self.ledger.reserve(claim, rank=rank_of(pod, view, self.time.now))
        except ElsewhereError as error:
            self.ledger.cancel(error.claim)  # of a bind that died
            return
        except RefusedError:
            return
        self.says(pod)
        self.look_at_what_is_held(pod, before, promised)
        if self.dice.random() < 0.1:
            self.ledger.cancel(held)  # its Binding was refused
            return
        if self.kind.says and self.dice.random() < 0.1:
            return  # it dies
        self.ledger.confirm(held)
        self.ledger.drop_line_hold(name)
        del self.waiting[name]
        self.bound.append(name)
        self.runs(pod, node, allocated(held, self.pools))

    def says(self, pod: PodInFull) -> None:
        """Note when the pod is gone by its word, if it runs from now on."""
        name, text = pod.metadata.name, (pod.metadata.annotations or {}).get(RUNS_FOR)
        if text is not None:
            grace = pod.spec.termination_grace_period_seconds or 0
            self.said[name] = self.time.now + int(text) + grace + MARGIN_SECONDS

    def runs(self, pod: PodInFull, node: str, annotations: dict[str, str]) -> None:
        """The pod runs from now on, and ends when it said at the latest, if it does not lie."""
        name = pod.metadata.name
        lies = self.kind.lies and self.dice.random() < 0.1
        most = LONGEST if lies or name not in self.said else int(self.said[name] - self.time.now)
        self.ends[name] = self.time.now + self.dice.randint(1, most) + (LONGEST if lies else 0)
        if self.kind.services and name not in self.said and self.dice.random() < 0.1:
            self.ends[name] = inf
        document = msgspec.to_builtins(pod)
        document["metadata"]["annotations"] = {**(pod.metadata.annotations or {}), **annotations}
        document["spec"]["nodeName"] = node
        bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp(self.time.now)}
        document["status"] = {"conditions": [bound]}
        self.running[name] = msgspec.convert(document, PodInFull)

    # What must hold

    def kept_for_others(self, pod: PodInFull) -> dict[str, int]:
        """By document, how much of what is held is there now, of holds for pods before this one."""
        view, kept = self.ledger.view(), {}
        for key, hold in view.line_holds.items():
            if hold.uid != pod.metadata.uid and not _is_before(pod, hold):
                room = view.at(key).room(*domain_of(key), (), self.time.now, rank=Rank(hold.uid))
                own = view.at(key).claims.get(hold.uid)
                has = sum(one.count for one in own.holdings if one.key == key) if own else 0
                kept[key] = min(hold.count - has, room)
        return kept

    def promises(self, pod: PodInFull) -> dict[str, float]:
        """By document, when all is there that is held for pods before this one; not where it has reserved
        something since before that was held: this is its own."""
        view, promises = self.ledger.view(), {}
        for key, hold in view.line_holds.items():
            own = view.at(key).claims.get(pod.metadata.uid)
            if _is_before(pod, hold) or (own is not None and own.since < hold.since):
                self.promised.pop((key, hold.uid, hold.since), None)  # it may take what it needs
            elif hold.uid != pod.metadata.uid:
                promises[key] = self.whole_by(view, key)
        return promises

    def whole_by(self, view: View, key: str) -> float:
        """When all that is held in a document is there, by what the traffic knows of who holds the rest; inf:
        it does not know."""
        hold, domain, (pool, name) = view.line_holds[key], view.at(key), domain_of(key)
        rests = RESTS if self.kind.named and pool == "ip" else 0
        of = {
            claim.uid: sum(one.count for one in claim.holdings if one.key == key)
            for claim in domain.claims.values()
        }
        missing = hold.count - of.pop(hold.uid, 0) - domain.slack(pool, name, (), self.time.now, FIRST)
        said = {uid: self.said.get(uid, inf) for uid in of}
        back = [(end + rests if end > self.time.now else inf, of[uid]) for uid, end in said.items()]
        back += [(left.until, left.count) for left in domain.retained if left.stands(self.time.now)]
        end = self.time.now
        for end_of_one, units in sorted(back):
            if missing > 0:
                missing, end = missing - units, end_of_one
        return inf if missing > 0 else end

    def look_at_what_is_held(
        self, pod: PodInFull, before: dict[str, int], promised: dict[str, float]
    ) -> None:
        """Who has reserved took nothing that is held for others, but what comes back in time."""
        after, later, name = self.kept_for_others(pod), self.promises(pod), pod.metadata.name
        taken = {key for key in promised if after.get(key, 0) < before[key]}
        kept = {key for key in taken if promised[key] in (inf, self.time.now)}
        assert not kept, f"{name} took what is held for others: {kept}"
        late = {key for key, by in promised.items() if later.get(key, by) > by}
        assert not late, f"{name} would bring back too late what is held for others: {late}"
        self.lent += len(taken)

    def look_at_the_promises(self, view: View) -> None:
        """All that is held for the first in line is there when it was promised to be."""
        now = self.time.now
        for key, hold in view.line_holds.items():
            by, known = self.whole_by(view, key), view.at(key).whole_by(*domain_of(key), now)
            told = inf if known is None else known
            assert hold.rests is None or told == by or abs(told - by) <= 1, (
                f"{key} is told to be there at {told:g}, not {by:g}"
            )
            turn = key, hold.uid, hold.since
            self.promised[turn] = min(by, self.promised.get(turn, inf))
            late = now - self.promised[turn]
            assert by == now or late <= LATE or self.kind.lies, f"{key} is {late:g} s later than promised"

    def look(self) -> None:
        view = self.ledger.view()
        self.look_at_the_promises(view)
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
        self.look_at_what_is_idle(view)
        self.look_at_the_first()

    def look_at_what_is_idle(self, view: View) -> None:
        """No units are held in no use for longer than their Pool says, and for half of the time in all."""
        for pool in self.pools:
            idles = any(self.idles(view, key) for key in view.line_holds if domain_of(key)[0] == pool)
            self.idle[pool] = self.idle.get(pool, 0) + STEP if idles else 0
            self.idled[pool] = self.idled.get(pool, 0) + STEP * idles
            assert self.idle[pool] <= IDLE_AT_MOST, f"units of {pool} are idle for {self.idle[pool]} s"
            most = (self.time.now - self.began) / 2 + (self.lost + 1) * IDLE_AT_MOST
            are_many = self.kind.services and self.idled[pool] > most
            assert not are_many, f"units of {pool} are idle for {self.idled[pool]} s, and not {most:g}"

    def idles(self, view: View, key: str) -> bool:
        """Whether units of this document are free, and held for a pod."""
        domain, now = view.at(key), self.time.now
        return domain.room(*domain_of(key), (), now, rank=FIRST) > domain.room(*domain_of(key), (), now)

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
        kind = self.kind
        if first and not (kind.priorities or kind.hopeless or kind.lies or kind.services):
            waited, died = self.time.now - self.first[1], TICK if self.kind.says else 0
            assert waited <= BOUND + died, f"{first} is first in line for {waited:g} s"


def _is_before(pod: PodInFull, hold: LineHold) -> bool:
    mine = place_in_line(pod.spec.priority or 0, pod.made_at or 0.0, pod.label)
    return mine < place_in_line(hold.priority, hold.made, hold.label)
