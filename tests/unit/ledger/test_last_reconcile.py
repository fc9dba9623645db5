"""The document of the last reconcile: it stays small, and one that can't be read is none."""

import pytest

from berth.ledger.last_reconcile import MOST_PROBLEMS, LastReconcile, body_of, last_reconcile_of
from berth.stores.base import Document


def _read(body: bytes) -> LastReconcile | None:
    return last_reconcile_of(Document("1", body))


def test_it_is_read_as_it_was_written() -> None:
    last = LastReconcile(at=1000.5, seconds=0.25, mended={"adopted": 2}, problems=("Pool ip is wrong",))
    assert _read(body_of(last)) == last


def test_it_keeps_the_first_problems_short_and_counts_the_others() -> None:
    problems = tuple(f"{number} " + "\u00fc" * 10_000 for number in range(MOST_PROBLEMS + 30))
    body = body_of(LastReconcile(at=1.0, seconds=1.0, mended={}, problems=problems))
    assert len(body) < 50_000
    read = _read(body)
    assert read is not None
    assert (len(read.problems), read.more, read.left) == (MOST_PROBLEMS, 30, MOST_PROBLEMS + 30)
    assert read.problems[0].startswith("0 \u00fc")


@pytest.mark.parametrize("body", [b"", b"\xff", b"[" * 100_000, b'{"at": "noon"}'])
def test_one_that_cannot_be_read_is_none(body: bytes) -> None:
    assert _read(body) is None


def test_there_may_be_none() -> None:
    assert last_reconcile_of(None) is None
