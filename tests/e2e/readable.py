"""Whatever others than its owner may read while Berth runs: where a token would show if it did anywhere."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.harness import System


class Readable:
    """Whatever others than its owners may read: the API server's objects, logs, command lines."""

    def __init__(self, system: System) -> None:
        self._system = system

    def texts(self) -> Iterator[tuple[str, str]]:
        system = self._system
        for name in ("events", "pods", "nodes", "configmaps"):
            yield name, json.dumps(system.cluster.get(f"/api/v1/{name}"))
        yield "the scheduler's configuration", system.berth.scheduler_config.read_text()
        yield "the proxy's configuration", system.berth.proxy_config.read_text()
        yield "kube-scheduler's log", system.plane.scheduler_log()
        yield "the proxy's log", system.berth.folder.joinpath("haproxy.log").read_text(errors="replace")
        yield "berth's and the functions' logs", system.berth.said(lines=1_000_000)
        yield "berth up's lines", json.dumps(system.berth.lines)
        for process in Path("/proc").iterdir():
            if process.name.isdecimal() and process.name != str(os.getpid()):
                yield f"ps: {process.name}", _read(process / "cmdline") + _read(process / "environ")

    def showing(self, secret: str) -> list[str]:
        """Where the secret is to be read."""
        return [name for name, text in self.texts() if secret in text]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
