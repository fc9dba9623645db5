"""Which event is sent next, and when; what is counted, and what is dropped. Time is passed in."""

import math

from berth.kube.event_queue import (
    BURST,
    FORGET_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MOST_NORMAL,
    MOST_WARNINGS,
    PAUSE_SECONDS,
    RATE,
    REPEAT_SECONDS,
    TRIES,
    Entry,
    EventQueue,
    PodEvent,
)

WALL = 1_000_000.0


def event(pod: str = "a", *, note: str = "n", warning: bool = False) -> PodEvent:
    return PodEvent("default", pod, f"uid-of-{pod}", "UnitsAllocated", "Binding", note, warning)


def due(queue: EventQueue, now: float) -> Entry:
    entry = queue.next(now)
    assert isinstance(entry, Entry)
    return entry


def send(queue: EventQueue, now: float) -> Entry:
    """Send the next event, which is due."""
    entry = due(queue, now)
    queue.sent(entry, f"{entry.event.pod}.1", entry.count)
    return entry


def sent_until(queue: EventQueue, now: float, end: float) -> int:
    """Send what may be sent until then; return how many that were."""
    count = 0
    while True:
        entry = queue.next(now)
        if isinstance(entry, Entry):
            queue.sent(entry, "x", entry.count)
            count += 1
        elif (now := now + entry) > end:
            return count


def test_a_new_event_is_sent_at_once_and_one_for_another_pod_or_with_other_words_is_another() -> None:
    queue = EventQueue(0)
    assert queue.next(0) == math.inf
    for one in (event(), event("b"), event(note="m")):
        assert queue.add(one, 0, WALL) == "queued"
    assert [send(queue, 0).event for _ in range(3)] == [event(), event("b"), event(note="m")]
    assert queue.next(0) == math.inf


def test_equal_events_that_wait_are_one_that_came_as_often() -> None:
    queue = EventQueue(0)
    assert [queue.add(event(), number, WALL + number) for number in range(3)] == [
        "queued",
        "aggregated",
        "aggregated",
    ]
    entry = send(queue, 2)
    assert (entry.count, entry.first, entry.last) == (3, WALL, WALL + 2)
    assert queue.next(2) == math.inf


def test_repeats_of_a_sent_event_are_told_together_after_a_while() -> None:
    queue = EventQueue(0)
    queue.add(event(), 0, WALL)
    send(queue, 0)
    for now in (10.0, 20.0):
        assert queue.add(event(), now, WALL + now) == "aggregated"
    assert queue.next(10 + REPEAT_SECONDS - 1) == 1
    entry = send(queue, 10 + REPEAT_SECONDS)
    assert (entry.name, entry.count, entry.last) == ("a.1", 3, WALL + 20)
    assert queue.next(10 + REPEAT_SECONDS) == math.inf


def test_an_event_that_comes_again_while_it_is_sent_is_told_of_later() -> None:
    queue = EventQueue(0)
    queue.add(event(), 0, WALL)
    entry = due(queue, 0)
    assert queue.add(event(), 1, WALL + 1) == "aggregated"
    queue.sent(entry, "a.1", 1)
    assert queue.next(1) == REPEAT_SECONDS
    assert send(queue, 1 + REPEAT_SECONDS).count == 2


def test_what_was_not_repeated_for_long_is_a_new_event() -> None:
    queue = EventQueue(0)
    queue.add(event(), 0, WALL)
    send(queue, 0)
    assert queue.add(event(), FORGET_SECONDS - 0.001, WALL) == "aggregated"
    send(queue, 2 * FORGET_SECONDS)
    assert queue.add(event(), 3 * FORGET_SECONDS, WALL) == "queued"
    assert send(queue, 3 * FORGET_SECONDS).count == 1


def test_no_more_are_sent_than_the_burst_and_then_the_rate() -> None:
    queue = EventQueue(0)
    for number in range(1000):
        assert queue.add(event(str(number)), 0, WALL) == "queued"
    assert sent_until(queue, 0, 0) == BURST
    assert sent_until(queue, 0, 10) in range(int(RATE * 10) - 1, int(RATE * 10) + 1)
    assert len(queue) in range(1000 - BURST - int(RATE * 10), 1000 - BURST - int(RATE * 10) + 2)


def test_more_than_may_wait_are_dropped_and_warnings_have_room_of_their_own_and_go_first() -> None:
    queue = EventQueue(0)
    told = [queue.add(event(str(number)), 0, WALL) for number in range(MOST_NORMAL + 1)]
    assert told == ["queued"] * MOST_NORMAL + ["dropped"]
    told = [queue.add(event(str(number), warning=True), 0, WALL) for number in range(MOST_WARNINGS + 1)]
    assert told == ["queued"] * MOST_WARNINGS + ["dropped"]
    assert send(queue, 0).event == event("0", warning=True)
    assert len(queue.drop()) == MOST_NORMAL + MOST_WARNINGS - 1
    assert queue.next(0) == math.inf


def test_a_failure_pauses_for_longer_each_time_and_the_event_is_tried_a_few_times() -> None:
    queue, now = EventQueue(0), 0.0
    queue.add(event(), 0, WALL)
    for tries in range(1, TRIES + 1):
        given_up = queue.failed(due(queue, now), now, again=True)
        assert given_up == (tries == TRIES)
        queue.add(event("b"), now, WALL)
        pause = PAUSE_SECONDS * 2 ** (tries - 1)
        assert queue.next(now + pause - 0.125) == 0.125
        now += pause
    assert send(queue, now).event == event("b")
    assert queue.add(event(), now, WALL) == "queued"  # it is known no more


def test_a_pause_has_an_end_and_a_success_ends_the_row() -> None:
    queue, now = EventQueue(0), 0.0
    for number in range(20):
        queue.add(event(str(number)), now, WALL)
        assert queue.failed(due(queue, now), now, again=False)
        now += LONGEST_PAUSE_SECONDS
    queue.add(event(), now, WALL)
    send(queue, now)
    queue.add(event("b"), now, WALL)
    queue.failed(due(queue, now), now, again=True)
    assert queue.next(now) == PAUSE_SECONDS


def test_at_the_end_repeats_are_told_at_once() -> None:
    queue = EventQueue(0)
    queue.add(event(), 0, WALL)
    send(queue, 0)
    queue.add(event(), 1, WALL)
    entry = queue.next(1, last=True)
    assert isinstance(entry, Entry)
    assert entry.count == 2
