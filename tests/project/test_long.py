"""tests/LONG.md lists what `make test` leaves to `make test-long`, and no more."""

import pytest

from tests.support.selection import COLLECTED, LIST, section, sections


def test_the_list_names_every_test_that_only_test_long_runs(request: pytest.FixtureRequest) -> None:
    """Of the files that this run has collected: in `make test` these are all."""
    told = sections(LIST.read_text())
    for path, ids in request.config.stash[COLLECTED].items():
        said = "run `python -m tests.support.selection`"
        assert told.get(path, "") == section(ids), f"{path} in {LIST.name}: {said}"


def test_the_list_names_no_file_that_is_gone() -> None:
    root = LIST.parents[1]
    assert [path for path in sections(LIST.read_text()) if not (root / path).is_file()] == []
