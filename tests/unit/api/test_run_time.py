"""What a pod says of how long it runs, and when it is gone at the latest by that."""

from typing import Any

import msgspec
import pytest

from berth.api.run_time import MARGIN_SECONDS, RUNS_FOR, ends_at, mistake_in
from berth.kube.types import Pod


def pod(text: str | None = None, **spec: Any) -> Pod:
    notes = {} if text is None else {RUNS_FOR: text}
    return msgspec.convert({"metadata": {"name": "p", "annotations": notes}, "spec": spec}, Pod)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("1d2h3m4s", 93784)],
)
def test_it_is_a_number_of_seconds_or_has_units(text: str, seconds: int) -> None:
    said = pod(text, terminationGracePeriodSeconds=0)
    assert ends_at(said, 1000.0) == 1000 + seconds + MARGIN_SECONDS
    assert mistake_in(said) == ""


@pytest.mark.parametrize(
    "text",
    ["", " ", "0", "0s", "-5", "1.5h", "1h30", "30m1h", "soon", "30M", "1 h", "9" * 5000, "\u0663", "1h\n"],
)
def test_what_is_no_time_counts_for_nothing_and_is_told(text: str) -> None:
    assert ends_at(pod(text), 1000.0) == 0.0
    said = mistake_in(pod(text))
    assert said.startswith("berth.dev/runs-for: ")
    assert "is no time, so it counts for nothing: write 90s, 30m or 1h30m" in said
    assert len(said) < 200
    assert ends_at(pod(text, activeDeadlineSeconds=60), 1000.0) == 1000 + 60 + 30 + MARGIN_SECONDS


def test_who_says_nothing_has_no_end() -> None:
    assert (ends_at(pod(), 1000.0), mistake_in(pod())) == (0.0, "")


@pytest.mark.parametrize(("text", "deadline", "seconds"), [("1h", 60, 60), ("1m", 3600, 60), (None, 5, 5)])
def test_the_shorter_of_two_times_counts(text: str | None, deadline: int, seconds: int) -> None:
    said = pod(text, activeDeadlineSeconds=deadline, terminationGracePeriodSeconds=7)
    assert ends_at(said, 0.0) == seconds + 7 + MARGIN_SECONDS
