"""One cluster, one ledger and the processes that run berth's verbs on them, all of which may break.
What a rule of the machine does is done here; what must then be so is in promises.py."""

from collections.abc import Callable, Collection, Mapping, Sequence
from errno import EIO
from itertools import count
from pathlib import PosixPath
from typing import Any, NamedTuple, TypeVar

import msgspec

from berth.api.names import GROUP
from berth.controller.settle import BIND_SECONDS
from berth.errors import StoreUnavailableError
from berth.handlers import filter as filtering
from berth.handlers import inventory, release
from berth.handlers.bind import Bind
from berth.handlers.reconcile import Reconcile, Report
from berth.http.cloudevents import Event
from berth.http.extender_v1 import BindingCall, Candidates
from berth.kube.client import Client
from berth.kube.cluster import Cluster
from berth.kube.types import Pod
from berth.ledger.ledger import Ledger
from berth.ledger.model import LAST
from berth.scheduling.assumed import AssumedPods
from berth.settings import Settings
from berth.stores.base import Store
from tests.properties import pools
from tests.properties.api import Answer, Api, lost
from tests.properties.calls import KILL, Call, Order
from tests.properties.kept import Kept
from tests.properties.lefts import Lefts
from tests.properties.model import Model
from tests.properties.pools import NODES, NodeIs, Spec, space_of
from tests.properties.promises import Promises
from tests.properties.watched import Watched
from tests.properties.wish import Wish
from tests.support.builders.ledgers import Time
from tests.support.builders.objects import event

T = TypeVar("T")

SCHEDULERS = ("berth",)


class Clock:
    """What a process takes for the time: the right one, but while it is some seconds `ahead`."""

    def __init__(self, time: Time) -> None:
        self._time, self.ahead = time, 0.0

    def __call__(self) -> float:
        return self._time() + self.ahead


class Process(NamedTuple):
    """One process of a verb: what it knows is lost when it is killed."""

    ledger: Ledger
    cluster: Cluster
    clock: Clock
    keeper: bool  # reconcile's, which works on a closed ledger too
    skew: float = 0.0  # how far its clock is always from the right time
    assumed: AssumedPods | None = None  # filter's, where it has them in mind


class PoolsFile(PosixPath):
    """BERTH_POOLS' file, of which a reader may be stopped like one of the cluster's."""

    world: "World"

    def read_text(self, *_: Any, **__: Any) -> str:
        there = self.world.model.pools.items()
        texts = [msgspec.json.encode(pools.document(name, spec)).decode() for name, spec in there]
        return self.world.read("\n---\n".join(texts))


Work = Callable[[Process], object]


class World:
    """`store` is open, whatever is in it; `lose` takes everything that is in it."""

    def __init__(
        self, store: Store, lose: Callable[[], None], client: Client, numbers: Collection[int]
    ) -> None:
        self.time, self.model, self.kept = Time(), Model(), Kept()
        self.api = Api(self.time, self._carried)
        self.lefts = Lefts(self._owner)
        self.promises = Promises(self.api, self.model, self.lefts, self.time, numbers)
        self.names: dict[str, str] = {}  # of all pods that ever were, by UID
        self.events: list[Event] = []  # all that were ever sent
        self.under_way: dict[Call, Process] = {}
        self.newest: Event | None = None  # what tells of the last change, if anything does
        self.ahead = 0.0  # how far the clock of the next call is from that of its verb
        self.skews: Mapping[str, float] = {}  # how far verbs' clocks are from the right time
        self.assumes = False  # whether filter counts pods that it has just let through
        self.settings = Settings()
        self._store, self._watched, self._lose = store, Watched(store, self), lose
        self._client = client
        self._call: Call | None = None
        self._idle: list[Process] = []
        self._ids = (f"id-{number}" for number in count(1))
        self.lose()

    # What happens to the ledger and the cluster

    def lose(self) -> None:
        self._lose()
        self.kept = Kept()
        self.lefts.found.clear()

    def keep_pools_in_a_file(self) -> None:
        file = PoolsFile("pools.yaml")
        file.world = self
        self.settings = Settings(pools=file)

    def create_pod(self, name: str, wish: Wish) -> None:
        """The PoolClaim is for pods of its own namespace."""
        space = space_of(name)
        wish = wish._replace(space=space, claim=wish.claim and space == pools.NAMESPACE)
        uid = self.api.create_pod(name, wish)
        self.model.wishes[uid], self.names[uid] = wish, name
        self.model.made[uid], self.model.labels[uid] = float(int(self.time())), f"{space}/{name}"
        self.model.grow(self.api.nodes())

    def end_pod(self, uid: str, how: str) -> None:
        """It finishes, fails, or is deleted; the event of it is sent."""
        ends = {"finish": "Succeeded", "fail": "Failed"}
        if how in ends:
            self.api.finish_pod(self.names[uid], ends[how])
        pod = self.api.pods()[uid]
        if how not in ends:
            self.api.delete_pod(self.names[uid], at_once=how == "delete")
        self.newest = event("update" if how in ends else "delete", {**pod, "kind": "Pod"})
        self.events.append(self.newest)

    def let_go(self, uid: str) -> None:
        """Its finalizer is taken off."""
        if self.api.pods()[uid]["metadata"].get("finalizers"):
            self.api.take_off_finalizer(self.names[uid])

    def interfere(self, uid: str, node: str | None) -> None:
        """Somebody binds a waiting pod, or only writes to it."""
        if node is None:
            self.api.write_pod(self.names[uid], next(self._ids))
            return
        self.api.bind_around(self.names[uid], node)
        self.promises.around.add(uid)
        self.promises.went_to[uid] = node

    def set_node(self, name: str, wanted: NodeIs | None) -> None:
        """None: it is removed. The event of it is sent."""
        if wanted is not None:
            self.api.set_node(name, wanted)
        elif name in self.api.nodes():
            self.api.remove_node(name)
        self._changed("Node", name)

    def may_go(self, resource: str) -> bool:
        """A file without any Pool is taken for one that is being written."""
        others = [name for name in self.model.pools if pools.resource_of(name) != resource]
        return self.settings.pools is None or bool(others)

    def set_pool(self, name: str, spec: Spec | None) -> None:
        """In the place of the one that counts the same; None: there is none any more."""
        if spec is not None:
            spec = {"resource": f"{GROUP}/{pools.resource_of(name)}", **spec}
        for other in [
            other for other in self.model.pools if pools.resource_of(other) == pools.resource_of(name)
        ]:
            self.api.set_pool(other, None)
            if other != name:
                self._happened("Pool", other, "delete")
        self.model.set_pool(name, spec)
        self.api.set_pool(name, spec)
        self._changed("Pool", name)

    def set_claim(self, spec: Spec | None) -> None:
        self.api.set_claim(spec)
        self.model.claimed &= spec is not None
        self._changed("PoolClaim", pools.CLAIM)

    def _changed(self, kind: str, name: str) -> None:
        self.model.grow(self.api.nodes())
        self.promises.changed()
        self._happened(kind, name)

    def _happened(self, kind: str, name: str, how: str = "update") -> None:
        """Of Pools in a file nobody is told."""
        told = event(how, {"kind": kind, "metadata": {"name": name}})
        self.newest = told if kind != "Pool" or self.settings.pools is None else None
        self.events += [told] if self.newest else []

    def _owner(self, by: str, uid: str) -> str:
        """Empty where it has none."""
        name, wish = self.names.get(uid, ""), self.model.wishes.get(uid)
        if by == "Pod" or wish is None:
            return name
        return f"{wish.space}/{wish.owner}" if wish.owner else ""

    def said(self, uid: str) -> str:
        """What kube-scheduler says of the pod."""
        conditions = self.api.pods()[uid]["status"].get("conditions", ())
        return next((str(one["message"]) for one in conditions if one["type"] == "PodScheduled"), "")

    def fits(self, uid: str, node: str) -> bool:
        """By what the ledger has."""
        return not self.model.refusal(uid, node, self.promises.seen(self.kept, uid, sure=False))

    # Calls of the verbs

    def bind(self, uid: str, node: str, orders: Sequence[Order] = ()) -> Call:
        def work(process: Process) -> None:
            verb = Bind(
                process.ledger,
                process.cluster,
                SCHEDULERS,
                clock=process.clock,
                monotonic=self.time,
                new_attempt=lambda: next(self._ids),
            )
            verb.run(BindingCall(self.names[uid], space_of(self.names[uid]), uid, node))

        expected = self.promises.expected(uid, node, self.kept)
        return self._start("bind", work, orders, uid, node, expected)

    def filter(self, uid: str, orders: Sequence[Order] = (), nominated: str = "") -> Call:
        """Of all nodes, or of the one alone that the pod is nominated to."""
        found = self.api.pods()[uid]
        offered = [nominated] if nominated else NODES
        status = {**found["status"], "nominatedNodeName": nominated or None}
        asked = Candidates(
            event("update", {**found, "status": status}).object_as(Pod), list(offered), True, None
        )

        def work(process: Process) -> object:
            look = process.ledger.view
            return dict(filtering.run(look, asked, process.clock, assumed=process.assumed).reasons)

        return self._start("filter", work, orders, uid, offered=offered)

    def deliver(self, event: Event, orders: Sequence[Order] = ()) -> Call:
        """To the verb that such events go to."""

        def released(process: Process) -> object:
            verb = release.Release(process.ledger, process.cluster, SCHEDULERS, process.clock)
            return verb.run(event)

        def counted(process: Process) -> object:
            verb = inventory.Inventory(process.ledger, process.cluster, self.settings, process.clock)
            return verb.run(event)

        verb, work = ("release", released) if event.kind() == "Pod" else ("inventory", counted)
        return self._start(verb, work, orders)

    def reconcile(self, orders: Sequence[Order] = ()) -> Call:
        def work(process: Process) -> object:
            verb = Reconcile(
                process.ledger,
                process.cluster,
                self.settings,
                clock=process.clock,
                monotonic=self.time,
                new_id=lambda: next(self._ids),
            )
            return verb.run()

        return self._start("reconcile", work, orders)

    def go_on(self, call: Call, orders: Sequence[Order] = ()) -> None:
        """Let the call run until it ends, or an order ends or pauses it."""
        self._call = call
        call.go(orders)
        self._call = None
        if call.ended:
            process = self.under_way.pop(call)
            if call.answer is not None and call.ahead == process.skew:
                self._idle.append(process)
            self.promises.ended(call, self.kept)

    def _start(self, kind: str, work: Work, orders: Sequence[Order], *about: Any, **more: Any) -> Call:
        process = self._process(keeper=kind == "reconcile", skew=self.skews.get(kind, 0.0))
        process.clock.ahead, self.ahead = process.skew + self.ahead, 0.0
        call = Call(kind, lambda: work(process), *about, **more)
        call.ahead = process.clock.ahead
        self.under_way[call] = process
        self.promises.begun(call)
        self.go_on(call, orders)
        return call

    def _process(self, *, keeper: bool, skew: float) -> Process:
        """One that has nothing to do; calls that run at the same time are in processes of their own."""
        as_wanted = (each for each in self._idle if (each.keeper, each.skew) == (keeper, skew))
        idle = next(as_wanted, None)
        if idle is not None:
            self._idle.remove(idle)
            return idle
        return self._fresh(keeper=keeper, skew=skew)

    def _fresh(self, *, keeper: bool, skew: float = 0.0) -> Process:
        cluster, clock = self.api.cluster(self._client), Clock(self.time)
        ledger = Ledger(
            self._watched,
            clock=clock,
            monotonic=self.time,
            sleep=self.time.advance,
            while_closed=keeper,
            cluster=cluster.identity,
        )
        return Process(ledger, cluster, clock, keeper, skew, AssumedPods() if self.assumes else None)

    # Rest

    def rest(self, *, kill: bool) -> None:
        """No call is under way and bind's deadline is over; then one reconcile that nothing disturbs."""
        self.stop(kill=kill)
        self.ahead = 0.0
        self.time.now += BIND_SECONDS + 1
        done = self.reconcile()
        self.promises.keep(3, done.answer == "", f"nothing disturbs reconcile, and it says {done.answer}")
        self.promises.at_rest(self.kept)

    def stop(self, *, kill: bool) -> None:
        for call in list(self.under_way):
            self.go_on(call, [KILL] if kill else [])

    def nothing_is_left_to_mend(self) -> None:
        """After a rest: reconcile agrees, the store has what it took, and every process sees that."""
        call = self.reconcile()
        report = call.result
        gangs = {uid for uid in call.woken if self.model.wishes[uid].together}
        useless = call.woken - gangs - self.promises.fitting(self.kept, sure=True)
        self.promises.keep(6, not useless, f"reconcile wrote to {useless}, which can't be had anywhere")
        mended = (report.released, report.settled, report.adopted) if isinstance(report, Report) else None
        self.promises.keep(3, mended == (0, 0, 0), f"a second reconcile mended {report}")
        there = self._store.changes(None).documents
        self.promises.keep(
            3, there == self.kept.documents, f"the store has {there}, it took {self.kept.documents}"
        )
        for view in (process.ledger.view() for process in self._idle):
            claims = {claim.uid: [claim] for claim in view.claims() if claim.uid in self.names}
            held = {uid: found[:1] for uid, found in self.kept.claims.items()}
            self.promises.keep(3, claims == held, f"a process sees {claims}, the store took {held}")

    def all_rest_is_over(self) -> None:
        """After a rest, and as long as any Pool lets its units rest: what nobody holds is free."""
        self.time.now += pools.LONG + 2 * pools.SKEW + 1
        self.reconcile()
        reserved = [
            claim for found in self.kept.claims.values() for claim in found if claim.state == "reserved"
        ]
        self.promises.keep(3, not reserved, f"nobody takes what is reserved, and it stays: {reserved}")
        fresh = self._fresh(keeper=False)
        for pool, shares in fresh.ledger.view().free.items():
            for domain, share in shares.items():
                held = self.kept.held_in_line((pool, domain), LAST)
                found = self.kept.share((pool, domain), barred=held)
                self.promises.keep(
                    6,
                    found == share,
                    f"{share} of {domain} in {pool} are free, and {found} are held by nobody and for nobody",
                )

    # Every call that a verb makes comes by here

    def at_store(self, what: str, call: Callable[[], T]) -> T:
        if self._call is None:
            return call()
        self._call.at(f"before {what}", self._lost_by_store)
        result = call()
        self._call.at(f"after {what}", self._lost_by_store)
        return result

    def read(self, text: str) -> str:
        """What somebody reads of the file of Pools."""
        if self._call is not None:
            self._call.at("after GET", self._lost_file)
        return text

    def lags(self) -> bool:
        return self._call is not None and self._call.looks_back()

    def committed(self, writes: Mapping[str, bytes | None]) -> None:
        assert self._call is not None
        before, self.kept = self.kept, self.kept.after(writes)
        self.promises.committed(self._call, before, self.kept)

    def _lost_by_store(self) -> BaseException:
        assert self._call is not None
        self._call.lost_by_store += 1
        self._call.lost_since_landing += 1
        return StoreUnavailableError("the store does not answer")

    def _carried(self, method: str, path: str, body: Any, play: Callable[[], Answer]) -> Answer:
        assert self._call is not None
        self._call.at(f"before {method}", self._lost_by_api)
        answer = play()
        landed = method == "POST" and answer.status == 201
        if landed:
            uid = next(
                uid for uid, pod in self.api.pods().items() if pod["metadata"]["name"] in path.split("/")
            )
            self.promises.landed(self._call, uid, body["metadata"].get("annotations") or {}, self.kept)
        notes = body["status"].get("conditions", ()) if method == "PATCH" and "/pods/" in path else ()
        if answer.status == 200 and any(note["reason"] == "Woken" for note in notes):
            self.promises.woke(self._call, body["metadata"]["uid"])
        self._call.at(f"after {method}", self._lost_by_api)
        self._call.heard |= landed
        return answer

    def _lost_file(self) -> BaseException:
        self._lost_by_api()
        return OSError(EIO, "the file can't be read")

    def _lost_by_api(self) -> BaseException:
        assert self._call is not None
        self._call.lost_by_api += 1
        self._call.lost_since_landing += 1
        return lost()
