"""`berth status` and `berth claims`: what is in the ledger, for a person or a program.
They only read: nothing is repaired or woken; a ledger that is being rebuilt is shown as far as it is."""

import argparse
import time
from collections.abc import Sequence

import msgspec

from berth import settings
from berth.cli import tables, watch
from berth.cli.output import note, show
from berth.cli.shared_options import add_kubeconfig, add_output, add_store, existing_ledger
from berth.cli.status import LedgerState, is_moved, ledger_state, opened, require_pool, show_status
from berth.ledger.holders import claim_rows, unit_rows
from berth.ledger.ledger import Ledger
from berth.ledger.view import View


def add_status_options(parser: argparse.ArgumentParser) -> None:
    _add_report_options(parser)
    watch.add_watch(parser)
    parser.set_defaults(run=status)


def add_claims_options(parser: argparse.ArgumentParser) -> None:
    _add_report_options(parser)
    one_or_all = parser.add_mutually_exclusive_group()
    one_or_all.add_argument(
        "-n", "--namespace", metavar="NAME", help="only of pods in this one (default: all)"
    )
    one_or_all.add_argument("-A", "--all-namespaces", action="store_true", help="of pods in all namespaces")
    parser.add_argument("--units", action="store_true", help="each unit that has a name, and who holds it")
    parser.set_defaults(run=claims)


def _add_report_options(parser: argparse.ArgumentParser) -> None:
    add_kubeconfig(parser)
    add_store(parser)
    parser.add_argument("--pool", metavar="NAME", help="only this one (default: all)")
    add_output(parser)


def status(options: argparse.Namespace) -> int:
    """Show Pools and their domains, with the pods that wait for them if the cluster can be asked.

    It returns 1 where nothing is given out of the ledger, or it is another cluster's.
    """
    if options.watch:
        return watch.run(options)
    with opened(settings.from_environment(), options.pool) as source:
        report, unknown, _ = source.look()
    show_status(report, options.output)
    if unknown:
        note(unknown)
    if options.output == "table":
        for remark in report.remarks:
            note(remark)
    return 0 if report.ledger.open else 1


def claims(options: argparse.Namespace) -> int:
    """Show who holds what since when; with --units, each unit of named pools and who holds it.

    It returns 1 where nothing is given out of the ledger; one that is elsewhere now is not shown."""
    store = settings.from_environment().store
    view = _view(store)
    ledger = ledger_state(store, view)
    if is_moved(view):
        return _show(ledger, "units" if options.units else "claims", (), options.output, (), "")
    require_pool(options.pool, view)
    where = f" in namespace {options.namespace}" if options.namespace else ""
    now = time.time()
    if options.units:
        units = unit_rows(view, now, options.pool)
        if options.namespace:
            units = [row for row in units if row.holder.startswith(f"{options.namespace}/")]
        lines = tables.unit_lines(units)
        return _show(ledger, "units", units, options.output, lines, f"no units with names{where}")
    rows = claim_rows(view, options.pool, options.namespace)
    lines = tables.claim_lines(rows, now)
    return _show(ledger, "claims", rows, options.output, lines, f"no claims{where}")


def _show(
    ledger: LedgerState,
    what: str,
    rows: Sequence[msgspec.Struct],
    output: str,
    lines: Sequence[str],
    nothing: str,
) -> int:
    """Print the rows, for a person as a table of these lines, the first of which is its header. Above them
    stands why nothing is given out of the ledger, where that is so."""
    if output != "table":
        show({"ledger": ledger, what: rows}, output)
        return 0 if ledger.open else 1
    if ledger.why:
        print(tables.printable(ledger.why))
    if lines[1:]:
        print("\n".join(lines))
    elif nothing:
        note(f"{nothing} in {ledger.store}")
    return 0 if ledger.open else 1


def _view(url: str) -> View:
    with existing_ledger(url, reads_only=True) as store:
        return Ledger(store, while_closed=True).view()
