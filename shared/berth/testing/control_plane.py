"""A real etcd, kube-apiserver and kube-scheduler on loopback ports, for `berth demo --real` and the tests.
There is no controller manager and no kubelet, and etcd does not sync: nothing here outlives its user.
"""

import atexit
import base64
import csv
import http.client
import secrets
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from berth.errors import BerthError
from berth.local.ports import free_port, free_ports
from berth.local.prctl import when_parent_dies
from berth.testing import kubeconfig

READY_SECONDS = 60.0
_UNVERIFIED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_UNVERIFIED.check_hostname = False
_UNVERIFIED.verify_mode = ssl.CERT_NONE
# Loopback only: no proxy of the environment, and the certificates are seconds old.
_OPENER = urllib.request.build_opener(
    urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_UNVERIFIED)
)


class ControlPlaneError(BerthError):
    """A component did not start; the text ends with its last log lines."""


@dataclass
class Component:
    """One process and its log, to which a restart appends. Without an environment it gets ours."""

    name: str
    argv: Sequence[str]
    log: Path
    ready_url: str
    process: subprocess.Popen[bytes] | None = None
    environment: Mapping[str, str] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                # Ctrl-C does not reach it: whoever started it may need the cluster until its own end.
                start_new_session=True,
                # A parent that is killed runs no atexit.
                preexec_fn=when_parent_dies(signal.SIGKILL),
            )

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def wait_ready(self, token: str = "", url: str = "") -> None:
        """Wait until it answers at `url`, or else at its `ready_url`."""
        deadline = time.monotonic() + READY_SECONDS
        while not _answers(url or self.ready_url, token):
            self._fail_if(self.process is None or self.process.poll() is not None, "ended while it started")
            self._fail_if(time.monotonic() > deadline, f"was not ready within {READY_SECONDS:.0f} s")
            time.sleep(0.03)

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _fail_if(self, failed: bool, what: str) -> None:
        if failed:
            raise ControlPlaneError(f"{self.name} {what}; the end of {self.log}:\n{self.tail()}")


def _answers(url: str, token: str) -> bool:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with _OPENER.open(request, timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False


def _signing_key() -> str:
    """Return a P-256 private key (SEC 1, PEM); the public half may be left out."""
    # By hand, because the standard library makes no keys and openssl may not be there.
    scalar = (secrets.randbits(255) | 1).to_bytes(32, "big")
    der = bytes.fromhex("303102010104 20") + scalar + bytes.fromhex("a00a06082a8648ce3d030107")
    return f"-----BEGIN EC PRIVATE KEY-----\n{base64.b64encode(der).decode()}\n-----END EC PRIVATE KEY-----\n"


@dataclass
class ControlPlane:
    """`binaries` is what tests/controlplane/build made; `users` maps a token to its user and groups."""

    binaries: Path
    folder: Path
    users: Mapping[str, tuple[str, Sequence[str]]] = field(default_factory=dict)
    apiserver_flags: Sequence[str] = ()
    admin_token: str = field(default_factory=lambda: secrets.token_hex(16))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._port, etcd, peers = free_ports(3)  # at once: drawn one by one, two may be the same
        self.url = f"https://127.0.0.1:{self._port}"
        self.ca_file = self.folder / "certs" / "apiserver.crt"
        self._schedulers: dict[str, Component] = {}
        self._etcd_url = f"http://127.0.0.1:{etcd}"
        self._etcd = self._make_etcd(f"http://127.0.0.1:{peers}")
        self._apiserver = self._make_apiserver()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def components(self) -> list[Component]:
        return [*self._schedulers.values(), self._apiserver, self._etcd]

    def start(self) -> None:
        atexit.register(self.stop)
        self._write_secrets()
        try:
            self._etcd.start()
            self._etcd.wait_ready()
            self.start_apiserver()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for component in self.components:
            component.stop()
        atexit.unregister(self.stop)

    def start_apiserver(self) -> None:
        """Start it on its data and port; return when it serves and has its namespace `default`."""
        self._apiserver.start()
        self._apiserver.wait_ready(self.admin_token)
        self._apiserver.wait_ready(self.admin_token, f"{self.url}/api/v1/namespaces/default")

    def start_scheduler(self, config: Path, name: str = "berth", flags: Sequence[str] = ()) -> None:
        """Run `kube-scheduler --config`; that configuration has to name the API server."""
        if name in self._schedulers:
            raise ControlPlaneError(f"the scheduler {name} was started before")
        port = free_port()
        argv = [
            str(self.binaries / "kube-scheduler"),
            f"--config={config}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self.folder / f'certs-of-{name}'}",
            "--authentication-skip-lookup",
            "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics",
            # From 2 on the log has a line for every pod that was bound or that no node could take.
            "--v=2",
            *flags,
        ]
        ready = f"https://127.0.0.1:{port}/readyz"
        scheduler = self._schedulers[name] = self._component(f"kube-scheduler-{name}", argv, ready)
        scheduler.start()
        scheduler.wait_ready()

    def scheduler_metrics(self, name: str = "berth") -> str:
        url = self._schedulers[name].ready_url.replace("/readyz", "/metrics")
        with _OPENER.open(url, timeout=5) as answer:
            return str(answer.read(), "utf-8")

    def kubeconfig(self, path: Path, token: str | None = None) -> Path:
        """Write a kubeconfig for the bearer of `token`, by default the admin."""
        authority = base64.b64encode(self.ca_file.read_bytes()).decode()
        user = {"token": token or self.admin_token}
        return kubeconfig.write(path, self.url, user, **{"certificate-authority-data": authority})

    def _component(self, name: str, argv: Sequence[str], ready_url: str) -> Component:
        return Component(name, argv, self.folder / f"{name}.log", ready_url)

    def _write_secrets(self) -> None:
        (self.folder / "service-account.key").write_text(_signing_key())
        everyone = {**self.users, self.admin_token: ("admin", ("system:masters",))}
        with (self.folder / "tokens.csv").open("w", newline="") as tokens:
            rows = ((token, user, user, ",".join(groups)) for token, (user, groups) in everyone.items())
            csv.writer(tokens).writerows(rows)

    def _make_etcd(self, peers: str) -> Component:
        argv = [
            str(self.binaries / "etcd"),
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        ]
        return self._component("etcd", argv, f"{self._etcd_url}/health")

    def _make_apiserver(self) -> Component:
        key = self.folder / "service-account.key"
        argv = [
            str(self.binaries / "kube-apiserver"),
            f"--etcd-servers={self._etcd_url}",
            f"--cert-dir={self.folder / 'certs'}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            # A loopback address is no valid endpoint; the reconciler would complain for ever.
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--authorization-mode=RBAC",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            # Without a controller manager no namespace gets the service account that pods would need.
            "--disable-admission-plugins=ServiceAccount",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            *self.apiserver_flags,
        ]
        return self._component("kube-apiserver", argv, f"{self.url}/readyz")
