"""Each alert fires when its cause is there, on a real Prometheus that scrapes a real `berth up`, and none
while pods come and go without a fault; the board's queries return data. Time runs 30 times as fast
(watched.py)."""

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from berth.stores import open_store
from berth.stores.base import EPOCH
from tests.e2e.conftest import Systems
from tests.e2e.harness import pool
from tests.e2e.test_licences import licence_server
from tests.e2e.watched import Watched, watched
from tests.monitoring.board import queries
from tests.support.cluster import Object, wait
from tests.support.servers.redisserver import RedisServer

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("promtool_installed")]
FACTOR = 30.0
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+")
QUIET_MINUTES = float(os.environ.get("BERTH_TEST_QUIET_MINUTES", "0"))
"""So long the quiet part takes with nothing scaled; 0: two minutes, which stand for an hour."""


def of_cluster(name: str, units: int, **spec: Any) -> Object:
    return pool(name, units, scope="Cluster", **spec)


def resource(name: str) -> str:
    return f"berth.dev/{name}"


@contextmanager
def in_background(step: Callable[[], object], every: float) -> Iterator[None]:
    """Do it again and again until the block ends; an error of it fails the block."""
    ended, errors = threading.Event(), list[BaseException]()

    def run() -> None:
        while not ended.is_set() and not errors:
            try:
                step()
            except BaseException as error:  # noqa: BLE001 - it is raised where the test sees it
                errors.append(error)
            ended.wait(every)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)
        assert not errors, errors  # also where the block failed, perhaps because of them


def churn(world: Watched, name: str) -> Callable[[], None]:
    """A step that makes one pod and, once it is bound, takes the oldest of the eight away."""
    there: list[str] = []

    def step() -> None:
        there.extend(world.create("churn", 1, resource(name)))
        if len(there) > 8:
            world.system.cluster.wait_bound(there[0])
            world.system.cluster.delete_pod(there.pop(0))

    return step


@pytest.mark.nightly
def test_alerts_on_pools_fire_and_the_board_has_data(system_of: Systems, tmp_path: Path) -> None:
    before = [of_cluster("full", 1), of_cluster("idle", 5), of_cluster("cut", 2), of_cluster("line", 16)]
    before.append(of_cluster("unread", 1, externalFrom={"feature": "F"}))
    with ExitStack() as stack:
        server, url = stack.enter_context(licence_server())
        server.hosts = {"desk": 1}
        source = {"feature": "F", "url": url, "format": "json", "everySeconds": 1}
        before.append(of_cluster("read", 3, externalFrom=source))
        world = stack.enter_context(watched(system_of, tmp_path, FACTOR, before))
        cluster = world.system.cluster
        cluster.wait_bound(
            *world.create("holder", 1, resource("full")), *world.create("cut", 2, resource("cut"))
        )
        line = world.create("line", 16, resource("line"))
        cluster.wait_bound(*line)
        assert world.ever_fired() == set()
        changed = [before[0], of_cluster("idle", 5, suspended=True), of_cluster("cut", 1), *before[3:]]
        world.system.berth.write_pools(changed)
        world.system.berth.reconcile()
        world.create("waiter", 2, resource("full"))
        world.create("waiter", 1, resource("idle"))
        world.fires("BerthPoolOverCommitted", "BerthPoolSuspended", "BerthPoolExhausted")
        wake_while_the_scheduler_stands_still(world, line)
        world.fires("BerthWakesLate")
        world.system.berth.post("filter", b"rubbish")
        wait(lambda: not board_without_data(world), 60, "each query of the board returns data")
        world.system.berth.pools_file.write_text("kind: Pool\n")
        world.fires("BerthReconcileFindsProblems")


def wake_while_the_scheduler_stands_still(world: Watched, holders: list[str]) -> None:
    """Delete the holders: as many waiters are woken, and bound two seconds after their last wake. Reconcile
    would wake them again meanwhile."""
    cluster = world.system.cluster
    waiters = world.create("late", len(holders), resource("line"))
    for name in waiters:
        world.system.refusal_of(name)
    scheduler = world.system.plane.components[0].process
    assert scheduler is not None
    scheduler.send_signal(signal.SIGSTOP)
    world.paused.set()
    try:
        for name in holders:
            cluster.delete_pod(name)
        wait(lambda: held_by(world, holders) == 0, 60, "all holders' units are free")
        wait(
            lambda: time.time() - last_wake(world, waiters) > 2,
            60,
            "two seconds after the last wake",
            every=0.2,
        )
    finally:
        scheduler.send_signal(signal.SIGCONT)
        world.paused.clear()
    cluster.wait_bound(*waiters)


def held_by(world: Watched, names: list[str]) -> int:
    return sum(name in names for name, _, _ in world.system.berth.claims())


def last_wake(world: Watched, names: list[str]) -> float:
    """When the one of them was woken that was woken last."""
    conditions = (world.system.cluster.condition(name, "berth.dev/Waiting") for name in names)
    told = [_TIME.search(condition["message"]) for condition in conditions if condition]
    return max(datetime.fromisoformat(f"{match[0]}+00:00").timestamp() for match in told if match)


def board_without_data(world: Watched) -> list[str]:
    """The panels whose queries return nothing, asked as Grafana does: of a moment, or of two minutes."""
    return [
        f"{query.panel}: {query.expression}"
        for query in queries("20s")
        if not (
            world.prometheus.query(query.expression)
            if query.instant
            else world.prometheus.points(query.expression, 120, 1)
        )
    ]


@pytest.mark.nightly
def test_alerts_on_reconcile_fire(system_of: Systems, tmp_path: Path) -> None:
    with watched(system_of, tmp_path, FACTOR, [of_cluster("seat", 20)]) as world:
        deaf = world.fault("deaf")
        with in_background(churn(world, "seat"), 0.5):
            world.fires("BerthLedgerDrift")
        deaf.unlink()
        assert world.ever_fired() == {"BerthLedgerDrift"}
        world.fault("broken")
        with closing(open_store(world.system.berth.store)) as store:
            epoch = store.read([EPOCH])[EPOCH]
            assert store.commit({EPOCH: None}, {EPOCH: epoch.version})
        world.fires("BerthLedgerClosed", "BerthReconcileLate")


@pytest.mark.nightly
def test_the_alert_on_reconcile_fires_where_no_tick_comes_and_ends_with_the_next(
    system_of: Systems, tmp_path: Path
) -> None:
    """As with a PingSource that is broken, or a relay that can't have its Lease: reconcile itself is well."""
    with watched(system_of, tmp_path, FACTOR, [of_cluster("seat", 2)]) as world:
        world.fault("no-tick")
        world.paused.set()
        world.fires("BerthReconcileLate")
        assert world.ever_fired() == {"BerthReconcileLate"}
        assert world.system.berth.post("reconcile", {}).status == 200
        wait(lambda: not world.prometheus.firing(), 60, "the alert ends", every=0.2)


@pytest.mark.nightly
def test_alerts_on_calls_and_the_store_fire(
    system_of: Systems, tmp_path: Path, own_redis: RedisServer
) -> None:
    store = f"{own_redis.url}/0"
    with watched(system_of, tmp_path, FACTOR, [of_cluster("seat", 20)], store=store) as world:
        crowded = world.fault("crowded")
        with in_background(churn(world, "seat"), 0.2):
            world.fires("BerthStoreConflictsHigh")
            crowded.unlink()
            slow = world.fault("slow")
            world.fires("BerthCallsSlow")
            slow.unlink()
        with in_background(lambda: ask(world), 0.2):
            own_redis.stop()
            world.fires("BerthCallsFail")


def ask(world: Watched) -> None:
    """A call of filter, whatever it is answered."""
    document = {"metadata": {"name": "a", "namespace": "default", "uid": "u"}, "spec": {"containers": []}}
    world.system.berth.post("filter", {"Pod": document, "NodeNames": ["node-1"]})


@pytest.mark.nightly
def test_alerts_on_what_is_not_scraped_fire(system_of: Systems, tmp_path: Path) -> None:
    with watched(system_of, tmp_path, FACTOR, [of_cluster("seat", 2)]) as world:
        os.killpg(world.system.berth.pids["preempt"], signal.SIGSTOP)
        world.fires("BerthFunctionDown")
        os.killpg(world.system.berth.pids["preempt"], signal.SIGCONT)
        assert world.ever_fired() == {"BerthFunctionDown"}
        (job,) = world.prometheus.config["scrape_configs"]
        kept = [target for target in job["static_configs"] if target["labels"]["service"] != "bind"]
        world.prometheus.reload(
            {**world.prometheus.config, "scrape_configs": [{**job, "static_configs": kept}]}
        )
        world.fires("BerthNotScraped")


@pytest.mark.nightly
def test_no_alert_fires_while_pods_come_and_go(system_of: Systems, tmp_path: Path) -> None:
    """Eight pods share eight seats with those that come, so some wait, and all are bound in the end."""
    factor = FACTOR if not QUIET_MINUTES else 1.0
    seconds = 60 * 60 / FACTOR if not QUIET_MINUTES else 60 * QUIET_MINUTES
    with watched(system_of, tmp_path, factor, [of_cluster("seat", 12)], nodes=3) as world:
        with in_background(churn(world, "seat"), 0.5):
            end = time.monotonic() + seconds
            wait(
                lambda: world.prometheus.firing() or time.monotonic() > end,
                seconds + 60,
                "the end of the hour",
            )
            assert world.prometheus.firing() == set()
        assert world.ever_fired() == set()
        released = world.prometheus.query('sum(berth_changes_total{change="released"})')
        assert sum(number for _, number in released) > seconds / 10
