"""When a function's process counts as one that hangs, by its answers to looks at its health."""

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from berth.local import processes
from berth.local.processes import _Health

SILENCE = 30.0


class Process:
    """A process that runs until it has been looked at so often, with what came of each look after so many
    seconds."""

    def __init__(self, looks: Sequence[tuple[int | None, float]]) -> None:
        self.now, self._looks, self._left = 0.0, iter(looks), len(looks)
        self.hung_at: list[float] = []

    def poll(self) -> int | None:
        return None if self._left else 0

    def look(self) -> int | None:
        self._left -= 1
        status, seconds = next(self._looks)
        self.now += seconds
        return status

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def hung_at(monkeypatch: pytest.MonkeyPatch, *looks: tuple[int | None, float]) -> list[float]:
    """The seconds after which it counts as hung, if it does."""
    process: Any = Process(looks)
    monkeypatch.setattr(processes, "time", process)
    monkeypatch.setattr(_Health, "_ask", process.look)
    monkeypatch.setattr(processes, "threading", SimpleNamespace(Thread=Now, Event=threading.Event))
    _Health(process, 1, SILENCE, lambda _: process.hung_at.append(process.now))
    found: list[float] = process.hung_at
    return found


class Now:
    """A thread whose work is done when it is started."""

    def __init__(self, target: Any, daemon: bool) -> None:
        assert daemon
        self.start = target


WELL, SILENT, TURNED_AWAY = (200, 0.01), (None, SILENCE / 3), (None, 0.001)


def test_three_looks_without_an_answer_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    (at,) = hung_at(monkeypatch, WELL, SILENT, SILENT, SILENT)
    assert SILENCE <= at < 2 * SILENCE
    assert hung_at(monkeypatch, WELL, SILENT, SILENT, WELL, SILENT, SILENT) == []


def test_one_that_turns_looks_away_at_once_has_as_long_as_one_that_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (at,) = hung_at(monkeypatch, WELL, *[TURNED_AWAY] * 20)
    assert SILENCE <= at < 2 * SILENCE
    assert hung_at(monkeypatch, WELL, *[TURNED_AWAY] * 4, WELL, *[TURNED_AWAY] * 4) == []


def test_one_that_starts_has_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    (at,) = hung_at(monkeypatch, *[TURNED_AWAY] * 5000)
    assert at > 5 * SILENCE
