"""One cluster, one ledger and the processes that run berth's verbs on them, all of which may break.
What a rule of the machine does is done here; what must then be so is in promises.py."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar

from berth.apiserver import Client
from berth.cluster import Cluster
from berth.errors import StoreUnavailableError
from berth.events import Event
from berth.ledger import Ledger
from berth.objects import Pod
from berth.settings import Settings
from berth.steps.claims import BIND_SECONDS
from berth.stores.base import Changes, Cursor, Document, Store, Version
from berth.verbs import filter as filtering
from berth.verbs import inventory, release
from berth.verbs.bind import Bind
from berth.verbs.reconcile import Reconcile, Report
from berth.wire import BindingCall, Candidates
from tests.contract.properties.api import NAMESPACE, NODES, Answer, Api, lost
from tests.contract.properties.calls import KILL, Call, Order
from tests.contract.properties.model import Model
from tests.contract.properties.promises import Kept, Promises
from tests.support.ledgers import Time

T = TypeVar("T")

DELETE, UPDATE = (f"dev.knative.apiserver.resource.{what}" for what in ("delete", "update"))
SCHEDULERS = ("berth",)


class Process(NamedTuple):
    """One process of a verb: what it knows is lost when it is killed."""

    ledger: Ledger
    cluster: Cluster
    keeper: bool  # reconcile's, which works on a closed ledger too


Work = Callable[[Process], object]


class World:
    """`store` is open, whatever is in it; `lose` takes everything that is in it."""

    def __init__(
        self, store: Store, lose: Callable[[], None], client: Client, numbers: Collection[int]
    ) -> None:
        self.time, self.model, self.kept = Time(), Model(), Kept()
        self.api = Api(self.time, self._carried)
        self.promises = Promises(self.api, self.model, numbers)
        self.names: dict[str, str] = {}  # of all pods that ever were, by UID
        self.events: list[Event] = []  # all that were ever sent
        self.under_way: dict[Call, Process] = {}
        self._store, self._watched, self._lose = store, _Watched(store, self), lose
        self._client = client
        self._call: Call | None = None
        self._idle: list[Process] = []
        self._ids = (f"id-{number}" for number in count(1))
        self.lose()

    # What happens to the ledger and the cluster

    def lose(self) -> None:
        self._lose()
        self.kept = Kept()

    def create_pod(self, name: str, asks: Mapping[str, int]) -> None:
        uid = self.api.create_pod(name, asks)
        self.model.asks[uid], self.names[uid] = dict(asks), name

    def end_pod(self, uid: str, how: str) -> None:
        """It finishes, or is deleted; the event of it is sent."""
        if how == "finish":
            self.api.finish_pod(self.names[uid])
        pod = self.api.pods()[uid]
        if how != "finish":
            self.api.delete_pod(self.names[uid], at_once=how == "delete")
        self.events.append(Event(UPDATE if how == "finish" else DELETE, {**pod, "kind": "Pod"}))

    def interfere(self, uid: str, node: str | None) -> None:
        """Somebody binds a waiting pod, or only writes to it."""
        if node is None:
            self.api.write_pod(self.names[uid], next(self._ids))
            return
        self.api.bind_around(self.names[uid], node)
        self.promises.around.add(uid)
        self.promises.went_to[uid] = node

    def set_node(self, name: str, capacities: Mapping[str, int] | None) -> None:
        """None: it is removed. The event of it is sent."""
        if capacities is not None:
            self.api.set_node(name, capacities)
        elif name in self.api.nodes():
            self.api.remove_node(name)
        for pool, units in (capacities or {}).items():
            self.model.most[pool, name] = max(units, self.model.most.get((pool, name), 0))
        self.events.append(Event(UPDATE, {"kind": "Node", "metadata": {"name": name}}))

    def fits(self, uid: str, node: str) -> bool:
        """By what the ledger has."""
        return not self.model.refusal(uid, node, self.kept.shares_for(uid))

    # Calls of the verbs

    def bind(self, uid: str, node: str, orders: Sequence[Order] = ()) -> Call:
        def work(process: Process) -> None:
            verb = Bind(
                process.ledger,
                process.cluster,
                SCHEDULERS,
                clock=self.time,
                monotonic=self.time,
                new_attempt=lambda: next(self._ids),
            )
            verb.run(BindingCall(self.names[uid], NAMESPACE, uid, node))

        expected = self.promises.expected(uid, node, self.kept)
        return self._start("bind", work, orders, uid, node, expected)

    def filter(self, uid: str, orders: Sequence[Order] = ()) -> Call:
        pod = Event(UPDATE, self.api.pods()[uid]).about(Pod)
        offered = Candidates(pod, list(NODES), True, None)
        return self._start("filter", lambda process: filtering.run(process.ledger, offered), orders, uid)

    def deliver(self, event: Event, orders: Sequence[Order] = ()) -> Call:
        """To the verb that such events go to."""

        def released(process: Process) -> object:
            return release.run(process.ledger, process.cluster, SCHEDULERS, event, self.time)

        def counted(process: Process) -> object:
            return inventory.run(process.ledger, process.cluster, Settings(), event, self.time)

        verb, work = ("release", released) if event.kind() == "Pod" else ("inventory", counted)
        return self._start(verb, work, orders)

    def reconcile(self, orders: Sequence[Order] = ()) -> Call:
        def work(process: Process) -> object:
            verb = Reconcile(
                process.ledger, process.cluster, Settings(), clock=self.time, new_id=lambda: next(self._ids)
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
            if call.answer is not None:
                self._idle.append(process)
            self.promises.ended(call, self.kept)

    def _start(self, kind: str, work: Work, orders: Sequence[Order], *about: Any) -> Call:
        process = self._process(keeper=kind == "reconcile")
        call = Call(kind, lambda: work(process), *about)
        self.under_way[call] = process
        self.go_on(call, orders)
        return call

    def _process(self, *, keeper: bool) -> Process:
        """One that has nothing to do; calls that run at the same time are in processes of their own."""
        idle = next((each for each in self._idle if each.keeper == keeper), None)
        if idle is not None:
            self._idle.remove(idle)
            return idle
        cluster = self.api.cluster(self._client)
        ledger = Ledger(
            self._watched,
            clock=self.time,
            monotonic=self.time,
            sleep=self.time.sleep,
            while_closed=keeper,
            cluster=cluster.identity,
        )
        return Process(ledger, cluster, keeper)

    # Rest

    def rest(self, *, kill: bool) -> None:
        """No call is under way and bind's deadline is over; then one reconcile that nothing disturbs."""
        self.stop(kill=kill)
        self.time.now += BIND_SECONDS + 1
        done = self.reconcile()
        self.promises.keep(3, done.answer == "", f"nothing disturbs reconcile, and it says {done.answer}")
        self.promises.at_rest(self.kept)

    def stop(self, *, kill: bool) -> None:
        for call in list(self.under_way):
            self.go_on(call, [KILL] if kill else [])

    def nothing_is_left_to_mend(self) -> None:
        """After a rest: reconcile agrees, the store has what it took, and every process sees that."""
        report = self.reconcile().result
        mended = (report.released, report.settled, report.adopted) if isinstance(report, Report) else None
        self.promises.keep(3, mended == (0, 0, 0), f"a second reconcile mended {report}")
        there = self._store.changes(None).documents
        self.promises.keep(
            3, there == self.kept.documents, f"the store has {there}, it took {self.kept.documents}"
        )
        for view in (process.ledger.view() for process in self._idle):
            free = {(pool, name): share for pool, found in view.free.items() for name, share in found.items()}
            claims = {claim.uid: [claim] for claim in view.claims()}
            held = {uid: found[:1] for uid, found in self.kept.claims().items()}
            same = free == self.kept.shares and claims == held
            self.promises.keep(
                3, same, f"a process sees {free}, {claims}, the store took {self.kept.shares}, {held}"
            )

    # Every call that a verb makes comes by here

    def at_store(self, what: str, call: Callable[[], T]) -> T:
        if self._call is None:
            return call()
        self._call.at(f"before {what}", self._lost_by_store)
        result = call()
        self._call.at(f"after {what}", self._lost_by_store)
        return result

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
        notes = body["status"].get("conditions", ()) if method == "PATCH" else ()  # of pods; a Pool has none
        if any(note["reason"] == "Woken" for note in notes):
            self.promises.woke(self._call, body["metadata"]["uid"])
        self._call.at(f"after {method}", self._lost_by_api)
        self._call.heard |= landed
        return answer

    def _lost_by_api(self) -> BaseException:
        assert self._call is not None
        self._call.lost_by_api += 1
        self._call.lost_since_landing += 1
        return lost()


class _Watched:
    """The store as the processes have it: each call may be stopped, and what it took is told."""

    def __init__(self, store: Store, world: World) -> None:
        self._store, self._world = store, world

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        return self._world.at_store("read", lambda: self._store.read(keys))

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        def commit() -> bool:
            done = self._store.commit(writes, expected)
            if done:
                self._world.committed(writes)
            return done

        return self._world.at_store("commit", commit)

    def changes(self, since: Cursor | None) -> Changes:
        return self._world.at_store("changes", lambda: self._store.changes(since))

    def batches(self, keys: Collection[str]) -> Any:
        return self._store.batches(keys)

    def close(self) -> None:
        self._store.close()
