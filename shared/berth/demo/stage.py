"""Starts the two worlds of the demo, which differ only in the function that counts.
Everything it starts ends with it, whatever happens; the worlds share nothing but the machine."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import urllib3

from berth.demo import naive
from berth.demo.courier import Courier
from berth.demo.driver import Driver
from berth.demo.gateway import Gateway
from berth.demo.naive.counter import Counter
from berth.demo.observer import Observer
from berth.demo.story import Played
from berth.demo.world import UNITS, Count, Scheduler, World
from berth.errors import BerthError
from berth.kube.cluster import Cluster, connect
from berth.ledger.ledger import Ledger
from berth.ledger.model import Domain
from berth.local.event_relay import EventRelay, Observe
from berth.local.forkserver import ForkServer
from berth.local.ports import free_ports
from berth.local.processes import IMPORTED, FunctionProcess, Functions, Supervisor, functions_folder
from berth.stores import open_store
from berth.testing import kubeconfig
from berth.testing.api_server import StandIn

POOL = "underlay-ip"
SCHEDULER = "berth"
_POOLS = f"""apiVersion: berth.dev/v1alpha1
kind: Pool
metadata: {{name: {POOL}}}
spec: {{capacity: {{perDomain: {UNITS}}}}}
"""
_RECONCILE_SECONDS = 60.0
_START_SECONDS = 120.0


class Place(NamedTuple):
    """One world's API server, the functions' way to it, and what starts a scheduler there that calls the
    extender at a URL."""

    cluster: Cluster
    gateway: Gateway
    start_scheduler: Callable[[str], Scheduler]


Kit = Callable[[Path, ExitStack], Place]
"""Starts an API server, real or a stand-in, with its files in a folder; it ends with the stack."""


def stand_ins(folder: Path, stack: ExitStack) -> Place:
    """Start the stand-in for the API server; its scheduler is a driver that makes kube-scheduler's calls."""
    api = stack.enter_context(StandIn())
    cluster = cluster_at(api.kubeconfig(folder / "kubeconfig"))

    def start_driver(extender: str) -> Driver:
        driver = Driver(cluster, extender, SCHEDULER)
        driver.start()
        stack.callback(driver.stop)
        return driver

    return Place(cluster, stack.enter_context(Gateway(api.url)), start_driver)


@contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set these variables, and unset other BERTH_*: what the demo is run with is not for its functions.

    They are the whole process's: two blocks must not overlap in different threads."""
    before = dict(os.environ)
    for name in before:
        if name.startswith("BERTH_"):
            del os.environ[name]
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def cluster_at(kubeconfig: Path) -> Cluster:
    with environment({"KUBECONFIG": str(kubeconfig)}):
        return connect()


@contextmanager
def staged(
    folder: Path, port: int, kit: Kit, go_on: Callable[[], None], observe: Observe | None
) -> Iterator[tuple[Played, Played]]:
    """Start the naive counter's world and Berth's, and stop them at the end. `observe` gets Berth's pods."""
    with ExitStack() as stack:
        ours, theirs = (kit(_made(folder / name), stack) for name in ("berth", "naive"))
        stack.enter_context(environment(_settings(folder, ours, theirs)))
        functions = Functions(functions_folder(), port, _trouble, single=True)
        counting = _counting(functions.urls.values(), folder)
        for processes in (functions, counting):
            stack.callback(processes.stop)
            processes.start()
        late = _late(stack)
        if not all(processes.wait_ready(late) for processes in (functions, counting)):
            raise BerthError(f"the demo's functions did not start within {_START_SECONDS:g} s: see above")
        berth = _world("berth", ours, _ledger(functions, stack), stack, go_on, observe)
        yield _world("naive counter", theirs, _counter(counting), stack, go_on), berth


def _counting(others: Collection[str], folder: Path) -> Supervisor:
    """Return the naive counter's one process, supervised like Berth's own."""
    source = Path(naive.__file__).with_name("extender") / "main.py"
    # Not a port that another function has been given and does not listen at yet.
    free = (port for port in free_ports(len(others) + 1) if f"http://127.0.0.1:{port}" not in others)
    forks = ForkServer(IMPORTED)
    process = FunctionProcess("extender", source, next(free), _trouble, forks, metrics=folder / "metrics")
    return Supervisor([process], forks)


def _late(stack: ExitStack) -> threading.Event:
    """Return an event that is set once a start takes too long. (Ctrl-C raises, and so ends every wait.)"""
    event = threading.Event()
    timer = threading.Timer(_START_SECONDS, event.set)
    timer.daemon = True
    timer.start()
    stack.callback(timer.cancel)
    return event


def ledger_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'ledger.db'}"


def _settings(folder: Path, ours: Place, theirs: Place) -> dict[str, str]:
    """Return the variables of both worlds' functions, which have different names."""
    pools = folder / "pools.yaml"
    pools.write_text(_POOLS, encoding="utf-8")
    return {
        "KUBECONFIG": str(kubeconfig.write(folder / "kubeconfig-of-functions", ours.gateway.url)),
        "BERTH_STORE": ledger_url(folder),
        "BERTH_POOLS": str(pools),
        "BERTH_SCHEDULER_NAMES": SCHEDULER,
        "BERTH_LOG_LEVEL": "WARNING",  # the demo itself says what is done
        "NAIVE_COUNTS": str(folder / "counts.db"),
        "NAIVE_CAPACITY": str(UNITS),
        "NAIVE_API": theirs.gateway.url,
    }


def _ledger(functions: Functions, stack: ExitStack) -> Count:
    store = open_store(os.environ["BERTH_STORE"])
    stack.callback(store.close)
    ledger = Ledger(store, while_closed=True)

    def used() -> dict[str, int]:
        domains: Mapping[str, Domain] = ledger.view().domains.get(POOL, {})
        return {name: domain.used(POOL, name) for name, domain in domains.items()}

    file = Path(os.environ["BERTH_STORE"].removeprefix("sqlite:///"))
    return Count(functions, used, file, lambda: _reconcile(functions.urls["reconcile"]))


def _counter(counting: Supervisor) -> Count:
    file = Path(os.environ["NAIVE_COUNTS"])
    return Count(counting, Counter(file, UNITS, "").used, file, lambda: None)


def _world(
    name: str,
    place: Place,
    count: Count,
    stack: ExitStack,
    go_on: Callable[[], None],
    observe: Observe | None = None,
) -> Played:
    cluster, urls = place.cluster, count.functions.urls
    courier = stack.enter_context(Courier(urls.get("release", urls["extender"])))
    # The counter has neither an inventory nor a reconcile: the courier takes their events, and drops them.
    ways = dict.fromkeys(("inventory", "reconcile"), courier.url) | urls | {"release": courier.url}
    pools = Path(os.environ["BERTH_POOLS"])
    # The courier forges a living pod's deletion out of what it was told of the pod before.
    relay = EventRelay(cluster, ways, [SCHEDULER], pools, _trouble, observe=observe, every_change=True)
    stack.callback(relay.stop)
    relay.start()
    if not relay.wait_first_reconcile(_late(stack)):
        raise BerthError(f"the demo's ledger was not ready within {_START_SECONDS:g} s: see above")
    world = World(
        name=name,
        cluster=cluster,
        scheduler=place.start_scheduler(urls["extender"]),
        gateway=place.gateway,
        courier=courier,
        count=count,
        go_on=go_on,
    )
    promising = isinstance(count.functions, Functions)
    return Played(world, stack.enter_context(Observer(cluster, UNITS)), promising)


def _reconcile(url: str) -> None:
    """Send the minute's tick now, until it succeeds."""
    give_up_at, pause = time.monotonic() + _RECONCILE_SECONDS, threading.Event()
    while not _posted(url) and time.monotonic() < give_up_at:
        pause.wait(0.1)


def _posted(url: str) -> bool:
    try:
        with urllib3.PoolManager(timeout=_RECONCILE_SECONDS, retries=False) as http:
            return http.request("POST", url).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _trouble(what: Mapping[str, object]) -> None:
    """Report bad state changes only; a function that died was killed on purpose."""
    if what.get("state") in ("lost", "failed", "away"):
        with suppress(OSError):  # this thread keeps the functions alive, and must go on
            sys.stderr.write(f"berth demo: {json.dumps(what)}\n")
