"""Ctrl-C ends any `berth` command quietly with 130 (128 + SIGINT), also while its modules are imported.

A hook that Python imports before anything else sends the signal at a moment that is named, so that no test
depends on how fast this machine is.
"""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.harness import BERTH

_HOOK = """
import atexit, os, signal, sys

moment = os.environ["MOMENT"]


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            sys.meta_path.remove(self)
            interrupt()


if moment == "exit":
    atexit.register(interrupt)
else:
    sys.meta_path.insert(0, AtImport())
"""
_IGNORING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""


def run(
    folder: Path, moment: str, *arguments: str, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    (folder / "hook").mkdir()
    (folder / "hook" / "sitecustomize.py").write_text(_HOOK)
    path = os.pathsep.join(filter(None, (str(folder / "hook"), os.environ.get("PYTHONPATH"))))
    own = {key: value for key, value in os.environ.items() if not key.startswith(("BERTH_", "KUBE"))}
    return subprocess.run(
        [*before, BERTH, *arguments],
        cwd=folder,
        env={**own, "PYTHONPATH": path, "MOMENT": moment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize(
    ("moment", "arguments"),
    [
        ("berth.cli.arguments", ("--help",)),
        ("argparse", ("--help",)),
        ("msgspec", ("status",)),
        ("berth.stores", ("status",)),
        ("berth.cli.inspect", ("status",)),
        ("yaml", ("apply", "-f", "pools.yaml")),
        ("berth.controller.simulation", ("simulate", "-f", "pods.yaml")),
        ("yaml", ("reconcile",)),
        ("berth.cli.apply", ("apply", "-f", "pools.yaml")),
        ("berth.kube.cluster", ("reconcile",)),
        ("berth.cli.up", ("up",)),
        ("berth.local.load_balancer", ("up", "--json")),
        ("berth.cli.demo", ("demo",)),
        ("exit", ("status",)),
        ("exit", ("--version",)),
    ],
)
@pytest.mark.long
def test_ctrl_c_at_any_early_moment_and_at_the_end_is_quiet(
    tmp_path: Path, moment: str, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "pools.yaml").touch()
    done = run(tmp_path, moment, *arguments)
    assert done.returncode == 128 + signal.SIGINT
    assert "Traceback" not in done.stderr
    if moment != "exit":
        assert (done.stdout, done.stderr) == ("", "")


def test_who_was_started_to_ignore_ctrl_c_does(tmp_path: Path) -> None:
    before = (sys.executable, "-S", "-c", _IGNORING)
    done = run(tmp_path, "berth.cli.arguments", "--version", before=before)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("berth ")
