"""Threads that want the same at once share one look; nobody is shown what was found before they asked."""

import threading

import pytest

from berth.stores.configmap.looks import SharedLook


class Slow:
    """A look that takes until it is let go, and finds how many there were."""

    def __init__(self) -> None:
        self.looks = 0
        self.began, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self) -> int:
        self.looks += 1
        self.began.release()
        assert self.go.acquire(timeout=60)
        return self.looks


def test_who_asks_during_a_look_shares_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = threading.Semaphore(0)

    class Telling(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            waiting.release()
            return super().wait(timeout)

    monkeypatch.setattr(threading, "Condition", Telling)
    slow, found = Slow(), list[int]()
    look = SharedLook(slow)
    monkeypatch.undo()
    threads = [threading.Thread(target=lambda: found.append(look())) for _ in range(6)]
    threads[0].start()
    assert slow.began.acquire(timeout=60)
    for thread in threads[1:]:
        thread.start()
        assert waiting.acquire(timeout=60)
    slow.go.release(2)
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [1, 2, 2, 2, 2, 2]


def test_a_look_is_never_that_of_before_one_asked() -> None:
    numbers = iter(range(10))
    look = SharedLook(lambda: next(numbers))
    assert [look(), look(), look()] == [0, 1, 2]


def test_an_error_is_raised_for_those_who_shared_it_and_not_for_the_next() -> None:
    numbers = iter(range(2))

    def ask() -> int:
        if next(numbers) == 0:
            raise OSError("down")
        return 7

    look = SharedLook(ask)
    with pytest.raises(OSError, match="down"):
        look()
    assert look() == 7
