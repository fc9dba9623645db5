"""docs/screens.md: each command with one true screen, run on a small made-up cluster as the page is written.
The cluster is Berth's stand-in; pods are placed by the functions' own code. Only paths are replaced."""

import contextlib
import io
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
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
[Command line](reference/cli.md) has every option.
"""


class Screen(NamedTuple):
    """A command, the question that it answers, and the code with which it ends."""

    question: str
    command: str
    code: int = 0


SCREENS = (
    Screen("How full is it?", "berth status"),
    Screen("Who holds what, and since when?", "berth claims -n team-a"),
)


def page() -> str:
    """Return the page, with all its commands run anew. Raises AssertionError if one ends otherwise."""
    return _HEAD + "".join(_section(screen, text) for screen, text in _shown())


def _section(screen: Screen, text: str) -> str:
    title = f"\n## {screen.question}\n\n"
    ends = f"\n{sentences(f'It ends with {screen.code}.')}\n" if screen.code else ""
    return f"{title}```\n$ {screen.command}\n{text}```\n{ends}"


def _shown() -> Iterator[tuple[Screen, str]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        World(Path(folder)) as world,
        patch.dict(os.environ, world.environment),
        contextlib.chdir(folder),
    ):
        _said(world.fill)
        for screen in SCREENS:
            code, text = _said(partial(main, shlex.split(screen.command)[1:]))
            assert code == screen.code, f"{screen.command} ended with {code}: {text}"
            yield screen, text.replace(folder, _HOME)


def _said(run: Callable[[], int | None]) -> tuple[int | None, str]:
    """Return what it returned, and all that was printed meanwhile."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        return run(), said.getvalue()
