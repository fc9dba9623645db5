"""`berth demo --real`: an etcd, kube-apiserver and kube-scheduler for each world.
There are no kubelets and no controller manager: what is bound never runs, what is deleted goes at once."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import berth
from berth.demo.gateway import Gateway
from berth.demo.stage import SCHEDULER, Place, cluster_at
from berth.demo.world import RESOURCE, Scheduler
from berth.errors import SettingsError
from berth.scheduler_config import kube_scheduler
from berth.scheduler_config.kube_scheduler import Calls
from berth.testing.control_plane import ControlPlane

_BINARIES = ("etcd", "kube-apiserver", "kube-scheduler")
_NO_GO = 3
_WORLDS = {"berth": "Berth's world", "naive": "the naive counter's"}
_METRIC = re.compile(r"^(?P<name>scheduler_\w+)\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE)


Tell = Callable[[str], None]
"""Gets a line for a person who waits."""


def binaries(named: str | None, tell: Tell) -> Path:
    """Return the folder of the control plane's programs; built first in a checkout. Raises SettingsError."""
    folder = _built(tell) if named is None else Path(named).absolute()
    missing = [name for name in _BINARIES if not (folder / name).is_file()]
    if missing:
        raise SettingsError(f"there is no {', no '.join(missing)} in {folder} (--binaries)")
    return folder


def _built(tell: Tell) -> Path:
    checkout = Path(berth.__file__).parents[2]
    build = checkout / "tests" / "controlplane" / "build"
    if not ((checkout / "pyproject.toml").is_file() and build.is_file()):
        raise SettingsError(
            f"berth demo --real needs {', '.join(_BINARIES)}: name the folder they are in with "
            "--binaries DIR (in a checkout of Berth they are built)"
        )
    code, said = _run([sys.executable, str(build), "--quiet"], tell)
    if code:
        why = " ".join(said.split()[-60:])
        other = "; or name a folder that has the programs with --binaries DIR"
        advice = other if code == _NO_GO else ""
        raise SettingsError(f"the control plane could not be built: {why}{advice}")
    return build.with_name(".bin")


def _run(command: list[str], tell: Tell) -> tuple[int, str]:
    """Tell what the command prints, as it does so (it may take minutes). Return its exit code and errors."""
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as running,
    ):
        assert running.stdout is not None
        for line in running.stdout:
            tell(line.rstrip().removeprefix("controlplane: "))
        code = running.wait()
        errors.seek(0)
        return code, errors.read()


def control_plane(programs: Path, tell: Tell, folder: Path, stack: ExitStack) -> Place:
    """Start an etcd and a kube-apiserver of these programs; its scheduler is kube-scheduler."""
    tell(f"Starting an etcd and a kube-apiserver for {_WORLDS[folder.name]}.")
    plane = ControlPlane(programs, folder / "plane")
    stack.callback(plane.stop)
    plane.start()
    kubeconfig, config = plane.kubeconfig(folder / "kubeconfig"), folder / "scheduler.yaml"

    def start_scheduler(extender: str) -> Scheduler:
        document = kube_scheduler.configuration(
            Calls({"extender": extender}),
            kubeconfig=str(kubeconfig),
            schedulers=[SCHEDULER],
            managed=[RESOURCE],
        )
        kube_scheduler.write(config, kube_scheduler.as_yaml(document), "config")
        plane.start_scheduler(config)
        return _Metrics(plane)

    gateway = stack.enter_context(Gateway(plane.url, plane.admin_token, plane.ca_file))
    return Place(cluster_at(kubeconfig), gateway, start_scheduler)


class _Metrics:
    """What a kube-scheduler does, by its own metrics."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def attempts(self) -> int:
        return sum(value for _, value in self._read("scheduler_schedule_attempts_total"))

    def idle(self, pods: Iterable[dict[str, Any]]) -> bool:
        queues = {"active": 0, "backoff": 0, "unschedulable": 0}
        for labels, value in self._read("scheduler_pending_pods"):
            queues[labels.split('"')[1]] = value
        unbound = sum(not pod["spec"].get("nodeName") for pod in pods)
        return (queues["active"], queues["backoff"], queues["unschedulable"]) == (0, 0, unbound)

    def _read(self, name: str) -> list[tuple[str, int]]:
        metrics = _METRIC.finditer(self._plane.scheduler_metrics())
        return [(match["labels"], int(float(match["value"]))) for match in metrics if match["name"] == name]
