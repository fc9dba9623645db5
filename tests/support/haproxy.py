"""A real HAProxy on loopback, with the configuration that `berth scheduler-config --proxy` writes.
It is gone with the process that started it."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from berth.cli.proxy_config import Proxy, haproxy, write
from berth.ports import free_ports
from tests.controlplane.plane import Component

MISSING = "no haproxy here: run `make haproxy`, or install it (Debian: apt-get install haproxy)"


def haproxy_binary() -> Path | None:
    """The program that is installed here; Debian has it where only root looks."""
    found = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    return None if found is None else Path(found)


class HAProxy:
    """`url` is for kube-scheduler; `token` is the file that it reads for each call."""

    def __init__(
        self, binary: Path, folder: Path, urls: Mapping[str, str], ca: Path | None = None, seconds: int = 5
    ) -> None:
        port, health = free_ports(2)
        self.token = folder / "proxy-token"
        proxy = Proxy(port, str(self.token), health)
        self.url, self.config = proxy.url, folder / "haproxy.cfg"
        self.probe = f"127.0.0.1:{health}"
        write(self.config, haproxy(proxy, urls, None if ca is None else str(ca), seconds))
        command = [str(binary), "-db", "-f", str(self.config)]
        self._component = Component(
            "haproxy", command, folder / "haproxy.log", f"http://{self.probe}/healthz"
        )

    @property
    def pid(self) -> int:
        assert self._component.process is not None
        return self._component.process.pid

    def log(self) -> str:
        """All that it wrote."""
        return self._component.log.read_text()

    def __enter__(self) -> Self:
        self._component.start()
        self._component.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self._component.stop()
