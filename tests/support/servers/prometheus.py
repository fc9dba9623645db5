"""A real Prometheus on a loopback port, which scrapes what it is told to and evaluates alerts.
It keeps its data in its folder and is gone with the process that started it."""

import atexit
import json
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import urllib3
import yaml

from berth.local.ports import free_port
from berth.local.prctl import when_parent_dies
from tests.support.cluster import wait

MISSING = "no prometheus or promtool here: run `make prometheus`, or install it (apt-get install prometheus)"
READY_SECONDS = 60.0
Labels = Mapping[str, str]
_http = urllib3.PoolManager(maxsize=4, retries=False)


def prometheus_binaries() -> tuple[Path, Path] | None:
    """The server and promtool that are installed here."""
    server, tool = shutil.which("prometheus"), shutil.which("promtool")
    return (Path(server), Path(tool)) if server and tool else None


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What promtool says; it has to be there (the fixture `promtool_installed`)."""
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)


@dataclass
class Prometheus:
    """`config` is prometheus.yml as a document, without the address that it listens at."""

    folder: Path
    config: Mapping[str, Any]
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Return when it answers queries."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write()
        atexit.register(self.stop)
        argv = [
            "prometheus",
            f"--config.file={self._file}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=when_parent_dies(signal.SIGKILL),
            )
        wait(self._ready, READY_SECONDS, f"prometheus ready; its log: {self._log}")

    def stop(self) -> None:
        atexit.unregister(self.stop)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def reload(self, config: Mapping[str, Any]) -> None:
        """Take another configuration, and keep the data."""
        self.config = config
        self._write()
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The labels and the value of each sample at this moment; a scalar has no labels."""
        data = self._api("query", query=expression)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(one["metric"], float(one["value"][1])) for one in data["result"]]

    def points(self, expression: str, seconds: float, step: float) -> int:
        """How many points a graph of the last `seconds` would have, as Grafana asks for it."""
        _, now = self.query("time()")[0]
        data = self._api("query_range", query=expression, start=now - seconds, end=now, step=step)
        return sum(len(one["values"]) for one in data["result"])

    def alerts(self, state: str = "firing") -> list[Mapping[str, Any]]:
        """The alerts that are in this state now, each with labels and annotations."""
        return [one for one in self._api("alerts")["alerts"] if one["state"] == state]

    def firing(self) -> set[str]:
        """The names of the alerts that fire now."""
        return {one["labels"]["alertname"] for one in self.alerts()}

    def healths(self) -> dict[str, str]:
        """By the label `service` of each target: up, down or unknown, and why."""
        targets: Sequence[Any] = self._api("targets")["activeTargets"]
        return {one["labels"]["service"]: f"{one['health']} {one['lastError']}".strip() for one in targets}

    def _api(self, path: str, **fields: Any) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}"
        reply = _http.request("GET", url, fields={name: str(value) for name, value in fields.items()})
        answer = json.loads(reply.data)
        assert answer["status"] == "success", (path, fields, answer)
        return answer["data"]

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        try:
            return _http.request("GET", f"http://127.0.0.1:{self.port}/-/ready").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def _write(self) -> None:
        self._file.write_text(yaml.safe_dump(dict(self.config)))

    @property
    def _file(self) -> Path:
        return self.folder / "prometheus.yml"

    @property
    def _log(self) -> Path:
        return self.folder / "prometheus.log"
