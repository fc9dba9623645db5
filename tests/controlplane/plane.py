"""A real etcd, kube-apiserver and kube-scheduler on loopback ports, each test's own.

The class is that of `berth demo --real`, with what only tests do to a control plane.
"""

import signal

from berth.testing import control_plane
from berth.testing.control_plane import Component, ControlPlaneError

__all__ = ["Component", "ControlPlane", "ControlPlaneError"]


class ControlPlane(control_plane.ControlPlane):
    def stop_apiserver(self) -> None:
        self._apiserver.stop()

    def restart_scheduler(self, name: str = "berth") -> None:
        self.stop_scheduler(name)
        self._schedulers[name].start()
        self._schedulers[name].wait_ready()

    def stop_scheduler(self, name: str = "berth", how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it: SIGTERM makes it give back its Lease; after SIGKILL the next leader waits for its end."""
        self._schedulers[name].stop(how)

    def scheduler_log(self, name: str = "berth") -> str:
        return self._schedulers[name].log.read_text(errors="replace")

    def logs(self, lines: int = 30) -> dict[str, str]:
        """Return the last lines of each component's log, for a report."""
        return {part.name: part.tail(lines) for part in self.components if part.log.exists()}
