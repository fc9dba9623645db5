"""`berth usage`: unit-hours in use and waited for since a date, by pool or namespace, from the journal.
It asks no cluster; the journal is as far as the last reconcile has counted, and says until when."""

import argparse
import csv
import datetime as dt
import io
import time
from collections.abc import Callable, Sequence

import msgspec

from berth import settings
from berth.cli import tables
from berth.cli.output import FORMATS, note, show
from berth.cli.shared_options import add_kubeconfig, add_store, existing_ledger
from berth.cli.status import LedgerState, is_moved, ledger_state
from berth.errors import BadInputError, alternatives
from berth.ledger.ledger import Ledger
from berth.ledger.showback import BYS, UsageReport, UsageRow, usage_of

_POOL_COLUMNS = (
    *("POOL", "CAPACITY-HOURS", "USED-HOURS", "USED", "WAITED-HOURS", "PEAK", "MEAN"),
    *("HOURS-AT-ZERO-FREE", "ONE-MORE-HOURS"),
)
_NAMESPACE_COLUMNS = ("POOL", "NAMESPACE", "USED-HOURS", "SHARE", "WAITED-HOURS", "PEAK", "MEAN")
_EXTERNAL = "<external>"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "|", "%")
"""How a cell begins that a spreadsheet may take for a formula."""


class LedgerUsage(msgspec.Struct, frozen=True):
    """What `-o json` and `-o yaml` print."""

    ledger: LedgerState
    usage: UsageReport


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kubeconfig(parser)
    add_store(parser)
    first = "the first day, such as 2026-11-01, in UTC (default: the first of this month)"
    parser.add_argument("--since", metavar="DATE", type=_date, help=first)
    parser.add_argument("--until", metavar="DATE", type=_date, help="the last day (default: today)")
    parser.add_argument("--by", choices=BYS, default="pool", help="a row for each of these")
    parser.add_argument("--pool", metavar="NAME", help="only this one (default: all)")
    parser.add_argument("-o", "--output", choices=(*FORMATS, "csv"), default="table")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, clock: Callable[[], float] = time.time) -> int:
    """Print the report. It returns 1 where nothing is given out of the ledger, and nothing counted."""
    store = settings.from_environment().store
    today = dt.datetime.fromtimestamp(clock(), dt.UTC).date()
    since, last = options.since or today.replace(day=1), options.until or today
    if since > last:
        raise BadInputError(f"--since {since} is after {last}, the last day")
    with existing_ledger(store, reads_only=True) as opened:
        ledger = Ledger(opened, while_closed=True)
        view, pages = ledger.view(), ledger.journal().pages()
    known = sorted({*view.pools, *(pool for _, pool in pages)})
    if options.pool is not None and options.pool not in known:
        raise BadInputError(
            f"there is no pool {options.pool} in the ledger; {alternatives(options.pool, known)}"
        )
    state = ledger_state(store, view)
    _print(state, usage_of(pages, since, last, options.by, options.pool), options.output)
    return 0 if state.open and not is_moved(view) else 1


def _date(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} should be a date such as 2026-11-01") from None


def _print(state: LedgerState, report: UsageReport, output: str) -> None:
    if output in ("json", "yaml"):
        show(LedgerUsage(state, report), output)
        return
    if state.why:
        note(state.why)
    if output == "csv":
        print(as_csv(report), end="")
    elif report.rows:
        print("\n".join(usage_lines(report)))
    else:
        note(f"nothing is counted of {report.since} to {report.last} in {state.store}")


def usage_lines(report: UsageReport) -> list[str]:
    """Return the report for a person: of which days it is, and a table."""
    until = report.counted_until
    counted = f"; counted until {until:%Y-%m-%d %H:%M:%S} UTC" if until is not None else ""
    head = f"{report.since} to {report.last}{counted}"
    if report.by == "pool":
        return [head, *tables.aligned(_POOL_COLUMNS, [_pool_cells(row) for row in report.rows])]
    return [head, *tables.aligned(_NAMESPACE_COLUMNS, [_namespace_cells(row) for row in report.rows])]


def _pool_cells(row: UsageRow) -> Sequence[str]:
    return (
        *(row.pool, _number(row.capacity_hours), _number(row.used_hours), _percent(row.share)),
        *(_number(row.waited_hours), str(row.peak), _number(row.mean)),
        *(_number(row.hours_at_zero_free), _number(row.one_more_hours)),
    )


def _namespace_cells(row: UsageRow) -> Sequence[str]:
    return (
        *(row.pool, row.namespace or _EXTERNAL, _number(row.used_hours), _percent(row.share)),
        *(_number(row.waited_hours), str(row.peak), _number(row.mean)),
    )


def _number(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def as_csv(report: UsageReport) -> str:
    """Return the rows for a spreadsheet, which takes none of the cells for a formula."""
    fields = (
        [*msgspec.to_builtins(report.rows[0])] if report.rows else list(UsageRow.__struct_encode_fields__)
    )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(["since", "last", *fields])
    for row in report.rows:
        cells = msgspec.to_builtins(row).values()
        writer.writerow(map(_cell, [report.since, report.last, *cells]))
    return text.getvalue()


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text
