"""`berth status` and `berth claims`: what is in the ledger, for a person or a program.
They only read: nothing is repaired or woken; a ledger that is being rebuilt is shown as far as it is. A Redis
that is new or came back older does not stay as it is: the first reader begins its new life."""

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import closing

import msgspec

from berth import settings
from berth.api.pool import Pool
from berth.cli import tables
from berth.cli.output import note, show
from berth.cli.shared_options import add_kubeconfig, add_output, add_store, existing_ledger
from berth.errors import BadInputError, BerthError, OtherClusterError
from berth.ledger.holders import unit_rows
from berth.ledger.ledger import Ledger
from berth.ledger.report import names, pool_rows
from berth.ledger.view import View
from berth.settings import Settings
from berth.stores import open_store, redacted

_Rows = Mapping[str, Sequence[object]]  # what a report shows, by what that is called


def add_status_options(parser: argparse.ArgumentParser) -> None:
    add_kubeconfig(parser)
    _add_report_options(parser)
    parser.set_defaults(run=status)


def add_claims_options(parser: argparse.ArgumentParser) -> None:
    _add_report_options(parser)
    parser.add_argument("-n", "--namespace", metavar="NAME", help="only of pods in this one (default: all)")
    parser.add_argument("--units", action="store_true", help="each unit that has a name, and who holds it")
    parser.set_defaults(run=claims)


def _add_report_options(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("--pool", metavar="NAME", help="only this one (default: all)")
    add_output(parser)


class _Ledger(msgspec.Struct, frozen=True):
    """`open`: this cluster's pods are given units out of it; if not, `why`."""

    store: str
    open: bool
    why: str


def status(options: argparse.Namespace) -> int:
    """Show Pools and their domains, with the pods that wait for them if the cluster can be asked.

    It returns 1, and shows none, where the ledger is elsewhere now, or another cluster's: its figures would
    be taken for this cluster's.
    """
    config = settings.from_environment()
    view = _view(config.store)
    ledger = _ledger(config.store, view)
    if _moved(view):
        return _refuse(ledger, "pools", options.output)
    _require(options.pool, view)
    try:
        waiting = _waiting(config, view.resources)
    except OtherClusterError as error:
        return _refuse(msgspec.structs.replace(ledger, open=False, why=str(error)), "pools", options.output)
    rows = pool_rows(view, waiting, options.pool)
    return _show(ledger, {"pools": rows}, options.output, tables.pool_lines(rows), "no pools")


def claims(options: argparse.Namespace) -> int:
    """Show who holds what since when; with --units, each unit of named pools and who holds it.

    It returns 1 where the ledger is elsewhere now."""
    store = settings.from_environment().store
    view = _view(store)
    ledger = _ledger(store, view)
    if _moved(view):
        return _refuse(ledger, "units" if options.units else "claims", options.output)
    _require(options.pool, view)
    where = f" in namespace {options.namespace}" if options.namespace else ""
    now = time.time()
    if options.units:
        units = unit_rows(view, now, options.pool)
        if options.namespace:
            units = [row for row in units if row.holder.startswith(f"{options.namespace}/")]
        lines = tables.unit_lines(units)
        return _show(ledger, {"units": units}, options.output, lines, f"no units with names{where}")
    rows = tables.claim_rows(view, options.pool, options.namespace)
    lines = tables.claim_lines(rows, now)
    return _show(ledger, {"claims": rows}, options.output, lines, f"no claims{where}")


def _show(ledger: _Ledger, rows: _Rows, output: str, lines: Sequence[str], nothing: str) -> int:
    """Print the rows, for a person as a table of these lines, the first of which is its header."""
    if output != "table":
        show({"ledger": ledger, **rows}, output)
    elif lines[1:]:
        print("\n".join(lines))
    else:
        note(f"{nothing} in {ledger.store}")
    if ledger.why:
        note(ledger.why)
    return 0


def _refuse(ledger: _Ledger, what: str, output: str) -> int:
    """Say why nothing is shown, and in the report of a program, too."""
    if output != "table":
        show({"ledger": ledger, what: ()}, output)
    note(ledger.why)
    return 1


def _view(url: str) -> View:
    with existing_ledger(url) as store:
        return Ledger(store, while_closed=True).view()


def _require(pool: str | None, view: View) -> None:
    known = names(view)
    if pool is not None and pool not in known:
        raise BadInputError(f"there is no pool {pool} in the ledger; there are: {', '.join(known) or 'none'}")


def _waiting(config: Settings, resources: Mapping[str, Pool]) -> dict[str, int] | None:
    """Return how many pods wait for each pool; None where that is not known. Raises OtherClusterError."""
    try:
        from berth.controller.pool_status import waiting_now  # the kubernetes client takes 0.4 s to import
        from berth.handlers.wiring import ledger_of
        from berth.kube.cluster import connect

        cluster = connect()
        with closing(open_store(config.store)) as store:
            ledger_of(cluster, config, store, while_closed=True).require_cluster()
        return waiting_now(cluster, config.scheduler_names, resources)
    except OtherClusterError:
        raise
    except BerthError as error:
        note(f"who waits is not known: {error}")
        return None


def _ledger(store: str, view: View) -> _Ledger:
    why = ""
    if view.being_copied:
        why = "this is part of a copy that has not ended: repeat berth store copy"
    elif view.epoch is None:
        why = "the ledger is new or being rebuilt: this is what it has so far (see berth reconcile)"
    elif (trouble := view.epoch.trouble()) is not None:
        why = str(trouble)
    return _Ledger(redacted(store), not why, why)


def _moved(view: View) -> bool:
    """Whether another store has the ledger now: what this one holds is of the past."""
    return view.epoch is not None and view.epoch.moved
