"""The journal against a model that counts second by second: random traffic, with ticks that die, come twice
or late, over midnight and the end of a month."""

from collections import Counter
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from berth.ledger.usage import DayUse, NamespaceUse, PoolUse, Span, UsagePage, counted_on

_BEGIN = int(datetime(2026, 10, 31, 23, 59, 30, tzinfo=UTC).timestamp())
_LENGTH = 60
_CAPACITY = 3


@st.composite
def _spans(draw: st.DrawFn) -> list[Span]:
    spans = []
    for _ in range(draw(st.integers(0, 8))):
        start = draw(st.integers(0, _LENGTH - 1))
        end = draw(st.integers(start, _LENGTH))
        name, units = draw(st.sampled_from("abc")), draw(st.integers(1, 2))
        spans.append(Span(name, units, _BEGIN + start, _BEGIN + end))
    return spans


@given(_spans(), _spans(), st.lists(st.tuples(st.integers(0, _LENGTH), st.booleans()), max_size=8))
def test_each_second_is_counted_once_whatever_becomes_of_ticks(
    used: list[Span], waited: list[Span], ticks: list[tuple[int, bool]]
) -> None:
    pages: dict[str, UsagePage] = {}
    for offset, dies in [(0, False), *ticks, (_LENGTH, False)]:
        now = _BEGIN + offset
        use = PoolUse(_CAPACITY, _known(used, now), _known(waited, now))
        changed = counted_on(pages, use, _BEGIN * 1000, now * 1000)
        if not dies:
            pages |= changed
    days = {day: use for page in pages.values() for day, use in page.days.items()}
    assert days == _second_by_second(used, waited)
    assert all(day.startswith(month) for month, page in pages.items() for day in page.days)


def _known(spans: list[Span], now: int) -> list[Span]:
    """What a tick knows at that moment: what has begun, and ends only of what has ended."""
    begun = [span for span in spans if span.start <= now]
    return [span if span.end <= now else Span(*span[:3]) for span in begun]


def _second_by_second(used: list[Span], waited: list[Span]) -> dict[str, DayUse]:
    days: dict[str, DayUse] = {}
    for second in range(_BEGIN, _BEGIN + _LENGTH):
        using, waiting = (
            [span for span in spans if span.start <= second < span.end] for spans in (used, waited)
        )
        units: Counter[str] = Counter()
        for span in using:
            units[span.namespace] += span.units
        asked: Counter[str] = Counter()
        for span in waiting:
            asked[span.namespace] += span.units
        free = _CAPACITY - units.total()
        more = free + 1 if free >= 0 and any(span.units == free + 1 for span in waiting) else 0
        names = {
            name: NamespaceUse(units[name] * 1000, asked[name] * 1000, units[name])
            for name in {*units, *asked}
        }
        now = DayUse(1000, _CAPACITY * 1000, units.total(), 1000 * (free <= 0), 1000 * more, names)
        day = datetime.fromtimestamp(second, UTC).date().isoformat()
        days[day] = days.get(day, DayUse()).plus(now)
    return days
