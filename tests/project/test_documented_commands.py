"""Every `berth …` in README, docs and infra's pages is a command line that the real parser takes.

A line of a code block is parsed as it stands there; a command in the text may leave out what it would need.
That they do what the pages say is shown elsewhere (tests/e2e/test_scenario_pages.py and others).
"""

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from berth.cli.arguments import parsed

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
_FENCED = re.compile(r"^ *```\w*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^(?:\$ )?(?:\w+=\S+ )*(berth .*)$", re.MULTILINE)
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
