"""The journal's pages: how long units were in use and waited for, by pool, month, day and namespace.
Pure: what was in use between two moments it is told, and it counts each moment once, by its watermark."""

import calendar
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from berth.errors import StoreFailedError

MOST_NAMESPACES = 50
"""Namespaces that have a line of their own on one page; all others share one line."""

OTHERS = "*"
"""The line of all other namespaces: no namespace is called so."""

Milliseconds = int
"""Unix time, or a time's length: whole numbers add up to the same in whatever order they come."""

_FAR_AHEAD: Milliseconds = 3_600_000
"""A watermark so far ahead of the clock is a wrong clock's: it must not keep the journal from going on."""


class Span(NamedTuple):
    """Units of a namespace that were in use, or waited for, from one moment to another (Unix seconds)."""

    namespace: str
    units: int
    start: float
    end: float = math.inf


class PoolUse(NamedTuple):
    """What is known of a pool's use: spans may begin before and end after the time that is counted. `held`
    are units that were free, and held for the first in line."""

    capacity: int = 0
    used: Sequence[Span] = ()
    waited: Sequence[Span] = ()
    held: Sequence[Span] = ()


class NamespaceUse(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A namespace's day: unit-milliseconds in use and waited for, and the most units at once."""

    used: int = 0
    waited: int = 0
    peak: int = 0

    def plus(self, other: "NamespaceUse") -> "NamespaceUse":
        return NamespaceUse(self.used + other.used, self.waited + other.waited, max(self.peak, other.peak))


class DayUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pool's day: milliseconds that were `counted`, unit-milliseconds of `capacity`, the most units in use
    at once, milliseconds in which nothing was free (`full`), unit-milliseconds of waiting that one more unit
    would have served (`more`), use by namespace, and unit-milliseconds that were free and `held` for the
    first in line."""

    counted: int = 0
    capacity: int = 0
    peak: int = 0
    full: int = 0
    more: int = 0
    namespaces: dict[str, NamespaceUse] = {}
    held: int = 0

    def plus(self, other: "DayUse") -> "DayUse":
        """Return both together: two parts of a day, or two days."""
        nothing, namespaces = NamespaceUse(), dict(self.namespaces)
        for name, use in other.namespaces.items():
            namespaces[name] = namespaces.get(name, nothing).plus(use)
        return DayUse(
            self.counted + other.counted,
            self.capacity + other.capacity,
            max(self.peak, other.peak),
            self.full + other.full,
            self.more + other.more,
            namespaces,
            self.held + other.held,
        )


class UsagePage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pool's month: its days, by their dates, and the watermark: all until then is counted, once."""

    until: Milliseconds
    days: dict[str, DayUse] = {}

    @property
    def lines(self) -> set[str]:
        return {name for day in self.days.values() for name in day.namespaces}


_page = msgspec.json.Decoder(UsagePage)
_encoder = msgspec.json.Encoder()


def encode_page(page: UsagePage) -> bytes:
    return _encoder.encode(page)


def decode_page(body: bytes, key: str) -> UsagePage:
    """Return the page. Raises StoreFailedError for what is none."""
    try:
        return _page.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreFailedError(f"the journal's page {key} can't be read ({error})") from error


def milliseconds(seconds: float) -> Milliseconds:
    return round(seconds * 1000)


# Days and months, in UTC


def month_of(moment: Milliseconds) -> str:
    """Return the month of a moment, such as 2026-11."""
    return _date(moment)[:7]


def months_between(first: str, last: str) -> list[str]:
    """Return the months from one to another, both included."""
    return [_month(number) for number in range(_number(first), _number(last) + 1)]


def months_before(month: str, count: int) -> str:
    return _month(max(12, _number(month) - count))


def begin_of(month: str) -> Milliseconds:
    """Return the first moment of a month, or of a day such as 2026-11-26."""
    year, number, *day = map(int, month.split("-"))
    return calendar.timegm((year, number, day[0] if day else 1, 0, 0, 0)) * 1000


def days_between(
    since: Milliseconds, until: Milliseconds
) -> Iterator[tuple[str, Milliseconds, Milliseconds]]:
    """Yield each day of the time between two moments, with the part of it that is between them."""
    while since < until:
        day = _date(since)
        end = min(until, begin_of(day) + 86_400_000)
        yield day, since, end
        since = end


def _date(moment: Milliseconds) -> str:
    return datetime.fromtimestamp(moment // 1000, UTC).date().isoformat()


def _number(month: str) -> int:
    year, number = map(int, month.split("-"))
    return year * 12 + number - 1


def _month(number: int) -> str:
    return f"{number // 12:04}-{number % 12 + 1:02}"


# Counting


def counted_on(
    pages: Mapping[str, UsagePage], use: PoolUse, begin: Milliseconds, until: Milliseconds
) -> dict[str, UsagePage]:
    """Return those of a pool's pages, by month, that change when its use until this moment is counted.

    It is counted from the watermark of its newest page, or from `begin` where it has no page: what was
    counted before is not counted again, and nothing in between is left out.
    """
    newest = max(pages, default="")
    since = pages[newest].until if newest else min(begin, until)
    if since > until + _FAR_AHEAD:
        return {newest: UsagePage(until, pages[newest].days)}
    changed: dict[str, UsagePage] = {}
    for day, start, end in days_between(since, until):
        month = day[:7]
        page = changed.get(month) or pages.get(month) or UsagePage(start)
        more = tallied(_in_lines(use, page.lines), start, end)
        changed[month] = UsagePage(end, {**page.days, day: page.days.get(day, DayUse()).plus(more)})
    return changed


def _in_lines(use: PoolUse, lines: set[str]) -> PoolUse:
    """Return the use with the namespaces that have no line of their own under OTHERS."""
    names = {span.namespace for span in (*use.used, *use.waited)}
    room = MOST_NAMESPACES - len(lines - {OTHERS})
    fresh = sorted(names - lines)
    if len(fresh) <= room:
        return use
    beyond = set(fresh[max(0, room) :])
    used, waited = (
        [span._replace(namespace=OTHERS) if span.namespace in beyond else span for span in spans]
        for spans in (use.used, use.waited)
    )
    return use._replace(used=used, waited=waited)


def tallied(use: PoolUse, since: Milliseconds, until: Milliseconds) -> DayUse:
    """Return what was in use, and waited for, between two moments of a day."""
    changes = _Changes(since, until)
    used = changes.take(use.used, waits=False)
    waited = changes.take(use.waited, waits=True)
    levels = _Levels(use.capacity)
    at = since
    for moment, kind, namespace, count in [*sorted(changes.made), (until, False, "", 0)]:
        if moment > at:
            levels.last(moment - at)
            at = moment
        levels.change(kind, namespace, count)
    namespaces = {
        name: NamespaceUse(used[name], waited[name], levels.peaks.get(name, 0)) for name in {*used, *waited}
    }
    return DayUse(
        counted=until - since,
        capacity=use.capacity * (until - since),
        peak=levels.peak,
        full=levels.full,
        more=levels.more,
        namespaces=namespaces,
        held=_Changes(since, until).take(use.held, waits=False).total(),
    )


class _Changes:
    """The moments at which units came into use, or to be waited for, and went."""

    def __init__(self, since: Milliseconds, until: Milliseconds) -> None:
        self._since, self._until = since, until
        self.made: list[tuple[Milliseconds, bool, str, int]] = []

    def take(self, spans: Iterable[Span], *, waits: bool) -> Counter[str]:
        """Take these spans' changes. Return their unit-milliseconds by namespace."""
        total: Counter[str] = Counter()
        standing: Counter[tuple[str, int]] = Counter()
        since, until = self._since, self._until
        for namespace, count, start, end in spans:
            first = max(since, round(start * 1000))
            last = until if end == math.inf else min(until, round(end * 1000))
            if first >= last:
                continue
            total[namespace] += count * (last - first)
            if first == since and last == until:
                standing[namespace, count] += 1
                continue
            self.made.append((first, waits, namespace, count))
            self.made.append((last, waits, namespace, -count))
        for (namespace, count), pods in standing.items():
            if waits:
                self.made += [(since, True, namespace, count)] * pods
            else:
                self.made.append((since, False, namespace, count * pods))
        return total


class _Levels:
    """Units in use, and waited for, at one moment after the other."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._used = capacity, 0
        self._by_namespace: Counter[str] = Counter()
        self._waiting: Counter[int] = Counter()
        self.peak, self.full, self.more = 0, 0, 0
        self.peaks: dict[str, int] = {}
        self._touched = set[str]()

    def change(self, waits: bool, namespace: str, count: int) -> None:
        if waits:
            self._waiting[abs(count)] += 1 if count > 0 else -1
        else:
            self._used += count
            self._by_namespace[namespace] += count
            self._touched.add(namespace)

    def last(self, duration: Milliseconds) -> None:
        """Note that all is as it is for so long."""
        self.peak = max(self.peak, self._used)
        for name in self._touched:
            self.peaks[name] = max(self.peaks.get(name, 0), self._by_namespace[name])
        self._touched.clear()
        free = self._capacity - self._used
        if free <= 0:
            self.full += duration
        if free >= 0 and self._waiting[free + 1]:
            self.more += (free + 1) * duration
