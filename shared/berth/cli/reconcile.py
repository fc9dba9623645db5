"""`berth reconcile`: make the ledger equal to the cluster now, in this process."""

import argparse
import math

import msgspec

from berth import settings
from berth.cli.output import show
from berth.cli.shared_options import add_kubeconfig, add_output, add_pools, add_store
from berth.handlers.reconcile import Reconcile, Report
from berth.handlers.wiring import ledger_and_cluster
from berth.stores import redacted


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kubeconfig(parser)
    add_store(parser)
    add_pools(parser)
    add_output(parser, "text")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reconcile once, with the functions' own settings; 1 if there are problems."""
    config = settings.from_environment()
    ledger, cluster = ledger_and_cluster(config, while_closed=True)
    reconcile = Reconcile(
        ledger, cluster, config, clock=cluster.now, ahead=cluster.clock_ahead, rebuild_seconds=math.inf
    )
    report = reconcile.run()
    if options.output == "json":
        print(msgspec.json.encode(report).decode())  # a line a run, as logs like it
    elif options.output == "yaml":
        show(report, options.output)
    else:
        print(_text(report, config.store))
    return 1 if report.problems else 0


def _text(report: Report, store: str) -> str:
    lines = [
        f"ledger: {redacted(store)}",
        "the ledger was rebuilt from the pods" if report.rebuilt else "",
        f"Pools changed: {', '.join(report.pools)}" if report.pools else "",
        f"claims released: {report.released}, settled: {report.settled}, adopted: {report.adopted}",
        f"capacities changed: {report.capacities}, pods woken: {report.woken}",
        *(f"problem: {problem}" for problem in report.problems),
    ]
    return "\n".join(line for line in lines if line)
