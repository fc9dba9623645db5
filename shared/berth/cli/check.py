"""`berth check`: what is misconfigured in a cluster, a scheduler and a store, and what to do about it.
It only reads; with --pre it is of use before anything is installed."""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

from berth.checks.finding import Finding
from berth.checks.inputs import Inputs, Options
from berth.checks.registry import Report, run
from berth.cli.output import as_given, note, show
from berth.cli.shared_options import add_kubeconfig, add_output, add_pools
from berth.cli.tables import printable
from berth.errors import SettingsError
from berth.kube.cluster import connect
from berth.ledger.report import counted
from berth.stores import absolute

_WIDTH = 8  # of a severity


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pre", action="store_true", help="before anything is installed: can it be?")
    add_kubeconfig(parser)
    words = "the ledger's store (BERTH_STORE; else the one that the installed functions have)"
    # Not `store`: what nobody names must not become the default.
    parser.add_argument("--store", dest="store_url", metavar="URL", help=words)
    add_pools(parser)
    parser.add_argument(
        "--scheduler-config",
        metavar="FILE",
        help="a KubeSchedulerConfiguration; else the one that the installed scheduler has",
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="say what is right, too, and how quick the store is"
    )
    add_output(parser)
    parser.set_defaults(run=check)


def check(options: argparse.Namespace) -> int:
    """Print the findings; 1 if one of them is an error."""
    environment = dict(os.environ)
    if options.store_url:
        environment["BERTH_STORE"] = absolute(options.store_url)
    file = None if options.scheduler_config is None else Path(options.scheduler_config)
    if file is not None and not file.is_file():
        raise SettingsError(f"there is no file {file} (--scheduler-config)")
    given = Options(environment, file, options.pre)
    inputs = Inputs(connect(), given, time.time, time.monotonic)
    report = run(inputs)
    if options.output != "table":
        show(report, options.output)
    else:
        print("\n".join(_lines(report, options)))
    for sentence in report.unchecked:
        note(sentence)
    return 1 if report.errors else 0


def _lines(report: Report, options: argparse.Namespace) -> Iterator[str]:
    for finding in report.findings:
        yield from _block(finding, as_given(finding.message, options))
    if options.verbose:
        yield from (f"{'ok':{_WIDTH}} {rule}" for rule in report.passed)
        if report.store_ms is not None:
            yield f"{'ok':{_WIDTH}} a read of {report.store} takes {report.store_ms:g} ms"
    counts = f"{counted(report.errors, 'error')}, {counted(report.warnings, 'warning')}"
    yield f"{counts}; nothing was found by {counted(len(report.passed), 'other rule')}"


def _block(finding: Finding, message: str) -> Iterator[str]:
    indent = " " * (_WIDTH + 1)
    yield f"{finding.severity:{_WIDTH}} {finding.id}: {printable(message)}"
    yield f"{indent}do: {finding.action}"
    yield f"{indent}see: {finding.docs}"
