"""`berth`'s subcommands and their options; errors end with one line and a non-zero exit.
What a subcommand needs is imported when it runs, so that `berth --help` is quick."""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from berth import __version__
from berth.cli import maintenance, raise_at_ctrl_c, scheduler_config, store, token
from berth.errors import BerthError, ClusterUnavailableError, SettingsError
from berth.settings import DEFAULT_STORE
from berth.stores import absolute

FIRST_PORT = 8080
LAST_FIRST_PORT = 65535 - 9  # nine functions and a proxy, one port each
MOST_REPLICAS = 9


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit code: 0 done, 1 it could not or found problems, 2 wrong usage."""
    options = parsed(arguments)
    try:
        _environment(options)
        run = _command(options)
        raise_at_ctrl_c()
        code = run(options)
        print(end="", flush=True)
        return code
    except ClusterUnavailableError as error:
        return _failed(f"{error}; check that it runs and that KUBECONFIG names it", 1)
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


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of a command line. Raises SystemExit for wrong usage.

    A subcommand's `words_to` names its list of words that may go on after an option.
    """
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if options.words_to:
        getattr(options, options.words_to).extend(word for word in rest if not word.startswith("-"))
        rest = [word for word in rest if word.startswith("-")]
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


def _failed(why: str, code: int) -> int:
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"berth: {why}\n")
    return code


def _drop_output() -> None:
    """What could not be written must not be tried again, with a traceback, when Python ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command(options: argparse.Namespace) -> Callable[[argparse.Namespace], int]:
    """Import what runs the subcommand."""
    if options.command == "up":
        from berth.cli import up

        return up.run
    if options.command == "demo":
        from berth.cli import demo

        return demo.run
    others = {"store": store.run, "scheduler-config": scheduler_config.run, "token": token.run}
    others |= dict.fromkeys(maintenance.COMMANDS, maintenance.run)
    if options.command in others:
        return others[options.command]
    if options.command in ("status", "claims"):
        from berth.cli import inspect

        return inspect.status if options.command == "status" else inspect.claims
    from berth.cli import apply

    return apply.apply if options.command == "apply" else apply.reconcile


def _environment(options: argparse.Namespace) -> None:
    """Put the options into the variables of docs/operations.md#settings; paths become absolute."""
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
            made = options.command == "apply" and option == "pools" and not Path(value).exists()
            if not made and not Path(value).is_file():
                raise SettingsError(f"there is no file {value} (--{option.replace('_', '-')})")
        os.environ[variable] = value
    if options.command in ("up", "reconcile", "status", "claims", *maintenance.COMMANDS):
        os.environ["BERTH_STORE"] = absolute(os.environ.get("BERTH_STORE") or DEFAULT_STORE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="berth",
        description="Lets kube-scheduler place pods by scarce things that it cannot count itself.",
    )
    parser.add_argument("--version", action="version", version=f"berth {__version__}")
    parser.set_defaults(words_to=None)
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
        "--proxy",
        metavar="FILE",
        help="close the functions by a token, and write the configuration of an HAProxy that adds it for the "
        "scheduler (with --scheduler-config)",
    )
    parser.add_argument("--proxy-tls", metavar="FOLDER", help=scheduler_config.PROXY_TLS)
    parser.add_argument(
        "--single",
        action="store_true",
        help="serve the scheduler's calls under one URL: pods that ask for none of the Pools cost no call",
    )
    parser.add_argument(
        "--replicas",
        type=_replicas,
        default=1,
        metavar="N",
        help=f"processes of each function, 1 to {MOST_REPLICAS}; each call goes to the next of them in turn",
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
    parser.add_argument(
        "--real",
        action="store_true",
        help="on a real etcd, kube-apiserver and kube-scheduler; in a checkout they are built first, "
        "once, with Go: about 6 minutes on 2 cores",
    )
    parser.add_argument("--binaries", metavar="DIR", help="the folder they are in, built by others (--real)")


def _apply(parser: argparse.ArgumentParser) -> None:
    _cluster(parser)
    parser.add_argument("-f", "--file", metavar="FILE", required=True, help="Pools and PoolClaims")
    parser.add_argument(
        "--pools",
        metavar="FILE",
        help="the active source if it is a file (BERTH_POOLS), made if it is not there; its comments "
        "get lost",
    )


def _reconcile(parser: argparse.ArgumentParser) -> None:
    _cluster(parser)
    _ledger(parser)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def _status(parser: argparse.ArgumentParser) -> None:
    _cluster(parser)
    _look(parser)


def _claims(parser: argparse.ArgumentParser) -> None:
    _look(parser)
    parser.add_argument("-n", "--namespace", metavar="NAME", help="only of pods in this one (default: all)")
    parser.add_argument("--units", action="store_true", help="each unit that has a name, and who holds it")


def _look(parser: argparse.ArgumentParser) -> None:
    _store(parser)
    parser.add_argument("--pool", metavar="NAME", help="only this one (default: all)")
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")


def _cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", metavar="FILE", help="the cluster to talk to (KUBECONFIG)")


def _store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", metavar="URL", help=f"the ledger's store (BERTH_STORE; else {DEFAULT_STORE})"
    )


def _ledger(parser: argparse.ArgumentParser) -> None:
    _store(parser)
    parser.add_argument(
        "-f", "--pools", metavar="FILE", help="Pool documents (BERTH_POOLS); else the cluster's Pools"
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > LAST_FIRST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} should be a number from 0 to {LAST_FIRST_PORT}")
    return int(text)


def _replicas(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_REPLICAS:
        raise argparse.ArgumentTypeError(f"{text!r} should be a number from 1 to {MOST_REPLICAS}")
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
        "see a day in the life, beside a naive counter that meets the same faults",
        "It needs no cluster and takes less than a minute; it ends with 1 if a promise was broken.",
    ),
    (
        "apply",
        _apply,
        "write Pools to the active source (BERTH_POOLS' file or the cluster), and PoolClaims",
        "They are added, or replaced by name. A file is written anew, without its comments, or made.",
    ),
    (
        "reconcile",
        _reconcile,
        "make the ledger equal to the cluster now; print what was mended",
        "It ends with 1 if it found problems that a person has to mend.",
    ),
    (
        "status",
        _status,
        "show pools and domains: capacity, used, free, reserved, and who waits",
        "It reads the ledger, and asks the cluster only for the pods that wait; it mends nothing.",
    ),
    (
        "claims",
        _claims,
        "show who holds which units, where and since when",
        "It reads the ledger; it asks no cluster and mends nothing.",
    ),
    (
        "suspend",
        maintenance.suspend,
        "give nothing new of a Pool, or of some of its domains; holders keep what they have",
        "It writes spec.suspended in the active source (BERTH_POOLS' file or the cluster).",
    ),
    (
        "external",
        maintenance.external,
        "say how many units of a Pool are in use outside the cluster",
        "It writes spec.external in the active source (BERTH_POOLS' file or the cluster).",
    ),
    (
        "release",
        maintenance.release,
        "free units that stay held though their pod is gone (onLostNode: Hold)",
        "Say it only when they are in use no more. It refuses for a pod that the API server says lives.",
    ),
    (
        "scheduler-config",
        scheduler_config.add_options,
        "write the configuration of a kube-scheduler that calls Berth's functions",
        "Name filter, prioritize, preempt and bind for a scheduler of its own, else extender.",
    ),
    (
        "token",
        token.add_options,
        "make the Secret with the token that kube-scheduler and the functions share",
        "A Secret that is there already stays as it is.",
    ),
    (
        "store",
        store.add_options,
        "copy the ledger to another store, resume after a copy that died, make a table",
        "Each has its own --help.",
    ),
)
