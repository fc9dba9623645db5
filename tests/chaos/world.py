"""One store's world for all its faults: a control plane, Berth with faulty functions, a kube-scheduler.

Pods come and go all through a fault. What must hold afterwards is in judge.py; nothing here decides that.
"""

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import urllib3

from berth.errors import RetryableError
from berth.ledger.ledger import Ledger
from berth.ledger.view import View
from berth.stores import open_store
from berth.stores.base import Store
from tests.chaos import evictions
from tests.chaos.background import PATIENCE
from tests.chaos.churn import Churn, deleted
from tests.chaos.line import NAMESPACE, Line, line_pool
from tests.chaos.store_faults import STORES, Running
from tests.controlplane.plane import ControlPlane
from tests.e2e.bursts import refusal_of, unbound
from tests.e2e.faults.fault_world import Faults
from tests.e2e.harness import Berth, System, faulty_functions, pool
from tests.e2e.readable import Readable
from tests.support.builders.accounts import Accounts
from tests.support.cluster import Cluster, Object, wait
from tests.support.podwatch import PodWatch

LATE = "late"
FAULTY = ("bind", "preempt", "release", "inventory", "reconcile")
MAIN = """
from tests.chaos.inside import faulty

{name} = faulty("{name}")
"""


@dataclass(frozen=True)
class Form:
    """How much of everything. A fault strikes once `before` units are held and lasts `outage` seconds, where
    events are lost `silence`; pods are replaced every `pace` seconds. `backoff` is kube-scheduler's longest,
    None its own.

    In the short form (not `whole`) the stores share bind's steps and the faults of events and of the API
    server among them, and that is not restarted but stopped for a while (SIGSTOP).
    """

    nodes: int
    units: int
    pods: int
    before: int
    outage: float
    silence: float
    whole: bool
    replicas: int
    backoff: int | None
    pace: float

    @property
    def node_names(self) -> list[str]:
        return [f"node-{number}" for number in range(1, self.nodes + 1)]


SHORT = Form(6, 4, 30, 12, outage=3.0, silence=1.0, whole=False, replicas=1, backoff=1, pace=0.2)
LONG = Form(20, 5, 130, 50, outage=10.0, silence=60.0, whole=True, replicas=2, backoff=None, pace=0.2)


@dataclass
class QuickBerth(Berth):
    """Reconciles by its function; keeps one way to the ledger open, for each opening costs."""

    opened: Store | None = None

    def reconcile(self) -> Object:
        """One that goes through: another may be at it, or what it needs come back a moment later."""
        return wait(self._reconciled, PATIENCE, "a reconcile goes through", every=0.2)

    def _reconciled(self) -> Object:
        try:
            reply = self.post("reconcile", {})
        except urllib3.exceptions.HTTPError:
            return {}
        return reply.body if reply.status == 200 else {}

    def ledger(self) -> View:
        """One that is read: a store answers late on a busy machine, or a moment after its fault."""
        return wait(self._looked, PATIENCE, "the ledger can be read", every=0.2)[0]

    def _looked(self) -> list[View]:
        try:
            if self.opened is None:
                self.opened = open_store(self.store)
            return [Ledger(self.opened, while_closed=True).view()]
        except RetryableError:
            return []

    def close(self) -> None:
        if self.opened is not None:
            self.opened.close()

    def ready(self) -> set[tuple[str, int]]:
        """Processes (function, replica) whose last word was that they answer."""
        told = [line for line in list(self.lines) if "function" in line]
        said = {(line["function"], line.get("replica", 1)): line["state"] for line in told}
        return {which for which in self.replica_pids if said.get(which) == "ready"}


class Step(NamedTuple):
    """A call that bind makes where its Binding goes this way (kills.py)."""

    way: str
    call: str


@dataclass
class World(System):
    """`nodes` are those there are now; `everything` all processes that should answer; `steps` bind's, once
    they are known; `part` which of them are this store's in the short form; `evicting` what evicts pods in
    this fault."""

    berth: QuickBerth
    store: Running = field(kw_only=True)
    form: Form = field(kw_only=True)
    faults: Faults = field(kw_only=True)
    dice: random.Random = field(kw_only=True)
    part: int = 0
    nodes: list[str] = field(default_factory=list)
    everything: set[tuple[str, int]] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)
    evicting: evictions.Evictions | None = None

    @property
    def units(self) -> int:
        return len(self.nodes) * self.form.units

    def churn(self, prefix: str) -> Churn:
        dice = random.Random(self.dice.random())
        return Churn(self.cluster, prefix, self.form.pods, self.form.before, self.form.pace, dice)

    def line(self) -> Line:
        return Line(self.cluster, self.berth, random.Random(self.dice.random()))

    def add_node(self) -> None:
        name = f"node-{len(self.nodes) + 1}"
        self.cluster.create_node(name)
        self.nodes.append(name)

    def clean_up(self) -> None:
        """No pods, no claims, no fault, no events, the nodes of the beginning.

        With a proxy the token must not be anywhere before.
        """
        if self.berth.proxy:
            assert Readable(self).showing(self.berth.token) == [], "the token is to be read"
        self.faults.clear()
        self.evicting = None
        pods = [pod["metadata"] for pod in self.cluster.list_pods(None)]
        with ThreadPoolExecutor(8) as workers:
            list(workers.map(lambda pod: deleted(self.cluster, pod["name"], pod["namespace"]), pods))
        for name in self.nodes[self.form.nodes :]:
            self.cluster.delete_node(name)
        del self.nodes[self.form.nodes :]
        self.cluster.call("DELETE", "/api/v1/namespaces/default/events")
        self.faults.set("no-tick")
        self.berth.reconcile()
        wait(lambda: not self.berth.ledger().claims(), PATIENCE, "no claims without pods")

    def wait_held(self, seen: PodWatch, units: int, what: str) -> None:
        try:
            wait(lambda: seen.total >= units, PATIENCE, f"{units} units held {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.told(seen)}") from error

    def told(self, seen: PodWatch) -> str:
        """For a failure's report."""
        waiting = Counter(refusal_of(pod)[:300] for pod in unbound(self))
        answering = f"{len(self.berth.ready())} of {len(self.everything)} processes answer"
        claims = Counter(claim.state for claim in self.berth.ledger().claims())
        held = f"{seen.total} units are held, the ledger has {dict(claims)}"
        return f"{held}, {answering}, pods wait for {waiting.most_common(5)}"

    def deliver_kept(self) -> int:
        """The events that were kept back, the last first; how many."""
        kept = sorted(self.faults.folder.glob("kept-*"), reverse=True)
        for each in kept:
            event = json.loads(each.read_text())
            each.unlink()
            headers = {name: value for name, value in event["headers"].items() if name.startswith("ce-")}
            reply = self.berth.post(event["function"], event["body"].encode(), headers)
            assert not 400 <= reply.status < 500, f"{event} was refused: {reply}"
        return len(kept)


PROXIED = "sqlite"
"""On this store kube-scheduler calls by way of the proxy, and the token that this adds must show nowhere."""


@contextmanager
def world_of(
    binaries: Path, folder: Path, store_name: str, form: Form, seed: int, proxy: Path | None = None
) -> Iterator[World]:
    """`proxy` is an HAProxy to stand beside kube-scheduler; without one it calls the functions itself."""
    with ControlPlane(binaries, folder / "plane") as plane:
        cluster = Cluster(plane.url, plane.admin_token, plane.ca_file)
        with closing(cluster), STORES[store_name].start(folder, plane, cluster) as store:
            with ThreadPoolExecutor(8) as workers:
                list(workers.map(cluster.create_node, form.node_names))
            cluster.create_priority_class(LATE, 1000)
            cluster.create_priority_class(evictions.URGENT, 1000)
            cluster.create_namespace(evictions.NAMESPACE)
            cluster.create_namespace(NAMESPACE)
            faults = Faults(folder / "faults")
            berth = _berth(folder, plane, store, faults, form, proxy=proxy is not None)
            with mock.patch.dict(os.environ, store.environment), _running(berth):
                faults.set("no-tick")
                part = (seed + [*STORES].index(store_name)) % len(STORES)
                dice = random.Random(f"{seed} {store_name}")
                accounts = Accounts(plane, cluster, folder)
                world = World(
                    plane,
                    cluster,
                    berth,
                    accounts,
                    store=store,
                    form=form,
                    faults=faults,
                    dice=dice,
                    part=part,
                )
                backoff = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": form.backoff}
                config = world.scheduler_config("impatient", **(backoff if form.backoff else {}))
                with nullcontext() if proxy is None else world.beside(proxy):
                    # What is looked for must not be in a log that hides nothing.
                    plane.start_scheduler(config, flags=["--v=10"] if proxy else [])
                    world.nodes, world.everything = form.node_names, berth.ready()
                    yield world


@contextmanager
def _running(berth: QuickBerth) -> Iterator[None]:
    try:
        berth.start(seconds=PATIENCE)
        yield
    finally:
        berth.close()
        berth.stop()


def _berth(
    folder: Path, plane: ControlPlane, store: Running, faults: Faults, form: Form, *, proxy: bool
) -> QuickBerth:
    return QuickBerth(
        folder / "berth",
        plane.kubeconfig(folder / "kubeconfig"),
        [pool(units=form.units), _late(form), _evict(form), line_pool()],
        {"FAULTS": str(faults.folder)},
        faulty_functions(folder, **{name: MAIN.format(name=name) for name in FAULTY}),
        store=store.url,
        replicas=form.replicas,
        proxy=proxy,
    )


def _late(form: Form) -> Object:
    """A Pool with room whatever else is held, so that filter always sends its pods on to bind."""
    somewhere = {"matchLabels": {"kubernetes.io/hostname": form.node_names[0]}}
    return pool(LATE, 100, nodeSelector=somewhere)


def _evict(form: Form) -> Object:
    """A Pool whose pods can be evicted."""
    some = dict.fromkeys(form.node_names[: evictions.NODES], 1)
    return pool(evictions.POOL, {"domains": some}, preemption="Native")
