"""`python -m tests.bench foreign`: what release pays for events of pods that are not ours.
A cluster below 1.36 has no label to select by: the source sends every pod's events, one at a time.

What an event did is looked for in the ledger, not in its answer.
"""

import itertools
import statistics
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from berth.ledger.keys import domain_key
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim
from berth.stores import open_store
from berth.stores.base import Store
from tests.bench import report
from tests.bench.bodies import ROOT
from tests.bench.client import Client
from tests.bench.contender_processes import BenchError, Server, server
from tests.bench.contents import POOL, RESOURCE, node_names, units_held
from tests.bench.keeper import fill, holder
from tests.bench.nobody import Nobody
from tests.bench.store_costs import Home, place
from tests.bench.witness import held
from tests.support.fakes.apiserversource import Event, binary, event_of

LIFE = ("pod-add", "pod-update-graceful-deletion", "pod-update-graceful-deletion", "pod-delete")
"""What is told of a pod that comes and goes. The recorded objects are as large as small pods are."""
KINDS: Mapping[str, Mapping[str, str]] = {
    "CPU and memory": {"cpu": "100m", "memory": "64Mi"},
    "a device of others": {"cpu": "100m", "nvidia.com/gpu": "1"},
}
OURS = 20
"""Pods that do hold a unit: their deletions follow, in the very same form, and free just these units."""

_NODES = 1000
_DOMAINS = [domain_key(POOL, name) for name in node_names(_NODES)]
_HEAD = ("its pods ask for", "events", "events/s", "p50 ms", "p99 ms", "CPU ms", "store calls", "API calls")


@dataclass
class Foreign:
    """Events of pods of another scheduler that ask for `asks`; times in seconds."""

    asks: str
    seconds: list[float] = field(default_factory=list)
    cpu: float | None = None
    store_calls: int = 0
    api_calls: int = 0

    def row(self) -> dict[str, object]:
        times = sorted(self.seconds)
        return {
            "asks": self.asks,
            "events": len(times),
            "rate": len(times) / sum(times),
            "p50": statistics.median(times),
            "p99": times[min(len(times) - 1, len(times) * 99 // 100)],
            "cpu": None if self.cpu is None else self.cpu / len(times),
            "store_calls": self.store_calls,
            "api_calls": self.api_calls,
        }


def measure(events: int) -> list[dict[str, object]]:
    """A row for each of KINDS, of so many events."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        home = stack.enter_context(place("redis", folder))
        api = stack.enter_context(Nobody())
        environment = {"BERTH_STORE": home.url, "KUBECONFIG": str(api.kubeconfig(folder / "kubeconfig"))}
        store = stack.enter_context(closing(open_store(home.url)))
        _fill(home, store)
        before = held(store, _DOMAINS)
        up = stack.enter_context(_release(environment))
        rows = [_measured(asks, up, home, api, events).row() for asks in KINDS]
        check(store, before, "events of others' pods")
        ours = [name for name in node_names(_NODES) if units_held(name)][:OURS]
        with Client(up.port) as client:
            for name in ours:
                _post(client, _deletion_of_ours(holder(name, 0)))
        check(store, before - Counter(domain_key(POOL, name) for name in ours), "those of ours")
        return rows


def check(store: Store, expected: Counter[str], after: str) -> None:
    """Raises BenchError unless so many claims stand in each domain."""
    found = held(store, _DOMAINS)
    fewer, more = (expected - found).total(), (found - expected).total()
    if fewer or more:
        raise BenchError(
            f"after {after} {fewer} claims are gone that should stand, and {more} stand that should not"
        )


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    body = [
        (
            row["asks"],
            f"{row['events']:,}",
            f"{row['rate']:,.0f}",
            *(report.ms(row[name]) for name in ("p50", "p99", "cpu")),
            f"{row['store_calls']:,}",
            f"{row['api_calls']:,}",
        )
        for row in rows
    ]
    return report.markdown(_HEAD, body, 1)


def _fill(home: Home, store: Store) -> None:
    fill(store, node_names(_NODES))
    Ledger(store, cluster=lambda: "bench", name=home.url).record_cluster()


@contextmanager
def _release(environment: Mapping[str, str]) -> Iterator[Server]:
    source = ["--source", str(ROOT / "functions" / "release" / "main.py"), "--target", "release"]
    command = [str(Path(sys.executable).with_name("functions-framework")), *source]
    with server([*command, "--host", "127.0.0.1", "--port", "PORT"], environment) as up:
        yield up


def _measured(asks: str, up: Server, home: Home, api: Nobody, events: int) -> Foreign:
    print(f"bench: {events:,} events of pods that ask for {asks}", file=sys.stderr, flush=True)
    found, told = Foreign(asks), _events(KINDS[asks])
    with Client(up.port) as client:
        for event in itertools.islice(told, len(LIFE)):
            _post(client, event)  # what a fresh process pays once
        before = (home.trips(), api.calls, up.cpu_seconds())
        found.seconds = [_post(client, event) for event in itertools.islice(told, events)]
        after = (home.trips(), api.calls, up.cpu_seconds())
    found.store_calls, found.api_calls = after[0] - before[0], after[1] - before[1]
    if before[2] is not None and after[2] is not None:
        found.cpu = after[2] - before[2]
    return found


def _post(client: Client, event: Event) -> float:
    headers, body = binary(event)
    return client.call("", body, headers, status=204).seconds


def _events(asked: Mapping[str, str]) -> Iterator[Event]:
    """Life after life, each of another pod."""
    for number in itertools.count():
        identity = {"name": f"foreign-{number}", "uid": str(uuid.uuid4())}
        for name in LIFE:
            yield told_of(name, identity, "default-scheduler", asked)


def _deletion_of_ours(claim: Claim) -> Event:
    identity = {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid}
    return told_of(LIFE[-1], identity, "berth", {RESOURCE: "1"})


def told_of(name: str, identity: Mapping[str, str], scheduler: str, asked: Mapping[str, str]) -> Event:
    """The recorded event of this name, as if it were of this pod, which asks for that."""
    change, item = _recorded(name)
    container = {**item["spec"]["containers"][0], "resources": {"requests": dict(asked)}}
    spec = {**item["spec"], "schedulerName": scheduler, "containers": [container]}
    metadata = {**item["metadata"], **identity}
    return event_of("https://10.96.0.1:443", change, {**item, "metadata": metadata, "spec": spec})


@cache
def _recorded(name: str) -> tuple[str, dict[str, Any]]:
    """Its change and its object."""
    document = msgspec.json.decode((ROOT / "events" / "cloudevents" / f"{name}.json").read_bytes())
    return document["type"].rpartition(".")[2], document["data"]
