"""Starts one function by plain functions-framework, as README says, or by Berth's own server, and ends it.
It adds no wrapper, no `berth up` and no supervision: what fails here fails for a user."""

import http.client
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from berth.local.ports import free_port

ROOT = Path(__file__).parents[3]
_READY_SECONDS = 120.0
_END_SECONDS = 60.0


@contextmanager
def started(command: list[str], environment: Mapping[str, str], port: int) -> Iterator[str]:
    """Run the command until the block is left; its URL, once it accepts connections."""
    program = Path(sys.executable).with_name(command[0])
    settings = {**os.environ, **environment}
    # A file: nobody reads it while the function runs, and a full pipe would stop it.
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen([program, *command[1:]], cwd=ROOT, env=settings, stderr=said)
        try:
            _wait(process, port, said)
            yield f"http://127.0.0.1:{port}"
        finally:
            _end(process)


SERVERS = {"functions-framework": ["functions-framework"], "webserver": ["python", "-m", "berth.http.server"]}
"""What serves a function: plain functions-framework, and what the image and `berth up` start."""


@contextmanager
def function(name: str, environment: Mapping[str, str], server: str = "functions-framework") -> Iterator[str]:
    """One of Berth's functions on a free port."""
    port = free_port()
    source = f"functions/{name}/main.py"
    command = [*SERVERS[server], "--source", source, "--target", name, "--host", "127.0.0.1"]
    command += ["--port", str(port)]
    with started(command, environment, port) as url:
        yield url


def send(url: str, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str, bytes]:
    """Status, content type and body of the answer."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    try:
        connection.request(method, path, body, dict(headers))
        reply = connection.getresponse()
        return reply.status, reply.headers.get("Content-Type", ""), reply.read()
    finally:
        connection.close()


def _wait(process: subprocess.Popen[bytes], port: int, said: IO[bytes]) -> None:
    give_up_at, pause = time.monotonic() + _READY_SECONDS, threading.Event()
    while process.poll() is None and time.monotonic() < give_up_at:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        pause.wait(0.05)
    process.kill()
    said.seek(0)
    raise AssertionError(f"{process.args!r} did not start: {said.read().decode()}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
