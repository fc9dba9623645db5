"""The journal's pages: what is counted of a day, whose line it is in, and what a wrong clock may do."""

import pytest

from berth.errors import StoreFailedError
from berth.ledger.usage import (
    MOST_NAMESPACES,
    OTHERS,
    DayUse,
    NamespaceUse,
    PoolUse,
    Span,
    UsagePage,
    counted_on,
    decode_page,
    encode_page,
    months_before,
    months_between,
    tallied,
)


def test_use_and_waiting_are_counted_to_the_millisecond() -> None:
    use = PoolUse(2, [Span("a", 1, 1.0, 2.5), Span("b", 2, 2.0)], [Span("a", 1, 0.25, 1.0)])
    day = tallied(use, 0, 4000)
    assert day.namespaces == {"a": NamespaceUse(1500, 750, 1), "b": NamespaceUse(4000, 0, 2)}
    assert (day.counted, day.capacity, day.peak) == (4000, 8000, 3)
    assert day.full == 2000


@pytest.mark.parametrize(
    ("free", "asked", "served"),
    [(0, 1, 1), (0, 2, 0), (1, 2, 2), (1, 1, 0), (-1, 1, 0)],
    ids=["the first", "more than one", "the last of two", "room there is", "over-committed"],
)
def test_one_more_unit_serves_who_lacks_one(free: int, asked: int, served: int) -> None:
    use = PoolUse(3, [Span("a", 3 - free, 0.0)], [Span("b", asked, 0.0)])
    assert tallied(use, 0, 1000).more == served * 1000


def test_a_unit_that_is_handed_over_is_no_second_one_at_once() -> None:
    use = PoolUse(1, [Span("a", 1, 0.0, 1.0), Span("b", 1, 1.0)])
    assert tallied(use, 0, 2000).peak == 1


def test_namespaces_beyond_the_most_share_one_line() -> None:
    spans = [Span(f"n{number:03}", 1, 0.0) for number in range(MOST_NAMESPACES + 10)]
    page = counted_on({}, PoolUse(100, spans), 0, 1000)["1970-01"]
    assert len(page.lines) == MOST_NAMESPACES + 1
    assert page.days["1970-01-01"].namespaces[OTHERS] == NamespaceUse(10_000, 0, 10)
    again = counted_on({"1970-01": page}, PoolUse(100, [Span("new", 1, 0.0)]), 0, 2000)["1970-01"]
    assert again.lines == page.lines


def test_a_watermark_of_a_wrong_clock_does_not_stop_the_journal() -> None:
    page = UsagePage(10**13, {"1970-01-01": DayUse(5)})
    mended = counted_on({"1970-01": page}, PoolUse(), 0, 1000)
    assert mended == {"1970-01": UsagePage(1000, page.days)}


def test_a_page_is_read_as_it_was_written_and_damage_is_told() -> None:
    page = UsagePage(5, {"1970-01-01": DayUse(1, 2, 3, 4, 5, {"a": NamespaceUse(6, 7, 8)}, 9)})
    assert decode_page(encode_page(page), "usage/1970-01.ip") == page
    with pytest.raises(StoreFailedError, match=r"usage/1970-01\.ip can't be read"):
        decode_page(b"{", "usage/1970-01.ip")


def test_months_are_counted_over_the_turn_of_a_year() -> None:
    assert months_between("2025-11", "2026-02") == ["2025-11", "2025-12", "2026-01", "2026-02"]
    assert months_before("2026-01", 12) == "2025-01"
