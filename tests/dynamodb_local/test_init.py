"""`berth store init` on Amazon's own stand-in for DynamoDB, which many try first."""

from contextlib import closing

import pytest

from berth.cli import main
from berth.stores import open_store


def test_store_init_makes_a_table_that_can_be_used_and_says_what_the_endpoint_does_not_have(
    capsys: pytest.CaptureFixture[str], url: str
) -> None:
    assert main(["store", "init", url]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith(": made, billed on demand")
    assert said[1:] == [
        "deletion protection: off (--protect switches it on)",
        "point-in-time recovery: this endpoint has none",
        "time to live: switched on",
    ]
    with closing(open_store(url)) as store:
        assert store.commit({"a": b"1"}, {"a": None})
        assert store.read(["a"])["a"].body == b"1"
    assert main(["store", "init", url]) == 0
    assert "it was there" in capsys.readouterr().out
