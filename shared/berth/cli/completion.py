"""`berth completion`: what a shell needs to complete the command line when its user presses Tab.
The shell then asks `berth` itself, through argcomplete, so a completion is never older than the command."""

import argparse
import io
import os
import shlex
import sys

SHELLS = ("bash", "zsh", "fish")
_PROGRAMS = ["berth", "kubectl-berth"]
_KEEP_FILES_OUT = ":4"
"""What kubectl reads last: cobra's ShellCompDirectiveNoFileComp (source: cobra, completions.go)."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell that is to read it")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a script for the shell."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(_PROGRAMS, shell=options.shell))
    return 0


def is_asked() -> bool:
    """Whether a shell asks what could stand next, in place of running a command."""
    return "_ARGCOMPLETE" in os.environ


def answer(parser: argparse.ArgumentParser) -> None:
    """Tell the shell that asks, and end the process."""
    import argcomplete

    argcomplete.autocomplete(parser)


def for_kubectl() -> int:
    """Tell kubectl what could stand next in `kubectl berth ...`: a line each, then what to do with them."""
    import argcomplete

    from berth.cli.arguments import build_parser

    *before, last = sys.argv[1:] or [""]
    line = f"{shlex.join(['kubectl-berth', *before])} {last}"
    os.environ |= {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
    os.environ |= {"COMP_LINE": line, "COMP_POINT": str(len(line.encode()))}
    answered = io.StringIO()
    argcomplete.autocomplete(build_parser(), exit_method=_go_on, output_stream=answered)
    print(*filter(None, answered.getvalue().splitlines()), _KEEP_FILES_OUT, sep="\n")
    return 0


def _go_on(_: int) -> None:
    """Let the process go on after argcomplete's answer, which would end it."""
