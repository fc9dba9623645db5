"""`berth demo`, as a user runs it, and what it does when a promise is broken.
That the promises hold on a real kube-scheduler is shown by tests/e2e."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from berth.cli import demo, main

_KEPT = {
    "pods": 10,
    "bound": 9,
    "waiting": 1,
    "over_allocated": 0,
    "leaked": 0,
    "wake_seconds": 0.1,
}


def _played(monkeypatch: pytest.MonkeyPatch, result: dict[str, Any]) -> None:
    monkeypatch.setattr(demo, "_stage", lambda *_: nullcontext())
    monkeypatch.setattr(demo, "_play", lambda *_: result)


def test_the_demo_binds_what_fits_and_keeps_its_promises() -> None:
    berth = Path(sys.executable).with_name("berth")
    done = subprocess.run([berth, "demo", "--json"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result.keys() == _KEPT.keys()
    assert 0 <= result.pop("wake_seconds") < 30
    assert result == {key: value for key, value in _KEPT.items() if key != "wake_seconds"}


@pytest.mark.parametrize("broken", [{"over_allocated": 1}, {"leaked": 1}, {"bound": 8}])
def test_a_broken_promise_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: dict[str, int]
) -> None:
    _played(monkeypatch, {**_KEPT, **broken})
    assert main(["demo"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("berth: a promise was broken: ")
    assert said.count("\n") == 1


def test_the_words_of_the_demo_are_left_out_of_its_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _played(monkeypatch, _KEPT)
    assert main(["demo", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == _KEPT
