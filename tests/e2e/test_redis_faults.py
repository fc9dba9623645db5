"""Redis emptied, restarted, away or silent in mid-burst: no unit is given twice, and all that fits is bound.

A lost ledger is rebuilt at the next tick of the clock, a minute later at most; to be quicker these tests call
the reconcile function themselves, as an operator would. Fail-overs to a replica are not shown here.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.bursts import PATIENCE, creating, in_the_end, names, tell, wait_held
from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool
from tests.support.cluster import Cluster, wait
from tests.support.redisserver import RedisServer

NODES, UNITS, PODS = 20, 5, 120
LATE = 12  # made during the fault: there are pods that meet it, however fast the burst was
BOUND_BEFORE = 30
AWAY_SECONDS = 10.0


@dataclass(frozen=True)
class Fault:
    """`away` says how pods' events tell of it while it lasts; empty for what is over at once."""

    strike: Callable[[RedisServer], None]
    mend: Callable[[RedisServer], None] = lambda _: None
    away: str = ""
    aof: bool = False


FAULTS = {
    "emptied": Fault(RedisServer.flush),
    "restarted without persistence": Fault(RedisServer.restart),
    "away for 10 s, its data on disk": Fault(
        RedisServer.stop, RedisServer.start, "connection refused", aof=True
    ),
    "silent for 10 s": Fault(RedisServer.pause, RedisServer.resume, "no answer within"),
}


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest) -> Fault:
    return FAULTS[request.param]


@pytest.fixture
def server(redis_installed: None, fault: Fault, tmp_path: Path) -> Iterator[RedisServer]:  # noqa: ARG001
    with RedisServer(tmp_path / "redis", aof=fault.aof) as started:
        yield started


def told(cluster: Cluster, what: str) -> str:
    """The message of an event about some pod that tells of the store."""
    events = cluster.get("/api/v1/namespaces/default/events")["items"]
    messages = (event.get("message") or "" for event in events)
    return next((said for said in messages if "ledger in Redis" in said and what in said), "")


def suffer(system: System, server: RedisServer, fault: Fault) -> str:
    """The fault from its beginning to its end; what an event said of it."""
    began = time.monotonic()
    fault.strike(server)
    system.cluster.create_pods(*names(LATE, "late"))
    if not fault.away:
        return ""
    try:
        said = wait(
            lambda: told(system.cluster, fault.away), PATIENCE, f"an event says {fault.away!r}", every=0.2
        )
        time.sleep(max(0.0, began + AWAY_SECONDS - time.monotonic()))  # so long is it away at least
    finally:
        fault.mend(server)
    assert f"127.0.0.1:{server.port}" in said
    return said


def test_a_fault_of_redis_in_mid_burst_gives_no_unit_twice_and_leaves_none_idle(
    system_of: Systems, server: RedisServer, fault: Fault, capsys: pytest.CaptureFixture[str]
) -> None:
    system = system_of(NODES, pools=[pool(units=UNITS)], store=f"{server.url}/0")
    with system.cluster.watch_pods() as seen:
        with creating(system.cluster, PODS):
            wait_held(seen, BOUND_BEFORE, "before the fault")
            struck, before = time.monotonic(), seen.total
            said = suffer(system, server, fault)
            mended = time.monotonic()
        # A reconcile may find that another, by the clock's tick, is at it; then it answers 503.
        wait(lambda: system.berth.post("reconcile", {}).status == 200, PATIENCE, "a reconcile", every=0.5)
        in_the_end(system, seen, NODES, UNITS)
    last = max(seen.bound_at.values())
    tell(
        capsys,
        f"{before} of {NODES * UNITS} pods bound before it; {mended - struck:.1f} s long; the last pod bound "
        f"{last - mended:.1f} s after it; events said: {said or '-'}",
    )
