"""A real redis-server (or valkey-server) on a loopback port, with what faults need: kill, restart, silence,
AOF, users, TLS, replicas. It keeps its data in its folder and is gone with the process that started it."""

import atexit
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from berth.ports import free_port

READY_SECONDS = 60.0
MISSING = "no redis-server here: run `make redis`, or install it (Debian: apt-get install redis-server)"
# The kernel counts the thread that forked as the parent, so a thread that stays does it for all.
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="redis-server")
# Set in the child itself: code between fork and exec is not safe among threads.
_TIED = (
    "import ctypes, os, signal, sys\n"
    "if sys.platform == 'linux': ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
_READY = (b"+PONG", b"-NOAUTH")
_PORTS, _TAKEN = 5, "Address already in use"


class RedisServerError(Exception):
    """The server did not start; the text ends with its last log lines."""


def redis_binary() -> Path | None:
    """The server that is installed here."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    return Path(found) if found else None


@dataclass
class RedisServer:
    """`start` and `stop` may be called again and again: the port, the folder and the settings stay.

    With `aof` every answered write is on disk. `acl` are lines of an ACL file (user me on >secret ~* +@all),
    `tls` are PEM files (certificate, key): then it speaks nothing but TLS. `settings` are more of redis.conf.
    """

    folder: Path
    aof: bool = False
    acl: Sequence[str] = ()
    tls: tuple[Path, Path] | None = None
    settings: Sequence[str] = ()
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"{'rediss' if self.tls else 'redis'}://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RedisServerError("redis-server does not run")
        return self._process.pid

    def start(self) -> None:
        """Returns when it answers, its data loaded. Its first start takes another port if need be."""
        for _ in range(0 if self._log.exists() else _PORTS):
            try:
                return self._start()
            except RedisServerError:
                if _TAKEN not in self.tail():
                    raise
                self.port = free_port()
                self._log.unlink()
        return self._start()

    def _start(self) -> None:
        binary = redis_binary()
        if binary is None:
            raise RedisServerError(MISSING)
        self.folder.mkdir(parents=True, exist_ok=True)
        atexit.register(self.stop)
        argv = [sys.executable, "-I", "-S", "-c", _TIED, str(binary), str(self._write_settings())]
        self._process = _SPAWNER.submit(self._spawn, argv).result()
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """At once and without saving, unless `how` is SIGTERM."""
        atexit.unregister(self.stop)
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Silent from now on: connections are taken, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def flush(self) -> None:
        self.command("FLUSHALL")

    def info(self, section: str) -> dict[str, str]:
        lines = self.command("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def replica_of(self, primary: "RedisServer | None") -> None:
        """Returns when it has what the primary has now; None makes it a primary of its own."""
        if primary is None:
            self.command("REPLICAOF", "NO", "ONE")
            return
        self.command("REPLICAOF", "127.0.0.1", str(primary.port))
        self.catch_up(primary)

    def catch_up(self, primary: "RedisServer") -> None:
        """Returns when it, a replica, has what the primary has now."""
        deadline = time.monotonic() + READY_SECONDS
        # The primary's first: its first replica gives it a new replication id, and offsets go on.
        while not _at_least(primary.info("replication"), self.info("replication")):
            if time.monotonic() > deadline:
                raise RedisServerError(f"no link to its primary; the end of its log:\n{self.tail()}")
            threading.Event().wait(0.01)

    def command(self, *words: str | bytes) -> bytes:
        """The answer as the protocol has it, up to its end as far as one line or one bulk goes.

        Raises RedisServerError for an error. Not for servers with an ACL that keeps out the default user.
        """
        encoded = [word if isinstance(word, bytes) else word.encode() for word in words]
        packed = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
        with self._connected() as connection, connection.makefile("rb") as answers:
            connection.sendall(b"*%d\r\n" % len(encoded) + packed)
            line = answers.readline()
            if line.startswith(b"-") or not line:
                raise RedisServerError(line.decode(errors="replace").strip() or "no answer")
            if line.startswith(b"$") and int(line[1:]) >= 0:
                return answers.read(int(line[1:]))
            return line[1:].strip()

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    @property
    def _log(self) -> Path:
        return self.folder / "redis.log"

    def _spawn(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},  # it refuses to start under a locale that is not installed
            )

    def _write_settings(self) -> Path:
        plain, secure = ("0", str(self.port)) if self.tls else (str(self.port), "0")
        lines = [
            "bind 127.0.0.1",
            f"port {plain}",
            "daemonize no",
            f'dir "{self.folder}"',
            'save ""',
            f"appendonly {'yes' if self.aof else 'no'}",
            "appendfsync always",
            "repl-diskless-sync-delay 0",
            *self.settings,
        ]
        if self.tls:
            certificate, key = self.tls
            lines += [f"tls-port {secure}", f'tls-cert-file "{certificate}"', f'tls-key-file "{key}"']
            lines += ["tls-auth-clients no"]
        if self.acl:
            (self.folder / "users.acl").write_text("\n".join(self.acl) + "\n")
            lines += [f'aclfile "{self.folder / "users.acl"}"']
        path = self.folder / "redis.conf"
        path.write_text("\n".join(lines) + "\n")
        return path

    def _connected(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        if not self.tls:
            return connection
        unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        return unverified.wrap_socket(connection)

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not self._answers():
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                what = "ended while it started" if ended else f"was not ready within {READY_SECONDS:.0f} s"
                raise RedisServerError(f"redis-server {what}; the end of {self._log}:\n{self.tail()}")
            threading.Event().wait(0.01)

    def _answers(self) -> bool:
        try:
            with self._connected() as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(_READY)
        except OSError:
            return False


def _at_least(primary: dict[str, str], replica: dict[str, str]) -> bool:
    return (
        replica.get("master_link_status") == "up"
        and replica["master_replid"] == primary["master_replid"]
        and int(replica["slave_repl_offset"]) >= int(primary["master_repl_offset"])
    )
