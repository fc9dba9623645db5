"""The commit that a release is made of."""

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

LOCKS = ("requirements-build.lock", "requirements-image.lock")


class ReleaseError(Exception):
    """A release can't be made, as its text says to a person."""


class Source(NamedTuple):
    """A checkout: its version, its commit, and the commit's time in Unix seconds, which all files get."""

    folder: Path
    version: str
    commit: str
    time: int

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which tools write the same bytes each time."""
        return {**os.environ, "SOURCE_DATE_EPOCH": str(self.time), "PYTHONHASHSEED": "0"}


def read(folder: Path) -> Source:
    """Return what the folder is a checkout of. Raises ReleaseError where files are not committed."""
    changed = _git(folder, "status", "--porcelain")
    if changed:
        first = changed.splitlines()[0][3:]
        raise ReleaseError(
            f"{first} is not committed: a release is made of a commit; commit or stash it first"
        )
    text = (folder / "shared" / "berth" / "__init__.py").read_text()
    version = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    if version is None:
        raise ReleaseError("shared/berth/__init__.py has no __version__")
    commit, time = _git(folder, "log", "-1", "--format=%H %ct").split()
    return Source(folder, version[1], commit, int(time))


def _git(folder: Path, *words: str) -> str:
    return run(["git", *words], folder, dict(os.environ))


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Return what the command printed. Raises ReleaseError if it fails, with its last line."""
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise ReleaseError(f"{command[0]} can't be run: {error.strerror}") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["it said nothing"]
        raise ReleaseError(f"{' '.join(command[:3])} failed: {said[-1]}")
    return done.stdout
