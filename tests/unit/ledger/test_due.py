"""When keys are due: each once, at the time that was set last, however often it was set."""

from hypothesis import given
from hypothesis import strategies as st

from berth.ledger.due import Due

TIMES = st.none() | st.integers(1, 20).map(float)
STEPS = st.lists(st.tuples(st.sampled_from("abc"), TIMES) | st.integers(0, 20).map(float), max_size=60)


@given(STEPS)
def test_a_key_is_taken_once_when_the_time_that_was_set_last_has_come(
    steps: list[tuple[str, float | None] | float],
) -> None:
    due, wanted, now = Due(), dict[tuple[str, str], float](), 0.0
    for step in steps:
        if isinstance(step, float):
            now = max(now, step)
            over = {key for key, time in wanted.items() if time <= now}
            assert sorted(due.take(now)) == sorted(over)
            wanted = {key: time for key, time in wanted.items() if key not in over}
            continue
        key, time = ("p", step[0]), step[1]
        due.set(key, time)
        wanted.pop(key, None)
        if time is not None:
            wanted[key] = time
        assert len(due._queue) <= 2 * len(wanted) + 8
    assert sorted(due.take(100.0)) == sorted(wanted)
