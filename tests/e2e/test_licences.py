"""A licence server beside a real kube-scheduler: pods get what others leave, and nothing while nobody
knows what that is."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool, settled
from tests.support.cluster import wait
from tests.support.servers.serving import serving

STALE_SECONDS = 20
SOON = 5.0  # a second, as promised, and what a busy machine adds
POLLER = {"Authorization": "Bearer poller"}


class Server:
    """Says who has licences of F; `hosts` None: it answers 503."""

    hosts: dict[str, int] | None = None
    issued = 3

    def text(self) -> bytes:
        rows = [{"host": host, "count": count} for host, count in (self.hosts or {}).items()]
        return json.dumps({"features": [{"name": "F", "issued": self.issued, "checkouts": rows}]}).encode()


@contextmanager
def licence_server() -> Iterator[tuple[Server, str]]:
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503 if server.hosts is None else 200)
            self.end_headers()
            self.wfile.write(server.text())

        def log_message(self, *_: object) -> None:
            return

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as there:
        yield server, f"http://127.0.0.1:{there.server_port}/"


def read(system: System, *, external: int | None) -> None:
    """reconcile reads this number, once it is due; None: it fails to."""

    def told() -> bool:
        assert system.berth.reconcile()["problems"] == []
        row = _row(system)
        return bool(row["externalNote"]) if external is None else row["external"] == external

    wait(told, 30, f"a reading of {external}")


def bound(system: System, name: str) -> bool:
    return name in system.cluster.bound()


@pytest.mark.long
def test_pods_get_what_others_leave_and_nothing_while_nobody_knows(system_of: Systems) -> None:
    with licence_server() as (server, url):
        source: dict[str, Any] = {"feature": "F", "url": url, "format": "json", "everySeconds": 1}
        source |= {"staleAfterSeconds": STALE_SECONDS, "capacity": "Issued"}
        licence = pool("licence", 0, scope="Cluster", externalFrom=source)
        del licence["spec"]["capacity"]
        token = {"BERTH_EXTERNAL_TOKEN": "poller"}
        system = system_of(1, pools=[licence], environment=token)
        ask = {"berth.dev/licence": 1}
        for name in ("one", "two"):
            system.cluster.create_pod(name, ask)
        assert "licence: what others use of it is not known yet" in system.refusal_of("one")
        server.hosts = {"desk": 2}
        read(system, external=2)
        wait(lambda: bound(system, "one") or bound(system, "two"), SOON, "one of three is free")
        (first,) = (name for name in ("one", "two") if bound(system, name))
        (other,) = {"one", "two"} - {first}
        server.hosts = {first: 1}
        read(system, external=0)
        wait(lambda: bound(system, other), SOON, "the pod's own checkout counts once")
        server.hosts = None
        read(system, external=None)
        system.cluster.create_pod("three", ask)
        wait(lambda: bound(system, "three"), SOON, "the last reading is fresh enough")
        system.cluster.delete_pod("three")
        stale = f"licence: what others use of it was not read for {STALE_SECONDS} s"
        wait(lambda: _row(system)["externalState"] == "stale", STALE_SECONDS + 10, "it is too old")
        system.cluster.create_pod("late", ask)
        wait(lambda: stale in system.refusal_of("late"), 60, "the pod is told so")
        server.hosts = {}
        reply = system.berth.post("inventory", server.text(), POLLER, "/licences?pool=licence")
        assert (reply.status, reply.body) == (
            200,
            {"pool": "licence", "issued": 3, "external": 0, "overCommitted": 0},
        )
        wait(lambda: bound(system, "late"), SOON, "it is woken by the text that was posted")
        settled(system)


def _row(system: System) -> dict[str, Any]:
    """What `berth status` says of the pool."""
    done = system.berth.run("status", "--store", system.berth.store, "-o", "json")
    row: dict[str, Any]
    (row,) = json.loads(done.stdout)["pools"]
    return row
