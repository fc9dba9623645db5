"""Reports as documents for programs."""

import pytest

from berth.cli.output import show
from berth.errors import BadInputError


def test_half_of_a_character_is_no_text_of_a_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInputError, match=r"^'a\\ud800' is not Unicode text"):
        show({"name": "a\ud800"}, "json")
    show({"name": "a\ud800"}, "yaml")
    assert capsys.readouterr().out == 'name: "a\\uD800"\n'
