"""`berth waiting`: who waits for which pool, since when, why, and the place in line; once, or until Ctrl-C.
It only reads. A place says who is woken first; which pod is tried first kube-scheduler decides."""

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from berth import settings
from berth.cli import tables
from berth.cli.output import note, show
from berth.cli.shared_options import add_kubeconfig, add_output, add_store
from berth.cli.status import LedgerState, Source, is_moved, opened, require_pool
from berth.cli.watch import Wait, add_watch, changes, ended_by_signals, separate, stamp
from berth.controller.waiting import Seen, Summary, Waiting, WaitingRow, waiting
from berth.errors import ClusterRefusedError, OtherClusterError, RetryableError
from berth.ledger.report import counted

if TYPE_CHECKING:
    from rich.console import Console

_COLUMNS = ("PLACE", "NAMESPACE", "POD", "POOL", "ASKED", "PRIORITY", "SINCE", "WHY")
_MANY = 30  # rows: with more of them equal reasons are stated once, and the first rows are shown


class WaitingReport(Waiting, frozen=True, rename="camel", kw_only=True):
    """What `-o json` prints. `looked`: who waits is told; not where the ledger is elsewhere now, or another
    cluster's."""

    ledger: LedgerState
    looked: bool = True


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kubeconfig(parser)
    add_store(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-n", "--namespace", metavar="NAME", help="only pods of this one (default: all)")
    where.add_argument("-A", "--all-namespaces", action="store_true", help="pods of all namespaces")
    parser.add_argument("--pool", metavar="NAME", help="only pods that ask for this one (default: all)")
    add_watch(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show who waits. It returns 1 where a person must act: no scheduler tries the pods, or nothing is given
    out of the ledger."""
    with opened(settings.from_environment(), options.pool) as source:
        looks = Looks(source, options.namespace)
        if not options.watch:
            report = looks.look()
            _print(report, options.output, time.time())
            return _code(report)
        from berth.cli import dashboard  # rich takes 0.1 s to import

        with ended_by_signals():
            if options.output == "table" and dashboard.possible():
                return on_terminal(looks.look, options.interval, time.sleep)
            return in_blocks(looks.look, options.output, options.interval, time.sleep)


class Looks:
    """Looks at a ledger and its cluster, for pods of one namespace (None: of all)."""

    def __init__(self, source: Source, namespace: str | None, clock: Callable[[], float] = time.time) -> None:
        self._source, self._namespace, self._clock = source, namespace, clock
        self._told = ""

    def look(self) -> WaitingReport:
        """Look at both. Raises the store's and the cluster's errors; BadInputError for an unknown pool."""
        source = self._source
        view = source.view()
        state = source.state(view)
        if is_moved(view):
            return _nothing(state)
        require_pool(source.pool, view)
        try:
            source.require_cluster()
        except OtherClusterError as error:
            return _nothing(msgspec.structs.replace(state, open=False, why=str(error)))
        pods = source.cluster.pending_pods()
        seen = Seen(pods, view, self._clock(), self._cordoned(), state.why)
        report = waiting(seen, source.config.scheduler_names, self._namespace, source.pool)
        return WaitingReport(**msgspec.structs.asdict(report), ledger=state)

    def _cordoned(self) -> set[str]:
        """Return the nodes that take no pods; none where we may not read nodes."""
        try:
            return {node.metadata.name for node in self._source.cluster.nodes() if node.spec.unschedulable}
        except ClusterRefusedError as error:
            if (told := f"which nodes are cordoned is not known: {error}") != self._told:
                note(told)
            self._told = told
            return set()


def _nothing(state: LedgerState) -> WaitingReport:
    """Return the report on a ledger that says nothing of this cluster's pods."""
    return WaitingReport(Summary(0, 0, 0, 0), (), (), (), (), ledger=state, looked=False)


def _code(report: WaitingReport) -> int:
    return 1 if report.problems or not report.ledger.open else 0


def _print(report: WaitingReport, output: str, now: float) -> None:
    if output != "table":
        show(report, output)
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print("\n".join(waiting_lines(report, now, width)))
        for remark in report.remarks:
            note(remark)
    print(end="", flush=True)


def waiting_lines(report: WaitingReport, now: float, width: int | None) -> list[str]:
    """Return the report for a person: how all is, in a line; problems; who waits. `width` None: no line is
    wrapped."""
    head = [
        *([str(report.summary)] if report.looked else []),
        *(f"problem: {problem}" for problem in report.problems),
    ]
    if report.ledger.why:
        head.insert(0, report.ledger.why)
    lines = [part for line in head for part in tables.folded(line, width)]
    if len(report.pods) <= _MANY:
        cells = [_cells(row, row.why, now) for row in report.pods]
        return lines + (tables.wrapped(_COLUMNS, cells, width) if cells else [])
    numbers = {reason.text: f"({number})" for number, reason in enumerate(report.reasons, 1)}
    for reason in report.reasons:
        lines += tables.folded(f"{numbers[reason.text]} {counted(reason.pods, 'pod')}: {reason.text}", width)
    cells = [_cells(row, numbers[row.why], now) for row in report.pods[:_MANY]]
    rest = f"and {len(report.pods) - _MANY} more: -o json has all of them, --pool and -n choose"
    return lines + tables.wrapped(_COLUMNS, cells, None) + tables.folded(rest, width)


def _cells(row: WaitingRow, why: str, now: float) -> tuple[str, ...]:
    place, asked = ("-" if number is None else str(number) for number in (row.place, row.asked))
    since = "?" if row.since is None else tables.age(now - row.since.timestamp())
    return (place, row.namespace, row.pod, row.pool or "-", asked, str(row.priority), since, why)


def in_blocks(
    look: Callable[[], WaitingReport],
    output: str,
    interval: float,
    wait: Wait,
    clock: Callable[[], float] = time.time,
) -> int:
    """Print the report at each change, for a person with the time above it."""
    for report, first in changes(lambda: (look(), ""), interval, wait):
        separate(output, first=first)
        if output == "table":
            print(stamp(clock()))
        _print(report, output, clock())
        if not report.looked:
            return 1
    return 0


def _look_again(look: Callable[[], WaitingReport], last: WaitingReport | None) -> tuple[WaitingReport, str]:
    """Look once more. While a store or the cluster is away all is as it was; return why, too."""
    try:
        return look(), ""
    except RetryableError as error:
        if last is None:
            raise
        return last, str(error)


def on_terminal(
    look: Callable[[], WaitingReport],
    interval: float,
    wait: Wait,
    console: "Console | None" = None,
    clock: Callable[[], float] = time.time,
) -> int:
    """Show the report in place, drawn anew after each look."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from berth.cli.dashboard import MARGIN

    console = console or Console(highlight=False, markup=False, emoji=False)
    report, trouble = look(), ""
    if not report.looked:
        _print(report, "table", clock())
        return 1
    with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        while True:
            width, height = console.size
            lines = waiting_lines(report, clock(), width - MARGIN)
            tail = [part for text in (*report.remarks, trouble) for part in tables.folded(text, width)]
            shown = _fitting([*lines, *filter(None, tail)], height)
            live.update(Text("\n".join(shown), no_wrap=True, overflow="ellipsis"), refresh=True)
            wait(interval)
            report, trouble = _look_again(look, report)


def _fitting(lines: list[str], height: int) -> list[str]:
    """Return as many lines as the terminal has, and how many more there are."""
    if len(lines) >= height:
        room = max(1, height - 2)
        lines = [*lines[:room], f"and {len(lines) - room} more lines: --pool and -n choose"]
    return [tables.printable(line) for line in lines]
