"""Every function as its own functions-framework process on 127.0.0.1, kept alive.
Not a production server: Knative does this in a cluster."""

import contextlib
import ctypes
import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import berth
from berth.errors import SettingsError
from berth.ports import free_ports, is_free

ORDER = ("filter", "prioritize", "preempt", "bind", "release", "inventory", "reconcile", "extender", "status")
"""Ports count up by this list; functions that are not built yet leave gaps."""

Say = Callable[[Mapping[str, object]], None]

_LOOK_SECONDS = 0.1
_STOP_SECONDS = 5.0
_LONGEST_PAUSE = 5.0


def functions_folder() -> Path:
    """The checkout's functions/, or those that the wheel carries."""
    package = Path(berth.__file__).parent
    checkout = package.parent.parent / "functions"
    return checkout if (checkout.parent / "pyproject.toml").is_file() else package / "_functions"


def ports(folder: Path, first: int) -> dict[str, int]:
    """The port of each built function. Raises SettingsError where one is taken; first 0: any free ones."""
    built = [name for name in ORDER if (folder / name / "main.py").is_file()]
    if not built:
        raise SettingsError(f"there are no functions in {folder}")
    if first == 0:
        return dict(zip(built, free_ports(len(built)), strict=True))
    chosen = {name: first + ORDER.index(name) for name in built}
    for name, port in chosen.items():
        if not is_free(port):
            raise SettingsError(f"port {port} (for {name}) is in use: choose another first port with --port")
    return chosen


class Function:
    """One function's process; start it again as often as it dies."""

    def __init__(self, name: str, source: Path, port: int, say: Say) -> None:
        self.name, self.port, self.url = name, port, f"http://127.0.0.1:{port}"
        self._source, self._say = source, say
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._pause, self._not_before = 0.2, 0.0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def look(self) -> bool:
        """Start it if it is not running, see whether it answers; True while it does."""
        if self._process is not None and self._process.poll() is not None:
            self._died(self._process.returncode)
        if self._process is None:
            self._start()
        elif not self._ready and self._healthy():
            self._ready, self._pause = True, 0.2
            self._state("ready")
        return self._ready

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self) -> None:
        if time.monotonic() < self._not_before:
            return
        framework = [
            sys.executable,
            "-m",
            "functions_framework",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
        ]
        self._process = subprocess.Popen(
            [*framework, "--source", str(self._source), "--target", self.name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us to pass on, in order
            preexec_fn=_die_with_parent,
        )
        self._state("starting")
        threading.Thread(target=self._copy_output, args=(self._process,), daemon=True).start()

    def _died(self, code: int) -> None:
        self._process, self._ready = None, False
        self._not_before, self._pause = time.monotonic() + self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        self._state("died", exit=code)

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _state(self, state: str, **more: object) -> None:
        pid = {} if self._process is None else {"pid": self._process.pid}
        self._say({"function": self.name, "url": self.url, "state": state, **pid, **more})

    def _copy_output(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None  # for mypy: it is a pipe
        for line in process.stdout:
            # Read on even if nobody listens: a full pipe would stop the function.
            with contextlib.suppress(OSError, AttributeError):
                sys.stderr.write(f"{self.name} | {line.decode(errors='replace')}")
                sys.stderr.flush()


class Functions:
    """All functions of a folder, watched by one thread from `start` to `stop`."""

    def __init__(self, folder: Path, first_port: int, say: Say) -> None:
        self.all = {
            name: Function(name, folder / name / "main.py", port, say)
            for name, port in ports(folder, first_port).items()
        }
        self.urls = {name: function.url for name, function in self.all.items()}
        self._stop, self._ready = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="functions", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_ready(self, stop: threading.Event) -> bool:
        """Wait until each has answered once; False if stopped before."""
        while not self._ready.wait(_LOOK_SECONDS):
            if stop.is_set():
                return False
        return True

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        enders = [threading.Thread(target=function.stop) for function in self.all.values()]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join()

    def _watch(self) -> None:
        while not self._stop.is_set():
            answering = [function.look() for function in self.all.values()]
            if all(answering):
                self._ready.set()
            self._stop.wait(_LOOK_SECONDS)


def _die_with_parent() -> None:
    """Even a `kill -9` of berth leaves no function behind (Linux; elsewhere they must be stopped by hand)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
