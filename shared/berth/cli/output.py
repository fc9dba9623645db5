"""Lines for who runs a command: what was asked for on standard output, anything else on standard error."""

import contextlib
import sys

FORMATS = ("table", "json", "yaml")
"""What -o takes: a table for a person, or one document for a program."""


def say(line: str) -> None:
    """Print a line at once, for a person who waits for it."""
    print(line, flush=True)


def note(text: str) -> None:
    """Write a line to standard error, which may be closed."""
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"berth: {text}\n")


def show(report: object, output: str) -> None:
    """Print a report as one JSON or YAML document; a report is what msgspec can encode."""
    import msgspec  # for both `berth --help` would wait
    import yaml

    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        print(yaml.safe_dump(msgspec.to_builtins(report), sort_keys=False), end="")
