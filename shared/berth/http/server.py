"""Serves one function by an event loop and threads, so that no slow client holds any of them.
It calls what functions-framework calls, without the web framework between. It knows no TLS.

    python -m berth.http.server --source functions/filter/main.py --target filter --port 8080

gunicorn starts, watches and ends the processes (WORKERS, THREADS and GUNICORN_LOG_LEVEL are as with
functions-framework). Why not its own workers, nor functions-framework's: docs/decisions/0038.
"""

import argparse
import asyncio
import atexit
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger
from gunicorn.workers.base import Worker as BaseWorker

from berth.http.connection import Connection
from berth.http.connections import Connections
from berth.http.function import Served
from berth.telemetry import logs

_CHECK_SECONDS = 1.0  # between two looks at whether the process that watches us lives
_LOOK_SECONDS = 0.02  # between two looks at whether connections are left
_BACKLOG = 1024


class Worker(BaseWorker):  # type: ignore[misc]
    """A process of the function: one event loop."""

    def init_signals(self) -> None:
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    def run(self) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._serve())
        # What was registered for the end; what threads still do for nobody ends with the process.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    async def _serve(self) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        task = asyncio.current_task()
        assert task is not None
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        for number in (signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(number, task.cancel)
        loop.add_signal_handler(signal.SIGUSR1, self.log.reopen_files)
        served: Served = self.wsgi
        connections = Connections(served.target, served.hosts, loop)
        servers = [
            await loop.create_server(lambda: Connection(connections), sock=listener.sock, backlog=_BACKLOG)
            for listener in self.sockets
        ]
        while not stop.is_set() and self.ppid == os.getppid():
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _CHECK_SECONDS)
        await end(
            [listener.sock for listener in self.sockets], servers, connections, self.cfg.graceful_timeout
        )


async def end(
    listeners: Iterable[socket.socket],
    servers: Iterable[asyncio.Server],
    connections: Connections,
    seconds: float,
) -> None:
    """Take no new connection, and wait for the end of those that were taken, so many seconds at most."""
    loop = asyncio.get_running_loop()
    for listener in listeners:
        loop.remove_reader(listener)
    await asyncio.sleep(0)  # a server that is closed drops what it has accepted in this moment
    for server in servers:
        server.close()
    connections.end()
    until = loop.time() + seconds
    await asyncio.sleep(_LOOK_SECONDS)  # nor has it told yet of those that it accepted last
    while connections and loop.time() < until:
        await asyncio.sleep(_LOOK_SECONDS)


class ServerLog(Logger):  # type: ignore[misc]
    """gunicorn's log of what becomes of its processes, in lines as all others are."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(logs.formatter())


class Server(BaseApplication):  # type: ignore[misc]
    """A function's processes; one that ends is started again."""

    def __init__(self, served: Served, bind: str) -> None:
        self._served, self._bind = served, bind
        super().__init__()

    def load_config(self) -> None:
        settings = {
            "bind": self._bind,
            "workers": int(os.environ.get("WORKERS") or 1),
            "worker_class": Worker,
            "timeout": 0,
            "control_socket_disable": True,  # its socket is one for all servers of a user
            "logger_class": ServerLog,
            "loglevel": os.environ.get("GUNICORN_LOG_LEVEL", "error"),
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Served:
        return self._served


def load(source: str, target: str) -> Served:
    """Return what the function in this file serves. Exits with one line where there is none."""
    spec = importlib.util.spec_from_file_location("main", source) if Path(source).is_file() else None
    if spec is None or spec.loader is None:
        sys.exit(f"berth can't start: there is no file {source}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    served: Any = getattr(getattr(module, target, None), "served", None)
    if not isinstance(served, Served):
        sys.exit(
            f"berth can't start: {source} has no function {target} that is made by berth.http.function.serve"
        )
    return served


def main() -> None:
    """Serve the function that the framework's options, or its variables, name."""
    parser = argparse.ArgumentParser(prog="python -m berth.http.server")
    for name, default in (("target", None), ("source", None), ("host", "0.0.0.0"), ("port", "8080")):
        variable = name.upper() if default else f"FUNCTION_{name.upper()}"
        value = os.environ.get(variable, default)
        parser.add_argument(f"--{name}", default=value, required=value is None)
    options = parser.parse_args()
    Server(load(options.source, options.target), f"{options.host}:{options.port}").run()


if __name__ == "__main__":
    main()
