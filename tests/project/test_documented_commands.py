"""Every `berth …` in README, docs and infra's pages is a command line that the real parser takes.

A line of a code block is parsed as it stands there; a command in the text may leave out what it would need.
Those lines that no test of their page runs are run here, on the small cluster of docs/screens.md.
"""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from berth.cli import main
from berth.cli.arguments import parsed
from tests.docs.screens_world import World

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    page
    for page in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted(ROOT.glob("infra/**/*.md")),
    )
    if "decisions" not in page.parts  # they say what was true when they were written
]
RUN = [ROOT / "docs/screens.md", ROOT / "docs/tutorial.md", *(ROOT / "docs/scenarios").glob("*.md")]
"""Each has a test that runs all of its lines: test_generated_pages.py, and tests/e2e's of these names."""
_FENCED = re.compile(r"^ *```\w*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^(?:\$ )?(?:\w+=\S+ )*(berth \S.*)$", re.MULTILINE)
_SPAN = re.compile(r"`(berth [^`]+)`")
_SHELL = {"|", ">", "<", "&", "&&", "||", ";"}
_UNFINISHED = ("the following arguments are required", "expected one argument")


def lines(text: str) -> Iterator[str]:
    for block in _FENCED.findall(text):
        yield from _LINE.findall(block.replace("\\\n", " "))


def spans(text: str) -> Iterator[str]:
    yield from _SPAN.findall(_FENCED.sub("", text).replace("\n", " "))


def arguments_of(command: str) -> list[str]:
    """What follows `berth`, up to a shell's own sign; brackets and `…` are for the reader."""
    words = takewhile(lambda word: word not in _SHELL, shlex.split(command, comments=True)[1:])
    return ["1" if word == "N" else word for word in (each.strip("[]…") for each in words) if word]


def fault(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """What the parser has against these arguments; empty if it takes them."""
    try:
        parsed(arguments)
    except SystemExit as ended:
        return capsys.readouterr().err if ended.code else ""
    return ""


def options_of(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> set[str]:
    """All options of the (sub)command, by its help."""
    command = arguments[:2] if arguments[0] == "store" else arguments[:1]
    assert fault(capsys, [*command, "--help"]) == ""
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", capsys.readouterr().out))


def test_every_command_line_of_the_pages_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    found = {line: fault(capsys, arguments_of(line)) for page in PAGES for line in lines(page.read_text())}
    assert {line: why for line, why in found.items() if why} == {}
    assert len(found) > 10


def test_every_command_in_the_text_has_arguments_and_options_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong, seen = {}, set()
    for command in {span for page in PAGES for span in spans(page.read_text())}:
        arguments = arguments_of(command)
        why = fault(capsys, arguments)
        seen.add(arguments[0])
        if why and not any(text in why for text in _UNFINISHED):
            wrong[command] = why
        elif arguments[0] != "--version":
            given = {word for word in arguments if word.startswith("-")}
            if unknown := given - options_of(capsys, arguments):
                wrong[command] = f"no such option: {unknown}"
    assert wrong == {}
    assert len(seen) > 10


def run(command: str) -> str:
    """What it said. A simulation may end with 1: not all fit."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(arguments_of(command))
    assert code == 0 or (code == 1 and " simulate " in command), (
        f"{command} ended with {code}: {said.getvalue()}"
    )
    return said.getvalue()


def test_the_commands_of_all_other_pages_end_well_on_a_small_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {line for page in RUN for line in lines(page.read_text())}
    others = [line for page in PAGES if page not in RUN for line in lines(page.read_text())]
    monkeypatch.chdir(tmp_path)
    with World(tmp_path) as world:
        for name, value in world.environment.items():
            monkeypatch.setenv(name, value)
        world.fill()
        said = {line: run(line) for line in others if line not in there}
    assert len(said) > 3
    assert [line for line, text in said.items() if not text] == []
