"""Orders that bind follows in chaos: each goes to one request at a time, whatever the others do."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos import inside

OK = inside.OK


def test_an_order_that_was_carried_out_is_not_given_again_when_the_next_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inside, "FAULTS", tmp_path)
    monkeypatch.setattr(inside, "_killed", bool)
    post = SimpleNamespace(method="POST")
    first, second = ({"way": "", "step": "commit", "victims": [each], "tries": 2} for each in (1, 2))

    def told() -> Any:
        done = json.loads((tmp_path / "done").read_text())
        (tmp_path / "done").unlink()
        return done

    def answer(_: object) -> Any:
        inside._step("commit")
        assert told()["killed"] == [1]
        (tmp_path / "order").write_text(json.dumps(second))
        inside._take()  # by another request, which goes on
        return OK

    (tmp_path / "order").write_text(json.dumps(first))
    assert inside._ordered("bind", answer, post) == OK
    assert not (tmp_path / "order").exists()
    assert json.loads((tmp_path / "taken").read_text()) == second
