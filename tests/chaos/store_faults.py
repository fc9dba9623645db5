"""The stores of the fault runs: how each is started, and what can befall it.

Of what a store can't suffer it says why, for the table. None of them asks what the ledger makes of it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from tests.controlplane.plane import ControlPlane
from tests.support.cluster import Cluster
from tests.support.servers.motoserver import ENVIRONMENT, MotoServer
from tests.support.servers.redissentinel import RedisSentinels
from tests.support.servers.redisserver import RedisServer

DOWN, SILENT, EMPTIED, FAIL_OVER = "store down", "store silent", "store emptied", "fail-over"
Strike = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Running:
    """A store that runs. `strikes` are what befalls it, from the beginning of the block to its end;
    `environment` is what a process needs to find it; `unnoticed` are those that no pod has to wait for."""

    url: str
    strikes: Mapping[str, Strike]
    environment: Mapping[str, str] = field(default_factory=dict)
    unnoticed: Collection[str] = ()


@dataclass(frozen=True)
class Store:
    """`why_not` says for the faults that are not among its `strikes` why there are none."""

    start: "Start"
    why_not: Mapping[str, str]


Start = Callable[[Path, ControlPlane, Cluster], AbstractContextManager[Running]]


def at_once(call: Callable[[], object]) -> Strike:
    """What is over as soon as it was done."""

    @contextmanager
    def strike() -> Iterator[None]:
        call()
        yield

    return strike


def between(begin: Callable[[], object], end: Callable[[], object]) -> Strike:
    @contextmanager
    def strike() -> Iterator[None]:
        begin()
        try:
            yield
        finally:
            end()

    return strike


# SQLite

_LOCK = (
    "import sqlite3, sys\n"
    "db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)\n"
    "db.execute('BEGIN EXCLUSIVE')\n"
    "print('locked', flush=True)\n"
    "sys.stdin.read()\n"
)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """By another process, until it ends."""
    argv = [sys.executable, "-I", "-S", "-c", _LOCK, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "locked\n"
            yield
        finally:
            holder.kill()


@contextmanager
def _sqlite(folder: Path, *_: object) -> Iterator[Running]:
    path = folder / "ledger.db"
    yield Running(
        f"sqlite:///{path}",
        {DOWN: lambda: _locked(path), EMPTIED: at_once(lambda: path.unlink(missing_ok=True))},
    )


# Redis


@contextmanager
def _redis(folder: Path, *_: object) -> Iterator[Running]:
    with RedisServer(folder / "redis", aof=True) as server:
        yield Running(
            f"{server.url}/0",
            {
                DOWN: between(server.stop, server.start),
                SILENT: between(server.pause, server.resume),
                EMPTIED: at_once(server.flush),
            },
        )


@contextmanager
def _sentinel(folder: Path, *_: object) -> Iterator[Running]:
    with RedisSentinels(folder / "redis") as servers:
        yield Running(
            servers.url,
            {
                DOWN: between(lambda: _stop_sentinels(servers), lambda: _start_sentinels(servers)),
                EMPTIED: at_once(servers.flush),
                FAIL_OVER: between(servers.fail_over, servers.recover),
            },
            unnoticed={DOWN},
        )


def _stop_sentinels(servers: RedisSentinels) -> None:
    for each in servers.sentinels:
        each.stop()
    assert not any(each.running for each in servers.sentinels)


def _start_sentinels(servers: RedisSentinels) -> None:
    for each in servers.sentinels:
        each.start()


# ConfigMaps


@contextmanager
def _configmap(folder: Path, plane: ControlPlane, cluster: Cluster) -> Iterator[Running]:
    kubeconfig = plane.kubeconfig(folder / "kubeconfig-of-store")
    yield Running(
        "configmap://default/chaos",
        {EMPTIED: at_once(lambda: _delete_configmaps(cluster))},
        {"KUBECONFIG": str(kubeconfig)},
    )


def _delete_configmaps(cluster: Cluster) -> None:
    """One after the other: a function may meet what is left of them."""
    path = "/api/v1/namespaces/default/configmaps"
    for each in cluster.get(f"{path}?labelSelector=berth.dev%2Fledger%3Dchaos")["items"]:
        reply = cluster.request("DELETE", f"{path}/{each['metadata']['name']}")
        assert reply.status in (200, 404), reply  # a new life may have begun meanwhile, and tidied up


# DynamoDB

_INTERNAL = {"__type": "com.amazonaws.dynamodb.v20120810#InternalServerError", "message": "internal error"}


@contextmanager
def _dynamodb(folder: Path, *_: object) -> Iterator[Running]:
    with mock.patch.dict(os.environ, ENVIRONMENT), MotoServer(folder / "moto") as server:
        table = server.new_table()
        server.make(table)
        yield Running(
            server.url(table),
            {
                DOWN: between(
                    lambda: server.fault(table, "", times=10**9, status=500, answer=_INTERNAL),
                    lambda: server.mend(table),
                ),
                SILENT: between(
                    lambda: _signal(server, signal.SIGSTOP), lambda: _signal(server, signal.SIGCONT)
                ),
                EMPTIED: at_once(lambda: server.lose(table)),
            },
            ENVIRONMENT,
        )


def _signal(server: MotoServer, number: signal.Signals) -> None:
    assert server._process is not None
    os.kill(server._process.pid, number)


_NO_REPLICA = {FAIL_OVER: "no replica"}
STORES = {
    "sqlite": Store(_sqlite, {SILENT: "a locked file is both", **_NO_REPLICA}),
    "redis": Store(_redis, _NO_REPLICA),
    "redis, Sentinels": Store(_sentinel, {SILENT: "is a fail-over"}),
    "configmap": Store(
        _configmap,
        {DOWN: "is the API server down", SILENT: "is the API server down", FAIL_OVER: "is etcd's"},
    ),
    "dynamodb": Store(_dynamodb, {FAIL_OVER: "is AWS'"}),
}
