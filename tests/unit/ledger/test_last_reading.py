"""The document of the last reading: of bounded size, and missed by nobody."""

from berth.ledger.last_reading import MOST_NAMES, LastReading, body_of, last_reading_of


def test_it_has_the_names_with_the_most_licences_and_no_more_than_are_read_by_a_person() -> None:
    many = {f"{'host' * 50}-{number:06}": number for number in range(10_000)}
    last = LastReading(at=1.0, issued=5, idle=tuple(sorted(many)), beyond=many, others={"a": 1} | many)
    body = body_of(last)
    assert len(body) < 80_000
    there = last_reading_of(body)
    assert there is not None
    assert (there.at, there.issued, len(there.idle)) == (1.0, 5, MOST_NAMES)
    assert body_of(LastReading(at=1.0)) == b'{"at":1.0}'


def test_one_that_is_missing_or_damaged_is_none() -> None:
    for body in (None, b"", b"\xff", b"[" * 10_000, b'{"at": "now"}'):
        assert last_reading_of(body) is None
