"""Every function as a process of its own on 127.0.0.1, which is started again if it ends or hangs.
Not a production server: Knative does this in a cluster."""

import contextlib
import http.client
import itertools
import logging
import os
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import BinaryIO

import berth
from berth.errors import SettingsError
from berth.local.forkserver import Fork, ForkServer
from berth.local.load_balancer import LoadBalancer, port_taken
from berth.local.ports import free_ports, is_free
from berth.metrics import FOLDER
from berth.telemetry import logs

ORDER = ("filter", "prioritize", "preempt", "bind", "release", "inventory", "reconcile", "extender", "status")
"""Ports count up in this order; a function that does not run leaves a gap."""

ANSWER_SECONDS = {"reconcile": 600.0, "release": 60.0, "inventory": 60.0}
"""Seconds that an event may take, as in infra's Services; reconcile rebuilds a large ledger in one call."""

SILENCE_SECONDS = 30.0
"""How long a process may leave /healthz unanswered before it is ended: 3 times 10 s, as with liveness probes.
That path has threads of its own, so a process that is busy is not silent."""

_VERBS = ("filter", "prioritize", "preempt", "bind")
"""What the function extender serves under its one URL."""
_NOT_NEEDED = ("status",)

IMPORTED = (
    "berth.http.server",
    "berth.kube.cluster",
    *(f"berth.handlers.{name}" for name in ORDER),
)
"""What the functions import, by name: this package is below theirs."""

Say = Callable[[Mapping[str, object]], None]

_CHECK_SECONDS = 0.1
_STOP_SECONDS = 5.0
_START_SECONDS = 180.0  # until a process answers at all
_PROBES = 3
_LONGEST_PAUSE = 5.0
_BINDING_THREADS = "48"
_HOSTS = "127.0.0.1,localhost,[::1]"  # so that no web page can call them by a name that leads here


def functions_folder() -> Path:
    """Return the checkout's functions/, or those that the wheel carries."""
    package = Path(berth.__file__).parent
    checkout = package.parent.parent / "functions"
    return checkout if (checkout.parent / "pyproject.toml").is_file() else package / "_functions"


def names(folder: Path, single: bool) -> list[str]:
    """Return the functions to run; `single`: one for all verbs. Raises SettingsError where one is missing."""
    left_out = _VERBS if single else ("extender",)
    there = [name for name in ORDER if name not in left_out and (folder / name / "main.py").is_file()]
    for name in ORDER:
        if name not in (*there, *left_out, *_NOT_NEEDED):
            raise SettingsError(f"there is no function {name} in {folder}")
    return there


def ports(chosen: Sequence[str], first: int) -> dict[str, int]:
    """Return the port of each function. Raises SettingsError where one is taken; first 0: any free ones."""
    if first == 0:
        return dict(zip(chosen, free_ports(len(chosen)), strict=True))
    by_name = {name: first + ORDER.index(name) for name in chosen}
    for name, port in by_name.items():
        if not is_free(port):
            raise port_taken(name, port)
    return by_name


class _Health:
    """Asks one process for its health until it ends, in a thread of its own: a process may hang.

    `ready` is set once the process answers 200. `hung` is called when it has answered nothing for too long;
    503 (its store is away) is an answer.
    """

    def __init__(self, process: Fork, port: int, silence: float, hung: Callable[[str], None]) -> None:
        self.ready = threading.Event()
        self._process, self._port, self._silence, self._hung = process, port, silence, hung
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        began, answered_at, unanswered = time.monotonic(), 0.0, 0
        while self._process.poll() is None:
            status, now = self._ask(), time.monotonic()
            answered_at, unanswered = (answered_at, unanswered + 1) if status is None else (now, 0)
            if status == 200:
                self.ready.set()
            # Both: a look may be turned away at once, and this process may have stood still.
            if answered_at and unanswered >= _PROBES and now - answered_at >= self._silence:
                return self._hung(f"it answered nothing for {self._silence:g} s")
            if not answered_at and now > began + _START_SECONDS:
                return self._hung(f"it was not there after {_START_SECONDS:g} s")
            time.sleep(self._silence / _PROBES / 2 if self.ready.is_set() else _CHECK_SECONDS)
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


class FunctionProcess:
    """One process of a function, which is started again whenever it dies or hangs.

    `url` is where the function is called: a load balancer's if it has several processes."""

    def __init__(
        self,
        name: str,
        source: Path,
        port: int,
        say: Say,
        forks: ForkServer,
        *,
        url: str = "",
        replica: int | None = None,
        silence: float | None = None,
        metrics: Path | None = None,
    ) -> None:
        self.name, self.port, self.url = name, port, url or f"http://127.0.0.1:{port}"
        self.replica = replica
        self._metrics = metrics
        self._source, self._say, self._forks = source, say, forks
        self._silence = SILENCE_SECONDS if silence is None else silence
        self._process: Fork | None = None
        self._health: _Health | None = None
        self._ready, self._started = False, 0.0
        self._pause, self._not_before = 0.2, 0.0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def check(self) -> bool:
        """Start the process if it is not running; return whether it answers."""
        if self._process is not None and self._process.poll() is not None:
            self._died(self._process)
        if self._process is None:
            self._start()
        elif not self._ready and self._health is not None and self._health.ready.is_set():
            self._ready, self._pause = True, 0.2
            self._state("ready")
        return self._ready

    def end(self, why: str, since: float) -> None:
        """End the process if it has run since then (monotonic seconds); `check` starts another."""
        process = self._process
        if process is not None and self._started <= since and process.poll() is None:
            self._state("hung", why=why)
            _kill_group(process)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        if not process.wait(_STOP_SECONDS):
            _kill_group(process)
            process.wait(_STOP_SECONDS)

    def _start(self) -> None:
        if time.monotonic() < self._not_before:
            return
        where = ["--host", "127.0.0.1", "--port", str(self.port)]
        self._started = began = time.monotonic()
        try:
            process, output = self._forks.fork(
                [*where, "--source", str(self._source), "--target", self.name], self._environment()
            )
        except OSError as error:
            self._pause_before_the_next()
            self._state("died", why=str(error))
            return
        self._process = process
        self._state("starting")
        threading.Thread(target=self._copy_output, args=(output,), daemon=True).start()
        self._health = _Health(process, self.port, self._silence, lambda why: self.end(why, began))

    def _environment(self) -> dict[str, str]:
        # A burst of binds waits for the API server: with the framework's 4 threads a core kube-scheduler
        # gives up most of its calls after 5 s.
        more = {"THREADS": _BINDING_THREADS} if self.name in ("bind", "extender") else {}
        # A folder for each function, or it would tell what the others count. Its replicas share one: who
        # scrapes through the load balancer gets any of them.
        folder = {} if self._metrics is None else {FOLDER: str(self._metrics / self.name)}
        return {**more, "BERTH_HOSTS": _HOSTS, **os.environ, "BERTH_LOG_FORMAT": log_format(), **folder}

    def _died(self, process: Fork) -> None:
        _kill_group(process)  # a worker that hangs would keep the port
        self._process, self._ready = None, False
        self._pause_before_the_next()
        self._state("died", exit=process.returncode)

    def _pause_before_the_next(self) -> None:
        self._not_before, self._pause = time.monotonic() + self._pause, min(2 * self._pause, _LONGEST_PAUSE)

    def _state(self, state: str, **more: object) -> None:
        pid = {} if self._process is None else {"pid": self._process.pid}
        which = {} if self.replica is None else {"replica": self.replica}
        self._say({"function": self.name, "url": self.url, "state": state, **which, **pid, **more})

    def _copy_output(self, output: BinaryIO) -> None:
        as_json = log_format() == "json"
        told = _JsonLines(self.name, self.replica) if as_json else _TextLines(self.name, self.replica)
        with output as lines:
            for line in lines:
                # Read on even if nobody listens: a full pipe would stop the function.
                with contextlib.suppress(OSError, AttributeError):
                    sys.stderr.write(told.line(line.decode(errors="replace")))
                    sys.stderr.flush()


class Supervisor:
    """Keeps processes alive from `start` to `stop`, with one thread."""

    def __init__(self, processes: Sequence[FunctionProcess], forks: ForkServer) -> None:
        self.all, self._forks = processes, forks
        self.urls = {process.name: process.url for process in processes}
        self._stop, self._ready = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="functions", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_ready(self, stop: threading.Event) -> bool:
        """Wait until every process has answered once; False if stopped before."""
        while not self._ready.wait(_CHECK_SECONDS):
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
        self._forks.close()

    def end(self, name: str, why: str, since: float) -> None:
        """End the processes of this function that have run since then (monotonic seconds); others follow."""
        for process in self.all:
            if process.name == name:
                process.end(why, since)

    def _watch(self) -> None:
        while not self._stop.is_set():
            answers = [process.check() for process in self.all]
            if all(answers):
                self._ready.set()
            self._stop.wait(_CHECK_SECONDS)


class Functions(Supervisor):
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
        self._balancers: list[LoadBalancer] = []
        processes: list[FunctionProcess] = []
        own = _own_ports(public, replicas)
        forks = ForkServer(IMPORTED)
        # A process that is started again goes on with what the one before had counted.
        self._metrics = metrics = Path(gettempdir()) / f"berth-metrics-{secrets.token_hex(8)}"
        for name, port in public.items():
            source = folder / name / "main.py"
            if replicas == 1:
                processes.append(
                    FunctionProcess(name, source, port, say, forks, silence=silence, metrics=metrics)
                )
                continue
            self._balancers.append(LoadBalancer(name, port, own[name]))
            url = f"http://127.0.0.1:{port}"
            processes += [
                FunctionProcess(
                    name,
                    source,
                    own_port,
                    say,
                    forks,
                    url=url,
                    replica=number,
                    silence=silence,
                    metrics=metrics,
                )
                for number, own_port in enumerate(own[name], 1)
            ]
        super().__init__(processes, forks)

    def start(self) -> None:
        """Raise SettingsError where a port has been taken meanwhile."""
        for balancer in self._balancers:
            balancer.start()
        super().start()

    def stop(self) -> None:
        super().stop()
        for balancer in self._balancers:  # last: what the functions still answer has to get through
            balancer.stop()
        shutil.rmtree(self._metrics, ignore_errors=True)


def log_format() -> str:
    """Return the form of the lines that the functions log: text, where BERTH_LOG_FORMAT does not say json.
    They write to a pipe, and would not know of the terminal at its end."""
    return "json" if os.environ.get("BERTH_LOG_FORMAT") == "json" else "text"


class _TextLines:
    """A function's lines behind its name."""

    def __init__(self, name: str, replica: int | None) -> None:
        self._name = name if replica is None else f"{name} {replica}"

    def line(self, line: str) -> str:
        return f"{self._name} | {line}"


class _JsonLines:
    """A function's lines with its replica. What is no JSON (a crash, what a library prints) becomes JSON."""

    def __init__(self, name: str, replica: int | None) -> None:
        self._facts = {"function": name} if replica is None else {"function": name, "replica": replica}
        self._more = "" if replica is None else f'{{"replica":{replica},'
        self._formatter = logs.formatter("json")

    def line(self, line: str) -> str:
        if line.startswith('{"time":'):
            return f"{self._more}{line[1:]}" if self._more else line
        record = {"name": "berth.up", "levelname": "INFO", "msg": line.rstrip(), "facts": self._facts}
        return f"{self._formatter.format(logging.makeLogRecord(record))}\n"


def _own_ports(public: Mapping[str, int], replicas: int) -> dict[str, list[int]]:
    """Return the ports of the processes behind each function's public one."""
    if replicas == 1:
        return {}
    needed = len(public) * replicas
    free = (port for port in free_ports(needed + len(public)) if port not in public.values())
    return {name: list(itertools.islice(free, replicas)) for name in public}


def _kill_group(process: Fork) -> None:
    """Kill the process (kill -9) and its workers, which may outlive it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
