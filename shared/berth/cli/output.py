"""Lines for who runs a command: what was asked for on standard output, anything else on standard error."""

import argparse
import contextlib
import os
import sys
from typing import TextIO

from berth.errors import BadInputError

FORMATS = ("table", "json", "yaml")
"""What -o takes: a table for a person, or one document for a program."""


_VARIABLES = {
    "store": "BERTH_STORE",
    "store_url": "BERTH_STORE",
    "kubeconfig": "KUBECONFIG",
    "pools": "BERTH_POOLS",
}
"""The variables that options set, by the option's name in the parsed arguments."""


def as_given(text: str, options: argparse.Namespace) -> str:
    """Return an error's text with the option in place of the variable that it sets, if the option was given:
    whoever writes the text knows the variable alone."""
    for name, variable in _VARIABLES.items():
        option = f"--{name.removesuffix('_url')}"
        if getattr(options, name, None) is not None and option not in text:
            text = text.replace(variable, option)
    return text


def say(line: str) -> None:
    """Print a line at once, for a person who waits for it."""
    print(line, flush=True)


def note(text: str) -> None:
    """Write a line to standard error, which may be closed."""
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"berth: {text}\n")


def show(report: object, output: str) -> None:
    """Print a report as one JSON or YAML document; a report is what msgspec can encode. Raises BadInputError
    for half of a character in it, such as a file may have."""
    import msgspec  # for both `berth --help` would wait
    import yaml

    if output == "json":
        try:
            encoded = msgspec.json.encode(report)
        except UnicodeEncodeError as error:
            raise BadInputError(f"{error.object!a} is not Unicode text, which JSON is made of") from error
        print(msgspec.json.format(encoded, indent=2).decode())
    else:
        print(yaml.safe_dump(msgspec.to_builtins(report), sort_keys=False), end="")


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person reads the stream, or types what it gives; it may be closed."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def can_draw(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal that can move its cursor; else plain lines are better."""
    return is_terminal(stream) and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
