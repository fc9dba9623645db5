"""More time for stores than a URL may give them: a busy machine is no fault where a test is not about time.
It changes this process alone; tests.support.builders.races hands it on."""

import pytest

from berth.stores import urls

SECONDS = 60


def be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the test ends."""
    monkeypatch.setattr(urls, "MOST_SECONDS", SECONDS)
