"""How long a reading of what others use is good for, and what is said of it."""

from typing import Any

import pytest

from berth.api.pool import Pool
from berth.ledger.model import Domain, Reading, decode_domain, encode
from berth.ledger.readings import noted, reading_state, told, why_held
from tests.support.builders.objects import pool

LIMIT = 180
STALE = "seat: what others use of it was not read for 180 s; nothing new is given until it is"
NEVER = "seat: what others use of it is not known yet; nothing new is given until it is read"


def seat(**source: Any) -> Pool:
    return pool("seat", scope="Cluster", externalFrom={"feature": "F", **source})


def read(of: Pool, at: float = 1000.0, failed: str = "") -> Domain:
    assert of.external_from is not None
    return Domain(4, reading=Reading(at, of.external_from.mark, failed))


@pytest.mark.parametrize(
    ("later", "held"), [(0.0, ""), (LIMIT, ""), (LIMIT + 0.1, STALE), (-LIMIT, ""), (-LIMIT - 0.1, STALE)]
)
def test_a_reading_is_good_for_as_long_as_the_pool_says_by_any_clock(later: float, held: str) -> None:
    """One that is stamped later than now is worth no more than one that is as old."""
    assert why_held(seat(), read(seat()), 1000.0 + later) == held
    assert why_held(seat(whenStale="Ignore"), read(seat()), 1000.0 + later) == ""


@pytest.mark.parametrize("when", ["Hold", "Ignore"])
def test_without_a_reading_of_this_source_nothing_is_given_whatever_the_pool_says(when: str) -> None:
    asked = seat(whenStale=when)
    others = (
        *(seat(feature="G"), seat(url="http://x"), seat(format="json"), seat(match="user")),
        pool("seat", scope="Cluster", capacity=None, externalFrom={"feature": "F", "capacity": "Issued"}),
    )
    for head in (Domain(4), Domain(4, reading=Reading(failed="refused")), *map(read, others)):
        assert why_held(asked, head, 1000.0) == NEVER
    same = seat(whenStale=when, everySeconds=1, staleAfterSeconds=2)
    assert why_held(asked, read(same), 1000.0) == "", "how often and how long is no other source"


def test_a_pool_of_which_nothing_is_read_is_never_held() -> None:
    assert reading_state(pool("ip"), Domain(4), 0.0) is None
    assert why_held(pool("ip"), read(seat()), 1e9) == ""


def test_people_are_told_how_old_it_is_and_who_watches_is_told_no_time() -> None:
    def words(now: float, failed: str = "", **source: Any) -> tuple[str, str]:
        state = reading_state(seat(**source), read(seat(), failed=failed), now)
        assert state is not None
        return told(state, LIMIT), noted(state, LIMIT)

    assert words(1007.9) == ("what others use was read 7 s ago", "")
    assert words(999.0)[0] == "what others use was read 0 s ago"
    assert words(1007.0, "refused") == (
        "what others use was read 7 s ago; the last try failed (refused)",
        "the last try to read what others use failed (refused)",
    )
    assert words(1200.0, "refused") == (
        "what others use was last read 200 s ago, limit 180 s (refused): nothing new is given",
        "what others use was not read for 180 s (refused): nothing new is given",
    )
    assert words(1200.0, whenStale="Ignore") == (
        "what others use was last read 200 s ago, limit 180 s: that stands",
        "what others use was not read for 180 s: the last reading stands",
    )
    assert words(1000.0, feature="G") == ("what others use was never read: nothing new is given",) * 2


def test_a_domain_of_a_pool_that_reads_nothing_has_no_word_of_it() -> None:
    assert b"read" not in encode(Domain(4))
    assert decode_domain(encode(read(seat()))) == read(seat())
