"""docs/screens.md: each command with one true screen, run on a small made-up cluster as the page is written.
The cluster is Berth's stand-in; pods are placed by the functions' own code. Paths are replaced, and what is
another one each time: ports, the epoch, the date."""

import contextlib
import io
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from berth.cli import main
from tests.docs.screens_world import World
from tests.docs.text import sentences

PAGE = "docs/screens.md"
_HOME = "/home/you"
_HEAD = """\
# Screens

<!-- Written by `make docs`, which runs the commands: change those, or tests/docs/screens_page.py. -->

Each question of an operator is answered by one command.
These are true screens of one small cluster: four seats of a licence, and addresses on nodes.
Long lines are broken as a narrow terminal breaks them, and what goes to standard error is left out.
`berth demo` is in a [picture](pictures/demo.svg); `berth top` shows what `berth status` does, and goes on.
`berth token` and `berth store init` say what they made, and `berth completion` prints what a shell reads.
[Command line](reference/cli.md) has every option.
"""
_WIDTH = 118


class Screen(NamedTuple):
    """A command, the question that it answers, the code with which it ends, and what happens before."""

    question: str
    command: str
    code: int = 0
    before: Callable[[World], None] = World.rest


_VERBS = ("filter", "prioritize", "preempt", "bind")
_CONFIG = f"berth scheduler-config {' '.join(f'--{verb} http://{verb}.berth' for verb in _VERBS)}"
SCREENS = (
    Screen("How full is it?", "berth status"),
    Screen("Who holds what, and since when?", "berth claims -n team-a"),
    Screen("Who has which seat?", "berth claims --units --pool matlab-seat"),
    Screen("Who waits, in which order, and why?", "berth waiting"),
    Screen("Why does this pod wait, and what would let it in?", "berth explain pod team-a/matlab-2"),
    Screen("And that one?", "berth explain pod team-b/matlab-1"),
    Screen("Where does a pod run, and what does it hold?", "berth explain pod team-a/matlab-1"),
    Screen("Would these pods fit?", "berth simulate -f web.yaml", 1),
    Screen("What would three addresses a node do?", "berth simulate -f web.yaml --capacity underlay-ip=3"),
    Screen("What is this scheduler told wrongly?", "berth check --scheduler-config mistakes.yaml", 1),
    Screen("Does the ledger say what the pods do?", "berth doctor"),
    Screen("What is wrong with this file?", "berth validate -f typo.yaml", 1),
    Screen("What would it change?", "berth diff -f more.yaml", 1),
    Screen("Change it, but only on paper", "berth apply -f more.yaml --dry-run"),
    Screen("The event of a deletion was lost: what differs?", "berth doctor", 1, World.lose_an_event),
    Screen("Repair it", "berth doctor --fix"),
    Screen("Give nothing new out on a node", "berth suspend underlay-ip node-3"),
    Screen("Give it out again", "berth suspend underlay-ip node-3 --resume"),
    Screen("One seat is in use outside the cluster", "berth external matlab-seat 1"),
    Screen("It is free again", "berth external matlab-seat 0"),
    Screen("Make the ledger equal to the cluster now", "berth reconcile"),
    Screen("Free what a lost node's pods held?", "berth release --node node-1 --dry-run"),
    Screen("What must a scheduler of its own be told?", _CONFIG),
    Screen("Which versions are these?", "berth version"),
    Screen("What would a maintainer ask for?", "berth sysdump --since 30m"),
    Screen("Run all of it on this machine", "berth up --scheduler-config scheduler.yaml"),
    Screen(
        "Take the ledger to another store", f"berth store copy sqlite:///{_HOME}/ledger.db sqlite:///new.db"
    ),
)
_OTHER_EACH_TIME = (
    (r"(?<=epoch )[0-9a-f]{32}", "7f3c" * 8),
    (r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2026-11-25T09:30:00Z"),
    (r"20\d{6}T\d{6}Z", "20261125T093000Z"),
    (r"\d+ KiB", "5 KiB"),
    (r"\d+ bytes", "2911 bytes"),
    (r"(?<=copied )\d+", "20"),  # by how much the journal has counted meanwhile
    (r"Python 3\.\d+\.\d+", "Python 3.11.7"),
    (r"(cluster    Kubernetes v[\d.]+)\S* at http://127\.0\.0\.1:\d+", r"\1 at https://10.0.0.1:6443"),
)


def page() -> str:
    """Return the page, with all its commands run anew. Raises AssertionError if one ends otherwise."""
    return _HEAD + "".join(_section(screen, text) for screen, text in _shown())


def _section(screen: Screen, text: str) -> str:
    title = f"\n## {screen.question}\n\n"
    ends = f"\n{sentences(f'It ends with {screen.code}.')}\n" if screen.code else ""
    command = " \\\n    ".join(textwrap.wrap(screen.command, _WIDTH - 8, break_on_hyphens=False))
    return f"{title}```\n$ {command}\n{text}```\n{ends}"


def _shown() -> Iterator[tuple[Screen, str]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        World(Path(folder)) as world,
        patch.dict(os.environ, world.environment),
        patch("berth.cli.doctor.time.sleep"),  # before it looks again: nothing happens here meanwhile
        patch.object(sqlite3, "sqlite_version_info", (3, 53, 0)),  # whichever this machine has
        contextlib.chdir(folder),
    ):
        _said(world.fill)
        for screen in SCREENS:
            screen.before(world)
            arguments = shlex.split(screen.command.replace(_HOME, folder))[1:]
            code, text = _up(arguments) if arguments[0] == "up" else _said(partial(main, arguments))
            assert code == screen.code, f"{screen.command} ended with {code}: {text}"
            text = text.replace(folder, _HOME)
            for pattern, instead in _OTHER_EACH_TIME:
                text = re.sub(pattern, instead, text)
            yield screen, "".join(map(_broken, text.splitlines()))


def _up(arguments: list[str]) -> tuple[int, str]:
    """Run `berth up` until it is ready, then end it by Ctrl-C. Ports are shown as they are where these are
    free; functions, which become ready in any order, in that of their ports."""
    command = [str(Path(sys.executable).with_name("berth")), *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        text = ""
        while not text.endswith("reconciled\n"):
            text += next(process.stdout)
        process.send_signal(signal.SIGINT)
        text += process.stdout.read()
    text = re.sub(r".*: SQLite .*\n", "", text)  # of this machine's version
    for port, shown in zip(re.findall(r"starting \S+:(\d+)", text), count(8080), strict=False):
        text = text.replace(f":{port}\n", f":{shown}\n")
    ready = sorted(re.findall(r".* ready .*\n", text), key=lambda line: line.rpartition(":")[2])
    return process.returncode, re.sub(r"(.* ready .*\n)+", "".join(ready), text)


def _broken(line: str) -> str:
    parts = [line[at : at + _WIDTH] for at in range(0, len(line), _WIDTH)] or [""]
    return "\n".join([*parts, ""])


def _said(run: Callable[[], int | None]) -> tuple[int | None, str]:
    """Return what it returned, and what was printed on standard output meanwhile."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        return run(), said.getvalue()
