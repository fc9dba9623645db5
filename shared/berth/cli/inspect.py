"""`berth status` and `berth claims`: what is in the ledger, for a person or a program.
They only look: nothing is mended or woken; a ledger that is being rebuilt is shown as far as it is. A Redis
that is new or came back older does not stay as it is: any look at such a one begins a new life."""

import argparse
import contextlib
import sys
import time
from collections.abc import Mapping
from contextlib import closing

import msgspec
import yaml
from msgspec.structs import replace

from berth import settings
from berth.api.pool import Pool
from berth.cli import tables
from berth.cli.tables import ClaimRow
from berth.errors import BadInputError, BerthError, OtherClusterError, SettingsError
from berth.ledger.holders import UnitRow, unit_rows
from berth.ledger.ledger import Ledger
from berth.ledger.report import PoolRow, names, pool_rows
from berth.ledger.view import View
from berth.settings import Settings
from berth.stores import open_store, shown
from berth.stores.base import Local, Store


class _Ledger(msgspec.Struct, frozen=True):
    """`open`: this cluster's pods are given units out of it; if not, `why`."""

    store: str
    open: bool
    why: str


class _Status(msgspec.Struct, frozen=True):
    ledger: _Ledger
    pools: list[PoolRow]


class _Claims(msgspec.Struct, frozen=True):
    ledger: _Ledger
    claims: list[ClaimRow]


class _Units(msgspec.Struct, frozen=True):
    ledger: _Ledger
    units: list[UnitRow]


def status(options: argparse.Namespace) -> int:
    """Pools and their domains, with the pods that wait for them if the cluster can be asked; 1 where the
    ledger is elsewhere now, or another cluster's: its figures would be taken for this cluster's."""
    found = settings.from_environment()
    view = _look(found.store)
    ledger = _ledger(found.store, view)
    if _moved(view):
        return _refused(_Status(ledger, []), options.output)
    _require(options.pool, view)
    try:
        waiting = _waiting(found, view.resources)
    except OtherClusterError as error:
        return _refused(_Status(replace(ledger, open=False, why=str(error)), []), options.output)
    rows = pool_rows(view, waiting, options.pool)
    if options.output != "table":
        _print(_Status(ledger, rows), options.output)
    elif rows:
        print("\n".join(tables.pool_lines(rows)))
    else:
        note(f"no pools in {ledger.store}")
    _warn_of(ledger)
    return 0


def claims(options: argparse.Namespace) -> int:
    """Who holds what since when; with --units, each unit of named pools and who holds it. 1 where the ledger
    is elsewhere now."""
    store = settings.from_environment().store
    view = _look(store)
    ledger = _ledger(store, view)
    if _moved(view):
        return _refused(_Units(ledger, []) if options.units else _Claims(ledger, []), options.output)
    _require(options.pool, view)
    (_show_units if options.units else _show_claims)(options, ledger, view)
    _warn_of(ledger)
    return 0


def _show_claims(options: argparse.Namespace, ledger: _Ledger, view: View) -> None:
    rows = tables.claim_rows(view, options.pool, options.namespace)
    if options.output != "table":
        _print(_Claims(ledger, rows), options.output)
    elif rows:
        print("\n".join(tables.claim_lines(rows, time.time())))
    else:
        note(f"no claims{_where(options)} in {ledger.store}")


def _show_units(options: argparse.Namespace, ledger: _Ledger, view: View) -> None:
    rows = unit_rows(view, time.time(), options.pool)
    if options.namespace:
        rows = [row for row in rows if row.holder.startswith(f"{options.namespace}/")]
    if options.output != "table":
        _print(_Units(ledger, rows), options.output)
    elif rows:
        print("\n".join(tables.unit_lines(rows)))
    else:
        note(f"no units with names{_where(options)} in {ledger.store}")


def _where(options: argparse.Namespace) -> str:
    return f" in namespace {options.namespace}" if options.namespace else ""


def _refused(report: _Status | _Claims | _Units, output: str) -> int:
    """Say why nothing is shown, and in the report of a program, too."""
    if output != "table":
        _print(report, output)
    _warn_of(report.ledger)
    return 1


def require_there(store: Store, url: str, what: str = "--store or BERTH_STORE") -> None:
    """Raise SettingsError where there is no ledger and looking for one would make it."""
    if isinstance(store, Local) and not store.is_there():
        raise SettingsError(f"there is no ledger at {shown(url)}: {what} should name the functions' own")


def _look(url: str) -> View:
    with closing(open_store(url)) as store:
        require_there(store, url)
        return Ledger(store, while_closed=True).view()


def _require(pool: str | None, view: View) -> None:
    known = names(view)
    if pool is not None and pool not in known:
        raise BadInputError(f"there is no pool {pool} in the ledger; there are: {', '.join(known) or 'none'}")


def _waiting(found: Settings, resources: Mapping[str, Pool]) -> dict[str, int] | None:
    """How many pods wait for each pool, or None where that is not known. Raises OtherClusterError."""
    try:
        from berth.controller import waiting  # the kubernetes client takes 0.4 s to import
        from berth.handlers.wiring import ledger_of
        from berth.kube.cluster import connect

        cluster = connect()
        with closing(open_store(found.store)) as store:
            ledger_of(cluster, found, store, while_closed=True).require_ours()
        return waiting.listed(cluster, found.scheduler_names, resources)
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
    return _Ledger(shown(store), not why, why)


def _moved(view: View) -> bool:
    """Whether another store has the ledger now: what this one holds is of the past."""
    return view.epoch is not None and view.epoch.moved


def _warn_of(ledger: _Ledger) -> None:
    if ledger.why:
        note(ledger.why)


def _print(report: _Status | _Claims | _Units, output: str) -> None:
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        print(yaml.safe_dump(msgspec.to_builtins(report), sort_keys=False), end="")


def note(text: str) -> None:
    """On standard error: standard output is for what was asked."""
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"berth: {text}\n")
