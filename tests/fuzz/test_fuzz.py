"""Everything that takes bytes from outside is given bytes that are almost right (`make test-long`).
BERTH_FUZZ_EXAMPLES: how many for each. What was found is in corpus/, which tests/unit/test_corpus.py runs."""

import os
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.mutations import mutated
from tests.fuzz.targets import NAMES, Target, bounded, seeds, targets

EXAMPLES = int(os.environ.get("BERTH_FUZZ_EXAMPLES", "500"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Target]]:
    folder = tmp_path_factory.mktemp("fuzz")
    with pytest.MonkeyPatch.context() as monkeypatch, targets(folder, monkeypatch) as found:
        yield found


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")  # a body may be long
@pytest.mark.parametrize("name", NAMES)
def test_whatever_comes_is_taken_or_refused_in_time_and_in_its_memory(
    world: Mapping[str, Target], name: str
) -> None:
    target = world[name]

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(mutated(seeds(name)))
    def run(body: bytes) -> None:
        bounded(target, body)

    run()
