"""The document of whose pods ran longer than they said: it stays small; one that can't be read is none."""

import pytest

from berth.ledger.overruns import (
    DISBELIEVED_SECONDS,
    MOST_OWNERS,
    RENEWED_SECONDS,
    body_of,
    news,
    overruns_of,
)

LONGEST = f"{'n' * 63}/{'k' * 63}:{'o' * 249}"


def test_it_is_read_as_it_was_written() -> None:
    assert overruns_of(body_of({"default/Job:a": 5.5})) == {"default/Job:a": 5.5}


@pytest.mark.parametrize("body", [None, b"", b"\xff", b"[" * 100_000, b'{"a": "noon"}', b"[]"])
def test_where_it_is_missing_or_cannot_be_read_everybody_is_believed(body: bytes | None) -> None:
    assert overruns_of(body) == {}


def test_it_keeps_those_who_are_believed_last_again_and_stays_small() -> None:
    body = body_of({f"{LONGEST}{number:04}": float(number) for number in range(3 * MOST_OWNERS)})
    assert len(body) < 100_000
    assert sorted(overruns_of(body).values()) == [float(n) for n in range(2 * MOST_OWNERS, 3 * MOST_OWNERS)]


def test_an_owner_is_news_once_an_hour() -> None:
    first = news({}, {"a": 1000.0})
    assert first == {"a": 1000.0 + DISBELIEVED_SECONDS}
    assert news(first, {"a": 1000.0 + RENEWED_SECONDS - 1}) == {}
    later = 1000.0 + RENEWED_SECONDS
    assert news(first, {"a": later, "b": later}) == dict.fromkeys("ab", later + DISBELIEVED_SECONDS)
