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
from typing import Any, BinaryIO, ClassVar, Self

from berth.local.ports import free_port

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
Answer = bytes | list[Any] | None
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
    mode: ClassVar[Sequence[str]] = ()  # what its command line ends with
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

    @property
    def running(self) -> bool:
        return self._process is not None

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
        settings = self.folder / "redis.conf"
        settings.write_text("\n".join(self._settings()) + "\n")
        argv = [sys.executable, "-I", "-S", "-c", _TIED, str(binary), str(settings), *self.mode]
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
        """Returns when it, a replica, has what the primary has now, and is sent what comes."""
        deadline = time.monotonic() + READY_SECONDS
        # The primary's first: its first replica gives it a new replication id, and offsets go on.
        while not _at_least(primary.info("replication"), self.info("replication"), self.port):
            if time.monotonic() > deadline:
                raise RedisServerError(f"no link to its primary; the end of its log:\n{self.tail()}")
            threading.Event().wait(0.01)

    def cut_off(self, primary: "RedisServer") -> None:
        """From now on it, a replica, gets nothing from the primary, which goes on until it is restarted."""
        primary.command("ACL", "SETUSER", "default", "-psync", "-sync")
        primary.command("CLIENT", "KILL", "TYPE", "replica")
        deadline = time.monotonic() + READY_SECONDS
        while self.info("replication")["master_link_status"] != "down":
            if time.monotonic() > deadline:
                raise RedisServerError(f"the link to its primary stays; the end of its log:\n{self.tail()}")
            threading.Event().wait(0.01)

    def commits(self) -> int:
        """How many of berth's commits it has, as the ledger's mark says."""
        mark = self.command("HGET", "{berth}:documents", b"\xff").split()
        return int(mark[2]) if len(mark) > 2 else 0

    def command(self, *words: str | bytes) -> bytes:
        """The answer, which should be a line or a string ('' for none).

        Raises RedisServerError for an error. Not for servers with an ACL that keeps out the default user.
        """
        found = self._ask(*words)
        return found if isinstance(found, bytes) else b""

    def parts(self, *words: str | bytes) -> list[Any]:
        """Ask what is answered with a list, which may hold others."""
        found = self._ask(*words)
        return found if isinstance(found, list) else []

    def _ask(self, *words: str | bytes) -> Answer:
        encoded = [word if isinstance(word, bytes) else word.encode() for word in words]
        packed = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
        with self._connected() as connection, connection.makefile("rb") as answers:
            connection.sendall(b"*%d\r\n" % len(encoded) + packed)
            return _answer(answers)

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

    def _settings(self) -> list[str]:
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
            lines += [f'tls-ca-cert-file "{certificate}"', "tls-auth-clients no", "tls-replication yes"]
        if self.acl:
            lines += [f'aclfile "{self._users()}"']
        return lines

    def _users(self) -> Path:
        path = self.folder / "users.acl"
        path.write_text("\n".join(self.acl) + "\n")
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


def _answer(answers: BinaryIO) -> Answer:
    line = answers.readline()
    if line.startswith(b"-") or not line:
        raise RedisServerError(line.decode(errors="replace").strip() or "no answer")
    kind, rest = line[:1], line[1:].strip()
    if kind == b"*":
        return [_answer(answers) for _ in range(int(rest))]
    if kind == b"$":
        return answers.read(int(rest) + 2)[:-2] if int(rest) >= 0 else None
    return rest


def _at_least(primary: dict[str, str], replica: dict[str, str], port: int) -> bool:
    return (
        any(f"port={port},state=online," in value for value in primary.values())
        and replica.get("master_link_status") == "up"
        and replica["master_replid"] == primary["master_replid"]
        and int(replica["slave_repl_offset"]) >= int(primary["master_repl_offset"])
    )
