"""Promise 8 on the real kube-scheduler: the ledger can be thrown away, also under load.
The API server's watch is the judge: at no moment do a node's pods hold more than there is.
"""

import random
import threading
from collections.abc import Iterator
from itertools import count
from typing import Self

import pytest

from tests.controlplane.lent import Planes
from tests.e2e.faults.checks import HOLD_SECONDS
from tests.e2e.faults.fault_world import Background, World, world_of
from tests.e2e.faults.webhooks import STUCK, webhook_down
from tests.e2e.harness import event, pool, settled
from tests.support.cluster import ApiError, Object, wait
from tests.support.fakes.proxy import Fault, Rule, held, wait_reached

NODES = [f"node-{number}" for number in range(1, 6)]
UNITS = 4
PODS = 100
KEPT = 10
PACE_SECONDS = 0.02  # so that binds, deletions and the loss overlap
SLOW_SECONDS = 0.2  # once there are PODS: each that waits makes the next rebuild longer
BINDING = r"/pods/pod/binding$"


@pytest.fixture(scope="module")
def shared(planes: Planes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("lost")
    pools = [pool(units=UNITS), pool("licence", 2, scope="Cluster")]
    with world_of(planes, folder, {name: {} for name in NODES}, UNITS, pools) as world:
        yield world


@pytest.fixture
def world(shared: World) -> Iterator[World]:
    with shared.fresh():
        yield shared


def lose(world: World, what: str = "ledger.db") -> None:
    """The path is a link to a file beside it, which has a -wal and a -shm."""
    for each in sorted(world.berth.folder.glob(what)):
        if each.suffix != ".lock":
            each.unlink(missing_ok=True)


def offered(world: World, pod: Object) -> Object:
    """What filter answers for this pod and all nodes."""
    answer: Object = world.berth.post("filter", {"Pod": pod, "Nodes": None, "NodeNames": NODES}).body
    return answer


class Churn(threading.Thread):
    """Creates pods and deletes bound ones: PODS of them, and more until `stop`; `half` is set midway."""

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        self._world, self._random = world, random.Random(3)
        self.half, self.stop, self._pace = threading.Event(), threading.Event(), threading.Event()
        self.failed: ApiError | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.join(60)

    def run(self) -> None:
        try:
            for number in count():
                if number >= PODS and self.stop.is_set():
                    return
                self._world.cluster.create_pod(f"pod-{number:03}")
                self._pace.wait(PACE_SECONDS if number < PODS else SLOW_SECONDS)
                if number % 4 == 3:
                    self._delete_some()
                if number == PODS // 2:
                    self.half.set()
        except ApiError as error:
            self.failed = error
        finally:
            self.half.set()

    def _delete_some(self) -> None:
        bound = sorted(self._world.cluster.bound())[KEPT:]  # some live through the loss, to be adopted
        for name in self._random.sample(bound, min(2, len(bound))):
            self._world.cluster.delete_pod(name)


@pytest.mark.parametrize(  # ledger.db alone: tests/chaos
    "what", [pytest.param("ledger.db.life-*", marks=pytest.mark.nightly), "ledger.db*"]
)
@pytest.mark.long
def test_a_ledger_deleted_under_load_is_rebuilt_and_no_unit_is_given_twice(world: World, what: str) -> None:
    with world.cluster.watch_pods() as seen, world.scheduling(), Churn(world) as churn:
        churn.stop.set()
        assert churn.half.wait(60)
        lose(world, what)
        probe = {"metadata": {"name": "probe", "uid": "of-probe"}, "spec": pod_spec(world)}
        assert "is being rebuilt" in offered(world, probe)["Error"]
        wait(lambda: not churn.is_alive(), 60, "all pods are created")
        wait(lambda: not world.binding(), 60, "the binds end that began before the loss")
        running = len(world.cluster.bound())
        report = world.berth.reconcile()
        assert (report["rebuilt"], report["adopted"]) == (True, running)
        assert running >= KEPT
        wait(lambda: sum(world.cluster.per_node().values()) == len(NODES) * UNITS, 60, "all units are used")
        settled(world)
    assert churn.failed is None
    assert world.cluster.per_node() == dict.fromkeys(NODES, UNITS)
    assert set(seen.peak) <= set(NODES)
    assert max(seen.peak.values()) <= UNITS, seen.peak


def pod_spec(world: World) -> Object:
    pods = world.cluster.list_pods()
    spec: Object = pods[0]["spec"]
    return {**spec, "nodeName": ""}


@pytest.mark.long
def test_a_ledger_deleted_again_and_again_under_load_gives_no_unit_twice(world: World) -> None:
    losses = 0
    with world.cluster.watch_pods() as seen, world.scheduling(), Churn(world) as churn:
        while churn.is_alive():
            lose(world)
            rebuild(world)
            losses += 1
            if losses > 3:
                churn.stop.set()
        wait(lambda: sum(world.cluster.per_node().values()) == len(NODES) * UNITS, 60, "all units are used")
        settled(world)
    assert churn.failed is None
    assert losses > 3
    assert max(seen.peak.values()) <= UNITS, seen.peak


def rebuild(world: World) -> None:
    """A reconcile may find that the ledger was lost under its hands; then it answers 503, and is retried."""
    wait(lambda: world.berth.post("reconcile", {}).status == 200, 60, "a reconcile goes through")
    assert world.berth.ledger().open


# A bind caught between its reservation and its Binding


def rivals(world: World) -> tuple[list[Object], dict[str, str]]:
    """Pods that take all of node-1 but one unit."""
    pods = [world.cluster.create_pod(f"first-{number}") for number in range(UNITS - 1)]
    return pods, {pod["metadata"]["name"]: world.bind(pod, NODES[0]) for pod in pods}


def lost_under_a_binding(world: World, pod: Object) -> tuple[Rule, Background]:
    """Lose the ledger and rebuild it while the pod's Binding to node-1 is held on its way."""
    rule = world.proxy.on("POST", BINDING, held(HOLD_SECONDS), times=1)
    call = Background(lambda: world.bind(pod, NODES[0]))
    wait_reached(rule)
    lose(world)
    rebuild(world)
    return rule, call


def test_a_binding_on_its_way_while_the_ledger_is_lost_cannot_land_after_the_rebuild(world: World) -> None:
    _, errors = rivals(world)
    assert set(errors.values()) == {""}
    pod, rival = world.cluster.create_pod("pod"), world.cluster.create_pod("rival")
    with world.cluster.watch_pods() as seen:
        rule, call = lost_under_a_binding(world, pod)
        assert world.bind(rival, NODES[0]) == ""
        rule.resume.set()
        assert call.result()
        assert rule.done.wait(60)
    assert world.node_of(pod) is None
    assert seen.peak[NODES[0]] == UNITS
    settled(world)


def test_a_binding_of_a_pod_that_can_not_be_fenced_lands_late_and_finds_its_unit_free(world: World) -> None:
    rivals(world)
    pod, rival = world.cluster.create_pod("pod", labels=STUCK), world.cluster.create_pod("rival")
    seated = world.cluster.create_pod("seated", {"berth.dev/licence": 1})
    with world.cluster.watch_pods() as seen, webhook_down(world.cluster, "pod"):
        rule, call = lost_under_a_binding(world, pod)
        assert world.bind(seated, NODES[1]) == ""
        refusal = world.bind(rival, NODES[0])
        assert refusal.startswith("underlay-ip: held back since berth's ledger was lost")
        assert offered(world, rival)["FailedAndUnresolvableNodes"] == dict.fromkeys(NODES, refusal)
        (told,) = world.berth.reconcile()["problems"]
        assert told.startswith(
            "pod default/pod was not fenced, so what it asks for is held back: the API server"
        )
        rule.resume.set()
        wait(lambda: world.node_of(pod), 60, "the Binding lands late")
        call.result()
        world.berth.reconcile()
        assert "0 of 4 free" in world.bind(rival, NODES[0])
        assert world.bind(rival, NODES[1]) == ""
    assert world.claims_of(pod) == [(NODES[0], "bound")]
    assert seen.peak[NODES[0]] == UNITS
    settled(world)


def test_what_a_pod_that_can_not_be_fenced_holds_back_is_given_once_its_webhook_is_mended(
    world: World,
) -> None:
    world.cluster.create_pod("pod", labels=STUCK)
    rival = world.cluster.create_pod("rival")
    with webhook_down(world.cluster, "pod"):
        lose(world)
        rebuild(world)
        assert "held back" in world.bind(rival, NODES[0])
    report = world.berth.reconcile()
    assert (report["problems"], report["woken"]) == ([], 2)
    assert world.bind(rival, NODES[0]) == ""
    settled(world)


def test_a_binding_that_lands_before_the_rebuild_is_adopted_by_it(world: World) -> None:
    rivals(world)
    pod, rival = world.cluster.create_pod("pod"), world.cluster.create_pod("rival")
    with world.cluster.watch_pods() as seen:
        rule = world.proxy.on("POST", BINDING, Fault(after=HOLD_SECONDS), times=1)
        call = Background(lambda: world.bind(pod, NODES[0]))
        wait(lambda: world.node_of(pod), 60, "the Binding is made, its answer on its way")
        lose(world)
        rule.resume.set()
        assert call.result() == ""
        rebuild(world)
        assert "0 of 4 free" in world.bind(rival, NODES[0])
    assert world.claims_of(pod) == [(NODES[0], "bound")]
    assert seen.peak[NODES[0]] == UNITS
    settled(world)


def test_a_bind_caught_before_its_reservation_gets_no_unit_of_a_ledger_that_was_lost(world: World) -> None:
    pod = world.cluster.create_pod("pod")
    rule = world.proxy.on("GET", r"/pods/pod$", held(HOLD_SECONDS), times=1)
    call = Background(lambda: world.bind(pod, NODES[0]))
    wait_reached(rule)
    lose(world)
    rule.resume.set()
    assert "is being rebuilt" in call.result()
    rebuild(world)
    assert world.node_of(pod) is None
    settled(world)


# First install


def test_pods_that_ran_before_berth_are_adopted_and_an_over_committed_node_gives_nothing_new(
    world: World,
) -> None:
    for number in range(UNITS + 2):
        world.cluster.create_pod(f"early-{number}", scheduler="default-scheduler", node_name=NODES[0])
    world.cluster.create_pod("early-ours", node_name=NODES[1])
    finished = world.cluster.create_pod("early-finished", node_name=NODES[1])
    world.cluster.finish_pod(finished["metadata"]["name"])
    lose(world, "ledger.db*")
    report = world.berth.reconcile()
    assert report["rebuilt"]
    assert report["adopted"] == UNITS + 3
    assert world.free() == {NODES[0]: 0, NODES[1]: UNITS - 1, **dict.fromkeys(NODES[2:], UNITS)}
    pod = world.cluster.create_pod("pod")
    assert "0 of 4 free" in world.bind(pod, NODES[0])
    for number in range(2):
        world.cluster.delete_pod(f"early-{number}")
    settled(world)
    assert "0 of 4 free" in world.bind(pod, NODES[0])
    world.cluster.delete_pod("early-2")
    settled(world)
    assert world.bind(pod, NODES[0]) == ""
    settled(world)


def test_a_pool_taken_away_and_put_back_still_counts_the_pods_that_run(world: World) -> None:
    pods = [world.cluster.create_pod(f"pod-{number}") for number in range(UNITS)]
    assert [world.bind(pod, NODES[0]) for pod in pods] == [""] * UNITS
    late = world.cluster.create_pod("late")
    try:
        world.berth.write_pools([pool("other", 1)])
        world.berth.reconcile()
        assert "no Pool has this resource" in world.bind(late, NODES[0])
    finally:
        world.berth.write_pools([pool(units=UNITS)])
    # As the event of a Pool object would, sooner than any reconcile.
    changed = pool(units=UNITS)
    assert world.berth.post("inventory", changed, event("add", changed)).status == 204
    assert "0 of 4 free" in world.bind(late, NODES[0])
    settled(world)
