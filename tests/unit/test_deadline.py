"""Deadlines: what is left of them, and those that follow from one."""

import math

import pytest

from berth.deadline import LEAST_SECONDS, NO_DEADLINE, Deadline
from tests.support.builders.ledgers import Time


def test_a_deadline_comes_nearer_and_is_over() -> None:
    time = Time()
    deadline = Deadline.after(4.0, time)
    time.now += 3.0
    assert deadline.left() == pytest.approx(1.0)
    time.now += 1.5
    assert deadline.left() == pytest.approx(-0.5)


def test_a_request_that_must_be_tried_gets_a_moment_and_no_more_than_the_most() -> None:
    time = Time()
    deadline = Deadline.after(4.0, time)
    assert deadline.timeout() == pytest.approx(4.0)
    assert deadline.timeout(3.0) == 3.0
    time.now += 5.0
    assert deadline.timeout() == LEAST_SECONDS


def test_one_that_follows_is_sooner_or_later_by_the_same_clock() -> None:
    time = Time()
    deadline = Deadline.after(4.0, time)
    time.now += 3.0
    of_all = [deadline.within(0.5), deadline.within(2.0), deadline.later(1.0), deadline.later(-1.5)]
    assert [one.left() for one in of_all] == pytest.approx([0.5, 1.0, 2.0, -0.5])


def test_no_deadline_is_never_over() -> None:
    assert (NO_DEADLINE.left(), NO_DEADLINE.timeout(10.0)) == (math.inf, 10.0)
