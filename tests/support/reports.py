"""What a failed test's report ends with: the logs of its fixtures. It says nothing of a test that passed."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")


def add_logs(
    item: pytest.Item,
    report: pytest.TestReport,
    kind: type[T],
    logs: Callable[[T], Iterable[tuple[str, str]]],
) -> None:
    """If the test failed, add the logs (title and text) of its fixtures of that kind to the report."""
    fixtures: dict[str, object] = getattr(item, "funcargs", {})
    for fixture in fixtures.values():
        if report.failed and isinstance(fixture, kind):
            report.sections += logs(fixture)
