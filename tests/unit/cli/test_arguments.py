"""The command line: each command has options and something to run, and the others are not imported."""

import subprocess
import sys

import pytest

from berth.cli.arguments import COMMANDS, build_parser, parsed

_HELP = """
import contextlib, io, sys
from berth.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main(["--help"])
print(*sys.modules)
"""


def test_the_whole_parser_has_the_options_of_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    parser = build_parser()
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            parser.parse_args([command.name, "--help"])
        usage = capsys.readouterr().out.partition("\n\n")[0].replace("[-h]", "")
        assert usage.removeprefix(f"usage: berth {command.name}").strip()


@pytest.mark.parametrize(
    "arguments",
    [
        *(["up"], ["demo"], ["apply", "-f", "x"], ["reconcile"], ["status"], ["claims"], ["suspend", "p"]),
        *(["explain", "p"], ["completion", "bash"]),
        ["simulate", "-f", "x", "--capacity", "p=1", "--capacity", "p/d=0"],
        *(["external", "p", "1"], ["release", "uid"], ["scheduler-config"], ["token", "n/s"]),
        *(["store", "copy", "a", "b"], ["store", "resume", "a"], ["store", "init", "a"]),
        *(["sysdump"], ["sysdump", "-o", "x.tar.gz", "--since", "30m", "-n", "berth"]),
    ],
)
def test_each_command_has_something_to_run(arguments: list[str]) -> None:
    assert callable(parsed(arguments).run)


def test_help_imports_no_command() -> None:
    modules = subprocess.run([sys.executable, "-c", _HELP], capture_output=True, text=True, check=True).stdout
    assert "berth.cli.arguments" in modules.split()
    assert {f"berth.cli.{name}" for name in ("up", "inspect", "store", "demo")} & set(
        modules.split()
    ) == set()
    assert {"kubernetes", "yaml", "rich"} & set(modules.split()) == set()
