"""What `berth up` says of the API server and of problems, and what stays on the screen until it is mended."""

from collections.abc import Mapping

from berth.cli.states import words
from berth.cli.up import Troubles

AWAY = {"cluster": "https://a:6443", "state": "away", "time": "2026-11-25T14:00:00Z", "why": "refused"}
BACK = {"cluster": "https://a:6443", "state": "back", "time": "2026-11-25T14:00:35Z", "seconds": 35}


def test_the_api_servers_outage_is_told_with_its_beginning_and_its_length() -> None:
    assert words(AWAY) == "berth: no API server since 2026-11-25T14:00:00Z: refused"
    assert words(BACK) == "berth: the API server at https://a:6443 answers again, after 35 s"


def test_a_problem_is_told_and_so_is_its_end() -> None:
    assert words({"state": "problem", "why": "Pool a: x"}) == "berth: problem: Pool a: x"
    assert words({"state": "mended", "why": "Pool a: x"}) == "berth: mended (it was): Pool a: x"


def test_what_is_wrong_stays_until_it_is_mended_and_all_is_said_meanwhile() -> None:
    said: list[Mapping[str, object]] = []
    troubles = Troubles()
    say = troubles.noting(said.append)
    assert troubles.text() == ""
    say({"state": "problem", "why": "pools.yaml is not YAML, line 1\n    a: [\n       ^"})
    assert troubles.text() == "pools.yaml is not YAML, line 1"
    say({"state": "problem", "why": "second"})
    say(AWAY)
    assert troubles.text() == "no API server since 2026-11-25T14:00:00Z: refused (and 2 more)"
    say(BACK)
    say({"state": "mended", "why": "pools.yaml is not YAML, line 1\n    a: [\n       ^"})
    assert troubles.text() == "second"
    say({"state": "mended", "why": "second"})
    say({"function": "bind", "state": "ready"})
    assert troubles.text() == ""
    assert len(said) == 7
