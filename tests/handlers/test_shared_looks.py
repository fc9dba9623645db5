"""Events that ask for a look at all nodes and pods, and calls of reconcile, share looks: anybody may ask.

Whoever comes while one is under way gets the next one, which sees what was there when they came.
"""

import io
import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar
from unittest import mock

import pytest

from berth.controller.alarm import alarm_of
from berth.controller.requeue import SharedWake
from berth.errors import StoreUnavailableError
from berth.handlers import inventory, reconcile, release
from berth.http.endpoint import Endpoint, Reply, Router, respond
from berth.kube.cluster import Cluster, connect
from berth.kube.types import Pod
from berth.ledger.ledger import Ledger
from berth.settings import Settings
from berth.stores import open_store
from berth.testing.api_server import StandIn
from tests.support.cluster import wait
from tests.support.servers.framework import send

SECONDS = 30.0
MANY = 12
POOLS = """apiVersion: berth.dev/v1alpha1
kind: Pool
metadata: {name: ip}
spec: {capacity: {perDomain: %d}}
"""


class Gate:
    """Lists of pods, counted; the first of them waits to be let go."""

    def __init__(self) -> None:
        self.lists, self.began, self.let_go = 0, threading.Event(), threading.Event()

    def pods(self, real: Callable[[], list[Pod]]) -> list[Pod]:
        self.lists += 1
        self.began.set()
        assert self.let_go.wait(SECONDS)
        return real()


@pytest.fixture(autouse=True)
def no_alarm_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is woken later: lists of pods for that would be counted, also those of a test before. And each
    look is a second after the last, so that none goes by an earlier list."""
    silent = partial(alarm_of, clock=map(float, count()).__next__, start=lambda _seconds, _ring: lambda: None)
    for handler in (inventory, reconcile, release):
        monkeypatch.setattr(handler, "alarm_of", lambda *given, **_: silent(*given))


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    (tmp_path / "pools.yaml").write_text(POOLS % 1)
    with StandIn() as api:
        node = json.dumps({"metadata": {"name": "n1"}}).encode()
        send(api.url, "POST", "/api/v1/nodes", node, {"Content-Type": "application/json"})
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
        yield Settings(store=f"sqlite:///{tmp_path}/ledger.db", pools=tmp_path / "pools.yaml")


def call(target: Endpoint | Router, kind: str = "Pool", node: str = "n1", pod: str = "forged") -> Reply:
    change = "delete" if kind == "Pod" else "add"
    event = {
        "specversion": "1.0",
        "id": "1",
        "source": "a",
        "type": f"dev.knative.apiserver.resource.{change}",
    }
    spec = {"containers": [{"resources": {"limits": {"berth.dev/ip": "1"}}}], "nodeName": node}
    data = {"kind": kind, "metadata": {"name": pod, "uid": "forged"}, "spec": spec}
    body = json.dumps({**event, "data": data}).encode()
    return respond(target, "POST", "/", {"Content-Type": "application/cloudevents+json"}, io.BytesIO(body))


@contextmanager
def gated(name: str = "pods") -> Iterator[Gate]:
    gate, real = Gate(), getattr(Cluster, name)

    def pods(cluster: Cluster, *arguments: object) -> list[Pod]:
        return gate.pods(lambda: real(cluster, *arguments))

    with mock.patch.object(Cluster, name, pods):
        yield gate


class Waiters(threading.Condition):
    """A condition that says how many wait on it now."""

    made: ClassVar[list["Waiters"]] = []

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.made.append(self)

    def wait(self, timeout: float | None = None) -> bool:
        self.now += 1  # under its lock
        try:
            return super().wait(timeout)
        finally:
            self.now -= 1


@pytest.mark.parametrize("name", ["inventory", "reconcile"])
def test_who_comes_while_a_look_is_under_way_shares_the_next_one(
    settings: Settings, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(reconcile.endpoint(settings)).status == 204
    monkeypatch.setattr("berth.coalesce.threading", SimpleNamespace(Condition=Waiters, Lock=threading.Lock))
    target = inventory.router(settings) if name == "inventory" else reconcile.endpoint(settings)
    with gated() as gate, ThreadPoolExecutor(MANY + 1) as pool:
        first = pool.submit(call, target)
        assert gate.began.wait(SECONDS)
        assert settings.pools
        settings.pools.write_text(POOLS % 7)  # after the look under way has read them
        late = [pool.submit(call, target) for _ in range(MANY)]
        wait(lambda: any(each.now == MANY for each in Waiters.made), SECONDS, "that all others wait")
        gate.let_go.set()
        assert {each.result(SECONDS).status for each in (first, *late)} == {204}
        assert gate.lists == 2
    with closing(open_store(settings.store)) as store:
        assert Ledger(store).view().free["ip"]["n1"][0] == 7


def test_forged_deletions_of_pods_share_wakes(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(reconcile.endpoint(settings)).status == 204
    monkeypatch.setattr("berth.coalesce.threading", SimpleNamespace(Condition=Waiters, Lock=threading.Lock))
    wakes: list[Waiters] = []

    def shared(wake: Callable[[Mapping[str, int], Collection[str]], int]) -> SharedWake:
        before = len(Waiters.made)
        made = SharedWake(wake)
        wakes.extend(Waiters.made[before:])  # and none of those of the ledger's looks
        return made

    monkeypatch.setattr(release, "SharedWake", shared)
    target = release.endpoint(settings)
    with gated("unbound_pods") as gate, ThreadPoolExecutor(MANY + 1) as pool:
        first = pool.submit(call, target, "Pod")
        assert gate.began.wait(SECONDS)
        late = [pool.submit(call, target, "Pod") for _ in range(MANY)]
        wait(lambda: any(each.now == MANY for each in wakes), SECONDS, "that all others wait")
        gate.let_go.set()
        assert {each.result(SECONDS).status for each in (first, *late)} == {204}
        assert gate.lists == 2


@pytest.mark.parametrize("name", ["..", ".", "a/b", "x" * 2_000_000])
def test_a_forged_deletion_on_no_node_fails_no_wake(settings: Settings, name: str) -> None:
    """Wakes that failed are tried again with all nodes that were asked for: one could fail all."""
    assert call(reconcile.endpoint(settings)).status == 204
    spec = {"schedulerName": "berth", "containers": [{"resources": {"limits": {"berth.dev/ip": "1"}}}]}
    waiting = {"metadata": {"name": "waits", "namespace": "default"}, "spec": spec}
    pods, headers = "/api/v1/namespaces/default/pods", {"Content-Type": "application/json"}
    assert send(connect().host, "POST", pods, json.dumps(waiting).encode(), headers)[0] == 201
    target = release.endpoint(settings)
    assert [call(target, "Pod", node).status for node in (name, "n1")] == [204, 204]


def test_a_forged_deletion_with_a_name_of_two_megabytes_fills_no_log(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    assert call(reconcile.endpoint(settings)).status == 204
    assert call(release.endpoint(settings), "Pod", pod="x" * 2_000_000).status == 422
    assert len(caplog.text) < 3000


def test_nodes_that_were_left_are_kept_in_mind_up_to_a_number() -> None:
    seen: list[Collection[str]] = []

    def wake(_: Mapping[str, int], left: Collection[str]) -> int:
        seen.append(left)
        raise StoreUnavailableError("away")

    shared = SharedWake(wake)
    for number in range(1000):
        with pytest.raises(StoreUnavailableError):
            shared.again({"ip": 1}, f"n{number}")
    assert max(map(len, seen)) < 100


def test_a_shared_wake_that_fails_is_not_lost_on_who_shares_the_next_one() -> None:
    seen: list[tuple[dict[str, int], set[str]]] = []

    def wake(room: Mapping[str, int], left: Collection[str]) -> int:
        seen.append((dict(room), set(left)))
        if len(seen) == 1:
            shared._note({"ip": 3}, {"seat": 1}, ["n2"])  # by some who come meanwhile
            raise StoreUnavailableError("away")
        return 5

    shared = SharedWake(wake)
    with pytest.raises(StoreUnavailableError):
        shared.freed({"ip": 1}, "n1")
    assert shared.again({"ip": 2}, "") == 5
    assert seen == [({"ip": 1}, {"n1"}), ({"ip": 4, "seat": 1}, {"n1", "n2", ""})]


def test_units_that_came_free_meanwhile_are_woken_for_together() -> None:
    """What repeated events name is the same room again and again, and what was freed is not."""
    seen: list[dict[str, int]] = []

    def wake(room: Mapping[str, int], _: Collection[str]) -> int:
        seen.append(dict(room))
        if len(seen) == 1:
            for _each in range(3):
                shared._note({"ip": 1}, {}, ["n2"])
                shared._note({}, {"ip": 2, "seat": 1}, ["n2"])
        return 1

    shared = SharedWake(wake)
    shared.freed({"ip": 1}, "n1")
    shared.freed({"seat": 2}, "n1")
    assert seen == [{"ip": 1}, {"ip": 3, "seat": 2}]
