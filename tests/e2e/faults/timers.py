"""Timers of alarms that tell whether all have ended: a wake to come is a write to the next test's pods."""

import time
from collections.abc import Callable

from berth.controller.alarm import Cancel, timer

WAIT = "wait-for-timers"
"""A header of a call to reconcile."""


class Timers:
    """Starts timers as an Alarm's `start` does."""

    def __init__(self) -> None:
        self._running = set[object]()

    def __call__(self, seconds: float, call: Callable[[], None]) -> Cancel:
        token = object()
        self._running.add(token)

        def ring() -> None:
            try:
                call()
            finally:
                self._running.discard(token)

        cancel = timer(seconds, ring)

        def stop() -> None:
            cancel()
            self._running.discard(token)

        return stop

    def wait_ended(self) -> None:
        """Return once none is left, those included that others start at their end."""
        while self._running:
            time.sleep(0.01)
