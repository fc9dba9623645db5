"""The command line: which subcommands `berth` has, and how one is run; an error ends it with one line.
A subcommand's options stand in the module that does its work, which is imported only when it is named:
`berth --help` is quick."""

import argparse
import contextlib
import os
import pkgutil
import sys
from collections.abc import Container, Sequence
from pathlib import Path
from typing import NamedTuple

from berth import __version__, settings
from berth.cli import completion, raise_at_ctrl_c
from berth.cli.output import as_given, note
from berth.cli.parser import Parser
from berth.errors import BerthError, ClusterUnavailableError, SettingsError, UsageError
from berth.settings import DEFAULT_STORE
from berth.stores import absolute, redacted
from berth.telemetry import logs


class _Command(NamedTuple):
    """`options` is the function in berth.cli that adds the options to a parser, and `run` to its defaults;
    it is `add_options` in the module of the command's name unless another is named."""

    name: str
    help: str
    more: str
    options: str = ""


COMMANDS = (
    _Command(
        "up",
        "run all functions here, against any cluster, until Ctrl-C",
        "It stands in for Knative: it watches the cluster and sends the functions the same events.",
    ),
    _Command(
        "demo",
        "show a day in the life of a cluster, beside a naive counter that meets the same faults",
        "It needs no cluster and takes less than a minute; it ends with 1 if a promise was broken.",
    ),
    _Command(
        "apply",
        "write Pools to the active source (BERTH_POOLS' file or the cluster), and PoolClaims",
        "They are added, or replace those of their names. A file is made, or rewritten without its comments.",
    ),
    _Command(
        "diff",
        "show how the active source would change if Pools and PoolClaims were applied",
        "It writes nothing, and ends with 0 if nothing would change, 1 if something would, 2 after an error.",
        "apply:add_diff_options",
    ),
    _Command(
        "validate",
        "check files of Pools and PoolClaims; say all that is wrong with them",
        "It asks no cluster, and ends with 1 if anything is wrong.",
        "apply:add_validate_options",
    ),
    _Command(
        "check",
        "find misconfigurations of the cluster, the scheduler and the store",
        "It only reads, and says for each what to do; it ends with 1 if one of them is an error.",
    ),
    _Command(
        "relay",
        "send the functions a cluster's events and the clock's ticks, in place of Knative Eventing",
        "It asks no store. Several may run: by a Lease one of them leads, and another within ten seconds of "
        "its end.",
    ),
    _Command(
        "reconcile",
        "make the ledger equal to the cluster now; print what was repaired",
        "It ends with 1 if it found problems that a person has to solve.",
    ),
    _Command(
        "doctor",
        "compare the ledger with the cluster: what differs, why it may, and what repairs it",
        "It writes nothing without --fix. It ends with 1 if something differs, or after --fix is left.",
    ),
    _Command(
        "status",
        "show pools and domains: capacity, used, free, binding, who waits, and why free units are not given",
        "It reads the ledger, and asks the cluster only for the pods that wait; it repairs nothing. It ends "
        "with 1 if nothing is given out of the ledger: it is being rebuilt or copied, was moved, or is "
        "another cluster's.",
        "inspect:add_status_options",
    ),
    _Command(
        "top",
        "show pools and who waits for them, and why, again and again until Ctrl-C",
        "On a terminal it is a table in place; elsewhere each change of the status is a block of lines, or a "
        "document. It only reads. Ctrl-C ends it with 130.",
        "watch:add_options",
    ),
    _Command(
        "claims",
        "show who holds which units, where and since when",
        "It reads the ledger; it asks no cluster and repairs nothing.",
        "inspect:add_claims_options",
    ),
    _Command(
        "usage",
        "show unit-hours in use and waited for since a date, by pool or by namespace",
        "It reads the journal that reconcile keeps beside the ledger, and asks no cluster.",
    ),
    _Command(
        "explain",
        "say why a pod waits and what would let it in, or where it is and what it holds",
        "It reads the ledger and the cluster, and changes nothing; it ends with 0 when it could explain.",
    ),
    _Command(
        "simulate",
        "tell whether pods of a manifest would fit, where, and what is short",
        "It tries them on a copy of the ledger and writes nothing; it ends with 1 if some do not fit.",
    ),
    _Command(
        "waiting",
        "show who waits for which pool, since when, why, and the place in line",
        "It ends with 1 if no scheduler tries the pods. It reads ledger and cluster, and repairs nothing.",
    ),
    _Command(
        "suspend",
        "give out no more units of a Pool, or of some of its domains; holders keep what they have",
        "It writes spec.suspended in the active source (BERTH_POOLS' file or the cluster).",
        "maintenance:add_suspend_options",
    ),
    _Command(
        "external",
        "say how many units of a Pool are in use outside the cluster",
        "It writes spec.external in the active source (BERTH_POOLS' file or the cluster).",
        "maintenance:add_external_options",
    ),
    _Command(
        "licences",
        "show who uses a Pool's licences, by what the licence server's own program prints",
        "With --write it writes what others use into spec.external. What can't be read is never no use.",
    ),
    _Command(
        "release",
        "free units that stay held though their pod is gone (onLostNode: Hold)",
        "Use it when nothing uses them any more. It asks the API server, and refuses a pod that lives.",
        "maintenance:add_release_options",
    ),
    _Command(
        "scheduler-config",
        "write the configuration of a kube-scheduler that calls Berth's functions",
        "For a scheduler of Berth's pods alone name filter, prioritize, preempt and bind; else extender.",
    ),
    _Command(
        "token",
        "make the Secret with the token that kube-scheduler and the functions share",
        "A Secret that is there already stays as it is.",
    ),
    _Command(
        "store",
        "copy the ledger to another store, resume after a copy that died, make a table",
        "Each has its own --help.",
    ),
    _Command(
        "sysdump",
        "write an archive with what a maintainer would ask for: ledger, Pools, pods, functions, logs",
        "It only reads, and no Secret but the one that names the store. What looks like a secret is taken "
        "out; what can't be read is listed.",
    ),
    _Command(
        "version",
        "show the versions of this command, the ledger, the API server and the functions in the cluster",
        "What can't be reached is said, and is no failure.",
    ),
    _Command(
        "completion",
        "print what bash, zsh or fish needs to complete the command line",
        "Let the shell read it when it starts: docs/reference/cli.md has the line for each.",
    ),
)


_MAKES_A_LEDGER = ("up",)
"""Commands that make a ledger where there is none; the others look for the functions' own."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code: 0 done, 1 failed or problems seen, 2 wrong usage."""
    options = parsed(arguments)
    failed: int = options.failed
    try:
        _set_environment(options)
        _set_up_log()
        raise_at_ctrl_c()
        code: int = options.run(options)
        print(end="", flush=True)
        return code
    except ClusterUnavailableError as error:
        note(as_given(f"{error}; check that it runs and that KUBECONFIG names it", options))
        return failed
    except BerthError as error:
        for problem in error.problems:
            note(as_given(problem, options))
        return 2 if isinstance(error, UsageError) else failed
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _drop_output()
        return 141
    except OSError as error:
        _drop_output()
        note(f"{error.filename or 'standard output'}: {error.strerror or error}")
        return failed


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of a command line. Raises SystemExit for wrong usage.

    A subcommand's `words_to` names its list of words that may go on after an option.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if completion.is_asked():
        completion.answer(build_parser())
    parser = build_parser(arguments)
    options, rest = parser.parse_known_args(arguments)
    if options.words_to:
        getattr(options, options.words_to).extend(word for word in rest if not word.startswith("-"))
        rest = [word for word in rest if word.startswith("-")]
    if rest:
        options.parser.refuse(rest)
    return options


def build_parser(named: Container[str] | None = None) -> Parser:
    """Return the parser of the command line; only subcommands in `named` (None: all) get their options."""
    parser = Parser(
        prog="berth",
        description="Lets kube-scheduler place pods by scarce things that it cannot count itself.",
    )
    parser.add_argument("--version", action="version", version=f"berth {__version__}")
    parser.set_defaults(words_to=None, failed=1, parser=parser)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        description = f"{command.help[0].upper()}{command.help[1:]}. {command.more}"
        subparser = subparsers.add_parser(command.name, help=command.help, description=description)
        subparser.set_defaults(parser=subparser)
        if named is None or command.name in named:
            options = command.options or f"{command.name.replace('-', '_')}:add_options"
            pkgutil.resolve_name(f"berth.cli.{options}")(subparser)
    return parser


def _drop_output() -> None:
    """Keep Python from writing at its end, with a traceback, what could not be written before."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _on_files_alone(options: argparse.Namespace) -> bool:
    """Whether simulate gets its nodes and its Pools from files: then there is nothing to ask a cluster."""
    return bool(getattr(options, "nodes", None)) and options.pools is not None


def _set_up_log() -> None:
    """Have warnings written as text for a person, unless the variables of functions' logs say otherwise."""
    logs.configure(settings.log_format(), settings.log_level(default="WARNING"), auto="text")


def _set_environment(options: argparse.Namespace) -> None:
    """Put the options into the variables of docs/reference/settings.md; paths become absolute."""
    for option, variable in (("kubeconfig", "KUBECONFIG"), ("pools", "BERTH_POOLS")):
        if (value := getattr(options, option, None)) is not None:
            if "://" in value:
                raise SettingsError(f"{redacted(value)} is no file (--{option}): fetch it, and name the file")
            path = Path(value).absolute()
            may_be_new = option == "pools" and options.command in ("apply", "diff")
            if not path.is_file() and not (may_be_new and not path.exists()):
                raise SettingsError(f"there is no file {path} (--{option})")
            os.environ[variable] = str(path)
    if getattr(options, "context", None) is not None:
        os.environ["BERTH_CONTEXT"] = options.context
    if "store" in options:
        url = os.environ.get("BERTH_STORE") if options.store is None else options.store
        if url or options.command in _MAKES_A_LEDGER:
            os.environ["BERTH_STORE"] = absolute(url or DEFAULT_STORE)
        elif not (getattr(options, "client", False) or _on_files_alone(options)):
            from berth.cli import ledger_url  # `berth --help` is quick without

            ledger_url.take_over()
