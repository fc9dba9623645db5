"""`berth`'s subcommands and their options; errors end with one line and a non-zero exit.
What a subcommand needs is imported when it runs, so that `berth --help` is quick."""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from berth import __version__
from berth.errors import BerthError, SettingsError
from berth.settings import DEFAULT_STORE

FIRST_PORT = 8080
LAST_FIRST_PORT = 65535 - 8  # nine functions, one port each
_FILE_STORE = "sqlite:///"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit code: 0 done, 1 it could not or found problems, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        _environment(options)
        code = _run(options)
        print(end="", flush=True)
        return code
    except BerthError as error:
        return _failed(str(error), 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _drop_output()
        return 141
    except OSError as error:
        _drop_output()
        return _failed(f"{error.filename or 'standard output'}: {error.strerror or error}", 1)


def _failed(why: str, code: int) -> int:
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"berth: {why}\n")
    return code


def _drop_output() -> None:
    """What could not be written must not be tried again, with a traceback, when Python ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
    if options.command in ("up", "reconcile"):
        os.environ["BERTH_STORE"] = _absolute(os.environ.get("BERTH_STORE") or DEFAULT_STORE)


def _absolute(store: str) -> str:
    """A ledger's file by its full path, so that what is said of it can be found; other stores as they are."""
    path = store.removeprefix(_FILE_STORE)
    if path in ("", store):
        return store
    absolute = f"{_FILE_STORE}{Path(path).absolute()}"
    return store if set("?#") & set(absolute) else absolute


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="berth",
        description="Lets kube-scheduler place pods by scarce things that it cannot count itself.",
    )
    parser.add_argument("--version", action="version", version=f"berth {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, add_options, words, more in _COMMANDS:
        add_options(
            commands.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}. {more}")
        )
    return parser


def _up(parser: argparse.ArgumentParser) -> None:
    _cluster(parser)
    _ledger(parser)
    parser.add_argument(
        "--port",
        type=_port,
        default=FIRST_PORT,
        help=f"first port, 0 to {LAST_FIRST_PORT}; %(default)s is filter's, one up each; 0: any free ones",
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
        "--port",
        type=_port,
        default=0,
        help=f"first port for the functions, 0 to {LAST_FIRST_PORT} (default: any free ones)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print only the measured result, as one JSON line"
    )


def _apply(parser: argparse.ArgumentParser) -> None:
    _cluster(parser)
    parser.add_argument("-f", "--file", metavar="FILE", required=True, help="the Pool documents to apply")
    parser.add_argument(
        "--pools",
        metavar="FILE",
        help="the active source if it is a file (BERTH_POOLS); its comments get lost",
    )


def _reconcile(parser: argparse.ArgumentParser) -> None:
    _cluster(parser)
    _ledger(parser)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def _cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", metavar="FILE", help="the cluster to talk to (KUBECONFIG)")


def _ledger(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", metavar="URL", help=f"the ledger's store (BERTH_STORE; else {DEFAULT_STORE})"
    )
    parser.add_argument(
        "-f", "--pools", metavar="FILE", help="Pool documents (BERTH_POOLS); else the cluster's Pools"
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > LAST_FIRST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} should be a number from 0 to {LAST_FIRST_PORT}")
    return int(text)


_COMMANDS = (
    (
        "up",
        _up,
        "run all functions here, against any cluster, until Ctrl-C",
        "It stands in for Knative: it watches the cluster and sends the functions the same events.",
    ),
    (
        "demo",
        _demo,
        "see the functions at work on a small stand-in for the API server",
        "It needs no cluster; it ends with 1 if a promise was broken.",
    ),
    (
        "apply",
        _apply,
        "write Pools to the active source: BERTH_POOLS' file or the cluster",
        "Pools are added, or replaced by name. A file is written anew, without its comments.",
    ),
    (
        "reconcile",
        _reconcile,
        "make the ledger equal to the cluster now; print what was mended",
        "It ends with 1 if it found problems that a person has to mend.",
    ),
)
