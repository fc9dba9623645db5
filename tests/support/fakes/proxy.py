"""A faulty way to the API server: plain HTTP on loopback in, the server's HTTPS and the admin's token out.

Whoever is given its kubeconfig meets the rules of a test, request by request; it knows nothing of Kubernetes.
"""

import contextlib
import http.client
import json
import re
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from berth.local.ports import free_port
from tests.controlplane.plane import ControlPlane

_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "host", "authorization"}


@dataclass(frozen=True)
class Fault:
    """What becomes of a request: held for `before` seconds, forwarded or not, its answer held for `after`
    seconds, replaced by one of status `answer`, or thrown away with the connection (`drop`)."""

    before: float = 0.0
    forward: bool = True
    after: float = 0.0
    answer: int | None = None
    drop: bool = False


def answering(status: int) -> Fault:
    """Not forwarded."""
    return Fault(forward=False, answer=status)


def answering_after(status: int) -> Fault:
    """Done by the API server, whatever the answer says."""
    return Fault(answer=status)


def held(seconds: float) -> Fault:
    """Forwarded late, even when the client has long gone."""
    return Fault(before=seconds)


PASS = Fault()
CUT = Fault(forward=False, drop=True)
ANSWER_LOST = Fault(drop=True)


@dataclass
class Rule:
    """Faults for the requests with this method and path, the first `skip` of them left alone, then `times`
    of them (None: all) treated so. `resume` ends a hold early; `seen` counts what it was applied to."""

    method: str
    path: re.Pattern[str]
    fault: Fault
    times: int | None = None
    skip: int = 0
    seen: int = 0
    reached: threading.Event = field(default_factory=threading.Event)
    resume: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)

    def takes(self, method: str, path: str) -> bool:
        if method != self.method or not self.path.search(path):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None and self.seen >= self.times:
            return False
        self.seen += 1
        return True


class Proxy:
    """One proxy in front of one control plane; without rules everything passes."""

    def __init__(self, plane: ControlPlane) -> None:
        self.upstream = urlsplit(plane.url)
        self.token = plane.admin_token
        self.context = ssl.create_default_context(cafile=str(plane.ca_file))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.requests: list[tuple[str, str]] = []
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._server: _Server | None = None

    def __enter__(self) -> Self:
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()
        self.refuse()

    def listen(self) -> None:
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def refuse(self) -> None:
        """From now on connections are refused, and those there are end."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            server.cut()

    def kubeconfig(self, path: Path, token: str | None = None) -> Path:
        """For the bearer of `token`, by default the admin."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "faulty", "cluster": {"server": self.url}}],
            "users": [{"name": "faulty", "user": {"token": token} if token else {}}],
            "contexts": [{"name": "faulty", "context": {"cluster": "faulty", "user": "faulty"}}],
            "current-context": "faulty",
        }
        path.write_text(json.dumps(document, indent=2))
        return path

    def on(self, method: str, path: str, fault: Fault, times: int | None = None, skip: int = 0) -> Rule:
        """Adds a rule; the newest that takes a request decides. `path` is searched for, query included."""
        rule = Rule(method, re.compile(path), fault, times, skip)
        with self._lock:
            self._rules.insert(0, rule)
        return rule

    def clear(self) -> None:
        """No more rules; what is held goes on."""
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            rule.resume.set()

    def rule_for(self, method: str, path: str) -> Rule:
        with self._lock:
            self.requests.append((method, path))
            taken = (rule for rule in self._rules if rule.takes(method, path))
            return next(taken, None) or Rule(method, re.compile(""), PASS)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # with Python's 5 a burst of connections is reset

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.clients: set[socket.socket] = set()
        super().__init__(("127.0.0.1", proxy.port), _Handler)

    def cut(self) -> None:
        for client in list(self.clients):
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what many a test is about: nothing to print."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self._upstream: http.client.HTTPSConnection | None = None
        self.server.clients.add(self.connection)

    def finish(self) -> None:
        self.server.clients.discard(self.connection)
        if self._upstream is not None:
            self._upstream.close()
        super().finish()

    def log_message(self, *_: object) -> None:
        """Silence."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        rule = self.server.proxy.rule_for(self.command, self.path)
        rule.reached.set()
        try:
            self._carry_out(rule, body)
        finally:
            rule.done.set()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - http.server's names

    def _carry_out(self, rule: Rule, body: bytes) -> None:
        fault = rule.fault
        rule.resume.wait(fault.before)
        answer = self._forward(body) if fault.forward else None
        if answer is not None and (fault.answer or fault.drop):
            answer.read()
        rule.resume.wait(fault.after)
        if fault.drop:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif fault.answer is not None:
            self._answer(fault.answer)
        elif answer is not None:
            self._relay(answer)

    def _forward(self, body: bytes) -> http.client.HTTPResponse:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        headers["Authorization"] = self.headers["Authorization"] or f"Bearer {self.server.proxy.token}"
        for fresh in (False, True):
            upstream = self._connected(fresh)
            try:
                upstream.request(self.command, self.path, body or None, headers)
                return upstream.getresponse()
            except (http.client.RemoteDisconnected, ConnectionError):
                # A kept-alive connection that the server closed meanwhile; once more on a new one.
                if fresh:
                    raise
        raise AssertionError("unreachable")

    def _connected(self, fresh: bool) -> http.client.HTTPSConnection:
        if self._upstream is None or fresh:
            address, context = self.server.proxy.upstream, self.server.proxy.context
            self._upstream = http.client.HTTPSConnection(
                address.hostname or "", address.port, timeout=300, context=context
            )
        return self._upstream

    def _relay(self, answer: http.client.HTTPResponse) -> None:
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        if answer.length is None:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in _parts(answer):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
        else:
            content = answer.read()
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def _answer(self, status: int) -> None:
        said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
        content = json.dumps({**said, "message": f"the test answers {status}"}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _parts(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    while part := answer.read1(65536):
        yield part


def wait_reached(rule: Rule, seconds: float = 60.0) -> float:
    """When a request has come to the rule (time.monotonic()); an AssertionError if none does."""
    assert rule.reached.wait(seconds), f"no {rule.method} {rule.path.pattern} within {seconds:g} s"
    return time.monotonic()
