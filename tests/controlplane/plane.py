"""A real etcd, kube-apiserver and kube-scheduler on loopback ports, each test's own.

The class is that of `berth demo --real`, with what only tests do to a control plane; and with a look at
whether kube-scheduler ever tried pods again by itself (docs/kubernetes.md#flushes).
"""

import re
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import ClassVar

from berth.testing import control_plane
from berth.testing.control_plane import Component, ControlPlaneError

__all__ = ["Component", "ControlPlane", "ControlPlaneError"]


@dataclass
class ControlPlane(control_plane.ControlPlane):
    """`excuse` says why a test may let pods wait until they are flushed; empty: it may not."""

    excuse: str = ""
    _flushed: float = 0.0
    _FLUSHED: ClassVar = re.compile(
        r'^scheduler_queue_incoming_pods_total\{event="UnschedulableTimeout".*\} (\S+)$', re.MULTILINE
    )

    def flushes(self, name: str = "berth") -> float:
        """How many pods this scheduler has tried again because nobody had woken them for minutes."""
        return sum(map(float, self._FLUSHED.findall(self.scheduler_metrics(name))))

    def require_no_flush(self) -> None:
        """Fail if a scheduler tried pods again that nobody had woken: that one was placed then would show no
        wake. The count begins anew with this call."""
        for name in self._schedulers:
            self._note_flushed(name)
        flushed, self._flushed, excuse, self.excuse = self._flushed, 0.0, self.excuse, ""
        assert excuse or not flushed, f"{flushed:g} times a pod was tried again that nobody had woken"

    def _note_flushed(self, name: str) -> None:
        """Add the count of a scheduler that is about to end. One that stands still or has died tells
        nothing."""
        process = self._schedulers[name].process
        if process is None or process.poll() is not None or _stands_still(process):
            return
        with suppress(OSError):
            self._flushed += self.flushes(name)

    def stop(self) -> None:
        """End all of it, and delete what etcd holds: a hundred megabytes, of which a run has a hundred."""
        super().stop()
        rmtree(self.folder / "etcd", ignore_errors=True)

    def stop_apiserver(self) -> None:
        self._apiserver.stop()

    def restart_scheduler(self, name: str = "berth") -> None:
        self.stop_scheduler(name)
        self._schedulers[name].start()
        self._schedulers[name].wait_ready()

    def stop_scheduler(self, name: str = "berth", how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it: SIGTERM makes it give back its Lease; after SIGKILL the next leader waits for its end."""
        self._note_flushed(name)
        self._schedulers[name].stop(how)

    def scheduler_log(self, name: str = "berth") -> str:
        return self._schedulers[name].log.read_text(errors="replace")

    def logs(self, lines: int = 30) -> dict[str, str]:
        """Return the last lines of each component's log, for a report."""
        return {part.name: part.tail(lines) for part in self.components if part.log.exists()}


def _stands_still(process: subprocess.Popen[bytes]) -> bool:
    """Whether it was stopped by SIGSTOP, and would not answer."""
    with suppress(OSError):
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False
