"""Berth's image without a container engine: what infra/Containerfile says, the tree that it copies, made in a
folder by the script that it runs, and processes there with the image's environment and a user without rights.

What an engine adds is not shown: the base images, layers, a root that is read-only everywhere.
"""

import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from berth.local.ports import free_port
from berth.local.prctl import when_parent_dies
from infra.release import containerfile

ROOT = Path(__file__).resolve().parents[3]
CONTAINERFILE = ROOT / "infra" / "Containerfile"
PLACE = "/app"
_SECONDS = 600.0


def instructions() -> list[tuple[str, str]]:
    """The Containerfile's."""
    return containerfile.instructions(CONTAINERFILE)


def last(name: str) -> str:
    """The arguments of the last such instruction: those of the image itself."""
    return containerfile.last(instructions(), name)


def copies() -> list[tuple[list[str], str]]:
    """What the Containerfile copies from the checkout, and where to."""
    found = [shlex.split(rest) for name, rest in instructions() if name == "COPY"]
    return [(words[:-1], words[-1]) for words in found if not words[0].startswith("--from=")]


def manifests() -> Iterator[dict[str, Any]]:
    """All objects of infra/, as they are written; the chart's are these."""
    chart = ROOT / "infra" / "chart"
    for path in sorted(each for each in (ROOT / "infra").rglob("*.yaml") if chart not in each.parents):
        yield from (each for each in yaml.safe_load_all(path.read_text()) if isinstance(each, dict))


def containers() -> list[dict[str, Any]]:
    """Those of infra/ that run the image."""
    specs = [each["spec"]["template"]["spec"] for each in manifests() if "template" in each.get("spec", {})]
    found = [one for spec in specs for one in (*spec.get("initContainers", []), *spec["containers"])]
    return [each for each in found if each["image"] == "berth"]


def functions() -> dict[str, dict[str, str]]:
    """The environment that each function's Service sets, by the function's name."""
    found = {}
    for each in containers():
        values = {one["name"]: one["value"] for one in each.get("env", []) if "value" in one}
        if "FUNCTION_TARGET" in values:
            found[values["FUNCTION_TARGET"]] = values
    return found


@dataclass
class Process:
    """A container's: in a session of its own, its output in `log`."""

    name: str
    port: int
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def said(self) -> str:
        return f"{self.name} (exit code {self.process.poll()}) said:\n{self.log.read_text(errors='replace')}"

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Image:
    """The tree lies in `folder`/app; what is downloaded for it in `folder`/wheels, for the next time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.app = folder / PLACE.strip("/")
        self._python = Path(sys.executable).resolve()

    def build(self) -> dict[str, str]:
        """Make the tree anew, as the Containerfile does; returns its fingerprints."""
        for each in (self.app, self.folder / "source"):
            shutil.rmtree(each, ignore_errors=True)
        for sources, target in copies():
            self._copy(sources, self.folder / target.strip("/"))
        script = json.loads(next(rest for name, rest in instructions() if name == "RUN"))[0]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        environment |= {"PYTHON": sys.executable, "IMAGE_PYTHON": str(self._python)}
        done = subprocess.run(
            [str(self.folder / script.strip("/")), str(self.app)],
            env=environment | {"WHEELS": str(self.folder / "wheels")},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return self.fingerprints()

    def _copy(self, sources: list[str], target: Path) -> None:
        """As COPY does: a folder's content, or a file into the folder."""
        for source in (ROOT / each for each in sources):
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)

    def fingerprints(self) -> dict[str, str]:
        """Of each path: kind, mode, time, and its bytes' hash or where it leads to."""
        paths = sorted(self.app.rglob("*"))
        return {path.relative_to(self.app).as_posix(): _fingerprint(path) for path in paths}

    def bytes_in(self, *parts: str) -> int:
        files = (path for path in self.app.joinpath(*parts).rglob("*") if not path.is_symlink())
        return sum(path.stat().st_size for path in files if path.is_file())

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """Of a process in it: what the Containerfile sets and `more`, nothing of this machine's."""
        pairs = (each.partition("=") for each in shlex.split(last("ENV")))
        return {name: value.replace(PLACE, str(self.app)) for name, _, value in pairs} | dict(more)

    def start(self, name: str, more: Mapping[str, str]) -> Process:
        """The image's own command, on a free port."""
        port, log = free_port(), self.folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*self._user, *self._command(yaml.safe_load(last("CMD")))],
                cwd=self.app,
                env=self.environment({**more, "PORT": str(port)}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=when_parent_dies(signal.SIGTERM),
            )
        return Process(name, port, log, process)

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Another command in it, to its end, whatever that is."""
        return subprocess.run(
            [*self._user, *self._command(command)],
            cwd=self.app,
            env=self.environment(more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )

    def _command(self, command: list[str] | tuple[str, ...]) -> list[str]:
        found = shutil.which(command[0], path=self.environment({})["PATH"])
        assert found, f"{command[0]} is not on the image's PATH"
        return [found, *command[1:]]

    @cached_property
    def _user(self) -> list[str]:
        """Words before a command that make it the image's user's, without any of root's rights."""
        user, _, group = last("USER").partition(":")
        drop = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs"]
        read = "-all,+dac_read_search"
        ways: tuple[list[str], ...] = (
            [*drop, "--inh-caps=-all", "--bounding-set=-all"],
            # For a Python in a folder that is root's alone: all may be read, nothing written.
            [*drop, f"--inh-caps={read}", f"--ambient-caps={read}", f"--bounding-set={read}"],
            [],  # not root, or not allowed to be another
        )
        return next(way for way in ways if not way or self._runs(way))

    def _runs(self, way: list[str]) -> bool:
        """Whether our Python does: one that may not read its own library takes another's."""
        command = [*way, str(self.app / "venv/bin/python"), "-c", "import sys, ssl; print(sys.version)"]
        try:
            done = subprocess.run(command, capture_output=True, cwd="/", text=True, timeout=_SECONDS)
        except FileNotFoundError:
            return False
        return done.stdout.split() == sys.version.split()


def _fingerprint(path: Path) -> str:
    about = path.lstat()
    what = "-"
    if path.is_symlink():
        what = str(path.readlink())
    elif path.is_file():
        what = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{about.st_mode:o} {about.st_mtime_ns} {what}"
