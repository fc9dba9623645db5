"""The faults, one a row of docs/reliability.md: each strikes in the middle of pods that come and go.

A fault's function returns when it has ended; what must hold then is judge.py's.
"""

import os
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from tests.chaos import store_faults
from tests.chaos.background import PATIENCE
from tests.chaos.churn import Churn, deleted
from tests.chaos.judge import check_binds, recover
from tests.chaos.kills import bind_killed, others_killed
from tests.chaos.world import LATE, World
from tests.support.cluster import wait
from tests.support.podwatch import PodWatch

Suffer = Callable[[World, Churn], str]
"""Returns what there is to say of it, empty for nothing."""


class Outcome(NamedTuple):
    """Pods bound from before the fault until after it, and those of them while it lasted; what the one
    reconcile mended; see Recovered."""

    bound: int
    meanwhile: int
    mended: int
    rebuilt: bool
    seconds: float
    note: str
    lasted: float


def suffer(world: World, fault: str) -> Outcome:
    """The fault and all that must hold after it. Raises AssertionError where something does not."""
    began = time.monotonic()
    with world.cluster.watch_pods() as seen:
        with world.line() as line, world.churn(f"pod-{round(began)}") as churn:
            world.wait_held(seen, world.form.before, "before the fault")
            before, struck = world.berth.ledger().epoch, time.monotonic()
            note = FAULTS[fault](world, churn)
            if fault in KILLS:  # a kill is over in a moment; it lasts until a bind has come through
                wait(lambda: _bound_since(seen, churn, struck), PATIENCE, f"a pod is bound after {fault}")
            ended = time.monotonic()
        recovered = recover(world, seen)
        line.check()
        meanwhile = sum(at <= ended for at in _bound_since(seen, churn, struck))
        check_binds(world, seen, churn)
    assert meanwhile or not binds_during(world, fault), f"no pod was bound during {fault}"
    lost = world.berth.ledger().epoch != before
    assert lost or fault not in (store_faults.EMPTIED, store_faults.FAIL_OVER), (
        f"{fault}, and no ledger was lost"
    )
    if world.evicting:
        note += f", {world.evicting.victims} evicted"
        if world.evicting.lost:
            note += f" ({world.evicting.lost} nominations lost)"
    world.clean_up()
    bound = sum(map(churn.has, seen.bound_at))
    return Outcome(bound, meanwhile, *recovered, note, time.monotonic() - began)


def _bound_since(seen: PodWatch, churn: Churn, then: float) -> list[float]:
    """When each of these pods was bound, of those that were from then on."""
    return [at for name, at in list(seen.bound_at.items()) if churn.has(name) and at >= then]


def binds_during(world: World, fault: str) -> bool:
    """Whether these pods are bound while it lasts: what they need is there then.

    Without events the units of those that went do not come back, and none may be left: _still_bound."""
    return fault in KILLS or fault in world.store.unnoticed


def _of_store(name: str) -> Suffer:
    def suffered(world: World, _: Churn) -> str:
        lasts = name in (store_faults.DOWN, store_faults.SILENT)
        with world.store.strikes[name]():
            until = time.monotonic() + (world.form.outage if lasts else 3 * world.form.pace)
            if lasts and name not in world.store.unnoticed:
                _wait_told(world)
            time.sleep(max(0.0, until - time.monotonic()))
        return ""

    return suffered


def _wait_told(world: World) -> None:
    """Until an event of a pod says that it waits for the store, and for nothing else (promise 9).

    The pod has a Pool of its own: where every unit is held, the others wait for one, and a locked file may
    still be read. It is tried before the others, each of which may cost the store's time-out. Events of one
    pod keep the text of the first, and on a busy machine that is at times of a call that came too late: then
    there is another pod.
    """
    give_up_at, said = time.monotonic() + PATIENCE, list[str]()
    while not any("ledger" in each and "the pod will be retried" in each for each in said):
        assert time.monotonic() < give_up_at, f"no event of a pod tells of the store; the last one: {said}"
        said = _first_word(world, f"{LATE}-{time.monotonic_ns()}")


def _first_word(world: World, name: str) -> list[str]:
    """What the events of a new pod say; it is gone again before the store is back."""
    world.cluster.create_pod(name, {f"berth.dev/{LATE}": 1}, priority_class=LATE)
    said = wait(lambda: world.cluster.events_of(name), PATIENCE, f"an event of {name}", every=0.2)
    deleted(world.cluster, name)
    return said


def _apiserver_down(world: World, _: Churn) -> str:
    if world.form.whole:
        world.plane.stop_apiserver()
        _sleep_without(world)
        world.plane.start_apiserver()
    else:
        _signal_apiserver(world, signal.SIGSTOP)
        _sleep_without(world)
        _signal_apiserver(world, signal.SIGCONT)
    return ""


def _sleep_without(world: World) -> None:
    """The whole outage, in which the API server answers nobody."""
    until = time.monotonic() + world.form.outage
    assert not world.cluster.answers(min(1.0, world.form.outage)), "the API server still answers"
    time.sleep(max(0.0, until - time.monotonic()))


def _signal_apiserver(world: World, number: signal.Signals) -> None:
    (process,) = (each.process for each in world.plane.components if each.name == "kube-apiserver")
    assert process is not None
    process.send_signal(number)
    if number == signal.SIGSTOP:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # until then some of its threads go on


def _events(mode: str) -> Suffer:
    """For nodes too: one joins meanwhile."""

    def suffered(world: World, churn: Churn) -> str:
        world.faults.set("events", mode)
        world.add_node()
        churn.replace(2 * world.form.units)
        time.sleep(world.form.silence if mode == "lost" else min(world.form.silence, world.form.outage))
        wait(lambda: world.faults.counts("struck-").keys() >= STRUCK, PATIENCE, f"{STRUCK} are {mode}")
        _still_bound(world)
        world.faults.unset("events")
        struck = sum(world.faults.counts("struck-").values())
        return f"{world.deliver_kept() if mode == 'kept' else struck} events"

    return suffered


def _still_bound(world: World) -> None:
    """A pod that comes now is bound: its Pool has room whatever the others hold."""
    name = f"{LATE}-{time.monotonic_ns()}"
    world.cluster.create_pod(name, {f"berth.dev/{LATE}": 1}, priority_class=LATE)
    world.cluster.wait_bound(name, seconds=PATIENCE)
    deleted(world.cluster, name)


STRUCK = {"release-delete", "inventory-add"}
"""Events that must be among those that are lost, doubled or kept: a pod is gone, the node has come."""

APISERVER = "API server down"
EVENTS: dict[str, Suffer] = {
    "events lost": _events("lost"),
    "events doubled": _events("doubled"),
    "events late and reversed": _events("kept"),
}
KILLED, OTHERS_KILLED = "bind killed after each call it makes", "every other function killed at bind's steps"
KILLS = (KILLED, OTHERS_KILLED)
FAULTS: dict[str, Suffer] = {
    KILLED: bind_killed,
    OTHERS_KILLED: others_killed,
    store_faults.DOWN: _of_store(store_faults.DOWN),
    store_faults.SILENT: _of_store(store_faults.SILENT),
    store_faults.EMPTIED: _of_store(store_faults.EMPTIED),
    store_faults.FAIL_OVER: _of_store(store_faults.FAIL_OVER),
    APISERVER: _apiserver_down,
    **EVENTS,
}


def chosen(world: World, store: str) -> list[str]:
    """The faults of this store; in the short form one of those that are no store's own."""
    shared = [APISERVER, *EVENTS]
    mine = shared[world.part % len(shared)]
    return [each for each in faults_of(store) if world.form.whole or each == mine or each not in shared]


def faults_of(store: str) -> list[str]:
    """Those that can befall it."""
    return [fault for fault in FAULTS if fault not in store_faults.STORES[store].why_not]
