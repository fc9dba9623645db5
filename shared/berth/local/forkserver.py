"""Starts functions as forks of one process that has imported what they need (docs/decisions/0037).
To import it takes half a second of a core, to fork a few hundredths.

`python -m berth.local.forkserver MODULE…` is that process. Its standard input is a socket.
It gets lines of JSON, a function's arguments and environment, each with the file for the function's output.
It sends lines of JSON: a fork's PID, and the PID with an exit code once a fork has ended.
"""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import BinaryIO, NamedTuple, NoReturn

from berth.local.prctl import name_process, when_parent_dies

_PART = 1 << 16  # bytes that are received at a time
_ENDED = {signal.SIGCHLD}


class Fork:
    """A function's process, used as subprocess.Popen is."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = threading.Event()

    def poll(self) -> int | None:
        """Return its exit code, negative after a signal; None while it runs."""
        return self.returncode

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended; False if it has not by then."""
        return self._ended.wait(seconds)

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def note_end(self, returncode: int) -> None:
        self.returncode = returncode
        self._ended.set()


class ForkServer:
    """Starts forks of a process that has imported these modules.

    That process begins with the first fork, and anew if it has died. Forks die with it, and it dies with us:
    on Linux even by `kill -9`. One that does not answer for `seconds` is killed."""

    def __init__(self, modules: Sequence[str], seconds: float = 60.0) -> None:
        self._modules, self._seconds = modules, seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket
        self._started: queue.SimpleQueue[Fork | None]

    def fork(self, arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[Fork, BinaryIO]:
        """Run berth.http.server with these arguments, in a session of its own; return it and its output.

        Raises OSError where that fails."""
        request = json.dumps([[*arguments], {**environment}]).encode() + b"\n"
        reader, writer = os.pipe()
        with os.fdopen(writer, "wb"), self._lock:
            fork = self._asked(request, writer)
            if fork is None:
                os.close(reader)
                raise ChildProcessError("the process that starts functions has died")
            return fork, os.fdopen(reader, "rb")

    def close(self) -> None:
        """End the process, and so its forks."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            with suppress(OSError):  # it has ended
                self._control.shutdown(socket.SHUT_WR)
            self._control.close()
            self._process = None

    def _asked(self, request: bytes, output: int) -> Fork | None:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = self._start()
        try:
            sent = socket.send_fds(self._control, [request], [output])
            self._control.sendall(request[sent:])
            return self._started.get(timeout=self._seconds)
        except queue.Empty:
            self._process.kill()
        except BrokenPipeError:
            pass
        return None

    def _start(self) -> subprocess.Popen[bytes]:
        self._control, its = socket.socketpair()
        self._started = queue.SimpleQueue()
        with its:
            process = subprocess.Popen(
                [sys.executable, "-m", "berth.local.forkserver", *self._modules],
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
            )
        told = self._control.makefile("rb"), process, self._started
        threading.Thread(target=_listen, args=told, daemon=True).start()
        return process


def _listen(
    lines: BinaryIO, process: subprocess.Popen[bytes], started: "queue.SimpleQueue[Fork | None]"
) -> None:
    """Read what the process tells until it ends."""
    forks: dict[int, Fork] = {}
    with lines, suppress(ConnectionResetError):
        for line in lines:
            pid, *returncode = json.loads(line)
            if returncode:
                forks.pop(pid).note_end(*returncode)
            else:
                forks[pid] = Fork(pid)
                started.put(forks[pid])
    process.wait()
    for fork in forks.values():
        fork.note_end(-signal.SIGTERM)  # what they get when their parent dies
    started.put(None)


class _Request(NamedTuple):
    arguments: list[str]
    environment: dict[str, str]
    output: int


def main() -> None:
    """Fork as often as asked; in a fork, serve the function until it ends."""
    control = socket.socket(fileno=os.dup(0))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for `berth up` to pass on, in order
    signal.signal(signal.SIGCHLD, lambda *_: _tell_ended(control))
    for module in sys.argv[1:]:
        import_module(module)
    die_with_us = when_parent_dies(signal.SIGTERM)
    while (request := _received(control)) is not None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDED)  # its end is told after its start
        pid = os.fork()
        if pid == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, before)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDED)
            die_with_us()
            return _serve(request)
        os.close(request.output)
        _tell(control, pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDED)
    return None


def _received(control: socket.socket) -> _Request | None:
    """Return the next request; None at the end."""
    text, files = b"", list[int]()
    while not text.endswith(b"\n"):
        try:
            part, more, _, _ = socket.recv_fds(control, _PART, 1)
        except ConnectionResetError:  # whoever asks was killed
            return None
        if not part:
            return None
        text, files = text + part, files + more
    return _Request(*json.loads(text), *files)


def _tell_ended(control: socket.socket) -> None:
    with suppress(ChildProcessError):  # there are no more
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            _tell(control, ended[0], os.waitstatus_to_exitcode(ended[1]))


def _tell(control: socket.socket, *what: int) -> None:
    with suppress(BrokenPipeError):  # we end, too
        control.sendall(json.dumps(what).encode() + b"\n")


def _serve(request: _Request) -> None:
    from berth.http import server

    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for file, number in ((nothing, 0), (request.output, 1), (request.output, 2)):
        os.dup2(file, number)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.argv[1:] = request.arguments
    name_process(request.arguments[-1])
    try:
        server.main()
    except SystemExit as end:
        _exit(end.code)


def _exit(code: object) -> NoReturn:
    """End this process as sys.exit does, but at once: to take all modules apart takes a tenth of a second."""
    if isinstance(code, str):
        print(code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    main()
