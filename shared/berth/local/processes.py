"""Every function as its own process on 127.0.0.1, served by berth.http.server and kept alive.
Not a production server: Knative does this in a cluster."""

import contextlib
import http.client
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import berth
from berth.errors import SettingsError
from berth.local.deathsig import when_parent_dies
from berth.local.load_balancer import Balancer, taken
from berth.local.ports import free_ports, is_free

ORDER = ("filter", "prioritize", "preempt", "bind", "release", "inventory", "reconcile", "extender", "status")
"""Ports count up by this list; functions that are not built yet leave gaps."""

ANSWER_SECONDS = {"reconcile": 600.0, "release": 60.0, "inventory": 60.0}
"""How long an event may take, as infra's Services have it; reconcile rebuilds a large ledger in one call."""

SILENCE_SECONDS = 30.0
"""How long a process may leave /healthz unanswered before it is ended: 3 times 10 s, as liveness probes do.
That path has threads of its own, so one that works is not silent."""

_VERBS = ("filter", "prioritize", "preempt", "bind")
"""What the function extender serves under its one URL."""
_LATER = ("status",)
"""Not built yet."""

Say = Callable[[Mapping[str, object]], None]

_LOOK_SECONDS = 0.1
_STOP_SECONDS = 5.0
_START_SECONDS = 180.0  # until a process answers at all
_PROBES = 3
_LONGEST_PAUSE = 5.0
_BINDING_THREADS = "48"
_HOSTS = "127.0.0.1,localhost,[::1]"  # no web page is to call them by a name of its own that leads here


def functions_folder() -> Path:
    """The checkout's functions/, or those that the wheel carries."""
    package = Path(berth.__file__).parent
    checkout = package.parent.parent / "functions"
    return checkout if (checkout.parent / "pyproject.toml").is_file() else package / "_functions"


def names(folder: Path, single: bool) -> list[str]:
    """The functions to run; `single`: one for all verbs. Raises SettingsError for one that is not there."""
    wanted = [name for name in ORDER if name not in (_VERBS if single else ("extender",))]
    found = [name for name in wanted if (folder / name / "main.py").is_file()]
    for name in wanted:
        if name not in found and name not in _LATER:
            raise SettingsError(f"there is no function {name} in {folder}")
    return found


def ports(chosen: Sequence[str], first: int) -> dict[str, int]:
    """The port of each function. Raises SettingsError where one is taken; first 0: any free ones."""
    if first == 0:
        return dict(zip(chosen, free_ports(len(chosen)), strict=True))
    found = {name: first + ORDER.index(name) for name in chosen}
    for name, port in found.items():
        if not is_free(port):
            raise taken(name, port)
    return found


class _Health:
    """Asks one process for its health until it ends, in a thread of its own: nobody waits for one that hangs.

    `ready` is set once it is well. `hung` is called when it has answered nothing for too long; an answer that
    something is wrong (503: its store is away) is an answer.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], port: int, silence: float, hung: Callable[[str], None]
    ) -> None:
        self.ready = threading.Event()
        self._process, self._port, self._silence, self._hung = process, port, silence, hung
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        give_up_at, heard, silent = time.monotonic() + _START_SECONDS, False, 0
        while self._process.poll() is None:
            status = self._ask()
            heard, silent = heard or status is not None, 0 if status is not None else silent + 1
            if status == 200:
                self.ready.set()
            if heard and silent == _PROBES:
                return self._hung(f"it answered nothing for {self._silence:g} s")
            if not heard and time.monotonic() > give_up_at:
                return self._hung(f"it was not there after {_START_SECONDS:g} s")
            time.sleep(self._silence / _PROBES / 2 if self.ready.is_set() else _LOOK_SECONDS)
        return None

    def _ask(self) -> int | None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._silence / _PROBES)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


class Function:
    """One process of a function; start it again as often as it dies or hangs.

    `url` is where the function is called, by way of a balancer if it has several processes."""

    def __init__(
        self,
        name: str,
        source: Path,
        port: int,
        say: Say,
        *,
        url: str = "",
        replica: int | None = None,
        silence: float | None = None,
    ) -> None:
        self.name, self.port, self.url = name, port, url or f"http://127.0.0.1:{port}"
        self.replica = replica
        self._source, self._say = source, say
        self._silence = SILENCE_SECONDS if silence is None else silence
        self._process: subprocess.Popen[bytes] | None = None
        self._health: _Health | None = None
        self._ready, self._started = False, 0.0
        self._pause, self._not_before = 0.2, 0.0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def look(self) -> bool:
        """Start it if it is not running, see whether it answers; True while it does."""
        if self._process is not None and self._process.poll() is not None:
            self._died(self._process)
        if self._process is None:
            self._start()
        elif not self._ready and self._health is not None and self._health.ready.is_set():
            self._ready, self._pause = True, 0.2
            self._state("ready")
        return self._ready

    def end(self, why: str, since: float) -> None:
        """End its process if that one has run since then (monotonic seconds); `look` starts another."""
        process = self._process
        if process is not None and self._started <= since and process.poll() is None:
            self._state("hung", why=why)
            _kill_group(process)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            _kill_group(process)
            process.wait()

    def _start(self) -> None:
        if time.monotonic() < self._not_before:
            return
        server = [sys.executable, "-m", "berth.http.server", "--host", "127.0.0.1", "--port", str(self.port)]
        self._started = began = time.monotonic()
        self._process = process = subprocess.Popen(
            [*server, "--source", str(self._source), "--target", self.name],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us to pass on, in order
            preexec_fn=when_parent_dies(signal.SIGTERM),
        )
        self._state("starting")
        threading.Thread(target=self._copy_output, args=(process,), daemon=True).start()
        self._health = _Health(process, self.port, self._silence, lambda why: self.end(why, began))

    def _environment(self) -> dict[str, str]:
        # A burst of binds waits for the API server: with the framework's 4 threads a core kube-scheduler
        # gives up most of its calls after 5 s.
        more = {"THREADS": _BINDING_THREADS} if self.name in ("bind", "extender") else {}
        return {**more, "BERTH_HOSTS": _HOSTS, **os.environ}

    def _died(self, process: subprocess.Popen[bytes]) -> None:
        _kill_group(process)  # a worker that hangs would keep the port
        self._process, self._ready = None, False
        self._not_before, self._pause = time.monotonic() + self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        self._state("died", exit=process.returncode)

    def _state(self, state: str, **more: object) -> None:
        pid = {} if self._process is None else {"pid": self._process.pid}
        which = {} if self.replica is None else {"replica": self.replica}
        self._say({"function": self.name, "url": self.url, "state": state, **which, **pid, **more})

    def _copy_output(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None  # for mypy: it is a pipe
        name = self.name if self.replica is None else f"{self.name} {self.replica}"
        with process.stdout as lines:
            for line in lines:
                # Read on even if nobody listens: a full pipe would stop the function.
                with contextlib.suppress(OSError, AttributeError):
                    sys.stderr.write(f"{name} | {line.decode(errors='replace')}")
                    sys.stderr.flush()


class Kept:
    """Processes that one thread keeps alive from `start` to `stop`."""

    def __init__(self, processes: Sequence[Function]) -> None:
        self.all = processes
        self.urls = {process.name: process.url for process in processes}
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
        enders = [threading.Thread(target=process.stop) for process in self.all]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join()

    def end(self, name: str, why: str, since: float) -> None:
        """End the processes of this function that have run since then (monotonic seconds); others follow."""
        for process in self.all:
            if process.name == name:
                process.end(why, since)

    def _watch(self) -> None:
        while not self._stop.is_set():
            answering = [process.look() for process in self.all]
            if all(answering):
                self._ready.set()
            self._stop.wait(_LOOK_SECONDS)


class Functions(Kept):
    """A folder's functions, each in `replicas` processes."""

    def __init__(
        self,
        folder: Path,
        first_port: int,
        say: Say,
        *,
        single: bool = False,
        replicas: int = 1,
        silence: float | None = None,
    ) -> None:
        public = ports(names(folder, single), first_port)
        self._balancers: list[Balancer] = []
        processes: list[Function] = []
        own = _own_ports(public, replicas)
        for name, port in public.items():
            source = folder / name / "main.py"
            if replicas == 1:
                processes.append(Function(name, source, port, say, silence=silence))
                continue
            self._balancers.append(Balancer(name, port, own[name]))
            url = f"http://127.0.0.1:{port}"
            processes += [
                Function(name, source, each, say, url=url, replica=number, silence=silence)
                for number, each in enumerate(own[name], 1)
            ]
        super().__init__(processes)

    def start(self) -> None:
        """Raises SettingsError where a port has been taken meanwhile."""
        for balancer in self._balancers:
            balancer.start()
        super().start()

    def stop(self) -> None:
        super().stop()
        for balancer in self._balancers:  # last: what the functions still answer has to get through
            balancer.stop()


def _own_ports(public: Mapping[str, int], replicas: int) -> dict[str, list[int]]:
    """Ports for the processes behind each function's public one."""
    if replicas == 1:
        return {}
    needed = len(public) * replicas
    free = (port for port in free_ports(needed + len(public)) if port not in public.values())
    return {name: list(itertools.islice(free, replicas)) for name in public}


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of the process and its workers; those may outlive it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
