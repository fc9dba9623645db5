"""Writes to many objects: one that fails is told, and failures may not take long in all."""

from collections.abc import Callable
from functools import partial

import pytest

from berth.deadline import Deadline
from berth.errors import BerthError, ClusterRefusedError, ClusterUnavailableError
from berth.kube.writes import FAILING_SECONDS, READ_SECONDS, PodWrites, StatusWrites
from tests.support.builders.ledgers import Time


def failing(error: BerthError, time: Time, seconds: float = 0.0) -> Callable[[], object]:
    def write() -> None:
        time.now += seconds
        raise error

    return write


def test_a_write_that_fails_is_told_and_the_next_one_is_made() -> None:
    time, written = Time(), []
    writes = StatusWrites("Pools", time)
    writes.attempt("Pool a was not written", failing(ClusterUnavailableError("500"), time))
    writes.attempt("Pool b was not written", lambda: written.append("b"))
    assert written == ["b"]
    assert writes.problems == ["Pool a was not written: 500"]


@pytest.mark.parametrize("status", [404, 409])
def test_an_object_that_is_gone_or_was_written_by_another_is_no_problem(status: int) -> None:
    time = Time()
    writes = StatusWrites("Pools", time)
    writes.attempt("Pool a was not written", failing(ClusterRefusedError("no", status), time))
    assert writes.problems == []


def test_writes_that_fail_slowly_leave_the_rest_for_the_next_tick() -> None:
    time = Time()
    writes = StatusWrites("nodes", time)
    slow = failing(ClusterUnavailableError("no answer"), time, FAILING_SECONDS / 2)
    for number in range(4):
        writes.attempt(f"node {number} was not written", slow)
    assert time.now == Time().now + FAILING_SECONDS
    assert writes.problems == [
        "node 0 was not written: no answer",
        "node 1 was not written: no answer",
        "2 nodes were not tried: others took too long",
    ]


class Reads:
    """Stands in for the cluster: the seconds that each look at a pod was given."""

    def __init__(self) -> None:
        self.given: list[float] = []

    def pod(self, _: str, __: str, seconds: float) -> None:
        self.given.append(seconds)


@pytest.mark.parametrize(("left", "given"), [(9.0, [READ_SECONDS]), (0.3, [0.3]), (0.0, [])])
def test_a_look_at_a_pod_that_could_not_be_written_to_takes_no_longer_than_its_caller_has(
    left: float, given: list[float]
) -> None:
    cluster, time = Reads(), Time()
    writes = PodWrites(cluster, time)  # type: ignore[arg-type]
    away = failing(ClusterUnavailableError("no answer"), time)
    assert writes.attempt("d", "p", "pod d/p was not woken", away, Deadline(left, lambda: 0.0)) is None
    assert cluster.given == given
    assert writes.problems == ["pod d/p was not woken: no answer"]


def test_writes_of_which_there_may_be_any_number_end_in_time() -> None:
    time = Time()
    writes = StatusWrites("PoolClaims", time, 20)
    written: list[int] = []

    def write(number: int, seconds: float) -> None:
        time.now += seconds
        written.append(number)

    for number, seconds in enumerate((19.9, 0.1, 0, 0)):
        writes.attempt("x", partial(write, number, seconds))
    assert written == [0, 1]
    assert writes.problems == ["2 PoolClaims were not tried: others took too long"]
