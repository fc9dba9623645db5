"""The processes that the bench compares, each ended with its block, and on Linux with the bench itself.
They get no settings from the shell they are started in, except where Python and its packages are."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from berth.local.ports import free_port
from tests.bench.bodies import ROOT
from tests.support import processes

_READY_SECONDS = 120.0
_STOP_SECONDS = 10.0
_LOOK_SECONDS = 0.002
_OURS = ("BERTH_", "BENCH_", "FUNCTION_", "GUNICORN_", "WORKERS", "THREADS", "HOST", "PORT", "DEBUG")


class BenchError(Exception):
    """Why the bench can't go on, in a sentence for a person."""


class Helper:
    """A process that is told by lines what to do, and answers each with a line; its first one is `ready`."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def wait_ready(self) -> None:
        self.answer()

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def answer(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline().strip()):
            raise self._ended()
        return line

    def _ended(self) -> BenchError:
        return BenchError(f"a process of the bench has ended: {_end_of(self._log)}")


@dataclass(frozen=True)
class Server:
    """One that is up, leader of a session of its own."""

    port: int
    pid: int

    def cpu_seconds(self) -> float | None:
        """What it has computed so far, with its workers; None where the system does not tell (Linux does)."""
        if not Path("/proc/self/schedstat").is_file():
            return None
        return sum(_cpu_nanoseconds(pid) for pid in _session(self.pid)) / 1e9

    def peak_bytes(self) -> int:
        """What the largest of its processes has had in memory at most, so far; 0 where the system does not
        tell."""
        return (
            max(map(processes.peak_bytes, _session(self.pid)), default=0)
            if Path("/proc/self/status").is_file()
            else 0
        )


@contextmanager
def server(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[Server]:
    """Run a server until the block is left; PORT in the command is its port, once it accepts connections."""
    port = free_port()
    command = [part.replace("PORT", str(port)) for part in command]
    with _log() as log, _running(command, environment, log, stdin=subprocess.DEVNULL) as process:
        _wait(process, port, log)
        yield Server(port, process.pid)


@contextmanager
def helper(
    module: str,
    store: str,
    nodes: int,
    environment: Mapping[str, str],
    *more: str,
    folder: Path = ROOT,
) -> Iterator[Helper]:
    """A module of the bench in this folder at work on a store, once it is ready."""
    command = [sys.executable, "-m", f"tests.bench.{module}", "--store", store, "--nodes", str(nodes), *more]
    with (
        _log() as log,
        _running(command, environment, log, subprocess.PIPE, subprocess.PIPE, folder) as process,
    ):
        found = Helper(process, log)
        found.wait_ready()
        yield found


@contextmanager
def _running(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    stdin: int,
    stdout: int | None = None,
    folder: Path = ROOT,
) -> Iterator[subprocess.Popen[str]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**kept, **environment},
            stdin=stdin,
            stdout=output if stdout is None else stdout,
            stderr=output,
            text=True,
            start_new_session=True,  # Ctrl-C is for the bench: it ends its processes in order
            preexec_fn=_die_with_parent,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


@contextmanager
def _log() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as folder:
        yield Path(folder) / "log"


def _wait(process: subprocess.Popen[str], port: int, log: Path) -> None:
    give_up_at = time.monotonic() + _READY_SECONDS
    while process.poll() is None and time.monotonic() < give_up_at:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(_LOOK_SECONDS)
    raise BenchError(f"{' '.join(map(str, process.args))} did not start: {_end_of(log)}")  # type: ignore[arg-type]


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:].strip() or "it said nothing"


def _session(leader: int) -> list[int]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [pid for pid in pids if _session_of(pid) == leader]


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _cpu_nanoseconds(pid: int) -> int:
    total = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # a thread may end meanwhile
            total += int(thread.read_text().split()[0])
    return total


def _die_with_parent() -> None:
    # A bench that is killed with -9 leaves nothing behind either.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
