"""Which ports are chosen; that nobody takes one meanwhile is promised by none."""

import pytest

from berth.errors import SettingsError
from berth.local.ports import FIRST, LAST, free_port, free_ports


def test_ports_are_different_and_not_among_those_that_the_kernel_gives_to_clients() -> None:
    found = free_ports(20)
    assert len(set(found)) == 20
    assert all(FIRST <= port <= LAST for port in found)


def test_a_port_is_given_once_while_there_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_PORTS", "26000-26019")
    drawn = [free_port() for _ in range(10)]
    assert len(set(drawn)) == 10
    assert len(free_ports(15)) == 15


def test_a_variable_narrows_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_PORTS", "25000-25999")
    assert all(25000 <= port <= 25999 for port in free_ports(20))
    monkeypatch.setenv("BERTH_PORTS", "25000-25001")
    with pytest.raises(SettingsError, match="fewer than 3 ports from 25000 to 25001 "):
        free_ports(3)


@pytest.mark.parametrize("wrong", ["", "25000", "25001-25000", "0-80", "1-65536", "one-two"])
def test_a_choice_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("BERTH_PORTS", wrong)
    with pytest.raises(SettingsError, match="should be two ports, such as 20000-31999"):
        free_ports(1)
