"""Gangs and single pods that come, run for a while and go, at random, on a ledger in memory: kube-scheduler
and the functions that act on it in a few lines each. What must hold is asserted as it goes on."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from berth.api.gang import GANG, GANG_SIZE, Gang, gang_label, gang_of
from berth.api.pool import Pool, parse
from berth.controller import gang as gangs
from berth.controller.capacity_sync import sync_all
from berth.controller.gang import GangBinding
from berth.controller.settle import BIND_SECONDS, claim_of
from berth.deadline import NO_DEADLINE
from berth.errors import RefusedError
from berth.kube.types import (
    ContainerState,
    ContainerStatus,
    Node,
    PodCondition,
    PodInFull,
    Terminated,
)
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim
from berth.ledger.transitions import ElsewhereError
from berth.scheduling.demand import might_ask, rank_of, terms_of
from berth.scheduling.fit import evaluate
from berth.testing.api_server.rules import timestamp
from tests.properties.memory import MemoryStore
from tests.support.builders.ledgers import Time
from tests.support.builders.objects import pool_document

NODES = ("n1", "n2", "n3")
FAILURES = "batch.kubernetes.io/job-index-failure-count"  # of a Job that gives up each index by itself
INDEX = "batch.kubernetes.io/job-completion-index"
STEP, TICK, LONGEST = 10, 60, 120
SCOPES: dict[str, Any] = {
    "seat": {"scope": "Cluster", "capacity": {"perDomain": 5}, "line": {"holds": "None"}},
    "ip": {"capacity": {"perDomain": 2}, "line": {"holds": "None"}},
}
MOST_SEAT_SECONDS = 120 + TICK + STEP


@dataclass
class GangTraffic:
    """`pods` are all that are there, `ends` when those that run end, `hopeless` whom kube-scheduler binds
    nowhere, `whole` the gangs of which no pod was deleted; `odd` say another size than the others of theirs,
    `again` come in place of pods that failed, and `narrow` is what a Pool is like for a while."""

    dice: Random
    hopeless_gangs: bool = False
    time: Time = field(default_factory=Time)
    pods: dict[str, PodInFull] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    hopeless: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    served: set[str] = field(default_factory=set)
    odd: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)
    narrow: bool = False
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
        for number in range(10 * steps):
            if number > steps and not self.left():
                return
            self.time.now += STEP
            if number < steps and self.dice.random() < 0.5:
                self.come()
            for name in [name for name, end in self.ends.items() if end <= self.time.now]:
                self.end(name, fails=number < steps and self.dice.random() < 0.3)
            for name in [name for name in sorted(self.odd) if self.dice.random() < 0.1 or number >= steps]:
                self.delete(name)
            if self.dice.random() < 0.1 or number >= steps:
                self.change_pools(narrow=number < steps and not self.narrow)
            if number < steps and self.dice.random() < 0.05:
                self.delete_any()
            if number * STEP % TICK == 0:
                self.tick()
            self.schedule(hurried=number < steps)
            self.look()
        assert not self.left(), f"nobody else is there, and they wait for ever: {sorted(self.left())}"

    def left(self) -> set[str]:
        """The pods and gangs that wait, and that could be served."""
        waiting = {pod.metadata.name: gang_label(pod) for pod in self.waiting()}
        pods = {name for name, label in waiting.items() if not label}
        again = {name for name in self.again & waiting.keys() if waiting[name] in self.whole & self.served}
        return pods | again | (self.whole - self.served - self.hopeless)

    def waiting(self) -> list[PodInFull]:
        return [pod for pod in self.pods.values() if not pod.spec.node_name]

    def come(self) -> None:
        """A pod, or a gang of which one pod may come later."""
        self.made += 1
        size = self.dice.choice((1, 1, 2, 3, 4))
        if size == 1:
            self.add(f"pod-{self.made}", {"seat": self.dice.randint(1, 2)}, {})
            return
        owned = self.dice.random() < 0.5  # by a Job, and then the runs have one name
        gang, job = ("train", f"job-{self.made}") if owned else (f"gang-{self.made}", "")
        alike = self.dice.random() < 0.5
        asks = self.asks()
        for number in range(size):
            noted = {GANG: gang, GANG_SIZE: str(size), **({FAILURES: "0"} if job else {})}
            mine = {} if number and self.dice.random() < 0.1 else asks if alike else self.asks()
            self.add(f"gang-{self.made}-{number}", mine, noted, job, number)
        label = gang_label(self.pods[f"gang-{self.made}-0"])
        if self.hopeless_gangs and self.dice.random() < 0.3:
            self.hopeless.add(label)
        self.whole.add(label)
        if self.dice.random() < 0.1:
            other = {GANG: gang, GANG_SIZE: str(size + 1 if self.dice.random() < 0.5 else 1)}
            self.add(f"odd-{self.made}", self.asks(), other, job)
            self.odd.add(f"odd-{self.made}")

    def change_pools(self, *, narrow: bool) -> None:
        """Let a Pool be suspended, or have fewer units, for a while."""
        if narrow == self.narrow:
            return
        self.narrow = narrow
        less = self.dice.choice(({"suspended": True}, {"capacity": {"perDomain": 1}}))
        specs = {**SCOPES, "seat": {**SCOPES["seat"], **(less if narrow else {})}}
        documents = (pool_document(name, **spec) for name, spec in specs.items())
        self.pools = dict(parse(documents, "traffic"))
        self.ledger.apply_pools(self.pools)
        sync_all(self.ledger, self.pools, lambda: self.all_nodes)

    def asks(self) -> dict[str, int]:
        seat = self.dice.randint(0, 1)
        return {"seat": seat, "ip": 1 if not seat else self.dice.randint(0, 1)}

    def add(
        self, name: str, asks: dict[str, int], noted: dict[str, str], job: str = "", index: int | None = None
    ) -> None:
        owners = [{"kind": "Job", "name": job, "uid": job, "controller": True}] if job else []
        labels = {} if index is None or not job else {INDEX: str(index)}
        limits = {f"berth.dev/{pool}": str(units) for pool, units in asks.items() if units}
        document = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "creationTimestamp": timestamp(self.time.now),
                "annotations": noted,
                "labels": labels,
                "ownerReferences": owners,
            },
            "spec": {
                "schedulerName": "berth",
                "containers": [{"resources": {"limits": limits, "requests": limits}}],
            },
            "status": {"phase": "Pending"},
        }
        self.pods[name] = msgspec.convert(document, PodInFull)

    def end(self, name: str, *, fails: bool) -> None:
        """The pod ends. One of a Job that fails is replaced, or its index is given up."""
        del self.ends[name]
        pod = self.pods[name]
        job = next((owner.name for owner in pod.metadata.owner_references or ()), "")
        gone_on = job and gang_label(pod) in self.served
        phase = "Failed" if fails and gone_on else "Succeeded"
        ended = ContainerState(Terminated(timestamp(self.time.now)))
        status = msgspec.structs.replace(pod.status, phase=phase, container_statuses=[ContainerStatus(ended)])
        self.pods[name] = msgspec.structs.replace(pod, status=status)
        self.ledger.release(name)
        if phase == "Failed" and self.dice.random() < 0.5:
            index = (pod.metadata.labels or {}).get(INDEX)
            self.made += 1
            self.add(
                f"again-{self.made}",
                {"seat": 1},
                dict(pod.metadata.annotations or {}),
                job,
                int(index) if index else None,
            )
            self.again.add(f"again-{self.made}")

    def delete(self, name: str) -> None:
        """A pod is deleted that may have kept the others of its gang waiting."""
        pod = self.pods.pop(name)
        self.odd.discard(name)
        self.ends.pop(name, None)
        self.ledger.release(name)
        self.look_again(pod)

    def look_again(self, pod: PodInFull) -> None:
        """What release does for the gang of a pod that went, and bind for one that asks for nothing."""
        label = gang_label(pod)
        kin = [other for other in self.pods.values() if gang_of(other)]
        tried = gangs.revised(self.ledger, label, kin, ("berth",), self.time.now)
        view = self.ledger.view()
        for other in tried:
            refused = evaluate(other, NODES, view, self.time.now).rules
            assert ("", "gang") not in refused, f"{other.label} is there with all of its gang, and sleeps"

    def delete_any(self) -> None:
        """A pod that waits is deleted; its gang is not whole any more."""
        if waiting := sorted(pod.metadata.name for pod in self.waiting()):
            name = self.dice.choice(waiting)
            self.whole.discard(gang_label(self.pods[name]))
            self.delete(name)

    def tick(self) -> None:
        """What reconcile does: reservations in doubt end, and seats that nobody took."""
        for claim in self.ledger.view().claims():
            over = gangs.is_over(claim, self.time.now) if claim.is_seat else self.in_doubt(claim)
            if over:
                self.ledger.cancel(claim)
        gangs.drop_notes(self.ledger, self.pods.values(), self.time.now)
        gangs.all_revised(self.ledger, self.pods.values(), ("berth",), self.time.now)

    def in_doubt(self, claim: Claim) -> bool:
        return claim.state == "reserved" and self.time.now - claim.since > BIND_SECONDS

    def schedule(self, *, hurried: bool) -> None:
        """Each pod that waits is tried, in any order; where it is hurried, some as if filter had said yes a
        moment ago."""
        names = sorted(pod.metadata.name for pod in self.waiting())
        self.dice.shuffle(names)
        for name in names:
            refused = self.refused(name)
            late = hurried and self.dice.random() < 0.2
            nodes = [node for node in NODES if late or node not in refused]
            gang = gang_of(self.pods[name])
            hopeless = gang is not None and gang.label in self.hopeless and name.endswith("-1")
            if nodes and not hopeless:
                self.bind(self.pods[name], self.dice.choice(nodes), gang)

    def refused(self, name: str) -> Collection[str]:
        """The nodes that filter refuses, none where it is not asked."""
        pod, view = self.pods[name], self.ledger.view()
        if not might_ask(pod):
            return ()
        refused = evaluate(pod, NODES, view, self.time.now).reasons
        seat = next((claim for claim in view.claims_of(pod.metadata.uid) if claim.is_seat), None)
        assert seat is None or seat.node not in refused, f"{name} can't take its seat: {refused}"
        return refused

    def bind(self, pod: PodInFull, node: str, gang: Gang | None) -> None:
        terms, uid, now = terms_of(self.ledger.view()), pod.metadata.uid, self.time.now
        if not terms.demand(pod).units:
            self.is_bound(pod, node, gang)
            self.look_again(pod)
            return
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
            self.is_bound(pod, node, gang)
        # else bind was killed, and nobody knows

    def is_bound(self, pod: PodInFull, node: str, gang: Gang | None) -> None:
        uid, now = pod.metadata.uid, self.time.now
        spec = msgspec.structs.replace(pod.spec, node_name=node)
        scheduled = PodCondition("PodScheduled", "True", timestamp(now))
        status = msgspec.structs.replace(pod.status, conditions=[scheduled])
        self.pods[uid] = msgspec.structs.replace(pod, spec=spec, status=status)
        self.ends[uid] = now + self.dice.randint(STEP, LONGEST)
        if gang is not None and all(one.spec.node_name for one in self.of(gang)):
            self.served.add(gang.label)

    # What must hold

    def of(self, gang: Gang) -> list[PodInFull]:
        return [pod for pod in self.pods.values() if gang_of(pod) == gang]

    def require_whole(self, gang: Gang) -> None:
        """Who reserves first for a gang reserves for all of it."""
        if gang.label in self.whole:
            without = {
                pod.metadata.name
                for pod in self.of(gang)
                if not (pod.finished or pod.metadata.name in self.again or not might_ask(pod))
                and not self.ledger.view().keys_of(pod.metadata.uid)
            }
            assert not without, f"half of {gang.label} is reserved, and not {sorted(without)}"

    def look(self) -> None:
        view, now = self.ledger.view(), self.time.now
        for pool, domains in view.domains.items():
            for where, domain in domains.items():
                most = (domain.capacity or 0) if pool != "seat" else 5
                assert domain.used(pool, where) <= most, f"too much of {pool} in {where}"
        for claim in view.claims():
            assert len(view.claims_of(claim.uid)) == 1, f"{claim.label} has two claims"
            assert claim.uid in self.pods, f"{claim.label} is gone, and holds units"
            held = claim.is_seat and now - claim.since
            assert held <= MOST_SEAT_SECONDS, f"a seat waits for {held:g} s for {claim.label}"
        for label in {claim.gang_label for claim in view.claims() if claim.is_seat} & self.whole:
            if any(now < claim.seat_until for claim in view.gang(label)):
                claimed = {claim.uid for claim in view.gang(label)}
                lost = [
                    pod.metadata.name
                    for pod in self.waiting()
                    if pod.metadata.uid not in claimed
                    and gang_label(pod) == label
                    and might_ask(pod)
                    and pod.metadata.name not in self.odd | self.again
                ]
                assert not lost, f"seats of {label} wait, and not for {lost}"
