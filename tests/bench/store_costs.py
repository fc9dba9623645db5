"""Where the bench's ledgers live: an empty store of each kind, with the block that uses it.
It measures on this machine: no network lies between a function and its store."""

import base64
import os
import re
import sqlite3
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from berth.testing.control_plane import ControlPlane, ControlPlaneError
from tests.bench.contender_processes import BenchError
from tests.bench.go_programs import BIN
from tests.support.cluster import Cluster
from tests.support.servers.motoserver import ENVIRONMENT, MotoServer, MotoServerError
from tests.support.servers.rediscluster import RedisCluster
from tests.support.servers.redisserver import RedisServer, RedisServerError

_CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@dataclass(frozen=True)
class Home:
    """An empty store. What it says of itself: `size`, the bytes that the ledger takes in it; `trips`, how
    many requests it has answered; `written`, how many bytes went to its log, where it tells. `environment`
    is for whoever opens the URL."""

    url: str
    size: Callable[[], int]
    trips: Callable[[], int]
    written: Callable[[], int] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def _sqlite(folder: Path) -> Iterator[Home]:
    path = folder / "ledger.db"

    def size() -> int:
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            pages, free, each = (
                db.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        return int((pages - free) * each)

    yield Home(f"sqlite:///{path}", size, lambda: 0)


@contextmanager
def _redis(folder: Path) -> Iterator[Home]:
    server = RedisServer(folder / "redis")
    with server:
        yield Home(server.url, lambda: _memory(server), lambda: _scripts(server))


@contextmanager
def _redis_cluster(folder: Path) -> Iterator[Home]:
    with RedisCluster(folder / "redis-cluster") as cluster:
        owner = cluster.owner
        yield Home(cluster.url, lambda: _memory(owner), lambda: _scripts(owner))


def _memory(server: RedisServer) -> int:
    names = [f"{{berth}}:{name}" for name in ("documents", "written", "deleted")]
    answers = (server.command("MEMORY", "USAGE", name, "SAMPLES", "0") for name in names)
    return sum(int(answer) for answer in answers if answer.isdigit())


def _scripts(server: RedisServer) -> int:
    """Scripts that clients have called."""
    found = re.search(r"calls=(\d+)", server.info("commandstats").get("cmdstat_evalsha", ""))
    return int(found[1]) if found else 0


@contextmanager
def _configmap(folder: Path) -> Iterator[Home]:
    if not (BIN / "kube-apiserver").is_file():
        raise ControlPlaneError("no kube-apiserver here: run `make controlplane`")
    plane = ControlPlane(BIN, folder / "plane")
    (etcd,) = (each for each in plane.components if each.name == "etcd")
    # As in earnest: tests do without, but the others here have their commits on disk too.
    etcd.argv = [each for each in etcd.argv if each != "--unsafe-no-fsync"]
    with plane:
        cluster = Cluster(plane.url, plane.admin_token, plane.ca_file)
        environment = {"KUBECONFIG": str(plane.kubeconfig(folder / "kubeconfig"))}
        metrics = etcd.ready_url.replace("/health", "/metrics")
        try:
            yield Home(
                "configmap://default/bench",
                lambda: _in_configmaps(cluster),
                lambda: _requests(cluster),
                lambda: _number(r"(?m)^etcd_disk_wal_write_bytes_total (\S+)$", _fetched(metrics)),
                environment,
            )
        finally:
            cluster.close()


@contextmanager
def _dynamodb(folder: Path) -> Iterator[Home]:
    with MotoServer(folder / "moto") as server:
        server.make("bench")
        seen = Counter[str]()

        def trips() -> int:
            seen.update(server.asked("bench")["operations"])
            return seen.total()

        yield Home(server.url("bench"), lambda: _in_items(server), trips, environment=ENVIRONMENT)


def _in_items(server: MotoServer) -> int:
    """As AWS counts them: names and values; a number takes a byte for two digits, and one more."""
    items = server.items("bench").values()
    return sum(len(name) + _value(value) for item in items for name, value in item.items())


def _value(value: Mapping[str, str]) -> int:
    ((kind, text),) = value.items()
    if kind == "B":
        return len(base64.b64decode(text))
    return len(text.encode()) if kind == "S" else len(text) // 2 + 1


def _in_configmaps(cluster: Cluster) -> int:
    found = cluster.get(f"{_CONFIGMAPS}?labelSelector={quote('berth.dev/ledger=bench')}")["items"]
    bodies = (body for each in found for body in (each.get("binaryData") or {}).values())
    return sum(len(base64.b64decode(body)) for body in bodies)


def _requests(cluster: Cluster) -> int:
    metrics = str(cluster.request("GET", "/metrics").body)
    return _number(r'apiserver_request_total\{[^}]*resource="configmaps"[^}]*\} (\S+)', metrics)


def _fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read(), "utf-8")


def _number(pattern: str, metrics: str) -> int:
    """The sum of what the metrics tell."""
    return sum(int(float(value)) for value in re.findall(pattern, metrics))


_KINDS: dict[str, Callable[[Path], AbstractContextManager[Home]]] = {
    "sqlite": _sqlite,
    "redis": _redis,
    "redis-cluster": _redis_cluster,
    "configmap": _configmap,
    "dynamodb": _dynamodb,
}
STORES = tuple(_KINDS)
LATE = ("configmap", "dynamodb")  # a reader may learn of a change a moment after it was made
USUAL = ("sqlite", "redis")  # what a warm filter costs is the same on the others, but for `changes`


@contextmanager
def place(kind: str, folder: Path) -> Iterator[Home]:
    """An empty store, for as long as the block lasts, and its environment; its files go to the folder."""
    try:
        with _KINDS[kind](folder) as home:
            before = {name: os.environ.get(name) for name in home.environment}
            os.environ.update(home.environment)
            try:
                yield home
            finally:
                for name, value in before.items():
                    os.environ.pop(name)
                    if value is not None:
                        os.environ[name] = value
    except (ControlPlaneError, MotoServerError, RedisServerError) as error:
        raise BenchError(f"{error}; or leave {kind} out of --stores") from error
