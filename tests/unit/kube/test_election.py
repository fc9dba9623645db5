"""What a relay says while it can't have its Lease: it sends nothing until then, and seems to be well."""

import json
import logging
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from berth.kube.election import Lease, _lock
from tests.support.log_lines import LogLines, log_lines
from tests.support.servers.serving import serving

LEASE = Lease("berth", "berth-relay", "a")
FORBIDDEN = (
    "the Lease berth/berth-relay can't be had (403 Forbidden); until it can, this relay sends no event and "
    "no tick: give its account the rights to get, create and update leases there"
)


class Server(ThreadingHTTPServer):
    """An API server that answers `status` to all."""

    status = 403


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        body = json.dumps({"kind": "Status", "code": self.server.status}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving(started := Server(("127.0.0.1", 0), _Handler)):
        cluster = {"server": f"http://127.0.0.1:{started.server_address[1]}"}
        document = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "c", "user": {}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(document))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield started


@pytest.fixture
def lines() -> Iterator[LogLines]:
    with log_lines(logging.INFO) as kept:
        yield kept


def said(lines: LogLines) -> list[str]:
    return [line["message"] for line in lines.all]


def test_what_keeps_the_lease_from_it_is_told_once_and_again_when_it_is_something_else(
    server: Server, lines: LogLines
) -> None:
    lock = _lock(LEASE)
    for _ in range(3):
        assert lock.get(LEASE.name, LEASE.namespace)[0] is False
    assert said(lines) == [FORBIDDEN]
    server.status = 500
    lock.get(LEASE.name, LEASE.namespace)
    assert len(said(lines)) == 2
    assert said(lines)[1].startswith("the Lease berth/berth-relay can't be had (500 Internal Server Error);")


@pytest.mark.parametrize("status", [404, 409])
def test_what_every_election_meets_is_not_told(server: Server, lines: LogLines, status: int) -> None:
    server.status = status
    assert _lock(LEASE).get(LEASE.name, LEASE.namespace)[0] is False
    assert said(lines) == []


def test_an_api_server_that_does_not_answer_is_told(server: Server, lines: LogLines) -> None:
    lock = _lock(LEASE)
    server.shutdown()
    server.server_close()
    lock.get(LEASE.name, LEASE.namespace)
    (text,) = said(lines)
    assert text.startswith("the Lease berth/berth-relay can't be had (")
    assert text.endswith("; until it can, this relay sends no event and no tick")
