"""`berth`'s subcommands and their options; errors end with one line and a non-zero exit.
What a subcommand needs is imported when it runs, so that `berth --help` is quick."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from berth import __version__
from berth.errors import BerthError, SettingsError

FIRST_PORT = 8080


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit code: 0 done, 1 it could not, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        _environment(options)
        return _run(options)
    except BerthError as error:
        sys.stderr.write(f"berth: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def _run(options: argparse.Namespace) -> int:
    if options.command == "up":
        from berth.cli import up

        return up.run(options)
    if options.command == "demo":
        from berth.cli import demo

        return demo.run(options)
    from berth.cli import pools

    return pools.apply(options) if options.command == "apply" else pools.reconcile(options)


def _environment(options: argparse.Namespace) -> None:
    """Options become the variables of design 4, which the functions read; paths become absolute."""
    for option, variable in (
        ("kubeconfig", "KUBECONFIG"),
        ("store", "BERTH_STORE"),
        ("pools", "BERTH_POOLS"),
    ):
        value = getattr(options, option, None)
        if value is None:
            continue
        if option != "store":
            value = str(Path(value).absolute())
            if not Path(value).is_file():
                raise SettingsError(f"there is no file {value} (--{option})")
        os.environ[variable] = value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="berth",
        description="Lets kube-scheduler place pods by scarce things that it cannot count itself.",
    )
    parser.add_argument("--version", action="version", version=f"berth {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _up(commands.add_parser("up", help="run all functions here, against any cluster, until Ctrl-C"))
    _demo(
        commands.add_parser("demo", help="see the functions at work on a small stand-in for the API server")
    )
    _apply(
        commands.add_parser(
            "apply", help="write Pools to the active source: BERTH_POOLS' file or the cluster"
        )
    )
    _reconcile(
        commands.add_parser(
            "reconcile", help="make the ledger equal to the cluster now; print what was mended"
        )
    )
    return parser


def _up(parser: argparse.ArgumentParser) -> None:
    _common(parser)
    parser.add_argument(
        "-f", "--pools", metavar="FILE", help="Pool documents (BERTH_POOLS); else the cluster's Pools"
    )
    parser.add_argument(
        "--port", type=int, default=FIRST_PORT, help="first port; %(default)s is filter's, one up each"
    )
    parser.add_argument(
        "--scheduler-config", metavar="OUT", help="write a file that kube-scheduler --config takes"
    )
    parser.add_argument(
        "--functions", metavar="DIR", help="take the functions from this folder, not Berth's own"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON line a state change, on standard output"
    )


def _demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=int, default=0, help="first port for the functions (default: any free ones)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print only the measured result, as one JSON line"
    )


def _apply(parser: argparse.ArgumentParser) -> None:
    _common(parser)
    parser.add_argument("-f", "--file", metavar="FILE", required=True, help="the Pool documents to apply")
    parser.add_argument("--pools", metavar="FILE", help="the active source if it is a file (BERTH_POOLS)")


def _reconcile(parser: argparse.ArgumentParser) -> None:
    _common(parser)
    parser.add_argument(
        "-f", "--pools", metavar="FILE", help="Pool documents (BERTH_POOLS); else the cluster's Pools"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", metavar="FILE", help="the cluster to talk to (KUBECONFIG)")
    parser.add_argument("--store", metavar="URL", help="the ledger's store (BERTH_STORE)")
