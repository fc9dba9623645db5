"""`berth doctor`: what differs between the ledger and the cluster, why it may, and what repairs it.
It prints; what differs is found by berth.handlers.doctor, and repaired by reconcile's own code."""

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import groupby

import msgspec

from berth import settings
from berth.cli.output import note, say, show
from berth.cli.shared_options import add_kubeconfig, add_output, add_pools, add_store, require_ledger
from berth.controller.drift import KINDS, Finding
from berth.errors import UsageError
from berth.handlers.doctor import Doctor, Examination, Repair
from berth.handlers.reconcile import Report
from berth.kube.cluster import connect
from berth.ledger.report import counted
from berth.stores import open_store, redacted

_MOST = 10  # findings of a kind that a person is shown


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kubeconfig(parser)
    add_store(parser)
    add_pools(parser)
    parser.add_argument("--fix", action="store_true", help="repair what can be repaired, as reconcile does")
    parser.add_argument(
        "--dry-run", action="store_true", help="with --fix: say what it would do, and do nothing"
    )
    parser.add_argument(
        "--forget",
        metavar="KEY",
        action="append",
        default=[],
        help="with --fix: throw this unreadable document away though it may have said what nobody else knows",
    )
    add_output(parser)
    parser.set_defaults(run=run)


class _Shown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a program gets. `findings` are what differs now: after --fix what is left; `repaired` what does
    not differ any more."""

    store: str
    findings: list[Finding]
    repaired: list[Finding]
    forgotten: list[str]
    reconciled: Report | None


def run(options: argparse.Namespace) -> int:
    """Examine, repair if asked to, and return 1 if something differs in the end."""
    if (options.dry_run or options.forget) and not options.fix:
        raise UsageError("--dry-run and --forget go with --fix")
    config = settings.from_environment()
    repairs, table = options.fix and not options.dry_run, options.output == "table"
    with closing(open_store(config.store, reads_only=not repairs)) as store:
        require_ledger(store, config.store)
        doctor = Doctor(store, connect(), config, agreed=options.forget, sleep=time.sleep)
        first, repair = doctor.examine(), None
        if table:
            _print(lines(first, redacted(config.store), will=options.fix))
        left = first
        if repairs and any(one.repairs for one in first.findings) and not first.blocked:
            repair = doctor.fix(first)
            left = doctor.examine()
            if table:
                _print(after_lines(repair, left))
    if not table:
        show(_shown(config.store, first, left, repair), options.output)
    elif repairs and first.blocked:
        note("nothing was repaired: see the lines above for what a person has to do first")
    return 1 if left.findings else 0


def _shown(store: str, first: Examination, left: Examination, repair: Repair | None) -> _Shown:
    stays = {one.identity for one in left.findings}
    return _Shown(
        store=redacted(store),
        findings=left.findings,
        repaired=[one for one in first.findings if one.identity not in stays],
        forgotten=[] if repair is None else repair.forgotten,
        reconciled=None if repair is None else repair.report,
    )


def _print(text: Iterable[str]) -> None:
    for line in text:
        say(line)


def lines(first: Examination, store: str, *, will: bool = False) -> Iterator[str]:
    """Yield what was found, by kind, for a person; `will`: what --fix is about to do."""
    if not first.findings:
        yield (
            f"nothing differs between {store} and the cluster: "
            f"{counted(first.claims, 'claim')}, {counted(first.pools, 'Pool')}, "
            f"{counted(first.pods, 'pod')} that may hold units"
        )
        return
    yield f"{counted(len(first.findings), 'difference')} between {store} and the cluster"
    for (kind, fix, repairs), some in groupby(_in_order(first.findings), _group):
        yield from _block(kind, fix, repairs, list(some), will)


def _in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings by kind, in the order of KINDS; those of a kind stay in theirs."""
    order = {kind: number for number, kind in enumerate(KINDS)}
    return sorted(findings, key=lambda one: (order[one.kind], one.fix))


def _group(first: Finding) -> tuple[str, str, bool]:
    return first.kind, first.fix, first.repairs


def _block(kind: str, fix: str, repairs: bool, some: Sequence[Finding], will: bool) -> Iterator[str]:
    yield ""
    yield f"{kind} ({len(some)}): {KINDS[kind].means}"
    yield from (f"  {one.what}" for one in some[:_MOST])
    if len(some) > _MOST:
        yield f"  and {len(some) - _MOST} more like these (-o json shows all)"
    yield f"  why it may be: {KINDS[kind].why}"
    verb = "--fix now" if will and repairs else "--fix"
    yield f"  {verb}: {fix}"


def after_lines(repair: Repair, left: Examination) -> Iterator[str]:
    """Yield what was repaired, and what is left."""
    yield ""
    yield from (f"thrown away: document {key}" for key in repair.forgotten)
    report = repair.report
    if report is None:
        yield "another reconcile was at work at the same time: it does the same"
    else:
        yield (
            f"reconciled: claims released {report.released}, settled {report.settled}, "
            f"adopted {report.adopted}; capacities changed {report.capacities}, pods woken {report.woken}"
            + ("; the ledger was rebuilt from the pods" if report.rebuilt else "")
        )
    if not left.findings:
        yield "nothing differs any more"
        return
    count = len(left.findings)
    yield f"{count} difference{'s are' if count > 1 else ' is'} left, for a person:"
    yield from (f"  {one.kind}: {one.what}" for one in _in_order(left.findings)[:_MOST])
    if count > _MOST:
        yield f"  and {count - _MOST} more (berth doctor shows all)"
