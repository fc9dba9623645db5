"""Faults inside functions, in chaos: an order that bind follows goes to one request at a time, whatever the
others do; events that are doubled or kept are whole ones."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from berth.http.endpoint import Endpoint, Reply
from tests.chaos import inside

OK = inside.OK


def endpoint(name: str, answer: Callable[..., Reply]) -> Endpoint:
    def failed(*_: object) -> Reply:
        raise AssertionError

    return Endpoint(name=name, answer=answer, failed=failed, health=lambda: None, body_limit=9)


def test_an_order_that_was_carried_out_is_not_given_again_when_the_next_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inside, "FAULTS", tmp_path)
    monkeypatch.setattr(inside, "_killed", bool)
    first, second = ({"way": "", "step": "commit", "victims": [each], "tries": 2} for each in (1, 2))

    def told() -> Any:
        done = json.loads((tmp_path / "done").read_text())
        (tmp_path / "done").unlink()
        return done

    def answer(*_: object) -> Reply:
        inside._step("commit")
        assert told()["killed"] == [1]
        (tmp_path / "order").write_text(json.dumps(second))
        inside._take()  # by another request, which goes on
        return OK

    (tmp_path / "order").write_text(json.dumps(first))
    assert inside._ordered(endpoint("bind", answer)).answer({}, b"{}") == OK
    assert not (tmp_path / "order").exists()
    assert json.loads((tmp_path / f"{inside.TAKEN}{os.getpid()}").read_text()) == second


@pytest.mark.parametrize(("mode", "seen"), [("", 1), ("doubled", 2), ("kept", 0), ("lost", 0)])
def test_events_come_as_ordered_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, seen: int
) -> None:
    monkeypatch.setattr(inside, "FAULTS", tmp_path)
    got: list[tuple[Mapping[str, str], bytes]] = []

    def answer(headers: Mapping[str, str], body: bytes) -> Reply:
        got.append((headers, body))
        return Reply(204, b"")

    (tmp_path / "events").write_text(mode)
    headers = {"ce-type": "dev.knative.apiserver.resource.delete"}
    assert inside._told(endpoint("release", answer)).answer(headers, b"{}") == Reply(204, b"")
    assert got == [(headers, b"{}")] * seen
    kept = [json.loads(each.read_text()) for each in tmp_path.glob("kept-*")]
    assert kept == [{"function": "release", "headers": headers, "body": "{}"}] * (mode == "kept")
    assert (tmp_path / "struck-release-delete").exists() == bool(mode)
