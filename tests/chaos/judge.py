"""What must hold after each fault: one reconcile later ledger = pods, all that fits is bound, and at no
moment did a node's pods hold more than there is (the API server's own watch tells).
"""

import time
from collections import Counter
from typing import Any, NamedTuple

from berth.controller.settle import BIND_SECONDS
from tests.chaos.background import PATIENCE
from tests.chaos.churn import Churn
from tests.chaos.world import World
from tests.e2e.harness import MENDED
from tests.e2e.invariant import difference, more_than_there_is
from tests.support.cluster import UNDERLAY_IP, Object, is_finished, wait
from tests.support.podwatch import Gap, PodWatch


class Recovered(NamedTuple):
    """`mended` claims and capacities by the one reconcile, `rebuilt`: the ledger was; `seconds` from the
    fault's end until the last pod was bound."""

    mended: int
    rebuilt: bool
    seconds: float


def recover(world: World, seen: PodWatch) -> Recovered:
    """The fault has ended, pods come and go no more. Raises AssertionError for whatever does not hold."""
    ended = time.monotonic()
    wait(lambda: world.berth.ready() >= world.everything, PATIENCE, "every process answers again")
    wait(lambda: _aged(world), PATIENCE, "no reservation is younger than bind's deadline", every=0.1)
    reconciled = time.time()
    report = world.berth.reconcile()
    world.wait_held(seen, world.units, "one reconcile after the fault")
    if world.evicting is not None:
        world.evicting.check()
    _check_ledger(world, reconciled)
    seen.settle()
    _check_pods(world, seen)
    mended = sum(int(report[key]) for key in ("released", "settled", "adopted", "capacities"))
    return Recovered(mended, report["rebuilt"], max(0.0, max(seen.bound_at.values()) - ended))


def _aged(world: World) -> bool:
    """Only a reservation younger than bind's deadline may wait for the next reconcile (promise 3)."""
    now = time.time()
    claims = world.berth.ledger().claims()
    return all(claim.state == "bound" or now - claim.since > BIND_SECONDS for claim in claims)


def _check_ledger(world: World, reconciled: float) -> None:
    wait(lambda: _agreed(world, reconciled), PATIENCE, "the ledger equals the pods")
    if _differing(world):
        world.berth.reconcile()
    reconciled = time.time()
    again = world.berth.reconcile()
    assert not any(again[key] for key in MENDED), f"there was more to mend: {again}"
    # The line goes on: one of its pods may be being bound while the two are compared.
    wait(lambda: _agreed(world, reconciled), PATIENCE, "the ledger equals the pods after a second reconcile")
    over = more_than_there_is(world.berth.ledger())
    assert not over, f"more given than there is: {over}"


def _agreed(world: World, reconciled: float) -> bool:
    """But for claims that could not be confirmed by binds that came after the reconcile: a machine that is
    very busy makes such faults of its own, and they are the next reconcile's."""
    differing = _differing(world)
    claims = {claim.uid: claim for claim in world.berth.ledger().claims()}
    old = {
        uid: pair
        for uid, pair in differing.items()
        if uid not in claims or claims[uid].state == "bound" or claims[uid].since < reconciled
    }
    return not old and (not differing or _aged(world))


def _differing(world: World) -> Object:
    return difference(world.berth.ledger(), world.cluster.list_pods(None))


def _check_pods(world: World, seen: PodWatch) -> None:
    units = world.form.units
    assert world.cluster.per_node() == dict.fromkeys(world.nodes, units)
    for gap in seen.gaps:
        look_into(world, gap)
    over = {node: peak for node, peak in seen.peak.items() if peak > units or node not in world.nodes}
    assert not over, f"more than {units} units held at some moment: {over}"


def check_binds(world: World, seen: PodWatch, churn: Churn) -> None:
    """Each pod that was seen bound holds a unit now, or was replaced; and the other way round, but for those
    that came and went where the watch did not see them."""
    there = {name for name in world.cluster.bound() if churn.has(name)}
    bound = {name for name in seen.bound_at if churn.has(name)}
    assert bound <= there | churn.replaced, f"bound, and gone: {bound - there - churn.replaced}"
    unseen = (there | churn.replaced) - bound
    assert not unseen or seen.gaps, f"never seen to be bound: {unseen}"
    assert there <= bound, f"bound now, and never seen to be: {there - bound}"


def look_into(world: World, gap: Gap) -> None:
    """What the watch missed while the API server was away, list by list: etcd still has every revision."""
    for version in range(int(gap.since), int(gap.until) + 1):
        query = f"resourceVersion={version}&resourceVersionMatch=Exact"
        held = Counter(_held(world.cluster.get(f"/api/v1/pods?{query}")["items"]))
        over = {node: units for node, units in held.items() if units > world.form.units}
        assert not over, f"more than {world.form.units} units held at revision {version}: {over}"


def _held(pods: list[Any]) -> Counter[str]:
    held: Counter[str] = Counter()
    for pod in pods:
        if (node := pod["spec"].get("nodeName")) and not is_finished(pod):
            limits = (each["resources"].get("limits", {}) for each in pod["spec"]["containers"])
            held[node] += sum(int(each.get(UNDERLAY_IP, 0)) for each in limits)
    return held
