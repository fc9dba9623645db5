"""Gangs and single pods that come, run for a while and go, at random, on a ledger in memory: kube-scheduler
and the functions that act on it in a few lines each. What must hold is asserted as it goes on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from berth.api.gang import GANG, GANG_SIZE, Gang, gang_of
from berth.api.pool import Pool, parse
from berth.controller import gang as gangs
from berth.controller.capacity_sync import sync_all
from berth.controller.gang import GangBinding
from berth.controller.settle import BIND_SECONDS, claim_of
from berth.deadline import NO_DEADLINE
from berth.errors import RefusedError
from berth.kube.types import Node, PodInFull
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim
from berth.ledger.transitions import ElsewhereError
from berth.scheduling.demand import rank_of, terms_of
from berth.scheduling.fit import evaluate
from berth.testing.api_server.rules import timestamp
from tests.properties.memory import MemoryStore
from tests.support.builders.ledgers import Time
from tests.support.builders.objects import pool_document

NODES = ("n1", "n2", "n3")
STEP, TICK, LONGEST = 10, 60, 120
SCOPES: dict[str, Any] = {
    "seat": {"scope": "Cluster", "capacity": {"perDomain": 5}, "line": {"holds": "None"}},
    "ip": {"capacity": {"perDomain": 2}, "line": {"holds": "None"}},
}
MOST_SEAT_SECONDS = 120 + TICK + STEP


@dataclass
class GangTraffic:
    """`pods` are all that are there, `ends` when those that run end, `hopeless` whom kube-scheduler binds
    nowhere, `whole` the gangs of which no pod was deleted."""

    dice: Random
    hopeless_gangs: bool = False
    time: Time = field(default_factory=Time)
    pods: dict[str, PodInFull] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    hopeless: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    served: set[str] = field(default_factory=set)
    made: int = 0

    def __post_init__(self) -> None:
        self.ledger = Ledger(MemoryStore(), clock=self.time, while_closed=True)
        self.ledger.open("epoch", self.ledger.begin_rebuild("anew"))
        documents = (pool_document(name, **spec) for name, spec in SCOPES.items())
        self.pools: dict[str, Pool] = dict(parse(documents, "traffic"))
        nodes = ({"metadata": {"name": name, "labels": {}}, "spec": {}} for name in NODES)
        self.all_nodes = [msgspec.convert(node, Node) for node in nodes]
        self.ledger.apply_pools(self.pools)
        sync_all(self.ledger, self.pools, lambda: self.all_nodes)

    # The cluster that bind asks

    def pods_in(self, _: str, wanted: Callable[[PodInFull], bool], __: float) -> list[PodInFull]:
        return [pod for pod in self.pods.values() if wanted(pod)]

    def nodes(self, _: float = 0.0) -> list[Node]:
        return self.all_nodes

    # What happens

    def go_on(self, steps: int) -> None:
        """Let so many steps pass, and then more in which nobody comes: all that can be served are."""
        for number in range(20 * steps):
            if number > steps and not self.left():
                return
            self.time.now += STEP
            if number < steps and self.dice.random() < 0.5:
                self.come()
            for name in [name for name, end in self.ends.items() if end <= self.time.now]:
                self.end(name)
            if number < steps and self.dice.random() < 0.05:
                self.delete_any()
            if number * STEP % TICK == 0:
                self.tick()
            self.schedule(hurried=number < steps)
            self.look()
        assert not self.left(), f"nobody else is there, and they wait for ever: {sorted(self.left())}"

    def left(self) -> set[str]:
        """The pods and gangs that wait, and that could be served."""
        pods = {pod.metadata.name for pod in self.waiting() if gang_of(pod) is None}
        return pods | (self.whole - self.served - self.hopeless)

    def waiting(self) -> list[PodInFull]:
        return [pod for pod in self.pods.values() if not pod.spec.node_name]

    def come(self) -> None:
        """A pod, or a gang of which one pod may come later."""
        self.made += 1
        size = self.dice.choice((1, 1, 2, 3, 4))
        if size == 1:
            self.add(f"pod-{self.made}", {"seat": self.dice.randint(1, 2)}, {})
            return
        label = f"default/gang-{self.made}"
        if self.hopeless_gangs and self.dice.random() < 0.3:
            self.hopeless.add(label)
        self.whole.add(label)
        alike = self.dice.random() < 0.5
        asks = self.asks()
        for number in range(size):
            noted = {GANG: f"gang-{self.made}", GANG_SIZE: str(size)}
            self.add(f"gang-{self.made}-{number}", asks if alike else self.asks(), noted)

    def asks(self) -> dict[str, int]:
        seat = self.dice.randint(0, 1)
        return {"seat": seat, "ip": 1 if not seat else self.dice.randint(0, 1)}

    def add(self, name: str, asks: dict[str, int], noted: dict[str, str]) -> None:
        limits = {f"berth.dev/{pool}": str(units) for pool, units in asks.items() if units}
        document = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "creationTimestamp": timestamp(self.time.now),
                "annotations": noted,
            },
            "spec": {
                "schedulerName": "berth",
                "containers": [{"resources": {"limits": limits, "requests": limits}}],
            },
            "status": {"phase": "Pending"},
        }
        self.pods[name] = msgspec.convert(document, PodInFull)

    def end(self, name: str) -> None:
        del self.ends[name]
        pod = self.pods[name]
        self.pods[name] = msgspec.structs.replace(
            pod, status=msgspec.structs.replace(pod.status, phase="Succeeded")
        )
        self.ledger.release(name)

    def delete_any(self) -> None:
        """A pod that waits is deleted; its gang is not whole any more."""
        if waiting := sorted(pod.metadata.name for pod in self.waiting()):
            name = self.dice.choice(waiting)
            gang = gang_of(self.pods.pop(name))
            self.ledger.release(name)
            if gang is not None:
                self.whole.discard(gang.label)

    def tick(self) -> None:
        """What reconcile does: reservations in doubt end, and seats that nobody took."""
        for claim in self.ledger.view().claims():
            over = gangs.is_over(claim, self.time.now) if claim.is_seat else self.in_doubt(claim)
            if over:
                self.ledger.cancel(claim)
        gangs.drop_notes(self.ledger, self.pods.values(), self.time.now)

    def in_doubt(self, claim: Claim) -> bool:
        return claim.state == "reserved" and self.time.now - claim.since > BIND_SECONDS

    def schedule(self, *, hurried: bool) -> None:
        """Each pod that waits is tried, in any order; where it is hurried, some as if filter had said yes a
        moment ago."""
        names = sorted(pod.metadata.name for pod in self.waiting())
        self.dice.shuffle(names)
        for name in names:
            refused = evaluate(self.pods[name], NODES, self.ledger.view(), self.time.now).reasons
            late = hurried and self.dice.random() < 0.2
            nodes = [node for node in NODES if late or node not in refused]
            gang = gang_of(self.pods[name])
            hopeless = gang is not None and gang.label in self.hopeless and name.endswith("-1")
            if nodes and not hopeless:
                self.bind(self.pods[name], self.dice.choice(nodes), gang)

    def bind(self, pod: PodInFull, node: str, gang: Gang | None) -> None:
        terms, uid, now = terms_of(self.ledger.view()), pod.metadata.uid, self.time.now
        claim = claim_of(pod, node, terms, terms.demand(pod), f"{uid} {now}", now)
        before = set() if gang is None else {one.uid for one in self.ledger.view().gang(gang.label)}
        try:
            if gang is None:
                claim = self.ledger.reserve(claim, rank=rank_of(pod, self.ledger.view(), now))
            else:
                cluster: Any = self
                binding = GangBinding(self.ledger, cluster, ("berth",), self.time, NO_DEADLINE)
                claim, _ = binding.reserve(pod, gang, claim, None)
        except RefusedError:
            return
        except ElsewhereError as error:
            self.ledger.cancel(error.claim)  # bind fences its pod, and tries again
            return
        if gang is not None and not before:
            self.require_whole(gang)
        outcome = self.dice.random()
        if outcome < 0.1:
            self.ledger.cancel(claim)  # its Binding was refused
        elif outcome > 0.05 + 0.1:
            self.ledger.confirm(claim)
            spec = msgspec.structs.replace(pod.spec, node_name=node)
            self.pods[uid] = msgspec.structs.replace(pod, spec=spec)
            self.ends[uid] = now + self.dice.randint(STEP, LONGEST)
            if gang is not None and all(one.spec.node_name for one in self.of(gang)):
                self.served.add(gang.label)
        # else bind was killed, and nobody knows

    # What must hold

    def of(self, gang: Gang) -> list[PodInFull]:
        return [pod for pod in self.pods.values() if gang_of(pod) == gang]

    def require_whole(self, gang: Gang) -> None:
        """Who reserves first for a gang reserves for all of it."""
        if gang.label in self.whole:
            without = {
                pod.metadata.name
                for pod in self.of(gang)
                if pod.status.phase != "Succeeded" and not self.ledger.view().keys_of(pod.metadata.uid)
            }
            assert not without, f"half of {gang.label} is reserved, and not {sorted(without)}"

    def look(self) -> None:
        view, now = self.ledger.view(), self.time.now
        for pool, domains in view.domains.items():
            for where, domain in domains.items():
                assert domain.used(pool, where) <= (domain.capacity or 0), f"too much of {pool} in {where}"
        for claim in view.claims():
            assert len(view.claims_of(claim.uid)) == 1, f"{claim.label} has two claims"
            assert claim.uid in self.pods, f"{claim.label} is gone, and holds units"
            held = claim.is_seat and now - claim.since
            assert held <= MOST_SEAT_SECONDS, f"a seat waits for {held:g} s for {claim.label}"
        for label in {claim.gang_label for claim in view.claims() if claim.is_seat} & self.whole:
            if any(now < claim.seat_until for claim in view.gang(label)):
                claimed = {claim.uid for claim in view.gang(label)}
                name = label.partition("/")[2]
                lost = [
                    pod.metadata.name
                    for pod in self.waiting()
                    if pod.metadata.name.startswith(f"{name}-") and pod.metadata.uid not in claimed
                ]
                assert not lost, f"seats of {label} wait, and not for {lost}"
