"""What the fuzzers begin with, and what they once found, is taken or refused (tests/fuzz)."""

from collections.abc import Iterator, Mapping

import pytest

from tests.fuzz.targets import NAMES, Target, bounded, seeds, targets


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Target]]:
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        targets(tmp_path_factory.mktemp("fuzz"), monkeypatch) as found,
    ):
        yield found


@pytest.mark.parametrize("name", NAMES)
def test_the_corpus_is_taken_or_refused_in_time_and_in_its_memory(
    world: Mapping[str, Target], name: str
) -> None:
    assert seeds(name)
    for body in seeds(name):
        bounded(world[name], body)
