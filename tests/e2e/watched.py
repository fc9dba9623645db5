"""A system that a real Prometheus watches by the alerts of infra/components/monitoring.

With a `factor` above 1 the alerts' time is divided by it (tests/monitoring/rules.py), reconcile is called as
much more often, and Prometheus scrapes and evaluates each second. With a factor of 1 nothing is scaled.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.conftest import Systems
from tests.e2e.harness import System, faulty_functions
from tests.monitoring.rules import FOLDER, faster
from tests.support.cluster import Object, wait
from tests.support.servers.prometheus import Prometheus

FAULTS = Path(__file__).parent / "faults"
TICK_SECONDS = 60.0
BROKEN_RECONCILE = """
import os
from pathlib import Path

from msgspec.structs import replace

from berth.errors import StoreFailedError
from berth.handlers import reconcile as verb
from berth.http.endpoint import Reply
from berth.http.function import serve

FAULTS = Path(os.environ["FAULTS"])
BROKEN, NO_TICK = FAULTS / "broken", FAULTS / "no-tick"


def endpoint(settings, *, metrics):
    real = verb.endpoint(settings, metrics=metrics)

    def answer(headers, body):
        if BROKEN.exists():
            raise StoreFailedError("the test has broken it")
        if NO_TICK.exists() and headers.get("user-agent") == "berth-up":
            return Reply(200, b"{}")
        return real.answer(headers, body)

    return replace(real, answer=answer)


reconcile = serve(endpoint)
"""

FAULTY_BIND = """
import os
import time
from itertools import count
from pathlib import Path

from berth.handlers import bind as verb
from berth.handlers import wiring
from berth.http.function import serve

FAULTS = Path(os.environ["FAULTS"])
open_store = wiring.open_store


def open_faulty(url, **given):
    store, turns = open_store(url, **given), count()
    commit = store.commit

    def faulty(writes, expected):
        if (FAULTS / "slow").exists():
            time.sleep(1.5)
        if (FAULTS / "crowded").exists() and next(turns) % 4:
            for key, document in store.read([key for key in writes if key.startswith("domain/")]).items():
                commit({key: document.body}, {key: document.version})
        return commit(writes, expected)

    store.commit = faulty
    return store


wiring.open_store = open_faulty
bind = serve(verb.endpoint)
"""


@dataclass
class Watched:
    """The system and its Prometheus.

    `faults` holds files for tests/e2e/faults/release.py, and `broken`, with which reconcile fails, `no-tick`,
    with which no tick of `berth up` reaches it, `crowded`: then somebody writes what bind has read before
    three of four commits, and `slow`: then each commit of bind takes 1.5 s more. While `paused` is set,
    reconcile is called no more often than in a cluster.
    """

    system: System
    prometheus: Prometheus
    factor: float
    faults: Path
    paused: threading.Event = field(default_factory=threading.Event)
    _names: Iterator[int] = field(default_factory=count)

    def fault(self, name: str) -> Path:
        """Bring the fault about: until its file is removed."""
        path = self.faults / name
        path.touch()
        return path

    def fires(self, *names: str, seconds: float = 120) -> None:
        """Wait until all of these alerts have fired at a time, each with texts that were filled in."""
        try:
            wait(lambda: self.prometheus.firing() >= set(names), seconds, f"{names} fire", every=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self._told()}") from None
        for alert in self.prometheus.alerts():
            texts = " ".join(alert["annotations"].values())
            assert "<" not in texts, texts
            assert "{{" not in texts, texts

    def ever_fired(self) -> set[str]:
        """The names of the alerts that fired at any time since Prometheus began."""
        past = 'count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[1d]))'
        return {labels["alertname"] for labels, _ in self.prometheus.query(past)}

    def create(self, prefix: str, number: int, resource: str, **options: Any) -> list[str]:
        """So many pods that ask for one unit each; their names."""
        names = [f"{prefix}-{next(self._names)}" for _ in range(number)]
        for name in names:
            self.system.cluster.create_pod(name, {resource: 1}, **options)
        return names

    def _told(self) -> str:
        states = {one["labels"]["alertname"]: one["state"] for one in self.prometheus.alerts("pending")}
        return f"firing {sorted(self.prometheus.firing())}, {states}, targets {self.prometheus.healths()}"


@contextmanager
def watched(
    systems: Systems, folder: Path, factor: float, pools: Sequence[Object], nodes: int = 1, **berth: Any
) -> Iterator[Watched]:
    """A system of its own with a kube-scheduler, reconciled and scraped as the factor says."""
    faults = folder / "faults"
    faults.mkdir()
    made = faulty_functions(
        folder, release=FAULTS / "release.py", reconcile=BROKEN_RECONCILE, bind=FAULTY_BIND
    )
    environment = {"FAULTS": str(faults), "BERTH_METRICS_TOKEN": "for-prometheus"}
    system = systems(nodes, pools=pools, functions=made, environment=environment, **berth)
    prometheus = Prometheus(folder / "prometheus", scraping(system.berth.urls, folder, factor))
    world = Watched(system, prometheus, factor, faults)
    with prometheus, _ticking(world):
        wait(lambda: _all_up(prometheus), 60, "all are scraped", every=0.2)
        yield world


def scraping(urls: Mapping[str, str], folder: Path, factor: float) -> dict[str, Any]:
    """What infra/components/monitoring/berth-up.yaml says, with these ports, this time and the token."""
    document: dict[str, Any] = yaml.safe_load((FOLDER / "berth-up.yaml").read_text())
    rules = folder / "alerts.yaml"
    rules.write_text(yaml.safe_dump(faster(factor), sort_keys=False))
    document["rule_files"] = [str(rules)]
    if factor > 1:
        document["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"}
    (job,) = document["scrape_configs"]
    assert {target["labels"]["service"] for target in job["static_configs"]} == set(urls)
    for target in job["static_configs"]:
        target["targets"] = [urls[target["labels"]["service"]].removeprefix("http://")]
    return {**document, "scrape_configs": [{**job, "authorization": {"credentials": "for-prometheus"}}]}


def _all_up(prometheus: Prometheus) -> bool:
    return set(prometheus.healths().values()) == {"up"}


@contextmanager
def _ticking(world: Watched) -> Iterator[None]:
    """Call reconcile as much more often than the clock's minute as the rules' time is shorter."""
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(TICK_SECONDS / world.factor):
            if world.paused.is_set():
                continue
            with suppress(Exception):  # while it is broken, or starts anew
                world.system.berth.post("reconcile", {}, seconds=60)

    ticks = threading.Thread(target=tick, daemon=True)
    if world.factor > 1:
        ticks.start()
    try:
        yield
    finally:
        ended.set()
        if world.factor > 1:
            ticks.join(60)
