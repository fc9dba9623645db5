"""A real HAProxy on loopback, with the configuration that `berth scheduler-config --proxy` writes.
It is gone with the process that started it."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from berth.local.ports import free_ports
from berth.scheduler_config.haproxy import PORT, TOKEN, Proxy, haproxy, write
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
        self._begin(binary, folder)
        write(self.config, haproxy(self._proxy, urls, None if ca is None else str(ca), seconds))

    @classmethod
    def shipped(
        cls, binary: Path, folder: Path, files: Mapping[str, str], changed: Callable[[str], str]
    ) -> Self:
        """One on infra's files, but for free ports, the token's path, and what `changed` changes."""
        made = cls.__new__(cls)
        made._begin(binary, folder)
        for name, text in files.items():
            (folder / name).write_text(text)
        text = changed(files["haproxy.cfg"]).replace(TOKEN, str(made.token))
        text = text.replace(f"127.0.0.1:{PORT}", f"127.0.0.1:{made._proxy.port}")
        made.config.write_text(text.replace("bind :8090", f"bind :{made._proxy.health}"))
        return made

    @classmethod
    def written(cls, binary: Path, config: Path, url: str, ready: str = "") -> Self:
        """One on what `berth up --proxy` wrote; `ready` is a URL that answers 200 once it is there."""
        made = cls.__new__(cls)
        made.url, made.config, made.token = url, config, Path(f"{config}.token")
        command = [str(binary), "-db", "-f", str(config)]
        ready = ready or f"{url}/filter"  # it has an answer to whatever is wrong with such a call
        made._component = Component("haproxy", command, config.with_name("haproxy.log"), ready)
        return made

    def _begin(self, binary: Path, folder: Path) -> None:
        port, health = free_ports(2)
        self.token = folder / "proxy-token"
        self._proxy = Proxy(port, str(self.token), health)
        self.url, self.config = self._proxy.url, folder / "haproxy.cfg"
        self.probe = f"127.0.0.1:{health}"
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
