"""`berth doctor` beside a real kube-scheduler: no false finding while pods come and go, and planted damage is
found and repaired. Each kind, on each store: tests/handlers/test_doctor.py."""

import json
import threading
from contextlib import closing

import pytest

from berth.ledger.keys import domain_key
from berth.stores import open_store
from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool, settled
from tests.support.builders.damage import GARBAGE, claims, write
from tests.support.cluster import Object


@pytest.mark.nightly
def test_a_busy_cluster_has_no_finding_and_damage_in_it_is_found_and_repaired(system_of: Systems) -> None:
    system = system_of(nodes=3, pools=[pool(units=4)])
    system.cluster.create_pods("stays")
    system.cluster.wait_bound("stays")
    over = threading.Event()
    busy = threading.Thread(target=_come_and_go, args=(system, over))
    busy.start()
    try:
        for _ in range(2):
            assert _doctor(system) == (0, [])
    finally:
        over.set()
        busy.join()
    settled(system)
    system.berth.stop()  # its reconcile, once a minute, would repair the damage before doctor looks
    (stays,) = [claim for claim in system.berth.ledger().claims() if claim.name == "stays"]
    with closing(open_store(system.berth.store)) as store:
        claims(store, "underlay-ip", stays.node, lambda claim: None if claim.name == "stays" else claim)
    assert _doctor(system) == (1, ["unclaimed"])
    assert _doctor(system, "--fix") == (0, [])
    with closing(open_store(system.berth.store)) as store:
        write(store, domain_key("underlay-ip", stays.node), GARBAGE)
    assert _doctor(system) == (1, ["unreadable"])
    assert _doctor(system, "--fix") == (0, [])
    settled(system)


def _come_and_go(system: System, over: threading.Event) -> None:
    number = 0
    while not over.is_set():
        names = [f"busy-{number}-{one}" for one in range(4)]
        system.cluster.create_pods(*names)
        for name in names:
            system.cluster.wait_bound(name)
        for name in names:
            system.cluster.delete_pod(name)
        number += 1
    assert number


def _doctor(system: System, *options: str) -> tuple[int, list[str]]:
    """Its exit code, and the kinds of what differs."""
    source = ["-f", str(system.berth.pools_file), "--store", system.berth.store]
    done = system.berth.run("doctor", *source, "-o", "json", *options)
    assert done.stdout, done.stderr
    report: Object = json.loads(done.stdout)
    return done.returncode, [one["kind"] for one in report["findings"]]
