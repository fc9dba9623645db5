"""Pools of all kinds that are built, changed while pods run: from a file, from nodes, from the cluster.

What a wrong Pool document is told is tested in tests/unit.
"""

import time
from collections.abc import Sequence

import pytest

from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool, settled
from tests.support.builders.manifests import serve_pools
from tests.support.cluster import UNDERLAY_IP, Object, wait
from tests.support.kubernetes import AT_ONCE

pytestmark = pytest.mark.long

LICENCE = "berth.dev/licence"
SEATS = "example.com/seats"
SOON = 30.0  # on a busy machine; after a minute the next tick would do it, and hide an event that does not
POOLS = "/apis/berth.dev/v1alpha1/pools"


def test_a_pod_of_several_pools_gets_all_of_them_or_none(system_of: Systems) -> None:
    licences = pool("licence", {"perDomain": 1, "domains": {"node-1": 4, "node-3": 0}})
    system = system_of(3, pools=[pool(units=2), licences])
    cluster = system.cluster
    cluster.create_pod("four", {LICENCE: 4})
    assert cluster.wait_bound("four") == {"four": "node-1"}
    cluster.create_pod("both", {LICENCE: 1, UNDERLAY_IP: 2})
    assert cluster.wait_bound("both") == {"both": "node-2"}
    # node-1 has addresses and no licence left, node-2 neither, node-3 never had a licence.
    cluster.create_pod("waiter", {LICENCE: 1, UNDERLAY_IP: 1})
    said = system.refusal_of("waiter")
    assert "1 licence: 0 of 0 free, 1 asked" in said
    assert "1 licence: 0 of 4 free, 1 asked" in said
    assert "1 licence: 0 of 1 free, 1 asked; underlay-ip: 0 of 2 free, 1 asked" in said
    settled(system)
    assert system.berth.claims("node-1") == [("four", "licence", 4)]
    assert system.berth.claims("node-3") == []
    cluster.delete_pod("four")
    assert cluster.wait_bound("waiter", seconds=SOON) == {"waiter": "node-1"}
    settled(system)
    assert system.berth.claims("node-1") == [("waiter", "licence", 1), ("waiter", "underlay-ip", 1)]


def test_capacity_lowered_below_use_takes_nothing_and_gives_nothing(system_of: Systems) -> None:
    system = system_of(1, pools=[pool(units=3)])
    cluster, berth = system.cluster, system.berth
    for number in range(3):
        cluster.create_pod(f"holder-{number}")
    cluster.wait_bound()
    berth.write_pools([pool(units=1)])
    wait(lambda: _free(system) == (0, 1), SOON, "the lower capacity, and 0 free")
    cluster.delete_pod("holder-0")
    wait(lambda: len(berth.claims()) == 2, SOON, "the deleted pod's claim gone")
    cluster.create_pod("waiter")
    said = system.refusal_of("waiter")
    assert "underlay-ip: 0 of 1 free, 1 asked" in said
    settled(system, overcommitted=True)
    assert _free(system) == (0, 1)
    assert set(cluster.bound()) == {"holder-1", "holder-2"}
    # A typo changes nothing, and is said.
    berth.write_pools([pool(units=1, scoer="Pack")])
    assert any("scoer" in problem for problem in berth.reconcile()["problems"])
    assert _free(system) == (0, 1)
    berth.write_pools([pool(units=3)])
    cluster.wait_bound("waiter", seconds=SOON)
    settled(system)
    assert _free(system) == (0, 3)


def test_a_pool_renamed_in_its_file_while_it_is_full_gives_nothing_more(system_of: Systems) -> None:
    """Four pods wait when the file changes, which no event tells of."""
    system = system_of(2, pools=[pool("old", 2, resource=SEATS)])
    cluster, berth = system.cluster, system.berth
    with cluster.watch_pods(SEATS) as seen:
        for number in range(4):
            cluster.create_pod(f"holder-{number}", {SEATS: 1})
        cluster.wait_bound()
        for number in range(4):
            cluster.create_pod(f"waiter-{number}", {SEATS: 1})
        assert "old: 0 of 2 free, 1 asked" in system.refusal_of("waiter-3")
        berth.write_pools([pool("new", 2, resource=SEATS)])
        wait(lambda: set(berth.ledger().free.get("new", {})) == {"node-1", "node-2"}, SOON, "the new Pool")
        settled(system)
        assert _free(system, "new") == (0, 2)
        cluster.delete_pod("holder-0")
        wait(lambda: len(cluster.bound()) == 4, SOON, "one waiter bound")
        settled(system)
    assert seen.peak == {"node-1": 2, "node-2": 2}
    assert sum(name == "new" for _, name, _ in berth.claims()) == 4


def _free(system: System, name: str = "underlay-ip") -> tuple[int, int]:
    return system.berth.ledger().free[name]["node-1"]


@pytest.mark.alone
def test_an_annotation_changed_on_a_node_changes_its_capacity_and_wakes_the_waiter(
    system_of: Systems,
) -> None:
    system = system_of(
        {"node-1": {"annotations": {SEATS: "1"}}}, pools=[pool("licence", {"nodeAnnotation": SEATS})]
    )
    cluster = system.cluster
    cluster.create_pod("first", {LICENCE: 1})
    cluster.wait_bound("first")
    cluster.create_pod("second", {LICENCE: 1})
    system.refusal_of("second")
    with cluster.watch_pods(LICENCE) as seen:
        cluster.patch("/api/v1/nodes/node-1", {"metadata": {"annotations": {SEATS: "2"}}})
        changed = time.monotonic()
        cluster.wait_bound("second", seconds=20)
    assert seen.bound_at["second"] - changed < AT_ONCE
    cluster.patch("/api/v1/nodes/node-1", {"metadata": {"annotations": {SEATS: "many"}}})
    wait(lambda: _free(system, "licence") == (0, 0), SOON, "no capacity for a word that is no number")
    assert any("'many'" in problem for problem in system.berth.reconcile()["problems"])
    cluster.patch("/api/v1/nodes/node-1", {"metadata": {"annotations": {SEATS: "2"}}})
    wait(lambda: _free(system, "licence") == (0, 2), SOON, "the capacity of before")
    settled(system)


@pytest.mark.alone
def test_pools_from_the_cluster_are_applied_used_and_taken_over_when_they_change(system_of: Systems) -> None:
    system = system_of(1, start_berth=False, pools=None)
    cluster, berth = system.cluster, system.berth
    told = berth.reconcile()["problems"]
    assert told == ["no Pools: set BERTH_POOLS to a file of them, or install the Pool CRD in the cluster"]
    serve_pools(cluster)
    _apply(system, [pool(units=1), pool("licence", 1)])
    assert {item["metadata"]["name"] for item in cluster.get(POOLS)["items"]} == {"underlay-ip", "licence"}
    berth.start()
    system.start_scheduler()
    cluster.create_pod("first", {UNDERLAY_IP: 1, LICENCE: 1})
    cluster.wait_bound("first")
    cluster.create_pod("second")
    system.refusal_of("second")

    with cluster.watch_pods() as seen:
        _apply(system, [pool(units=2)])
        applied = time.monotonic()
        cluster.wait_bound("second", seconds=5)
    assert seen.bound_at["second"] - applied < 2
    assert {item["metadata"]["name"] for item in cluster.get(POOLS)["items"]} == {"underlay-ip", "licence"}
    cluster.call("DELETE", f"{POOLS}/licence")
    wait(lambda: set(berth.ledger().pools) == {"underlay-ip"}, SOON, "the deleted Pool gone from the ledger")
    settled(system)
    assert {"first", "second"} == {pod for pod, name, _ in berth.claims() if name == "underlay-ip"}
    # Put back, it is not given again to another while the first pod runs.
    _apply(system, [pool("licence", 1)])
    wait(lambda: "node-1" in berth.ledger().free.get("licence", {}), SOON, "the Pool's capacity")
    cluster.create_pod("third", {LICENCE: 1})
    assert "licence: 0 of 1 free, 1 asked" in system.refusal_of("third")
    settled(system)
    # All of a file or nothing: a wrong one writes nothing.
    berth.write_pools([pool(units=7), pool("seats", 1, topologyKey="rack")])
    wrong = berth.run("apply", "-f", str(berth.pools_file))
    assert wrong.returncode == 1
    assert "Pool seats: spec.topologyKey goes with scope Topology only" in wrong.stderr
    assert berth.ledger().pools["underlay-ip"].capacity_of("node-1") == 2


def test_a_pool_that_comes_after_pods_that_use_it_counts_them_first(system_of: Systems) -> None:
    system = system_of(1, start_berth=False, pools=None)
    cluster, berth = system.cluster, system.berth
    serve_pools(cluster)
    berth.start()
    system.start_scheduler()
    cluster.create_pod("runs", {LICENCE: 1}, node_name="node-1")
    cluster.create_pod("waiter", {LICENCE: 1})
    said = system.refusal_of("waiter")
    assert "no Pool has this resource; there are: none yet" in said
    with cluster.watch_pods(LICENCE) as seen:
        _apply(system, [pool("licence", 1)])
        wait(lambda: "licence" in berth.ledger().free, SOON, "the Pool's capacity")
        cluster.create_pod("next", {LICENCE: 1})
        system.refusal_of("next")
        settled(system)
    assert seen.peak["node-1"] == 1
    assert berth.claims() == [("runs", "licence", 1)]


def _apply(system: System, documents: Sequence[Object]) -> None:
    system.berth.write_pools(documents)
    done = system.berth.run("apply", "-f", str(system.berth.pools_file))
    assert done.returncode == 0, done.stderr
    assert "applied to the cluster" in done.stdout
