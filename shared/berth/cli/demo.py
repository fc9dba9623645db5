"""`berth demo`: the main job in a minute, on nothing but Python; a broken promise is a non-zero exit.
Functions and ledger are the real ones; the API server and kube-scheduler are played, and it says so."""

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from berth.cli.processes import Functions, functions_folder
from berth.cli.relay import Relay
from berth.cluster import Cluster, connect
from berth.demo.apiserver import StandIn
from berth.demo.driver import Driver
from berth.demo.scene import Scene
from berth.errors import BerthError
from berth.ledger import Ledger
from berth.stores import open_store

UNITS, WORKERS, PODS = 3, 3, 11
_POOL = f"""apiVersion: berth.dev/v1alpha1
kind: Pool
metadata: {{name: underlay-ip}}
spec: {{capacity: {{perDomain: {UNITS}}}}}
"""
_PATIENCE = 30.0  # seconds for a step that takes well under one: past it the demo has failed
_INTRODUCTION = f"""\
Real here: the functions (functions-framework processes), their HTTP calls, the SQLite ledger.
Played here: the API server (a small stand-in) and kube-scheduler (a driver that makes its calls).

{WORKERS} workers with {UNITS} underlay addresses each, and a control-plane node with none."""


class BrokenPromiseError(BerthError):
    """The demo saw something that Berth promises never happens."""


def run(options: argparse.Namespace) -> int:
    """Play the demo; 0 if every promise held, else 1."""
    show = (lambda _: None) if options.json else _show
    show(_INTRODUCTION)
    with (
        tempfile.TemporaryDirectory(prefix="berth-demo-") as folder,
        _stage(Path(folder), options.port) as scene,
    ):
        result = _play(scene, show)
    broken = result["over_allocated"] or result["leaked"] or result["bound"] != WORKERS * UNITS
    if options.json:
        _show(json.dumps(result, separators=(",", ":")))
    else:
        show(
            f"\n{result['pods']} pods left: {result['bound']} bound, {result['waiting']} waiting; "
            f"over-allocated {result['over_allocated']}, leaked {result['leaked']}, "
            f"waiter bound after {result['wake_seconds']} s"
        )
    if broken:
        raise BrokenPromiseError(f"a promise was broken: {json.dumps(result)}")
    return 0


def _play(scene: Scene, show: Callable[[str], None]) -> dict[str, Any]:
    for number in range(1, WORKERS + 1):
        scene.add_node(f"worker-{number}", {})
    scene.add_node("control-plane", {"node-role.kubernetes.io/control-plane": ""})
    scene.until(
        lambda: scene.capacity() == WORKERS * UNITS, "the nodes' capacities are in the ledger", _PATIENCE
    )
    show(f"\n{PODS} pods ask for berth.dev/underlay-ip: 1 each, all at once:")
    for number in range(1, PODS + 1):
        scene.add_pod(f"pod-{number}")
    scene.until(lambda: len(scene.bound()) == WORKERS * UNITS, f"{WORKERS * UNITS} pods are bound", _PATIENCE)
    scene.until(scene.all_waiters_refused, "every other pod has its reason", _PATIENCE)
    for name, node in sorted(scene.bound().items(), key=lambda item: (item[1], item[0])):
        show(f"  {name:8} on {node}")
    for name, why in scene.waiting().items():
        show(f"  {name:8} waits: {why}")
    victim = sorted(scene.bound())[0]
    waiters = set(scene.waiting())
    show(f"\n{victim} is deleted; kube-scheduler alone would try the waiters again after five minutes:")
    started = time.monotonic()
    scene.delete_pod(victim)
    scene.until(lambda: waiters & set(scene.bound()), "a waiter is bound", _PATIENCE)
    seconds = round(time.monotonic() - started, 2)
    lucky = sorted(waiters & set(scene.bound()))[0]
    show(f"  {lucky:8} on {scene.bound()[lucky]}, {seconds} s after the deletion")
    scene.until(scene.all_claims_bound, "the ledger has confirmed its claims", _PATIENCE)
    return {
        "pods": len(scene.bound()) + len(scene.waiting()),
        "bound": len(scene.bound()),
        "waiting": len(scene.waiting()),
        "over_allocated": scene.over_allocated(),
        "leaked": scene.leaked(),
        "wake_seconds": seconds,
    }


@contextmanager
def _stage(folder: Path, port: int) -> Iterator[Scene]:
    """Everything started, in order, and stopped in reverse."""
    with ExitStack() as stack:
        api = StandIn()
        api.start()
        stack.callback(api.stop)
        pools = folder / "pools.yaml"
        pools.write_text(_POOL, encoding="utf-8")
        settings = {
            "KUBECONFIG": str(api.kubeconfig(folder / "kubeconfig")),
            "BERTH_STORE": f"sqlite:///{folder}/ledger.db",
            "BERTH_POOLS": str(pools),
            "BERTH_SCHEDULER_NAMES": "berth",
        }
        stack.enter_context(_environment(settings))
        functions = Functions(functions_folder(), port, _trouble)
        functions.start()
        stack.callback(functions.stop)
        cluster = connect()
        relay = Relay(cluster, functions.urls, ["berth"], pools, _trouble)
        functions.wait_ready(threading.Event())
        relay.start()
        stack.callback(relay.stop)
        relay.wait_first_reconcile(threading.Event())
        driver = Driver(cluster, functions.urls, "berth", random.Random())
        driver.start()
        stack.callback(driver.stop)
        yield _scene(cluster, settings["BERTH_STORE"])


def _scene(cluster: Cluster, store: str) -> Scene:
    return Scene(cluster, Ledger(open_store(store), while_closed=True), UNITS)


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in [*settings, "BERTH_AUTH_TOKEN", "BERTH_AUTH_TOKEN_FILE"]}
    for name in before:
        os.environ.pop(name, None)
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _trouble(what: Mapping[str, object]) -> None:
    """Of all state changes only the bad ones are of interest here."""
    if what.get("state") in ("died", "lost", "failed"):
        with suppress(OSError):  # the thread that says so has the functions to look after
            sys.stderr.write(f"berth demo: {json.dumps(what)}\n")


def _show(text: str) -> None:
    print(text, flush=True)
