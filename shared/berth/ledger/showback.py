"""What the journal's pages say of a time: use, waiting, peak and mean by pool or by namespace, for people.
Pure; numbers are of whole days in UTC, the last one as far as it is counted."""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, get_args

import msgspec

from berth.ledger.usage import DayUse, NamespaceUse, UsagePage

By = Literal["pool", "namespace"]
BYS: tuple[By, ...] = get_args(By)
Pages = Mapping[tuple[str, str], UsagePage]
"""The journal's pages by month and pool."""

_HOUR = 3_600_000
_DIGITS = 4  # of hours: a third of a second


class UsageRow(msgspec.Struct, frozen=True, rename="camel", omit_defaults=False):
    """What one pool, or one namespace in it, used and waited for. Hours are unit-hours, but for those that
    say otherwise; what only a pool has is None in a namespace's row. `mean` is units over the time that is
    counted, None where none is."""

    pool: str
    namespace: str | None
    used_hours: float
    waited_hours: float
    peak: int
    mean: float | None
    share: float | None
    capacity_hours: float | None = None
    hours_at_zero_free: float | None = None
    one_more_hours: float | None = None
    counted_hours: float = 0.0
    held_hours: float | None = None


class UsageReport(msgspec.Struct, frozen=True, rename="camel"):
    """The rows, the first and the last day that they are of, and until when all of them are counted."""

    since: dt.date
    last: dt.date
    counted_until: dt.datetime | None
    by: By
    rows: list[UsageRow]


class _Use(NamedTuple):
    """A pool's days together."""

    pool: str
    days: DayUse


def usage_of(
    pages: Pages, since: dt.date, last: dt.date, by: By = "pool", pool: str | None = None
) -> UsageReport:
    """Return what these pages say of the days from `since` to `last`, both included; of one pool, or of all
    (None)."""
    pages = {key: page for key, page in pages.items() if pool in (None, key[1])}
    uses = [_Use(name, _together(pages, name, since, last)) for name in sorted({name for _, name in pages})]
    rows = [row for use in uses for row in (_by_namespace(use) if by == "namespace" else [_whole(use)])]
    newest = [max(page.until for (_, name), page in pages.items() if name == use.pool) for use in uses]
    until = dt.datetime.fromtimestamp(max(newest) / 1000, dt.UTC) if newest else None
    return UsageReport(since, last, until, by, rows)


def _together(pages: Pages, pool: str, since: dt.date, last: dt.date) -> DayUse:
    total = DayUse()
    for (_, name), page in pages.items():
        for day, use in page.days.items() if name == pool else ():
            if since.isoformat() <= day <= last.isoformat():
                total = total.plus(use)
    return total


def _whole(use: _Use) -> UsageRow:
    used, waited = _sums(use.days.namespaces.values())
    days = use.days
    return UsageRow(
        pool=use.pool,
        namespace=None,
        used_hours=_hours(used),
        waited_hours=_hours(waited),
        peak=days.peak,
        mean=_ratio(used, days.counted),
        share=_ratio(used, days.capacity),
        capacity_hours=_hours(days.capacity),
        hours_at_zero_free=_hours(days.full),
        one_more_hours=_hours(days.more),
        counted_hours=_hours(days.counted),
        held_hours=_hours(days.held),
    )


def _by_namespace(use: _Use) -> Iterator[UsageRow]:
    """Yield a row for each namespace, those first that used most; its share is of what all used."""
    whole, _ = _sums(use.days.namespaces.values())
    ordered = sorted(use.days.namespaces.items(), key=lambda item: (-item[1].used, -item[1].waited, item[0]))
    for name, of in ordered:
        yield UsageRow(
            pool=use.pool,
            namespace=name,
            used_hours=_hours(of.used),
            waited_hours=_hours(of.waited),
            peak=of.peak,
            mean=_ratio(of.used, use.days.counted),
            share=_ratio(of.used, whole),
            counted_hours=_hours(use.days.counted),
        )


def _sums(uses: Iterable[NamespaceUse]) -> tuple[int, int]:
    both = [(use.used, use.waited) for use in uses]
    return sum(used for used, _ in both), sum(waited for _, waited in both)


def _hours(milliseconds: int) -> float:
    return round(milliseconds / _HOUR, _DIGITS)


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, _DIGITS) if whole else None
