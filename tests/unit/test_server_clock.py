"""A server's time as its answers tell it, however wrong this machine's clock is."""

from email.utils import formatdate

import pytest

from berth.server_clock import ServerClock


def test_the_clock_is_the_server_s_however_wrong_this_machine_s_is() -> None:
    local = 50.0
    clock = ServerClock(lambda: local, wall=lambda: 1_000.0)
    assert clock.now() == 1_000.0
    clock.learn(formatdate(2_000_000, usegmt=True), 49.9, 50.0)
    assert 2_000_000 <= clock.now() <= 2_000_001.1


def test_many_answers_tell_the_time_better_than_one() -> None:
    """The header has whole seconds; where one ends is seen by an answer on either side."""
    now = 0.0
    clock = ServerClock(lambda: now, wall=lambda: 0.0)
    for tenths in range(1, 40):
        now = tenths / 10
        clock.learn(formatdate(int(5_000.25 + now), usegmt=True), now - 0.01, now)
    assert abs(clock.now() - (5_000.25 + now)) < 0.12


def test_a_clock_that_was_set_is_learnt_anew() -> None:
    now = 0.0
    clock = ServerClock(lambda: now, wall=lambda: 0.0)
    clock.learn(formatdate(5_000, usegmt=True), now, now)
    now = 10.0
    clock.learn(formatdate(9_000, usegmt=True), now, now)
    assert 9_000 <= clock.now() <= 9_001


@pytest.mark.parametrize("date", [None, "", "yesterday"])
def test_an_answer_without_a_date_teaches_nothing(date: str | None) -> None:
    clock = ServerClock(lambda: 1.0, wall=lambda: 7.0)
    clock.learn(date, 1.0, 1.0)
    assert clock.now() == 7.0


@pytest.mark.parametrize(
    ("ahead", "believed"), [(0.0, 0.0), (0.3, 0.3), (-0.4, -0.4), (7.0, 0.4), (-7.0, -1.0)]
)
def test_this_machine_s_clock_counts_within_what_the_answers_allow(ahead: float, believed: float) -> None:
    """Two machines whose clocks are right agree, though a Date has whole seconds."""
    clock = ServerClock(lambda: 10.0, wall=lambda: 5_000.0 + ahead)
    clock.learn(formatdate(4_999, usegmt=True), 9.6, 10.0)
    assert clock.now() == pytest.approx(5_000.0 + believed)
